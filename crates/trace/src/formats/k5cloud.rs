//! K5cloud traces of Fujitsu (SNIA IOTTA 26930).
//!
//! `ID,Timestamp,Type,Offset,Length` without a heading, as the set's README describes (section 3): number of the virtual
//! volume, seconds since the first request of all files, `R` or `W`, offset and length in bytes. No response times.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result};

use super::field_reader::FieldReader;
use super::input::DecompressedInput;
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, comma_separated, first_line, is_decimal, is_digits,
    text,
};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, ReadOptions, TraceFormat};
use crate::columns::TraceColumn;
use crate::header::TraceHeader;
use crate::recorded_features::RecordedFeatures;
use crate::source::TraceSource;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "k5cloud",
    about: "K5cloud CSV of Fujitsu (SNIA IOTTA)",
    known_by: "a number, a time, `R` or `W`, and two numbers, between commas",
    origin: FormatOrigin {
        from: "SNIA IOTTA, K5cloud",
        gives: &[TraceColumn::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    let fields: Vec<_> = comma_separated(first_line(head)).map(<[u8]>::trim_ascii).collect();
    fields.len() == 5
        && [0, 3, 4].iter().all(|at| is_digits(fields[*at]))
        && is_decimal(fields[1])
        && matches!(fields[2], b"R" | b"W")
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    Ok(Box::new(LineSource::new(K5cloudFormat::default(), input, options)))
}

#[derive(Default)]
struct K5cloudFormat {
    device: NameIdCache,
}

impl LineFormat for K5cloudFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = FieldReader::along(comma_separated(line).map(<[u8]>::trim_ascii));
        let volume = fields.next("ID")?;
        let arrival = Nanos(fields.next("Timestamp")?.time(TimeUnit::Seconds)?);
        let op = fields.next("Type")?.op(b"R", b"W")?;
        let offset = fields.next("Offset")?.unsigned()?;
        let length = fields.next("Length")?;
        fields.end()?;
        volume.unsigned()?;
        let (sector, count) = length.span(offset)?;
        let device = self.device.id(volume.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { format: FORMAT.name.into(), clock: "relative".into(), ..TraceHeader::default() }
    }
}
