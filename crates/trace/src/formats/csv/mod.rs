//! CSV with named columns: the CSV that emmclab writes, and other CSV files whose columns are described.
//!
//! The names are in a heading or in `--columns`; a column named `-` is ignored. Times are `arrival`, `start`, `issue`, `complete`, or the
//! durations `response` (from arrival) and `service` (from start), each in `--time-unit` or with its own unit as in `arrival_ns`, `start_us`,
//! `response_ms`, `complete_s`, `arrival_ticks` (of 100 ns), `_min`, `_h`, `_d`. Without a column `arrival`, the arrival is `complete` minus
//! `response`, otherwise the start, otherwise the issue. The range is `sector` and `sectors` of 512 bytes, or `offset` and `size` in
//! `--size-unit` (`sector`, `byte`, `kb`, `page` of 4 KB) or with a unit as in `offset_bytes`, `size_kb`; numbers are hexadecimal after `0x`
//! or if the name ends in `_hex`. Other columns are `op` (`op_read0`, `op_read1`, `op_scsi`, `op_nvme`, `op_mmc` for numbers), `flags` (a
//! number as in the Parquet schema), `pid`, `process`, `device`. Arrival, range and op are required. Fields are separated by commas,
//! semicolons, tabs or runs of blanks, as in the first line. A field in double quotes may contain separators; a quote in it is doubled. An
//! empty field is a missing value. With `--time-unit none` there are no times and only an address is required; without length and operation,
//! a line is a read of one unit. Ranges of bytes that do not begin and end at sectors are rounded down at both ends and counted, so that
//! streams stay sequential.

mod columns;
mod fields;

use std::borrow::Cow;
use std::io::Write;

use super::fields::NameIdCache;
use super::prelude::*;
use super::rwbs::{self, RwbsOperation};
use crate::NameId;
use columns::{ColumnMeaning, LEAST, MOMENTS, TimeColumn, is_heading, is_without_times, meanings};
use fields::{CsvField, CsvFields, OperationCoding, separator};

pub use columns::{ColumnName, NAMES};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "csv",
    about: "CSV with named columns, in a heading or in --columns; separated by commas, semicolons, tabs or blanks",
    known_by: "a heading of four or more names, all known",
    from: "any program: a heading with these names, or `--columns`; `emmclab convert TRACE x.csv`",
    gives: TraceColumn::OF_EVENTS,
    unknown: "everything that has no column",
    extensions: &["csv"],
    times: FormatTimes::Open(TimeUnit::Nanos),
    sniff,
    open,
    writes: Some((FormatCapabilities::ALL_BUT_NOTES, |file, _| LineSink::create(file, CsvWriter))),
    ..TraceFormat::READ_ONLY
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    let heading = first_line(head);
    std::str::from_utf8(heading).is_ok_and(|text| is_heading(text, separator(heading, LEAST)))
}

/// The error for a text whose first line looks like a heading but has unknown names; `None` for other content.
pub(super) fn unknown_heading(head: &[u8]) -> Option<Error> {
    let heading = first_line(head);
    columns::unknown_names(std::str::from_utf8(heading).ok()?, separator(heading, columns::LEAST))
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let heading = first_line(input.head()).to_owned();
    let without_times = is_without_times(options);
    let (list, of_list) = match &options.columns {
        Some(list) => (Cow::Borrowed(list.as_str()), b','),
        None => (text(&heading), separator(&heading, LEAST)),
    };
    let columns = meanings(&list, of_list, options)?;
    let names = columns::names(&list, of_list).map(str::to_owned).collect();
    let separator = if options.columns.is_some() { separator(&heading, columns.len()) } else { of_list };
    // With --columns, the file may also have a heading, in which times and addresses are not numbers.
    let (mut fields, mut number) = (CsvFields::of(&heading, separator), None);
    for column in &columns {
        let field = fields.next()?;
        if matches!(column, ColumnMeaning::Time(..)) || without_times && matches!(column, ColumnMeaning::Offset(..)) {
            number = number.or(field);
        }
    }
    let begins_a_number = |field: CsvField| {
        let digits = field.raw.strip_prefix(b"-").unwrap_or(field.raw);
        field.raw.is_empty() || is_decimal(digits) || digits.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.')
    };
    let skip_first = options.columns.is_none() || number.is_some_and(|field| !begins_a_number(field));
    let reader = CsvFormat { columns, names, separator, skip_first, untimed: without_times.then_some(0) };
    LineSource::open(FORMAT.name, reader, input, options)
}

