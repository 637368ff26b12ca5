//! SPC-1 (Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1; used by the UMass traces).
//!
//! Records of `ASU,LBA,size,opcode,timestamp` with optional further fields: number of the application storage unit,
//! address in blocks (512 bytes here, as in the UMass traces), size in bytes, `R`/`r` or `W`/`w`, and seconds since
//! the start of the trace. White space around a field is allowed since revision 1.0.1.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result, SECTOR_BYTES};

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
    name: "spc1",
    about: "SPC-1 trace file (Storage Performance Council, UMass)",
    known_by: "three numbers, `R` or `W`, and a time, between commas",
    origin: FormatOrigin {
        from: "Storage Performance Council; UMass trace repository",
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
    fields.len() >= 5
        && fields[..3].iter().all(|field| is_digits(field))
        && matches!(fields[3], b"R" | b"r" | b"W" | b"w")
        && is_decimal(fields[4])
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    Ok(Box::new(LineSource::new(Spc1Format::default(), input, options)))
}

#[derive(Default)]
struct Spc1Format {
    device: NameIdCache,
}

impl LineFormat for Spc1Format {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = FieldReader::along(comma_separated(line).map(<[u8]>::trim_ascii));
        let unit = fields.next("ASU")?;
        let address = fields.next("LBA")?;
        let size = fields.next("size")?;
        let opcode = fields.next("opcode")?;
        let op = opcode.op(b"R", b"W").or_else(|_| opcode.op(b"r", b"w"))?;
        let arrival = Nanos(fields.next("timestamp")?.time(TimeUnit::Seconds)?);
        unit.unsigned()?;
        let offset = address.unsigned()?.checked_mul(SECTOR_BYTES);
        let (sector, count) = size.span(offset.ok_or_else(|| address.refused("is beyond byte 2^64"))?)?;
        let device = self.device.id(unit.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { format: FORMAT.name.into(), clock: "relative".into(), ..TraceHeader::default() }
    }
}
