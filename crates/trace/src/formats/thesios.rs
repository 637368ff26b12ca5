//! Thesios: I/O of Google's storage servers, synthesised from samples (repository google-research-datasets/thesios; ASPLOS 2024).
//!
//! CSV whose heading names the columns, as the repository's README lists them ("Data Description"). The columns that are read:
//! `start_time`, the arrival at the server in Unix seconds; `op_type`, `READ` or `WRITE`; `request_io_size_bytes`;
//! `simulated_latency`, from arrival to response in seconds; `simulated_disk_start_time`, when the disk read began (0 for a
//! write or a hit of the server's cache); `application`. The place is a file (`filename`, hashed) and `file_offset`, from which
//! addresses are made ([`super::placement`]).

use std::path::Path;

use emmclab_base::{Error, Kind, Nanos, Op, Request, Result};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::named_fields::{Named, NamedFields};
use super::placement::{NOTE, Parts, object};
use super::text::{
    Context, LastName, LineFormat, LineSource, comma_separated, decimal_time, first_line, stream_span, text,
    unsigned,
};
use super::time_unit::TimeUnit;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "thesios",
    about: "Thesios CSV: I/O of Google's storage servers",
    known_by: "a heading with `filename`, `file_offset`, `start_time`, `simulated_latency`, ...",
    origin: Origin {
        from: "Google's Thesios (repository google-research-datasets/thesios)",
        gives: &[Column::Start, Column::Complete, Column::Process],
        unknown: "addresses: parts of files are placed in the order of their first use",
    },
    extensions: &[],
    recorded: Recorded::NONE,
    times: Times::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open,
    writes: None,
};

const NAMES: [&str; 8] = [
    "filename",
    "file_offset",
    "application",
    "op_type",
    "request_io_size_bytes",
    "start_time",
    "simulated_disk_start_time",
    "simulated_latency",
];
/// Size of the parts of files within which addresses stay in order: larger than any request.
const PART_BYTES: u64 = 64 << 20;

fn columns(head: &[u8]) -> Option<NamedFields<8>> {
    NamedFields::of(NAMES, comma_separated(first_line(head)))
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let columns = columns(input.head()).ok_or_else(|| {
        let problem = "the first line does not name the columns of Thesios";
        Error::new(Kind::Syntax, problem)
            .at_line(1)
            .hint("keep the heading of the file (`filename,file_offset,application,...`)")
    })?;
    let thesios =
        Thesios { columns, heading: true, parts: Parts::of(PART_BYTES), process: LastName::default() };
    Ok(Box::new(LineSource::new(thesios, input, options)))
}

struct Thesios {
    columns: NamedFields<8>,
    /// Whether the heading has not been read yet.
    heading: bool,
    parts: Parts,
    process: LastName,
}

impl LineFormat for Thesios {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if std::mem::take(&mut self.heading) || line.starts_with(b"filename,") {
            context.no_record();
            return Ok(());
        }
        let [file, offset, application, op, size, arrival, disk, latency] =
            self.columns.read(comma_separated(line))?;
        let seconds = |field: Named| decimal_time(field.bytes, TimeUnit::Seconds, field.name, field.column);
        let op = match op.bytes {
            b"READ" => Op::Read,
            b"WRITE" => Op::Write,
            _ => return Err(op.refused("is neither READ nor WRITE")),
        };
        let bytes = unsigned(size.bytes, size.name, size.column)?;
        let into = unsigned(offset.bytes, offset.name, offset.column)?;
        if into.checked_add(bytes).is_none() {
            return Err(offset.refused("reaches beyond byte 2^64"));
        }
        let address = self.parts.offset(object(file.bytes), into);
        let (sector, count, rounded) = stream_span(address, bytes, (size.bytes, size.name, size.column))?;
        context.round(rounded);
        let (begin, took) = (seconds(arrival)?, seconds(latency)?);
        let complete = begin.checked_add(took).ok_or_else(|| latency.refused("ends beyond the year 2262"))?;
        // It has one decimal less than the arrival, so it may be slightly before it.
        let start = Some(seconds(disk)?).filter(|start| *start >= begin && *start <= complete);
        let process = self.process.id(application.bytes, &mut context.processes, |raw| Ok(text(raw)))?;
        out.push(Request {
            start: start.map(Nanos),
            complete: Some(Nanos(complete)),
            process: Some(process),
            ..Request::new(Nanos(begin), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> Header {
        let (format, clock) = (FORMAT.name.into(), "unix".into());
        Header { format, clock, note: Some(NOTE.into()), ..Header::default() }
    }
}
