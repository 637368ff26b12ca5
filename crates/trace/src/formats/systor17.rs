//! SNIA Systor '17 CSV (IOTTA 4964; Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure").
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size` with a heading: Unix seconds, time to completion in seconds (may be
//! empty), `R` or `W` (empty for other commands, which are skipped and counted), number of the unit, offset and
//! size in bytes.

use std::path::Path;

use super::input::Input;
use super::text::{
    Context, LastName, LineFormat, LineSource, TimeUnit, comma_separated, decimal_time, first_line, need,
    no_more, sector_span, text, unsigned,
};
use super::{Format, Times};
use crate::error::{Error, Kind, Result};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::{Op, Request};
use crate::units::Nanos;

pub(super) static FORMAT: Format = Format {
    name: "systor17",
    about: "SNIA Systor '17 CSV (virtual desktops)",
    known_by: "its heading (`Timestamp,Response,IOType,...`)",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

const HEADING: &[u8] = b"Timestamp,Response,IOType,LUN,Offset,Size";

fn sniff(head: &[u8], _path: &Path) -> bool {
    first_line(head) == HEADING
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Systor17::default(), input, options)))
}

#[derive(Default)]
struct Systor17 {
    device: LastName,
}

impl LineFormat for Systor17 {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = comma_separated(line);
        let mut next = |name, column| need(&mut fields, name, column);
        let time = next("Timestamp", 1)?;
        let response = next("Response", 2)?;
        let operation = next("IOType", 3)?;
        let device = next("LUN", 4)?;
        let offset = next("Offset", 5)?;
        let size = next("Size", 6)?;
        no_more(&mut fields, 7)?;
        let arrival = decimal_time(time, TimeUnit::Seconds, "Timestamp", 1)?;
        let op = match operation {
            b"R" => Op::Read,
            b"W" => Op::Write,
            b"" => {
                context.skip();
                return Ok(());
            }
            other => return Err(Error::new(Kind::Value, "is neither R nor W").of_field("IOType", 3, other)),
        };
        let complete = match response {
            b"" => None,
            response => {
                let took = decimal_time(response, TimeUnit::Seconds, "Response", 2)?;
                Some(Nanos(arrival.checked_add(took).ok_or_else(|| {
                    Error::new(Kind::Value, "ends beyond the year 2262").of_field("Response", 2, response)
                })?))
            }
        };
        let offset = unsigned(offset, "Offset", 5)?;
        let (sector, count) = sector_span(offset, unsigned(size, "Size", 6)?, (size, "Size", 6))?;
        let device = self.device.id(device, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request {
            complete,
            device: Some(device),
            ..Request::new(Nanos(arrival), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "unix".into(), ..Header::default() }
    }
}
