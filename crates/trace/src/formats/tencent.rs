//! Tencent block storage traces (SNIA IOTTA 27917; Zhang et al., "OSCA", ATC 2020).
//!
//! `Timestamp,Offset,Size,IOType,VolumeID` without a heading, as the set's README describes (section 3): time of issue in Unix
//! seconds, offset and size in sectors of 512 bytes, 0 = read and 1 = write, number of the volume. Times are whole seconds, so
//! that within a second only the order is known.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result, Sector};

use super::field_reader::FieldReader;
use super::input::DecompressedInput;
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, comma_separated, first_line, is_digits, text,
};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, ReadOptions, TraceFormat};
use crate::columns::TraceColumn;
use crate::header::TraceHeader;
use crate::recorded_features::RecordedFeatures;
use crate::source::TraceSource;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "tencent",
    about: "Tencent block storage CSV (SNIA IOTTA)",
    known_by: "five numbers between commas, the fourth 0 or 1",
    origin: FormatOrigin {
        from: "SNIA IOTTA, Tencent block storage",
        gives: &[TraceColumn::Device],
        unknown: "response times, processes, flags; times are whole seconds",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    let fields: Vec<_> = comma_separated(first_line(head)).collect();
    fields.len() == 5 && fields.iter().all(|field| is_digits(field)) && matches!(fields[3], b"0" | b"1")
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    Ok(Box::new(LineSource::new(TencentFormat::default(), input, options)))
}

#[derive(Default)]
struct TencentFormat {
    device: NameIdCache,
}

impl LineFormat for TencentFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = FieldReader::along(comma_separated(line));
        let time = fields.next("Timestamp")?;
        let sector = Sector(fields.next("Offset")?.unsigned()?);
        let size = fields.next("Size")?;
        let op = fields.next("IOType")?.op(b"0", b"1")?;
        let device = fields.next("VolumeID")?;
        fields.end()?;
        device.unsigned()?;
        let arrival = Nanos(time.time(TimeUnit::Seconds)?);
        let count = size.sectors()?;
        let device = self.device.id(device.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { format: FORMAT.name.into(), clock: "unix".into(), ..TraceHeader::default() }
    }
}
