//! The table of `biosnoop` of bcc (tools/biosnoop.py and its manual page) and of libbpf-tools (biosnoop.c).
//!
//! `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)`; with `-Q`, `QUE(ms)` is before `LAT(ms)`; with `-P`, a pattern `P` is after
//! `BYTES`. `TIME` is the completion, in seconds since the first line; with `-t` of libbpf-tools it is `TIMESTAMP`, the time of
//! day. `LAT` is the time from issue to completion, so that the issue is `TIME - LAT`; `QUE` is the time in the queue before
//! the issue (-1 if it was not recorded). Without `-Q`, the arrival is the time of issue. Sectors have 512 bytes. `T` is `R` or
//! `W` in bcc, the kernel's letters in libbpf-tools. A flush has no bytes and often the sector 2^64-1, which is not an address.
//! A table without its heading is read as the columns that bcc prints. The biosnoop of bpftrace prints neither addresses nor
//! sizes and is refused.

use std::path::Path;

use super::line_format::{LineFormat, LineSource, ParseContext, blank_separated, first_line, is_decimal, is_digits};
use super::snoop::{SnoopColumn, SnoopTable, heading, heading_with};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    DecompressedInput, Error, ErrorClass, Op, ReadOptions, RecordedFeatures, Request, RequestFlags, Result,
    TraceColumn, TraceHeader, TraceSource,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "biosnoop",
    about: "biosnoop of bcc and libbpf-tools, with -Q, -P and -t too",
    known_by: "its heading (`TIME(s) COMM PID DISK ...`), or a line of its columns",
    origin: FormatOrigin {
        from: "`biosnoop` of bcc, `biosnoop -Q` of bcc or libbpf-tools",
        gives: &[
            TraceColumn::Start,
            TraceColumn::Issue,
            TraceColumn::Complete,
            TraceColumn::Flags,
            TraceColumn::Pid,
            TraceColumn::Process,
            TraceColumn::Device,
        ],
        unknown: "merges and errors; the wait in the queue without `-Q`; of bcc all flags but the operation",
    },
    extensions: &[],
    recorded: RecordedFeatures::of(&[Op::Flush], RequestFlags(0)),
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open,
    writes: None,
};

/// The columns of a file, from its heading, or recognised from its first line; `None` if neither fits.
fn columns(head: &[u8]) -> Option<Vec<SnoopColumn>> {
    heading_with(head, b"DISK").and_then(heading).or_else(|| columns_of_line(first_line(head)))
}

/// The columns of a table without a heading, recognised from a line: `TIME COMM PID DISK T SECTOR BYTES [QUE] LAT`.
fn columns_of_line(line: &[u8]) -> Option<Vec<SnoopColumn>> {
    let fields: Vec<_> = blank_separated(line).collect();
    let with_point = |field: &[u8]| is_decimal(field) && field.contains(&b'.');
    let queued = with_point(fields.get(fields.len().checked_sub(2)?)?);
    let bytes = fields.len().checked_sub(if queued { 3 } else { 2 })?;
    let from_bytes = |back: usize| bytes.checked_sub(back).filter(|at| *at > 0).map(|at| fields[at]);
    let letters = from_bytes(2)?;
    let fits = with_point(fields[0])
        && with_point(fields[fields.len() - 1])
        && is_digits(fields[bytes])
        && is_digits(from_bytes(1)?)
        && letters.len() <= 8
        && letters.iter().all(u8::is_ascii_uppercase)
        && is_digits(from_bytes(4)?)
        && from_bytes(5).is_some();
    let mut columns = vec![
        SnoopColumn::End(TimeUnit::Seconds),
        SnoopColumn::Process,
        SnoopColumn::Pid,
        SnoopColumn::Device,
        SnoopColumn::Letters,
        SnoopColumn::Sector,
        SnoopColumn::Bytes,
    ];
    if queued {
        columns.push(SnoopColumn::Queue(TimeUnit::Millis));
    }
    columns.push(SnoopColumn::Latency(TimeUnit::Millis));
    fits.then_some(columns)
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = columns(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "has no heading of biosnoop in its first lines")
            .at_line(1)
            .hint("save the output of biosnoop whole, with the line `TIME(s) COMM PID DISK ...`")
    })?;
    let table = SnoopTable::new(columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this biosnoop prints no {missing} of a request (that of bpftrace does not)");
        return Err(Error::new(ErrorClass::Unsupported, problem).hint(
            "record with biosnoop of bcc (in Debian and Ubuntu `biosnoop-bpfcc -Q`), whose lines have sector and bytes",
        ));
    }
    if !table.is_timed() {
        let problem = "this biosnoop prints no time of a request";
        return Err(Error::new(ErrorClass::Unsupported, problem)
            .hint("record with biosnoop of bcc, whose first column is TIME(s)"));
    }
    Ok(Box::new(LineSource::new(BiosnoopFormat { table }, input, options)))
}

struct BiosnoopFormat {
    table: SnoopTable,
}

impl LineFormat for BiosnoopFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        self.table.parse(line, context, out)
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> TraceHeader {
        let note = "biosnoop without -Q: the time in the queue is unknown, so arrivals are times of issue";
        TraceHeader {
            format: FORMAT.name.into(),
            clock: "relative".into(),
            note: (!self.table.is_queued()).then(|| note.to_owned()),
            ..TraceHeader::default()
        }
    }
}
