//! The default output of `blkparse` (man page blkparse(1), "Default output").
//!
//! `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`. [`crate::Pairer`] brings
//! the events together. The summary that blkparse prints behind the events is not read, except for the count of
//! events that it says are missing.

use std::borrow::Cow;
use std::path::Path;

use super::ftrace::{device_name, range};
use super::input::Input;
use super::text::{
    Context, LastName, LineFormat, LineSource, TimeUnit, blank_separated, decimal_time, is_decimal,
    is_digits, need, pid, text, unsigned,
};
use super::{Format, Times, rwbs};
use crate::error::{Error, Kind, Result};
use crate::pairing::{Event, EventKind, Pairer};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::Request;
use crate::units::Nanos;

pub(super) static FORMAT: Format = Format {
    name: "blkparse",
    about: "blkparse's default text",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    head.split(|byte| *byte == b'\n').take(20).any(|line| {
        let fields: Vec<_> = blank_separated(line).take(6).collect();
        fields.len() == 6
            && device_name(fields[0], 1).is_ok()
            && is_digits(fields[1])
            && is_digits(fields[2])
            && is_decimal(fields[3])
            && is_digits(fields[4])
            && action(fields[5]).is_some()
    })
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Blkparse::default(), input, options)))
}

/// What an action means; `None` inside for one that says nothing of a request.
fn action(field: &[u8]) -> Option<Option<EventKind>> {
    Some(match field {
        b"Q" => Some(EventKind::Queue),
        b"G" => Some(EventKind::GetRequest),
        b"I" => Some(EventKind::Insert),
        b"D" => Some(EventKind::Issue),
        b"C" => Some(EventKind::Complete),
        b"R" => Some(EventKind::Requeue),
        b"M" => Some(EventKind::BackMerge),
        b"F" => Some(EventKind::FrontMerge),
        b"X" => Some(EventKind::Split(0)),
        b"A" | b"B" | b"P" | b"S" | b"U" | b"UT" | b"T" | b"m" | b"?" => None,
        _ => return None,
    })
}

#[derive(Default)]
struct Blkparse {
    pairer: Pairer,
    process: LastName,
    device: LastName,
    in_summary: bool,
}

/// The name in the brackets at the end.
fn process_name(line: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'[', line)?;
    line[open + 1..].strip_suffix(b"]")
}

impl Blkparse {
    fn summary(&mut self, line: &[u8], context: &mut Context) -> Result<()> {
        self.in_summary = true;
        context.no_record();
        let mut fields = blank_separated(line);
        if fields.next() == Some(b"Skips:") {
            context.ledger.lost += unsigned(need(&mut fields, "skips", 2)?, "skips", 2)?;
        }
        Ok(())
    }
}

impl LineFormat for Blkparse {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if self.in_summary
            || line.starts_with(b"CPU")
            || line.starts_with(b"Total (")
            || line.starts_with(b"Input file ")
        {
            // The notices on the input files stand before the events.
            let notice = line.starts_with(b"Input file ");
            self.summary(line, context)?;
            self.in_summary &= !notice;
            return Ok(());
        }
        let mut fields = blank_separated(line);
        let device = need(&mut fields, "device", 1)?;
        let device = self.device.id(device, &mut context.devices, |raw| device_name(raw, 1))?;
        unsigned(need(&mut fields, "cpu", 2)?, "cpu", 2)?;
        unsigned(need(&mut fields, "sequence", 3)?, "sequence", 3)?;
        let time = Nanos(decimal_time(need(&mut fields, "time", 4)?, TimeUnit::Seconds, "time", 4)?);
        let id = pid(need(&mut fields, "pid", 5)?, "pid", 5)?;
        let field = need(&mut fields, "action", 6)?;
        let kind = action(field).ok_or_else(|| {
            Error::new(Kind::Value, "is no action of blkparse").of_field("action", 6, field)
        })?;
        let Some(kind) = kind else {
            context.skip();
            return Ok(());
        };
        let letters = need(&mut fields, "rwbs", 7)?;
        let (op, flags) = rwbs::parse(letters, 7)?;
        // Commands that are no block I/O carry `(hex payload)` instead of a range.
        let mut fields = fields.peekable();
        let payload = |field: Option<&&[u8]>| {
            field.is_none_or(|field| field.starts_with(b"(") || field.starts_with(b"["))
        };
        if payload(fields.peek()) {
            context.skip();
            return Ok(());
        }
        let (sector, sectors, kind) = range(&mut fields, kind)?;
        let process = match process_name(line) {
            // A completion ends in the error code.
            Some(name) if kind != EventKind::Complete => {
                Some(self.process.id(name, &mut context.processes, |raw| Ok::<Cow<str>, Error>(text(raw)))?)
            }
            _ => None,
        };
        let event = Event { time, kind, device, op, flags, sector, sectors, pid: Some(id), process };
        self.pairer.feed(&event, &mut context.ledger, out);
        Ok(())
    }

    fn finish(&mut self, context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        self.pairer.finish(&mut context.ledger, out);
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "relative".into(), ..Header::default() }
    }
}
