//! Alibaba Block Traces (Li et al., IISWC 2020; repository alibaba/block-traces).
//!
//! `device_id,opcode,offset,length,timestamp` without a heading, as the repository's README describes ("Schema"): number of a
//! virtual disk, `R` or `W`, offset and length in bytes, and the Unix time in microseconds at which the server received it; no
//! response times.

use std::path::Path;

use emmclab_base::{Error, Kind, Nanos, Request, Result};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::text::{Context, LastName, LineFormat, LineSource, comma_separated, first_line, is_digits, text};
use super::time_unit::TimeUnit;
use super::walk::Walk;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "alibaba",
    about: "Alibaba block traces CSV",
    known_by: "five columns, the second `R` or `W`, the others numbers; or their heading",
    origin: Origin {
        from: "Alibaba's block traces",
        gives: &[Column::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &[],
    recorded: Recorded::NONE,
    times: Times::Fixed(TimeUnit::Micros),
    sniff,
    open,
    writes: None,
};

const HEADING: &[u8] = b"device_id,opcode,offset,length,timestamp";
/// Heading of the list of devices that is part of the traces; then the text in its file name.
const DEVICES: &[u8] = b"device_id,capacity";
const DEVICES_FILE: &str = "device_size";

fn sniff(head: &[u8], path: &Path) -> bool {
    let line = first_line(head);
    let fields: Vec<_> = comma_separated(line).collect();
    line == HEADING
        || lists_devices(head, path)
        || fields.len() == 5
            && [0, 2, 3, 4].iter().all(|i| is_digits(fields[*i]))
            && matches!(fields[1], b"R" | b"W")
}

/// Whether this is the list of devices with their capacities.
fn lists_devices(head: &[u8], path: &Path) -> bool {
    let line = first_line(head);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let two_numbers = || comma_separated(line).count() == 2 && comma_separated(line).all(is_digits);
    line == DEVICES || name.contains(DEVICES_FILE) && two_numbers()
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    if lists_devices(input.head(), input.path()) {
        let problem =
            "is no trace: it lists the devices of the Alibaba traces with their capacities in bytes";
        return Err(Error::new(Kind::UnknownFormat, problem)
            .hint("the requests are in io_traces.csv of the same archive"));
    }
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
        let mut fields = Walk::along(comma_separated(line));
        let device = fields.next("device_id")?;
        let op = fields.next("opcode")?.op(b"R", b"W")?;
        let offset = fields.next("offset")?.unsigned()?;
        let length = fields.next("length")?;
        let time = fields.next("timestamp")?;
        fields.end()?;
        device.unsigned()?;
        let arrival = Nanos(time.time(TimeUnit::Micros)?);
        let (sector, count) = length.span(offset)?;
        let device = self.device.id(device.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "unix".into(), ..Header::default() }
    }
}
