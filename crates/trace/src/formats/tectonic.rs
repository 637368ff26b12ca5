//! Traces of Tectonic, the storage of Meta, as Baleen uses them (Wong et al., "Baleen: ML Admission & Prefetching for Flash Caches", FAST
//! 2024).
//!
//! Fields separated by blanks, with a heading: `block_id io_offset io_size op_time op_name user_namespace user_name rs_shard_id
//! op_count host_name`. The fields that are read: the block with offset and size in bytes, from which addresses are made
//! ([`super::placement`]); the time in seconds; the operation by its number (1, 2 and 5 read data, 3, 4 and 6 write it; others
//! are skipped and counted); and the user's namespace, which is used as process. No response times.

use std::path::Path;

use super::column_positions::{ColumnPositions, NamedField};
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, blank_separated, decimal_time, first_line, stream_span, text,
    unsigned,
};
use super::placement::{NOTE, PartAddresses};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    DecompressedInput, Error, ErrorClass, Nanos, Op, ReadOptions, RecordedFeatures, Request, Result, TraceColumn,
    TraceHeader, TraceSource,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "tectonic",
    about: "Traces of Meta's Tectonic, as Baleen uses them",
    known_by: "a heading with `block_id io_offset io_size op_time op_name ...`",
    origin: FormatOrigin {
        from: "Meta's Tectonic, as Baleen uses it",
        gives: &[TraceColumn::Process],
        unknown: "addresses: blocks are placed in the order of their first use; response times",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open,
    writes: None,
};

const NAMES: [&str; 6] = ["block_id", "io_offset", "io_size", "op_time", "op_name", "user_namespace"];
/// Address space of a block, which has at most 8 MB.
const PART_BYTES: u64 = 16 << 20;

fn columns(head: &[u8]) -> Option<ColumnPositions<6>> {
    let line = first_line(head);
    ColumnPositions::of(NAMES, blank_separated(line.strip_prefix(b"#").unwrap_or(line)))
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = columns(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the first line does not name the columns of a trace of Tectonic")
            .at_line(1)
            .hint("keep the heading of the file (`block_id io_offset io_size op_time op_name ...`)")
    })?;
    let tectonic = TectonicFormat { columns, parts: PartAddresses::of(PART_BYTES), process: NameIdCache::default() };
    Ok(Box::new(LineSource::new(tectonic, input, options)))
}

struct TectonicFormat {
    columns: ColumnPositions<6>,
    parts: PartAddresses,
    process: NameIdCache,
}

impl LineFormat for TectonicFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line.starts_with(b"block_id") || line.starts_with(b"#") {
            context.no_record();
            return Ok(());
        }
        let [block, offset, size, time, op, user] = self.columns.read(blank_separated(line))?;
        let number = |field: NamedField| unsigned(field.bytes, field.name, field.column);
        let op = match number(op)? {
            1 | 2 | 5 => Op::Read,
            3 | 4 | 6 => Op::Write,
            _ => {
                context.skip();
                return Ok(());
            }
        };
        let arrival = Nanos(decimal_time(time.bytes, TimeUnit::Seconds, time.name, time.column)?);
        let into = number(offset)?;
        if into.checked_add(number(size)?).is_none() {
            return Err(offset.refused("reaches beyond byte 2^64"));
        }
        let address = self.parts.offset(number(block)?, into);
        let (sector, count, rounded) = stream_span(address, number(size)?, (size.bytes, size.name, size.column))?;
        context.round(rounded);
        let process = self.process.id(user.bytes, &mut context.processes, |raw| Ok(text(raw)))?;
        out.push(Request { process: Some(process), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        let (format, clock) = (FORMAT.name.into(), "unix".into());
        TraceHeader { format, clock, note: Some(NOTE.into()), ..TraceHeader::default() }
    }
}
