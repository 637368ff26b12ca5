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

use emmclab_base::{Error, Flags, Kind, Op, Request, Result};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::snoop::{Table, TableColumn, heading, heading_with};
use super::text::{Context, LineFormat, LineSource, blank_separated, first_line, is_decimal, is_digits};
use super::time_unit::TimeUnit;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "biosnoop",
    about: "biosnoop of bcc and libbpf-tools, with -Q, -P and -t too",
    known_by: "its heading (`TIME(s) COMM PID DISK ...`), or a line of its columns",
    origin: Origin {
        from: "`biosnoop` of bcc, `biosnoop -Q` of bcc or libbpf-tools",
        gives: &[
            Column::Start,
            Column::Issue,
            Column::Complete,
            Column::Flags,
            Column::Pid,
            Column::Process,
            Column::Device,
        ],
        unknown: "merges and errors; the wait in the queue without `-Q`; of bcc all flags but the operation",
    },
    extensions: &[],
    recorded: Recorded::of(&[Op::Flush], Flags(0)),
    times: Times::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open,
    writes: None,
};

/// The columns of a file, from its heading, or recognised from its first line; `None` if neither fits.
fn columns(head: &[u8]) -> Option<Vec<TableColumn>> {
    heading_with(head, b"DISK").and_then(heading).or_else(|| columns_of_line(first_line(head)))
}

/// The columns of a table without a heading, recognised from a line: `TIME COMM PID DISK T SECTOR BYTES [QUE] LAT`.
fn columns_of_line(line: &[u8]) -> Option<Vec<TableColumn>> {
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
        TableColumn::End(TimeUnit::Seconds),
        TableColumn::Process,
        TableColumn::Pid,
        TableColumn::Device,
        TableColumn::Letters,
        TableColumn::Sector,
        TableColumn::Bytes,
    ];
    if queued {
        columns.push(TableColumn::Queue(TimeUnit::Millis));
    }
    columns.push(TableColumn::Latency(TimeUnit::Millis));
    fits.then_some(columns)
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let columns = columns(input.head()).ok_or_else(|| {
        Error::new(Kind::Syntax, "has no heading of biosnoop in its first lines")
            .at_line(1)
            .hint("save the output of biosnoop whole, with the line `TIME(s) COMM PID DISK ...`")
    })?;
    let table = Table::new(columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this biosnoop prints no {missing} of a request (that of bpftrace does not)");
        return Err(Error::new(Kind::Unsupported, problem).hint(
            "record with biosnoop of bcc (in Debian and Ubuntu `biosnoop-bpfcc -Q`), whose lines have sector and bytes",
        ));
    }
    if !table.is_timed() {
        let problem = "this biosnoop prints no time of a request";
        return Err(Error::new(Kind::Unsupported, problem)
            .hint("record with biosnoop of bcc, whose first column is TIME(s)"));
    }
    Ok(Box::new(LineSource::new(Biosnoop { table }, input, options)))
}

struct Biosnoop {
    table: Table,
}

impl LineFormat for Biosnoop {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        self.table.parse(line, context, out)
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> Header {
        let note = "biosnoop without -Q: the time in the queue is unknown, so arrivals are times of issue";
        Header {
            format: FORMAT.name.into(),
            clock: "relative".into(),
            note: (!self.table.is_queued()).then(|| note.to_owned()),
            ..Header::default()
        }
    }
}
