//! MSR Cambridge CSV (SNIA IOTTA 388; Narayanan et al., "Write Off-Loading", FAST 2008).
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` without a heading, as the set's README says: time of
//! issue in Windows FILETIME (100 ns ticks since 1601), `Read` or `Write`, offset and size in bytes, and the time
//! to completion in the same ticks. Small time stamps, as in copies whose clock was moved to 0, stay relative.

use std::borrow::Cow;
use std::path::Path;

use super::input::Input;
use super::text::{
    Context, LastName, LineFormat, LineSource, TimeUnit, comma_separated, first_line, is_digits, need,
    no_more, sector_span, text, unsigned,
};
use super::{Format, Times};
use crate::error::{Error, Kind, Result};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::{Op, Request};
use crate::units::Nanos;

pub(super) static FORMAT: Format = Format {
    name: "msr",
    about: "MSR Cambridge CSV (SNIA IOTTA)",
    known_by: "seven columns, the fourth `Read` or `Write`",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Ticks),
    sniff,
    open,
    writes: None,
};

/// Ticks between 1601 and 1970.
const UNIX_EPOCH_TICKS: u64 = 116_444_736_000_000_000;

fn sniff(head: &[u8], _path: &Path) -> bool {
    let fields: Vec<_> = comma_separated(first_line(head)).collect();
    fields.len() == 7 && [0, 2, 4, 5, 6].iter().all(|i| is_digits(fields[*i])) && operation(fields[3]).is_ok()
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Msr::default(), input, options)))
}

fn operation(field: &[u8]) -> Result<Op> {
    match field {
        b"Read" => Ok(Op::Read),
        b"Write" => Ok(Op::Write),
        _ => Err(Error::new(Kind::Value, "is neither Read nor Write").of_field("Type", 4, field)),
    }
}

#[derive(Default)]
struct Msr {
    device: LastName,
    raw: Vec<u8>,
    /// Ticks to take off each time; by the first line.
    epoch: Option<u64>,
}

impl LineFormat for Msr {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = comma_separated(line);
        let mut next = |name, column| need(&mut fields, name, column);
        let time = next("Timestamp", 1)?;
        let host = next("Hostname", 2)?;
        let disk = next("DiskNumber", 3)?;
        let op = operation(next("Type", 4)?)?;
        let offset = unsigned(next("Offset", 5)?, "Offset", 5)?;
        let size = next("Size", 6)?;
        let response = next("ResponseTime", 7)?;
        no_more(&mut fields, 8)?;
        let ticks = unsigned(time, "Timestamp", 1)?;
        unsigned(disk, "DiskNumber", 3)?;
        let epoch = *self.epoch.get_or_insert(if ticks < UNIX_EPOCH_TICKS { 0 } else { UNIX_EPOCH_TICKS });
        let beyond = |field| {
            Error::new(Kind::Value, "is outside the years 1970 to 2262").of_field("Timestamp", 1, field)
        };
        let ns = |ticks: u64| i64::try_from(ticks).ok().and_then(|ticks| ticks.checked_mul(100));
        let arrival = ticks.checked_sub(epoch).and_then(ns).ok_or_else(|| beyond(time))?;
        let took = ns(unsigned(response, "ResponseTime", 7)?);
        let complete = took.and_then(|took| arrival.checked_add(took)).ok_or_else(|| {
            Error::new(Kind::Value, "is longer than 292 years").of_field("ResponseTime", 7, response)
        })?;
        let bytes = unsigned(size, "Size", 6)?;
        let (sector, count) = sector_span(offset, bytes, (size, "Size", 6))?;
        self.raw.clear();
        self.raw.extend_from_slice(host);
        self.raw.push(b'_');
        self.raw.extend_from_slice(disk);
        let device =
            self.device.id(&self.raw, &mut context.devices, |raw| Ok(Cow::Owned(text(raw).into_owned())))?;
        out.push(Request {
            complete: Some(Nanos(complete)),
            device: Some(device),
            ..Request::new(Nanos(arrival), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> Header {
        let clock = if self.epoch == Some(0) { "relative" } else { "unix" };
        Header { format: FORMAT.name.into(), clock: clock.into(), ..Header::default() }
    }
}
