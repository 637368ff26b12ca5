//! SPC-1 (Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1; used by the UMass traces).
//!
//! Records of `ASU,LBA,size,opcode,timestamp` with optional further fields: number of the application storage unit,
//! address in blocks (512 bytes here, as in the UMass traces), size in bytes, `R`/`r` or `W`/`w`, and seconds since
//! the start of the trace. White space around a field is allowed since revision 1.0.1.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result, SECTOR_BYTES};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::text::{
    Context, LastName, LineFormat, LineSource, comma_separated, first_line, is_decimal, is_digits, text,
};
use super::time_unit::TimeUnit;
use super::walk::Walk;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "spc1",
    about: "SPC-1 trace file (Storage Performance Council, UMass)",
    known_by: "three numbers, `R` or `W`, and a time, between commas",
    origin: Origin {
        from: "Storage Performance Council; UMass trace repository",
        gives: &[Column::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &[],
    recorded: Recorded::NONE,
    times: Times::Fixed(TimeUnit::Seconds),
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

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Spc1::default(), input, options)))
}

#[derive(Default)]
struct Spc1 {
    device: LastName,
}

impl LineFormat for Spc1 {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = Walk::along(comma_separated(line).map(<[u8]>::trim_ascii));
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

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "relative".into(), ..Header::default() }
    }
}
