//! Thesios: I/O of Google's storage servers, synthesised from samples (repository google-research-datasets/thesios; ASPLOS 2024).
//!
//! CSV whose heading names the columns, as the repository's README lists them ("Data Description"). The columns that are read:
//! `start_time`, the arrival at the server in Unix seconds; `op_type`, `READ` or `WRITE`; `request_io_size_bytes`;
//! `simulated_latency`, from arrival to response in seconds; `simulated_disk_start_time`, when the disk read began (0 for a
//! write or a hit of the server's cache); `application`. The place is a file (`filename`, hashed) and `file_offset`, from which
//! addresses are made ([`super::placement`]).

use std::path::Path;

use super::column_positions::{ColumnPositions, NamedField};
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, comma_separated, decimal_time, first_line, stream_span, text,
    unsigned,
};
use super::placement::{NOTE, PartAddresses, object};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    DecompressedInput, Error, ErrorClass, Nanos, Op, ReadOptions, RecordedFeatures, Request, Result, TraceColumn,
    TraceHeader, TraceSource,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "thesios",
    about: "Thesios CSV: I/O of Google's storage servers",
    known_by: "a heading with `filename`, `file_offset`, `start_time`, `simulated_latency`, ...",
    origin: FormatOrigin {
        from: "Google's Thesios (repository google-research-datasets/thesios)",
        gives: &[TraceColumn::Start, TraceColumn::Complete, TraceColumn::Process],
        unknown: "addresses: parts of files are placed in the order of their first use",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
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

fn columns(head: &[u8]) -> Option<ColumnPositions<8>> {
    ColumnPositions::of(NAMES, comma_separated(first_line(head)))
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = columns(input.head()).ok_or_else(|| {
        let problem = "the first line does not name the columns of Thesios";
        Error::new(ErrorClass::Syntax, problem)
            .at_line(1)
            .hint("keep the heading of the file (`filename,file_offset,application,...`)")
    })?;
    let thesios =
        ThesiosFormat { columns, heading: true, parts: PartAddresses::of(PART_BYTES), process: NameIdCache::default() };
    Ok(Box::new(LineSource::new(thesios, input, options)))
}

struct ThesiosFormat {
    columns: ColumnPositions<8>,
    /// Whether the heading has not been read yet.
    heading: bool,
    parts: PartAddresses,
    process: NameIdCache,
}

impl LineFormat for ThesiosFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if std::mem::take(&mut self.heading) || line.starts_with(b"filename,") {
            context.no_record();
            return Ok(());
        }
        let [file, offset, application, op, size, arrival, disk, latency] = self.columns.read(comma_separated(line))?;
        let seconds = |field: NamedField| decimal_time(field.bytes, TimeUnit::Seconds, field.name, field.column);
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

    fn header(&self) -> TraceHeader {
        let (format, clock) = (FORMAT.name.into(), "unix".into());
        TraceHeader { format, clock, note: Some(NOTE.into()), ..TraceHeader::default() }
    }
}