/// Time between the requests of a file without times.
const STEP_NS: i64 = 1_000;

struct CsvFormat {
    columns: Vec<ColumnMeaning>,
    /// The names of the columns that the user or the file gives.
    names: Vec<String>,
    separator: u8,
    skip_first: bool,
    /// Number of requests so far; `None` if the file has times.
    untimed: Option<i64>,
}

/// The values of a line that are parsed so far.
#[derive(Default)]
struct CsvRow<'a> {
    times: [Option<i64>; MOMENTS],
    offset: Option<ScaledField<'a>>,
    size: Option<ScaledField<'a>>,
    op: Option<RwbsOperation>,
    flags: Option<RequestFlags>,
    pid: Option<i32>,
    process: Option<CsvField<'a>>,
    device: Option<CsvField<'a>>,
}

/// An address or a length: parsed number, text of the field, number of the column, and size of the unit in bytes.
type ScaledField<'a> = (u64, &'a [u8], u64, u64);

impl CsvRow<'_> {
    /// The completion minus the duration `took`; `None` if one of them is missing.
    fn before_completion(&self, took: TimeColumn) -> Option<i64> {
        self.times[TimeColumn::Complete as usize]?.checked_sub(self.times[took as usize]?)
    }

    fn start(&self) -> Option<i64> {
        self.times[TimeColumn::Start as usize].or_else(|| self.before_completion(TimeColumn::Service))
    }

    /// The arrival; if it is missing, the earliest known time.
    fn arrival(&self, start: Option<i64>) -> Option<i64> {
        let stated = self.times[TimeColumn::Arrival as usize].or_else(|| self.before_completion(TimeColumn::Response));
        stated.or(start).or(self.times[TimeColumn::Issue as usize])
    }
}

