//! K5cloud traces of Fujitsu (SNIA IOTTA 26930).
//!
//! `ID,Timestamp,Type,Offset,Length` without a heading, as the set's README describes (section 3): number of the virtual
//! volume, seconds since the first request of all files, `R` or `W`, offset and length in bytes. No response times.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result};

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
    name: "k5cloud",
    about: "K5cloud CSV of Fujitsu (SNIA IOTTA)",
    known_by: "a number, a time, `R` or `W`, and two numbers, between commas",
    origin: Origin {
        from: "SNIA IOTTA, K5cloud",
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
    fields.len() == 5
        && [0, 3, 4].iter().all(|at| is_digits(fields[*at]))
        && is_decimal(fields[1])
        && matches!(fields[2], b"R" | b"W")
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(K5cloud::default(), input, options)))
}

#[derive(Default)]
struct K5cloud {
    device: LastName,
}

impl LineFormat for K5cloud {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = Walk::along(comma_separated(line).map(<[u8]>::trim_ascii));
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

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "relative".into(), ..Header::default() }
    }
}
