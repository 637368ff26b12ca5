//! Traces of iotrace (Standalone Linux IO Tracer of Open CAS) that were printed as CSV or JSON: `iotrace --trace-parser --io
//! --path PATH --format csv`. Source: `doc/IOTRACER.md` of its repository, and `source/octf/proto/parsedTrace.proto` of
//! Open-CAS/open-cas-telemetry-framework.
//!
//! These fields are read: `header.timestamp`, the submission in nanoseconds since the first event; `io.latency`, from submission
//! to completion in nanoseconds (0 if not known); `io.lba` and `io.len` in sectors; `io.operation` (`Read`, `Write`, `Discard`);
//! `io.flush`, `io.fua` and `io.error`; and `device.name`. CSV has the column names in a heading. In JSON each line is an event
//! without values that are 0, false or `Read`. A write of no sectors is a flush. Events of files have no `io` and are skipped.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::fields::ColumnPositions;
use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "iotrace",
    about: "CSV and JSON of iotrace (Open CAS, Standalone Linux IO Tracer)",
    known_by: "a heading with `header.timestamp`, `io.lba`, `io.operation`, ..., or events in JSON that begin so",
    from: "`iotrace --start-tracing --devices /dev/DISK`, then `iotrace --trace-parser --io --path PATH --format csv` (or json)",
    gives: &[TraceColumn::Complete, TraceColumn::Flags, TraceColumn::Device],
    unknown: "processes, the wait in the queue",
    recorded: RecordedFeatures::of(
        &[Op::Discard, Op::Flush],
        RequestFlags::FUA.union(RequestFlags::PREFLUSH).union(RequestFlags::FAILED),
    ),
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff: |head: &[u8], _: &Path| IotraceEncoding::of(head).is_some(),
    open,
    ..TraceFormat::READ_ONLY
};

const NAMES: [&str; 9] =
    ["device.name", "header.timestamp", "io.error", "io.flush", "io.fua", "io.latency", "io.lba", "io.len", "io.operation"];
const JSON: &[u8] = b"{\"header\":{\"sid\":";

/// The form in which events are printed.
enum IotraceEncoding {
    Csv(ColumnPositions<9>),
    Json,
}

impl IotraceEncoding {
    fn of(head: &[u8]) -> Option<Self> {
        let line = first_line(head);
        if line.starts_with(JSON) {
            return Some(IotraceEncoding::Json);
        }
        ColumnPositions::of(NAMES, comma_separated(line)).map(IotraceEncoding::Csv)
    }
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let form = IotraceEncoding::of(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the first line is neither a heading nor an event of iotrace")
            .at_line(1)
            .hint("print the trace without --raw: `iotrace --trace-parser --io --path PATH --format csv`")
    })?;
    let iotrace = IotraceFormat { form, heading: true };
    LineSource::open(FORMAT.name, iotrace, input, options)
}

struct IotraceFormat {
    form: IotraceEncoding,
    /// Whether the heading of the CSV is still to be read.
    heading: bool,
}

/// An I/O, with the values that a line of the file contains.
struct IotraceIo<'a> {
    time: u64,
    latency: u64,
    sector: u64,
    sectors: u64,
    op: Op,
    flush: bool,
    fua: bool,
    error: bool,
    device: Cow<'a, str>,
}

impl IotraceIo<'_> {
    fn request(&self) -> Result<Request> {
        let refused = |name, value: u64, problem: &str| {
            Error::new(ErrorClass::Value, problem).of_field(name, 0, value.to_string().as_bytes())
        };
        let time = |name, value| i64::try_from(value).map_err(|_| refused(name, value, "is longer than 292 years"));
        let sectors =
            u32::try_from(self.sectors).map_err(|_| refused("io.len", self.sectors, "is a request of more than 2 TB"))?;
        let op = match (self.op, sectors) {
            (Op::Write, 0) => Op::Flush,
            (_, 0) => return Err(refused("io.len", 0, "is a request without data")),
            (op, _) => op,
        };
        let arrival = time("header.timestamp", self.time)?;
        let complete = arrival.checked_add(time("io.latency", self.latency)?);
        let complete = complete.ok_or_else(|| refused("io.latency", self.latency, "ends beyond 292 years"))?;
        let has = [
            (self.flush && op != Op::Flush, RequestFlags::PREFLUSH),
            (self.fua, RequestFlags::FUA),
            (self.error, RequestFlags::FAILED),
        ];
        let flags = has.into_iter().filter(|(has, _)| *has);
        let flags = flags.fold(RequestFlags::default(), |all, (_, flag)| all.union(flag));
        let sector = if op == Op::Flush { 0 } else { self.sector };
        Ok(Request {
            complete: (self.latency > 0).then_some(Nanos(complete)),
            flags,
            ..Request::new(Nanos(arrival), op, Sector(sector), sectors)
        })
    }
}