impl CsvFormat {
    /// Parses the fields of a line; returns the error of the first invalid one.
    fn row<'a>(&self, line: &'a [u8]) -> Result<CsvRow<'a>> {
        let mut row = CsvRow::default();
        let mut fields = CsvFields::of(line, self.separator);
        for (meaning, column) in self.columns.iter().zip(1..) {
            let field = fields.next()?.ok_or_else(|| self.wrong_count(line))?;
            let raw = field.raw;
            if raw.is_empty() && !matches!(meaning, ColumnMeaning::Process | ColumnMeaning::Device) {
                continue;
            }
            match *meaning {
                ColumnMeaning::Ignored => {}
                ColumnMeaning::Time(moment, unit) => {
                    row.times[moment as usize] = Some(unit.time(raw, moment.name(), column)?);
                }
                ColumnMeaning::Offset(unit, base) => {
                    row.offset = Some((base.number(raw, "sector", column)?, raw, column, unit));
                }
                ColumnMeaning::Size(unit, base) => {
                    row.size = Some((base.number(raw, "sectors", column)?, raw, column, unit));
                }
                ColumnMeaning::Op(codes) => row.op = Some(operation(raw, codes, column)?),
                ColumnMeaning::Flags => {
                    let bits = unsigned(raw, "flags", column)?;
                    row.flags = Some(RequestFlags(u16::try_from(bits).map_err(|_| {
                        Error::new(ErrorClass::Value, "the flags have more than 16 bits").of_field("flags", column, raw)
                    })?));
                }
                ColumnMeaning::Pid => row.pid = Some(signed_pid(raw, column)?),
                ColumnMeaning::Process => row.process = Some(field),
                ColumnMeaning::Device => row.device = Some(field),
            }
        }
        if fields.next()?.is_some() { Err(self.wrong_count(line)) } else { Ok(row) }
    }

    /// The error for an invalid time. It names the column of the time if the line has this column.
    #[cold]
    fn refused(&self, line: &[u8], name: &str, problem: &str) -> Error {
        let mut fields = CsvFields::of(line, self.separator);
        for (meaning, column) in self.columns.iter().zip(1..) {
            let field = fields.next().ok().flatten();
            let named = matches!(meaning, ColumnMeaning::Time(moment, _) if moment.name() == name);
            if let Some(field) = field.filter(|_| named) {
                return Error::new(ErrorClass::Value, problem).of_field(name, column, field.raw);
            }
        }
        Error::new(ErrorClass::Value, problem).of_field(name, 0, b"")
    }

    #[cold]
    fn wrong_count(&self, line: &[u8]) -> Error {
        match CsvFields::count(line, self.separator) {
            Err(error) => error,
            Ok(count) => {
                let problem = format!("the line has {count} fields, but {} columns are named", self.columns.len());
                Error::new(ErrorClass::Syntax, problem).of_field("", count as u64, line)
            }
        }
    }

    /// Reads a line that is not the heading.
    fn request(&mut self, line: &[u8], context: &mut ParseContext) -> Result<Option<Request>> {
        let row = self.row(line).map_err(|error| match CsvFields::count(line, self.separator) {
            // A wrong number of fields explains the invalid value better, so it is reported instead.
            Ok(count) if count != self.columns.len() => self.wrong_count(line),
            _ => error,
        })?;
        let missing = |name: &str| Error::new(ErrorClass::Value, "the value of the field is missing").of_field(name, 0, b"");
        let start = row.start();
        let mut arrival = row.arrival(start);
        let (mut operation, offset, mut size) = (row.op, row.offset.ok_or_else(|| missing("sector"))?, row.size);
        if let Some(count) = &mut self.untimed {
            arrival = Some(*count * STEP_NS);
            *count += 1;
            operation = operation.or(Some(Op::Read.into()));
            size = size.or(Some((1, offset.1, offset.2, offset.3)));
        }
        let arrival = arrival.ok_or_else(|| missing("arrival"))?;
        let after = |begin: Option<i64>, took: TimeColumn| {
            row.times[took as usize].and_then(|took| begin.and_then(|begin| begin.checked_add(took)))
        };
        for took in [TimeColumn::Response, TimeColumn::Service] {
            if row.times[took as usize].is_some_and(|took| took < 0) {
                return Err(self.refused(line, took.name(), "the duration is negative"));
            }
        }
        let complete = row.times[TimeColumn::Complete as usize]
            .or_else(|| after(Some(arrival), TimeColumn::Response))
            .or_else(|| after(start, TimeColumn::Service));
        let operation = operation.ok_or_else(|| missing("op"))?;
        let size = size.ok_or_else(|| missing("sectors"))?;
        let Some(CsvRequestRange { op, flags: letters, sector, count, rounded }) = request_range(operation, offset, size)? else {
            context.skip();
            return Ok(None);
        };
        context.round(rounded);
        let request = Request {
            start: start.map(Nanos),
            issue: row.times[TimeColumn::Issue as usize].map(Nanos),
            served: row.times[TimeColumn::Served as usize].map(Nanos),
            complete: complete.map(Nanos),
            flags: row.flags.unwrap_or(letters),
            pid: row.pid,
            process: name(row.process, &mut context.last_process, &mut context.processes)?,
            device: name(row.device, &mut context.last_device, &mut context.devices)?,
            ..Request::new(Nanos(arrival), op, sector, count)
        };
        match request.early_time() {
            Some((name, _)) => Err(self.refused(line, name, "the time is earlier than the time before it")),
            None => Ok(Some(request)),
        }
    }

    /// Replaces the column name in an error by the name that the file uses.
    #[cold]
    fn in_own_words(&self, error: Error) -> Error {
        let own = error.column().and_then(|column| self.names.get(usize::try_from(column).ok()? - 1));
        match own {
            Some(name) if error.field() != Some("") => error.in_field(name),
            _ => error,
        }
    }
}

impl LineFormat for CsvFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if std::mem::take(&mut self.skip_first) {
            context.no_record();
            return Ok(());
        }
        let request = self.request(line, context).map_err(|error| self.in_own_words(error))?;
        out.extend(request);
        Ok(())
    }

    fn times(&self) -> Option<FormatTimes> {
        self.untimed.map(|_| FormatTimes::Loose)
    }

    fn header(&self) -> TraceHeader {
        let note = "the file has no times: requests are placed 1 us apart in its order; addresses, lengths and their order are as \
                    recorded, arrivals and rates are not";
        TraceHeader { clock: "relative".into(), note: self.untimed.map(|_| note.to_owned()), ..TraceHeader::default() }
    }
}

