//! CSV with named columns: the one that this laboratory writes, and any other whose columns are described.
//!
//! The names stand in a heading or in `--columns`; a column called `-` is passed over. Times: `arrival`, `start`,
//! `issue`, `complete`, or the durations `response` (from arrival) and `service` (from start), each in `--time-unit`
//! or with its own unit as in `arrival_ns`, `start_us`, `response_ms`, `complete_s`. Place: `sector` and `sectors` of
//! 512 bytes, or `offset` and `size` in `--size-unit` (`sector`, `byte`, `kb`, `page` of 4 KB) or as `offset_bytes`,
//! `size_kb`. Then `op`, `flags` (the number of the Parquet schema), `pid`, `process`, `device`. Arrival, place and op
//! are needed. A field in double quotes may hold commas; a quote in it is doubled. An empty field is a missing value.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use super::input::Input;
use super::lines::{LineWriter, Lines};
use super::text::{
    Context, LastName, LineFormat, LineSource, TimeUnit, decimal_time, first_line, is_decimal, pid,
    sector_span, sectors, text, unsigned,
};
use super::{Format, Holds, Times, rwbs};
use crate::atomic_file::AtomicFile;
use crate::batch::Batch;
use crate::columns::Column;
use crate::error::{Error, Kind, Result};
use crate::names::{NameId, Names};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::{Flags, Op, Request};
use crate::units::{Nanos, SECTOR_BYTES, Sector};
use crate::writer::Sink;

pub(super) static FORMAT: Format = Format {
    name: "csv",
    about: "CSV with named columns, in a heading or in --columns",
    known_by: "a heading of four or more names, all known",
    extensions: &["csv"],
    times: Times::Open(TimeUnit::Nanos),
    sniff,
    open,
    writes: Some((Holds::EVERYTHING, create)),
};

/// What a column of the file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Ignored,
    Time(Moment, Option<TimeUnit>),
    /// Address in units of so many bytes.
    Offset(Option<u64>),
    /// Length in units of so many bytes.
    Size(Option<u64>),
    Op,
    Flags,
    Pid,
    Process,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Arrival,
    Start,
    Issue,
    Complete,
    Response,
    Service,
}

/// The number of [`Moment`]s.
const MOMENTS: usize = 6;

fn meaning(name: &str) -> Option<Meaning> {
    let fixed = match name {
        "-" => Meaning::Ignored,
        "sector" => Meaning::Offset(Some(SECTOR_BYTES)),
        "sectors" => Meaning::Size(Some(SECTOR_BYTES)),
        "offset" => Meaning::Offset(None),
        "offset_bytes" => Meaning::Offset(Some(1)),
        "offset_kb" => Meaning::Offset(Some(1024)),
        "size" => Meaning::Size(None),
        "size_bytes" => Meaning::Size(Some(1)),
        "size_kb" => Meaning::Size(Some(1024)),
        "op" => Meaning::Op,
        "flags" => Meaning::Flags,
        "pid" => Meaning::Pid,
        "process" => Meaning::Process,
        "device" => Meaning::Device,
        _ => {
            let (moment, unit) = match name.split_once('_') {
                Some((moment, unit)) => (moment, Some(TimeUnit::by_name(unit).ok()?)),
                None => (name, None),
            };
            let moment = match moment {
                "arrival" => Moment::Arrival,
                "start" => Moment::Start,
                "issue" => Moment::Issue,
                "complete" => Moment::Complete,
                "response" => Moment::Response,
                "service" => Moment::Service,
                _ => return None,
            };
            Meaning::Time(moment, unit)
        }
    };
    Some(fixed)
}

/// Column names as they stand in a heading or in `--columns`.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