/// The I/O in a line of CSV; `None` for an event of a file.
fn of_csv<'a>(fields: &ColumnPositions<9>, line: &'a [u8]) -> Result<Option<IotraceIo<'a>>> {
    let [device, time, error, flush, fua, latency, sector, sectors, operation] = fields.read(comma_separated(line))?;
    let op = match operation.bytes {
        b"Read" => Op::Read,
        b"Write" => Op::Write,
        b"Discard" => Op::Discard,
        b"" => return Ok(None),
        _ => return Err(operation.refused("is not Read, Write or Discard")),
    };
    // An empty field has the value 0.
    let number = |field: LineField| match field.bytes {
        b"" => Ok(0),
        _ => field.unsigned(),
    };
    let is_set = |field: LineField| match field.bytes {
        b"true" => Ok(true),
        b"false" | b"" => Ok(false),
        _ => Err(field.refused("is neither true nor false")),
    };
    Ok(Some(IotraceIo {
        time: number(time)?,
        latency: number(latency)?,
        sector: number(sector)?,
        sectors: number(sectors)?,
        op,
        flush: is_set(flush)?,
        fua: is_set(fua)?,
        error: is_set(error)?,
        device: text(device.bytes),
    }))
}

/// A number. In the JSON of Protocol Buffers, 64-bit numbers are in quotes.
#[derive(Clone, Copy, Default)]
struct JsonNumber(u64);

impl<'de> Deserialize<'de> for JsonNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Digits;
        impl Visitor<'_> for Digits {
            type Value = JsonNumber;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an unsigned whole number")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> std::result::Result<JsonNumber, E> {
                Ok(JsonNumber(number))
            }

            fn visit_str<E: de::Error>(self, digits: &str) -> std::result::Result<JsonNumber, E> {
                digits.parse().map(JsonNumber).map_err(|_| E::invalid_value(de::Unexpected::Str(digits), &self))
            }
        }
        deserializer.deserialize_any(Digits)
    }
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    header: JsonHeader,
    io: Option<JsonIo>,
    #[serde(borrow, default)]
    device: JsonDevice<'a>,
}

#[derive(Deserialize)]
struct JsonHeader {
    #[serde(default)]
    timestamp: JsonNumber,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JsonIo {
    lba: JsonNumber,
    len: JsonNumber,
    operation: JsonOp,
    latency: JsonNumber,
    flush: bool,
    fua: bool,
    error: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum JsonOp {
    #[default]
    Read,
    Write,
    Discard,
}

#[derive(Default, Deserialize)]
struct JsonDevice<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
}

/// The I/O in a line of JSON; `None` for an event of a file.
fn of_json(line: &[u8]) -> Result<Option<IotraceIo<'_>>> {
    let event: JsonEvent = serde_json::from_slice(line)
        .map_err(|error| Error::new(ErrorClass::Syntax, error.to_string()).of_field("line", 0, line))?;
    let JsonEvent { header, io, device } = event;
    Ok(io.map(|io| IotraceIo {
        time: header.timestamp.0,
        latency: io.latency.0,
        sector: io.lba.0,
        sectors: io.len.0,
        op: match io.operation {
            JsonOp::Read => Op::Read,
            JsonOp::Write => Op::Write,
            JsonOp::Discard => Op::Discard,
        },
        flush: io.flush,
        fua: io.fua,
        error: io.error,
        device: device.name,
    }))
}

impl LineFormat for IotraceFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let io = match &self.form {
            IotraceEncoding::Csv(_) if std::mem::take(&mut self.heading) => {
                context.no_record();
                return Ok(());
            }
            IotraceEncoding::Csv(fields) => of_csv(fields, line)?,
            IotraceEncoding::Json => of_json(line)?,
        };
        let Some(io) = io else {
            context.skip();
            return Ok(());
        };
        let request = io.request()?;
        let name = io.device.as_bytes();
        let device = match name {
            b"" => None,
            name => Some(context.device(name)?),
        };
        context.ledger.failed += u64::from(request.flags.contains(RequestFlags::FAILED));
        out.push(Request { device, ..request });
        Ok(())
    }
}
