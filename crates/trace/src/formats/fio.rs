//! fio's I/O log, versions 2 and 3 (fio HOWTO, "Trace file format").
//!
//! A heading is followed by lines `FILE ACTION` (add, open, close) and `FILE ACTION OFFSET LENGTH` in bytes. In version 3 a line begins with
//! its time since the start, in microseconds as fio 3.33 writes it (`--time-unit` gives another unit). In version 2 the action `wait` has a
//! delay in microseconds instead of an offset; only the sum of these delays advances the clock, so that requests between two waits have the
//! same time. `sync` and `datasync` become flushes, `trim` becomes a discard; `sync_file_range` sends no command to the device, and is
//! skipped and counted. A log without its heading is recognised by its actions. Ranges need not begin and end at sectors of 512 bytes: both
//! ends are rounded down, so that streams stay sequential and keep their length, and such requests are counted.

use std::io::Write;

use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "fio",
    about: "fio I/O log, versions 2 and 3 (write_iolog, read_iolog)",
    known_by: "`fio version 2 iolog` or `fio version 3 iolog` in the first line, or a line of such a log",
    from: "`fio JOB --write_iolog=FILE`",
    gives: &[TraceColumn::Device],
    unknown: "completions: a log states what fio should do and when; waits of version 2 are added up",
    extensions: &["iolog", "fio"],
    recorded: RecordedFeatures::of(&[Op::Discard, Op::Flush], RequestFlags(0)),
    times: FormatTimes::Loose,
    sniff: |head, _| version(first_line(head)).is_some(),
    open,
    writes: Some((HOLDS, |file, _| LineSink::create(file, FioLogWriter { now_us: None }))),
};

const HOLDS: FormatCapabilities = FormatCapabilities {
    ops: &[Op::Read, Op::Write, Op::Discard, Op::Flush],
    columns: &[],
    flags: RequestFlags(0),
    tick_ns: 1_000,
};

const VERSION_2: &[u8] = b"fio version 2 iolog";
const VERSION_3: &[u8] = b"fio version 3 iolog";

const ACTIONS: [&[u8]; 10] =
    [b"add", b"open", b"close", b"wait", b"read", b"write", b"trim", b"sync", b"datasync", b"sync_file_range"];

/// The version of fio's log according to a heading or another line; `None` if the line is not from such a log.
fn version(line: &[u8]) -> Option<u8> {
    match line {
        VERSION_2 => return Some(2),
        VERSION_3 => return Some(3),
        _ => {}
    }
    let fields: Vec<_> = blank_separated(line).take(6).collect();
    let is_action = |at: usize| {
        let numbers = fields.get(at + 1..).unwrap_or(&[]);
        fields.get(at).is_some_and(|action| ACTIONS.contains(action))
            && (numbers.len() == 2 || numbers.is_empty() && fields[at - 1].iter().any(|byte| matches!(byte, b'/' | b'\\')))
            && numbers.iter().all(|number| is_digits(number))
    };
    match () {
        () if is_action(2) && is_digits(fields[0]) => Some(3),
        () if is_action(1) => Some(2),
        () => None,
    }
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let timed = version(first_line(input.head())) == Some(3);
    let unit = options.time_unit_or(TimeUnit::Micros)?;
    let log = FioLogFormat { timed, unit, now_ns: 0 };
    LineSource::open(FORMAT.name, log, input, options)
}

struct FioLogFormat {
    /// Whether each line begins with its time (version 3).
    timed: bool,
    unit: TimeUnit,
    now_ns: i64,
}

impl LineFormat for FioLogFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let line = line.trim_ascii_end();
        if line == VERSION_2 || line == VERSION_3 {
            context.no_record();
            return Ok(());
        }
        let mut fields = blank_separated(line);
        let shift = u64::from(self.timed);
        if self.timed {
            self.now_ns = decimal_time(need(&mut fields, "timestamp", 1)?, self.unit, "timestamp", 1)?;
        }
        let file = need(&mut fields, "file", shift + 1)?;
        let action = need(&mut fields, "action", shift + 2)?;
        let op = match action {
            b"add" | b"open" | b"close" => {
                context.no_record();
                return no_more(&mut fields, shift + 3);
            }
            b"wait" if !self.timed => {
                let field = need(&mut fields, "delay", 3)?;
                let delay = decimal_time(field, self.unit, "delay", 3)?;
                self.now_ns = self.now_ns.checked_add(delay).ok_or_else(|| {
                    Error::new(ErrorClass::Value, "the wait ends beyond the year 2262").of_field("delay", 3, field)
                })?;
                context.no_record();
                return Ok(());
            }
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            b"sync_file_range" => {
                context.skip();
                return Ok(());
            }
            other => {
                let problem = if other == b"wait" {
                    "an I/O log of version 3 cannot have this action, because its lines have times"
                } else {
                    "unknown action of an I/O log of fio"
                };
                return Err(Error::new(ErrorClass::Value, problem).of_field("action", shift + 2, other));
            }
        };
        let (sector, count) = if op == Op::Flush {
            (Sector(0), 0)
        } else {
            let offset = unsigned(need(&mut fields, "offset", shift + 3)?, "offset", shift + 3)?;
            let length = need(&mut fields, "length", shift + 4)?;
            no_more(&mut fields, shift + 5)?;
            let bytes = unsigned(length, "length", shift + 4)?;
            let (sector, count, rounded) = stream_span(offset, bytes, (length, "length", shift + 4))?;
            context.round(rounded);
            (sector, count)
        };
        let device = context.device(file)?;
        out.push(Request { device: Some(device), ..Request::new(Nanos(self.now_ns), op, sector, count) });
        Ok(())
    }

    /// Only version 3 contains times. In version 2 delays may be missing, so that times are not checked.
    fn times(&self) -> Option<FormatTimes> {
        self.timed.then_some(FormatTimes::Busy(self.unit))
    }
}

/// Writes version 2, which every fio since 1.17 can replay, for a single file `emmclab`. Times are written as delays in whole
/// microseconds after the first request.
struct FioLogWriter {
    now_us: Option<i64>,
}

impl LineWriter for FioLogWriter {
    fn heading(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(VERSION_2);
        out.extend_from_slice(b"\nemmclab add\nemmclab open\n");
    }

    fn line(&mut self, request: &Request, _batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let now = request.arrival.0.div_euclid(1_000);
        let before = self.now_us.replace(now).unwrap_or(now);
        if now > before {
            let _ = writeln!(out, "emmclab wait {} 0", now - before);
        }
        let offset = request.sector.0.checked_mul(SECTOR_BYTES).ok_or_else(|| {
            Error::new(ErrorClass::Unsupported, "the sector is beyond byte 2^64, and an I/O log of fio stores addresses in bytes")
                .of_field("sector", 0, request.sector.0.to_string().as_bytes())
        })?;
        let action = match request.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard | Op::SecureErase => "trim",
        };
        let (offset, length) = if request.op == Op::Flush { (0, 0) } else { (offset, request.bytes().0) };
        let _ = writeln!(out, "emmclab {action} {offset} {length}");
        Ok(())
    }

    fn ending(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"emmclab close\n");
    }
}