fn sniff(head: &[u8], _path: &Path) -> bool {
    std::str::from_utf8(first_line(head)).is_ok_and(|line| {
        let columns: Vec<_> = names(line).map(meaning).collect();
        columns.len() >= 4 && columns.iter().all(Option::is_some)
    })
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let heading = first_line(input.head()).to_owned();
    let text = match &options.columns {
        Some(columns) => columns.clone(),
        None => text(&heading).into_owned(),
    };
    let config = |problem: String| Error::new(Kind::Config, problem);
    let unit = options.time_unit.as_deref().map(TimeUnit::by_name).transpose()?;
    let size_unit = options.size_unit.as_deref().map(size_unit).transpose()?;
    let mut columns = Vec::new();
    for (i, name) in names(&text).enumerate() {
        let place = |error: Error| error.of_field("--columns", i as u64 + 1, name.as_bytes());
        let column = match meaning(name) {
            None => {
                return Err(place(config("is no column name".into())).hint(
                    "name the columns with --columns, such as `arrival_us,op,offset_bytes,size_bytes`; `-` passes one over",
                ));
            }
            Some(Meaning::Time(moment, None)) => Meaning::Time(
                moment,
                Some(unit.ok_or_else(|| {
                    place(config("does not say its unit".into())).hint("give --time-unit s, ms, us or ns")
                })?),
            ),
            Some(Meaning::Offset(None) | Meaning::Size(None)) if size_unit.is_none() => {
                return Err(place(config("does not say its unit".into()))
                    .hint("give --size-unit sector, byte, kb or page"));
            }
            Some(Meaning::Offset(None)) => Meaning::Offset(size_unit),
            Some(Meaning::Size(None)) => Meaning::Size(size_unit),
            Some(column) => column,
        };
        if column != Meaning::Ignored
            && columns.iter().any(|other| {
                std::mem::discriminant(other) == std::mem::discriminant(&column)
                    && !matches!((other, column), (Meaning::Time(a, _), Meaning::Time(b, _)) if *a != b)
            })
        {
            return Err(place(config("stands twice".into())));
        }
        columns.push(column);
    }
    for (option, given, needed) in [
        (
            "--time-unit",
            &options.time_unit,
            names(&text).any(|name| matches!(meaning(name), Some(Meaning::Time(_, None)))),
        ),
        (
            "--size-unit",
            &options.size_unit,
            names(&text)
                .any(|name| matches!(meaning(name), Some(Meaning::Offset(None) | Meaning::Size(None)))),
        ),
    ] {
        if let Some(value) = given.as_ref().filter(|_| !needed) {
            return Err(config("every column says its own unit".into())
                .of_field(option, 0, value.as_bytes())
                .hint("leave the option out, or take the unit off the column's name"));
        }
    }
    let has = |wanted: fn(&Meaning) -> bool| columns.iter().any(wanted);
    for (name, present) in [
        ("arrival", has(|column| matches!(column, Meaning::Time(Moment::Arrival, _)))),
        ("sector or offset", has(|column| matches!(column, Meaning::Offset(_)))),
        ("sectors or size", has(|column| matches!(column, Meaning::Size(_)))),
        ("op", has(|column| *column == Meaning::Op)),
    ] {
        if !present {
            return Err(config(format!("there is no column {name}")).of_field(
                "--columns",
                0,
                text.as_bytes(),
            ));
        }
    }
    let arrival = columns.iter().position(|column| matches!(column, Meaning::Time(Moment::Arrival, _)));
    // With --columns a heading may still stand in the file: its arrival is no number.
    let mut first = Vec::new();
    split(&heading, &mut first)?;
    let is_heading = options.columns.is_none()
        || arrival
            .and_then(|i| first.get(i))
            .is_some_and(|field| !is_decimal(field) && !field.starts_with(b"-"));
    let reader =
        Csv { columns, process: LastName::default(), device: LastName::default(), skip_first: is_heading };
    drop(first);
    Ok(Box::new(LineSource::new(reader, input, options)))
}

/// Bytes in a unit of size.
fn size_unit(name: &str) -> Result<u64> {
    match name {
        "sector" => Ok(SECTOR_BYTES),
        "byte" => Ok(1),
        "kb" => Ok(1024),
        "page" => Ok(4096),
        _ => Err(Error::new(Kind::Config, "is no unit of size")
            .of_field("--size-unit", 0, name.as_bytes())
            .hint("choose one of: sector, byte, kb, page")),
    }
}

