//! The default output of `blkparse` (man page blkparse(1), "Default output").
//!
//! `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`. [`crate::Pairer`] brings
//! the events together. The summary that blkparse prints behind the events is not read, except for the count of
//! events that it says are missing.

use std::borrow::Cow;
use std::path::Path;

use emmclab_base::{Error, Kind, Nanos, Request, Result};

use super::format::{Format, ReadOptions, Times};
use super::ftrace::{device_name, range};
use super::input::Input;
use super::rwbs;
use super::text::{
    Context, LastName, LineFormat, LineSource, blank_separated, decimal_time, is_decimal, is_digits, need,
    pid, text, unsigned,
};
use super::time_unit::TimeUnit;
use crate::header::Header;
use crate::pairing::{Event, EventKind, Pairer};
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "blkparse",
    about: "blkparse's default text",
    known_by: "`major,minor cpu sequence time pid action` in the first lines",
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
            && (action(fields[5]).is_some() || OTHER_ACTIONS.contains(&fields[5]))
    })
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Blkparse::default(), input, options)))
}

/// Actions that say nothing of a request: remapping, bouncing, plugging, sleeping, messages.
const OTHER_ACTIONS: [&[u8]; 9] = [b"A", b"B", b"P", b"S", b"U", b"UT", b"T", b"m", b"?"];

/// The meaning of an action.
fn action(field: &[u8]) -> Option<EventKind> {
    Some(match field {
        b"Q" => EventKind::Queue,
        b"G" => EventKind::GetRequest,
        b"I" => EventKind::Insert,
        b"D" => EventKind::Issue,
        b"C" => EventKind::Complete,
        b"R" => EventKind::Requeue,
        b"M" => EventKind::BackMerge,
        b"F" => EventKind::FrontMerge,
        b"X" => EventKind::Split(0),
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

/// The text behind the first `count` fields.
fn rest_after(line: &[u8], count: usize) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut rest = line;
    for _ in 0..count {
        let begin = rest.iter().position(|byte| !blank(byte)).unwrap_or(rest.len());
        let end = rest[begin..].iter().position(blank).unwrap_or(rest.len() - begin);
        rest = &rest[begin + end..];
    }
    rest.trim_ascii_start()
}

/// The sector of an event without data, of which blkparse prints no length and, where it is 0, no sector.
fn zero_length(rest: &[u8]) -> Option<&[u8]> {
    if rest.starts_with(b"[") {
        return Some(b"0");
    }
    let mut fields = blank_separated(rest);
    let sector = fields.next().filter(|field| is_digits(field))?;
    fields.next().is_some_and(|field| field.starts_with(b"[")).then_some(sector)
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
        if OTHER_ACTIONS.contains(&field) {
            context.skip();
            return Ok(());
        }
        let kind = action(field).ok_or_else(|| {
            Error::new(Kind::Value, "is not an action of blkparse").of_field("action", 6, field)
        })?;
        let letters = need(&mut fields, "rwbs", 7)?;
        let (op, flags) = rwbs::parse(letters, 7)?;
        let rest = rest_after(line, 7);
        // Commands that are no block I/O carry `(hex payload)` instead of a range.
        if rest.starts_with(b"(") {
            context.skip();
            return Ok(());
        }
        let (sector, sectors, kind) = match zero_length(rest) {
            Some(sector) => (unsigned(sector, "sector", 8)?, 0, kind),
            None => range(&mut blank_separated(rest), kind)?,
        };
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

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "relative".into(), ..Header::default() }
    }
}
