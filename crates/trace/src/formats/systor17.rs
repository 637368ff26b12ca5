//! SNIA Systor '17 CSV (IOTTA 4964; Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure").
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size` with a heading. By the set's README (section 3): time of issue in Unix seconds,
//! of whose nine decimals the last three mean nothing; the response time in seconds (empty if no response was recorded); `R` or
//! `W`, or empty if the response was lost on the monitored network port, so that the operation is unknown (such records are
//! skipped and counted); number of the unit; offset and size in bytes. A response time may be irregular for the same reason.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result};

use super::field_reader::FieldReader;
use super::input::DecompressedInput;
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, comma_separated, first_line, text,
};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, ReadOptions, TraceFormat};
use crate::columns::TraceColumn;
use crate::header::TraceHeader;
use crate::recorded_features::RecordedFeatures;
use crate::source::TraceSource;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "systor17",
    about: "SNIA Systor '17 CSV (virtual desktops)",
    known_by: "its heading (`Timestamp,Response,IOType,...`)",
    origin: FormatOrigin {
        from: "SNIA IOTTA, Systor '17",
        gives: &[TraceColumn::Complete, TraceColumn::Device],
        unknown: "processes, flags",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

const HEADING: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";

fn sniff(head: &[u8], _path: &Path) -> bool {
    first_line(head) == HEADING
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    Ok(Box::new(LineSource::new(Systor17Format::default(), input, options)))
}

#[derive(Default)]
struct Systor17Format {
    device: NameIdCache,
    /// Number of records without an operation, and the line of the first one.
    unknown: u64,
    first_unknown: u64,
}

impl LineFormat for Systor17Format {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = FieldReader::along(comma_separated(line));
        let time = fields.next("Timestamp")?;
        let response = fields.next("Response")?;
        let operation = fields.next("IOType")?;
        let device = fields.next("LUN")?;
        let offset = fields.next("Offset")?;
        let size = fields.next("Size")?;
        fields.end()?;
        let arrival = time.time(TimeUnit::Seconds)?;
        if operation.bytes.is_empty() {
            if self.unknown == 0 {
                self.first_unknown = context.line;
            }
            self.unknown += 1;
            context.skip();
            return Ok(());
        }
        let op = operation.op(b"R", b"W")?;
        let complete = if response.bytes.is_empty() {
            None
        } else {
            let end = arrival.checked_add(response.time(TimeUnit::Seconds)?);
            Some(Nanos(end.ok_or_else(|| response.refused("ends beyond the year 2262"))?))
        };
        let (sector, count) = size.span(offset.unsigned()?)?;
        let device = self.device.id(device.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request {
            complete,
            device: Some(device),
            ..Request::new(Nanos(arrival), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        let note = || {
            let (count, line) = (self.unknown, self.first_unknown);
            format!(
                "{count} of the records have no operation (IOType) and are left out, the first in line {line}"
            )
        };
        let note = (self.unknown > 0).then(note);
        TraceHeader { format: FORMAT.name.into(), clock: "unix".into(), note, ..TraceHeader::default() }
    }
}
