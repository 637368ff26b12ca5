//! Alibaba Block Traces (Li et al., IISWC 2020; repository alibaba/block-traces).
//!
//! `device_id,opcode,offset,length,timestamp` without a heading, as the repository's README says: number of a virtual
//! disk, `R` or `W`, offset and length in bytes, time in Unix microseconds.

use std::path::Path;

use super::input::Input;
use super::text::{
    Context, LastName, LineFormat, LineSource, TimeUnit, comma_separated, decimal_time, first_line,
    is_digits, need, no_more, sector_span, text, unsigned,
};
use super::{Format, Times};
use crate::error::{Error, Kind, Result};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::{Op, Request};
use crate::units::Nanos;

pub(super) static FORMAT: Format = Format {
    name: "alibaba",
    about: "Alibaba block traces CSV",
    known_by: "five columns, the second `R` or `W`, the others numbers; or their heading",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Micros),
    sniff,
    open,
    writes: None,
};

const HEADING: &[u8] = b"device_id,opcode,offset,length,timestamp";

fn sniff(head: &[u8], _path: &Path) -> bool {
    let line = first_line(head);
    let fields: Vec<_> = comma_separated(line).collect();
    line == HEADING
        || fields.len() == 5
            && [0, 2, 3, 4].iter().all(|i| is_digits(fields[*i]))
            && matches!(fields[1], b"R" | b"W")
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Alibaba::default(), input, options)))
}

#[derive(Default)]
struct Alibaba {
    device: LastName,
}

impl LineFormat for Alibaba {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = comma_separated(line);
        let mut next = |name, column| need(&mut fields, name, column);
        let device = next("device_id", 1)?;
        let op = match next("opcode", 2)? {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => return Err(Error::new(Kind::Value, "is neither R nor W").of_field("opcode", 2, other)),
        };
        let offset = unsigned(next("offset", 3)?, "offset", 3)?;
        let length = next("length", 4)?;
        let time = next("timestamp", 5)?;
        no_more(&mut fields, 6)?;
        unsigned(device, "device_id", 1)?;
        let arrival = Nanos(decimal_time(time, TimeUnit::Micros, "timestamp", 5)?);
        let bytes = unsigned(length, "length", 4)?;
        let (sector, count) = sector_span(offset, bytes, (length, "length", 4))?;
        let device = self.device.id(device, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "unix".into(), ..Header::default() }
    }
}