/// Splits a line at commas outside of quotes.
fn split<'a>(line: &'a [u8], out: &mut Vec<Cow<'a, [u8]>>) -> Result<()> {
    out.clear();
    let mut rest = line;
    loop {
        if let [b'"', quoted @ ..] = rest {
            let mut field = Vec::new();
            let mut quoted = quoted;
            rest = loop {
                let Some(end) = memchr::memchr(b'"', quoted) else {
                    return Err(Error::new(Kind::Syntax, "the quote is not closed").of_field("", 0, rest));
                };
                field.extend_from_slice(&quoted[..end]);
                match &quoted[end + 1..] {
                    [b'"', more @ ..] => {
                        field.push(b'"');
                        quoted = more;
                    }
                    more => break more,
                }
            };
            out.push(Cow::Owned(field));
        } else {
            let end = memchr::memchr(b',', rest).unwrap_or(rest.len());
            out.push(Cow::Borrowed(&rest[..end]));
            rest = &rest[end..];
        }
        match rest {
            [] => return Ok(()),
            [b',', more @ ..] => rest = more,
            other => {
                return Err(
                    Error::new(Kind::Syntax, "a comma is missing behind the quote").of_field("", 0, other)
                );
            }
        }
    }
}

struct Csv {
    columns: Vec<Meaning>,
    process: LastName,
    device: LastName,
    skip_first: bool,
}

/// A time, which here may be negative: a trace may begin before the zero of its clock.
fn signed_time(field: &[u8], unit: TimeUnit, column: u64) -> Result<i64> {
    match field {
        [b'-', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
            decimal_time(digits, unit, "time", column).map(|time| -time)
        }
        field => decimal_time(field, unit, "time", column),
    }
}

fn operation(field: &[u8], column: u64) -> Result<(Op, Flags)> {
    let named = Op::ALL.into_iter().find(|op| op.name().as_bytes().eq_ignore_ascii_case(field));
    match (named, field) {
        (Some(op), _) => Ok((op, Flags::default())),
        (None, [b'r' | b'w' | b'd' | b'f']) => rwbs::parse(&[field[0].to_ascii_uppercase()], column),
        (None, field) => rwbs::parse(field, column)
            .map_err(|error| error.hint("read, write, discard, flush, secure_erase, or letters as in `WS`")),
    }
}

impl LineFormat for Csv {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if std::mem::take(&mut self.skip_first) {
            context.no_record();
            return Ok(());
        }
        let mut fields = Vec::with_capacity(self.columns.len());
        split(line, &mut fields)?;
        if fields.len() != self.columns.len() {
            let problem =
                format!("has {} fields where {} columns are named", fields.len(), self.columns.len());
            return Err(Error::new(Kind::Syntax, problem).of_field("", fields.len() as u64, line));
        }
        let mut times = [None; MOMENTS];
        let (mut offset, mut size, mut op) = (None, None, None);
        let (mut flags, mut id, mut process, mut device) = (None, None, None, None);
        for (i, (field, meaning)) in fields.iter().zip(&self.columns).enumerate() {
            let column = i as u64 + 1;
            let (whole, field) = (field, field.as_ref());
            if field.is_empty() && !matches!(meaning, Meaning::Process | Meaning::Device) {
                continue;
            }
            match *meaning {
                Meaning::Ignored => {}
                Meaning::Time(moment, unit) => {
                    let unit = unit.unwrap_or(TimeUnit::Nanos);
                    times[moment as usize] = Some(signed_time(field, unit, column)?);
                }
                Meaning::Offset(unit) => offset = Some((field, column, unit.unwrap_or(1))),
                Meaning::Size(unit) => size = Some((field, column, unit.unwrap_or(1))),
                Meaning::Op => op = Some(operation(field, column)?),
                Meaning::Flags => {
                    let bits = unsigned(field, "flags", column)?;
                    flags = Some(Flags(u16::try_from(bits).map_err(|_| {
                        Error::new(Kind::Value, "has bits that mean nothing").of_field("flags", column, field)
                    })?));
                }
                Meaning::Pid => id = Some(signed_pid(field, column)?),
                Meaning::Process => process = name(whole, &mut self.process, &mut context.processes)?,
                Meaning::Device => device = name(whole, &mut self.device, &mut context.devices)?,
            }
        }
        let missing = |name: &str| Error::new(Kind::Value, "is missing").of_field(name, 0, b"");
        let arrival = times[Moment::Arrival as usize].ok_or_else(|| missing("arrival"))?;
        let start = times[Moment::Start as usize];
        let after = |begin: Option<i64>, took: Moment| {
            times[took as usize].and_then(|took| begin.and_then(|begin| begin.checked_add(took)))
        };
        let complete = times[Moment::Complete as usize]
            .or_else(|| after(Some(arrival), Moment::Response))
            .or_else(|| after(start, Moment::Service));
        let (op, letters) = op.ok_or_else(|| missing("op"))?;
        let (sector, count) = place(op, offset.ok_or_else(|| missing("sector"))?, size)?;
        out.push(Request {
            start: start.map(Nanos),
            issue: times[Moment::Issue as usize].map(Nanos),
            complete: complete.map(Nanos),
            flags: flags.unwrap_or(letters),
            pid: id,
            process,
            device,
            ..Request::new(Nanos(arrival), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "relative".into(), ..Header::default() }
    }
}

fn signed_pid(field: &[u8], column: u64) -> Result<i32> {
    match field {
        [b'-', digits @ ..] => pid(digits, "pid", column).map(|id| -id),
        digits => pid(digits, "pid", column),
    }
}

/// A name; an empty field is a missing one unless it was quoted, which is why it is owned.
#[allow(clippy::ptr_arg)] // Whether it is owned is the point.
fn name(field: &Cow<[u8]>, last: &mut LastName, names: &mut Names) -> Result<Option<NameId>> {
    if matches!(field, Cow::Borrowed(b"")) {
        return Ok(None);
    }
    last.id(field.as_ref(), names, |raw| Ok(text(raw))).map(Some)
}

type Place<'a> = (&'a [u8], u64, u64);

