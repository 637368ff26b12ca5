//! SNIA Systor '17 CSV (IOTTA 4964; Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual
//! Desktop Infrastructure").
//!
//! `Timestamp,Response,IOType,LUN,Offset,Size` with a heading. By the set's README (section 3): time of issue in Unix seconds,
//! of whose nine decimals the last three mean nothing; the response time in seconds (empty if no response was recorded); `R` or
//! `W`, or empty if the response was lost on the monitored network port, so that the operation is unknown (such records are
//! skipped and counted); number of the unit; offset and size in bytes. A response time may be irregular for the same reason.

use std::path::Path;

use emmclab_base::{Nanos, Request, Result};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::text::{Context, LastName, LineFormat, LineSource, comma_separated, first_line, text};
use super::time_unit::TimeUnit;
use super::walk::Walk;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "systor17",
    about: "SNIA Systor '17 CSV (virtual desktops)",
    known_by: "its heading (`Timestamp,Response,IOType,...`)",
    origin: Origin {
        from: "SNIA IOTTA, Systor '17",
        gives: &[Column::Complete, Column::Device],
        unknown: "processes, flags",
    },
    extensions: &[],
    recorded: Recorded::NONE,
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
    /// Number of records without an operation, and the line of the first one.
    unknown: u64,
    first_unknown: u64,
}

impl LineFormat for Systor17 {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = Walk::along(comma_separated(line));
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

    fn header(&self) -> Header {
        let note = || {
            let (count, line) = (self.unknown, self.first_unknown);
            format!(
                "{count} of the records have no operation (IOType) and are left out, the first in line {line}"
            )
        };
        let note = (self.unknown > 0).then(note);
        Header { format: FORMAT.name.into(), clock: "unix".into(), note, ..Header::default() }
    }
}