fn operation(field: &[u8], codes: OperationCoding, column: u64) -> Result<RwbsOperation> {
    if let Some(op) = codes.operation(field, column)? {
        return Ok(op.into());
    }
    match field {
        b"read" => return Ok(Op::Read.into()),
        b"write" => return Ok(Op::Write.into()),
        _ => {}
    }
    let named = Op::ALL.into_iter().find(|op| op.name().as_bytes().eq_ignore_ascii_case(field));
    match (named, field) {
        (Some(op), _) => Ok(op.into()),
        (None, [b'r' | b'w' | b'd' | b'f']) => rwbs::parse(&[field[0].to_ascii_uppercase()], column),
        (None, field) if field.eq_ignore_ascii_case(b"rd") => Ok(Op::Read.into()),
        (None, field) if field.eq_ignore_ascii_case(b"wr") => Ok(Op::Write.into()),
        (None, field) if field.eq_ignore_ascii_case(b"trim") || field.eq_ignore_ascii_case(b"unmap") => {
            Ok(Op::Discard.into())
        }
        (None, field) => rwbs::parse(field, column).map_err(|error| {
            error.hint(if field.first().is_some_and(u8::is_ascii_digit) {
                "name the column by the meaning of its numbers: op_read0 (0 is a read), op_read1 (1 is a read), op_scsi, op_nvme or op_mmc"
            } else {
                "read, write, discard, flush, secure_erase, or letters as in `WS`"
            })
        }),
    }
}

fn signed_pid(field: &[u8], column: u64) -> Result<i32> {
    match field {
        [b'-', digits @ ..] => pid(digits, "pid", column).map(|id| -id),
        digits => pid(digits, "pid", column),
    }
}

/// The id of a name; `None` for an empty field without quotes.
#[inline]
fn name(field: Option<CsvField>, last: &mut NameIdCache, names: &mut NameTable) -> Result<Option<NameId>> {
    let Some(field) = field.filter(|field| !field.is_missing()) else { return Ok(None) };
    if field.is_escaped() {
        // The cache `last` is not used, because the raw text of a quoted name may equal another name that is not quoted.
        Ok(Some(names.intern(&field.text())))
    } else {
        last.id(field.raw, names, |raw| Ok(text(raw))).map(Some)
    }
}

struct CsvRequestRange {
    op: Op,
    flags: RequestFlags,
    sector: Sector,
    count: u32,
    rounded: bool,
}

/// The range of a request; `None` for a command without data.
fn request_range(
    operation: RwbsOperation, (offset_value, offset, column, unit): ScaledField,
    (length_value, length, length_column, length_unit): ScaledField,
) -> Result<Option<CsvRequestRange>> {
    let in_bytes = |value: u64, unit: u64, field: &[u8], column| {
        value.checked_mul(unit).ok_or_else(|| {
            Error::new(ErrorClass::Value, "the address of the request is beyond byte 2^64").of_field("sector", column, field)
        })
    };
    let (first, into) = match unit {
        SECTOR_BYTES => (offset_value, 0),
        unit => {
            let bytes = in_bytes(offset_value, unit, offset, column)?;
            (bytes / SECTOR_BYTES, bytes % SECTOR_BYTES)
        }
    };
    if length_value == 0 {
        match operation.without_sectors() {
            Some((op @ Op::Flush, flags)) => {
                return Ok(Some(CsvRequestRange { op, flags, sector: Sector(first), count: 0, rounded: false }));
            }
            None => return Ok(None),
            Some(_) => {}
        }
    }
    let (count, rounded) = match length_unit {
        SECTOR_BYTES if into == 0 => (sectors(length_value, length, "sectors", length_column)?, false),
        _ => {
            let bytes = in_bytes(length_value, length_unit, length, length_column)?;
            let (_, count, rounded) = stream_span(into, bytes, (length, "sectors", length_column))?;
            (count, rounded)
        }
    };
    let (op, flags) = operation.of(count);
    Ok(Some(CsvRequestRange { op, flags, sector: Sector(first), count, rounded }))
}

/// Writes all columns of requests under their names in the Parquet schema. CSV cannot store block notes, header and ledger.
struct CsvWriter;

impl LineWriter for CsvWriter {
    fn heading(&mut self, out: &mut Vec<u8>) {
        let names: Vec<_> = TraceColumn::OF_REQUEST.iter().map(|column| column.name()).collect();
        out.extend_from_slice(names.join(",").as_bytes());
        out.push(b'\n');
    }

    fn line(&mut self, request: &Request, batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let _ = write!(out, "{}", request.arrival.0);
        for time in [request.start, request.issue, request.served, request.complete] {
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
            if let Some(name) = name {
                write_name(name, out);
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Writes the name of a process or device, in quotes if necessary. A line break in a process name is written as `\n` or `\r`,
/// because some tools read CSV line by line.
fn write_name(name: &str, out: &mut Vec<u8>) {
    let name = name.replace('\n', "\\n").replace('\r', "\\r");
    if name.is_empty() || name.starts_with(' ') || name.contains([',', '"']) {
        let _ = write!(out, "\"{}\"", name.replace('"', "\"\""));
    } else {
        out.extend_from_slice(name.as_bytes());
    }
}