fn place(op: Op, (offset, column, unit): Place, size: Option<Place>) -> Result<(Sector, u32)> {
    let (length, length_column, length_unit) =
        size.ok_or_else(|| Error::new(Kind::Value, "is missing").of_field("sectors", 0, b""))?;
    let offset_value = unsigned(offset, "sector", column)?;
    let length_value = unsigned(length, "sectors", length_column)?;
    let in_bytes = |value: u64, unit: u64, field: &[u8], column| {
        value
            .checked_mul(unit)
            .ok_or_else(|| Error::new(Kind::Value, "is beyond byte 2^64").of_field("sector", column, field))
    };
    let (first, into) = match unit {
        SECTOR_BYTES => (offset_value, 0),
        unit => {
            let bytes = in_bytes(offset_value, unit, offset, column)?;
            (bytes / SECTOR_BYTES, bytes % SECTOR_BYTES)
        }
    };
    if length_value == 0 && op == Op::Flush {
        return Ok((Sector(first), 0));
    }
    let count = match length_unit {
        SECTOR_BYTES if into == 0 => sectors(length_value, length, "sectors", length_column)?,
        _ => {
            let bytes = in_bytes(length_value, length_unit, length, length_column)?;
            sector_span(into, bytes, (length, "sectors", length_column))?.1
        }
    };
    Ok((Sector(first), count))
}

/// Writes all columns under their names in the Parquet schema. Header and ledger have no place in CSV.
fn create(file: AtomicFile, _header: &Header) -> Result<Box<dyn Sink>> {
    Ok(Box::new(Lines::new(file, Writer)))
}

struct Writer;

impl LineWriter for Writer {
    fn heading(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(Column::ALL.map(Column::name).join(",").as_bytes());
        out.push(b'\n');
    }

    fn line(&mut self, request: &Request, batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let _ = write!(out, "{}", request.arrival.0);
        for time in [request.start, request.issue, request.complete] {
            out.push(b',');
            let _ = time.map_or(Ok(()), |time| write!(out, "{}", time.0));
        }
        let Request { sector, sectors, op, flags, .. } = request;
        let _ = write!(out, ",{},{sectors},{},{},", sector.0, op.name(), flags.0);
        let _ = request.pid.map_or(Ok(()), |pid| write!(out, "{pid}"));
        let process = request.process.and_then(|id| batch.processes().get(id));
        let device = request.device.and_then(|id| batch.devices().get(id));
        for name in [process, device] {
            out.push(b',');
            name.map_or(Ok(()), |name| write_name(name, out))?;
        }
        out.push(b'\n');
        Ok(())
    }
}

fn write_name(name: &str, out: &mut Vec<u8>) -> Result<()> {
    if name.contains(['\n', '\r']) {
        return Err(Error::new(Kind::Unsupported, "a name with a line break does not fit into a CSV line")
            .of_field("process", 0, name.as_bytes())
            .hint("write Parquet"));
    }
    if name.is_empty() || name.contains([',', '"']) {
        let _ = write!(out, "\"{}\"", name.replace('"', "\"\""));
    } else {
        out.extend_from_slice(name.as_bytes());
    }
    Ok(())
}
