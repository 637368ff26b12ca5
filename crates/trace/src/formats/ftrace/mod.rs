//! Block events of the kernel's tracer as text: `trace` and `trace_pipe` of tracefs, and `perf script`
//! (Documentation/trace/ftrace.rst; the events' own `print fmt` in `events/block/*/format`).
//!
//! A line names the task, the processor, the time in seconds and the event; `perf script` sets `block:` before the
//! event and a blank between name and id. [`crate::Matcher`] brings the events together, those of the MMC and UFS
//! drivers and of file systems too. Others are skipped and counted, events that the buffer lost are counted as lost.

mod payload;

use std::borrow::Cow;
use std::path::Path;

use emmclab_base::{Error, Kind, Nanos, Request, Result};
use memchr::memmem;

use super::format::{Format, ReadOptions, Times};
use super::input::Input;
use super::rwbs;
use super::text::{
    Context, LastName, LineFormat, LineSource, blank_separated, decimal_time, is_digits, need, pid, text,
    unsigned,
};
use super::time_unit::TimeUnit;
use crate::events::{DecodedEvent, KernelEvent, Matcher};
use crate::header::Header;
use crate::names::dev_t_label;
use crate::pairing::{Event, EventKind};
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "ftrace",
    about: "block events as text: tracefs trace and trace_pipe, perf script",
    known_by: "`# tracer:` in front, or block events in the first lines",
    extensions: &[],
    times: Times::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    head.starts_with(b"# tracer:")
        || head.split(|byte| *byte == b'\n').take(100).any(|line| {
            Line::of(line).is_some_and(|line| {
                let known = line.event.starts_with(b"block_") || KernelEvent::by_name(line.event).is_some();
                known && line.cpu.len() > 2
            })
        })
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Ftrace::of_format(FORMAT.name), input, options)))
}

/// The parts of a line: `task-pid [cpu] flags time: event: payload`.
struct Line<'a> {
    task: &'a [u8],
    cpu: &'a [u8],
    time: &'a [u8],
    event: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8]) -> Option<Self> {
        // The name of a task may hold anything, so the first `[cpu]` of digits with a time behind it counts.
        memmem::find_iter(line, b"[").find_map(|open| {
            let close = open + memchr::memchr(b']', &line[open..])?;
            let cpu = &line[open..=close];
            if !is_digits(&cpu[1..cpu.len() - 1]) {
                return None;
            }
            let rest = &line[close + 1..];
            let colon = memmem::find(rest, b": ")?;
            let time = blank_separated(&rest[..colon]).last()?;
            if !time.first()?.is_ascii_digit() {
                return None;
            }
            let rest = rest[colon + 2..].trim_ascii_start();
            let (event, payload) = match memmem::find(rest, b": ") {
                Some(end) => (&rest[..end], &rest[end + 2..]),
                None => (rest.strip_suffix(b":").unwrap_or(rest), &[][..]),
            };
            let system = event.iter().rposition(|byte| *byte == b':').map_or(0, |colon| colon + 1);
            let event = &event[system..];
            Some(Line { task: line[..open].trim_ascii(), cpu, time, event, payload })
        })
    }
}

impl<'a> Line<'a> {
    fn time(&self) -> Result<Nanos> {
        let time = decimal_time(self.time, TimeUnit::Seconds, "time", 0)?;
        if !self.time.contains(&b'.') {
            return Err(Error::new(Kind::Value, "is not in seconds")
                .of_field("time", 0, self.time)
                .hint("record with a clock that counts time: `echo mono > trace_clock`"));
        }
        Ok(Nanos(time))
    }

    /// Name and id of the task; the name is empty where the kernel had forgotten it.
    fn task(&self) -> Result<(&'a [u8], i32)> {
        let (name, id) = task(self.task)?;
        Ok((if name == b"<...>" { b"" } else { name }, id))
    }
}

/// The tracer's text, in a file of its own or in one of `format`.
pub(super) struct Ftrace {
    format: &'static str,
    matcher: Matcher,
    process: LastName,
    device: LastName,
    activity: Option<String>,
}

/// The name and id before `[cpu]`: `NAME-PID`, also with a thread group `(TGID)`, or perf's `NAME PID`, `NAME PID/TID`.
fn task(field: &[u8]) -> Result<(&[u8], i32)> {
    let bad = || Error::new(Kind::Syntax, "is not NAME-PID").of_field("task", 1, field);
    let field = match memchr::memrchr(b'(', field) {
        Some(open) if field.ends_with(b")") && !field[..open].trim_ascii_end().is_empty() => {
            field[..open].trim_ascii_end()
        }
        _ => field,
    };
    let cut = field.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'/').ok_or_else(bad)?;
    if !matches!(field[cut], b'-' | b' ') {
        return Err(bad());
    }
    let id = field[cut + 1..].rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
    Ok((field[..cut].trim_ascii(), pid(id, "task", 1)?))
}

/// `major,minor` after a check, as it stands.
pub(super) fn device_name(field: &[u8], column: u64) -> Result<Cow<'_, str>> {
    let mut parts = field.split(|byte| *byte == b',');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(major), Some(minor), None) if is_digits(major) && is_digits(minor) => Ok(text(field)),
        _ => Err(Error::new(Kind::Value, "is not MAJOR,MINOR").of_field("device", column, field)),
    }
}

/// `sector + sectors`, or `sector / new sector` of a split, from the fields that follow the operation.
pub(super) fn range<'a>(
    fields: &mut impl Iterator<Item = &'a [u8]>,
    kind: EventKind,
) -> Result<(u64, u32, EventKind)> {
    let sector = unsigned(need(fields, "sector", 0)?, "sector", 0)?;
    let sign = need(fields, "+", 0)?;
    let number = need(fields, "sectors", 0)?;
    let value = unsigned(number, "sectors", 0)?;
    match (kind, sign) {
        (EventKind::Split(_), b"/") => Ok((sector, 0, EventKind::Split(value))),
        (EventKind::Split(_), _) | (_, b"/") => {
            Err(Error::new(Kind::Syntax, "does not belong to this event").of_field("+", 0, sign))
        }
        (kind, b"+") => {
            let sectors = u32::try_from(value).map_err(|_| {
                Error::new(Kind::Value, "is a request of more than 2 TB").of_field("sectors", 0, number)
            })?;
            Ok((sector, sectors, kind))
        }
        _ => Err(Error::new(Kind::Syntax, "is not `+`").of_field("+", 0, sign)),
    }
}

/// The text behind device and operation in a payload.
fn payload_of(payload: &[u8]) -> &[u8] {
    let mut rest = payload.trim_ascii_start();
    for _ in 0..2 {
        rest =
            rest.iter().position(|byte| *byte == b' ').map_or(&[][..], |end| rest[end..].trim_ascii_start());
    }
    rest
}

/// The range of a request event, which stands behind `(command)` or `bytes (command)`.
fn after_command(rest: &[u8]) -> &[u8] {
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let command = rest[digits..].trim_ascii_start();
    match memchr::memchr(b')', command) {
        Some(end) if command.starts_with(b"(") => &command[end + 1..],
        _ => rest,
    }
}

impl Ftrace {
    pub(super) fn of_format(format: &'static str) -> Self {
        Self {
            format,
            matcher: Matcher::default(),
            process: LastName::default(),
            device: LastName::default(),
            activity: None,
        }
    }

    fn block(
        &mut self,
        kind: EventKind,
        line: &Line,
        context: &mut Context,
        out: &mut Vec<Request>,
    ) -> Result<()> {
        let time = line.time()?;
        let mut fields = blank_separated(line.payload);
        let device = need(&mut fields, "device", 0)?;
        let is_mmc = device.starts_with(b"179,");
        let known = context.devices.len();
        let device = self.device.id(device, &mut context.devices, |raw| device_name(raw, 0))?;
        if is_mmc && context.devices.len() > known {
            self.matcher.add_mmc_disk(device);
        }
        let (op, flags) = rwbs::parse(need(&mut fields, "rwbs", 0)?, 0)?;
        // Request events put `bytes (command)` or `(command)` before the range.
        let mut fields = blank_separated(after_command(payload_of(line.payload)));
        let (sector, sectors, kind) = range(&mut fields, kind)?;
        let (name, id) = line.task()?;
        let process = match name {
            b"" => None,
            name => Some(self.process.id(name, &mut context.processes, |raw| Ok(text(raw)))?),
        };
        let event = Event { time, kind, device, op, flags, sector, sectors, pid: Some(id), process };
        self.matcher.block(event, name, &mut context.ledger, out);
        Ok(())
    }

    fn beside(
        &mut self,
        event: KernelEvent,
        line: &Line,
        context: &mut Context,
        out: &mut Vec<Request>,
    ) -> Result<()> {
        let (time, (name, id)) = (line.time()?, line.task()?);
        match DecodedEvent::read(event, id, &payload::values(event, line.payload)) {
            Some(DecodedEvent::Command(event)) => {
                self.matcher.command(time, &event, None, &mut context.ledger, out);
            }
            Some(DecodedEvent::File(event)) => {
                self.matcher.learn_task(id, name);
                self.matcher.file_system(time, &event, &dev_t_label(event.device), None);
            }
            // Of a vendor's kernel, with other fields.
            None => context.skip(),
        }
        Ok(())
    }
}

impl LineFormat for Ftrace {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        if line.starts_with(b"#") {
            context.no_record();
            return Ok(());
        }
        let Some(parts) = Line::of(line) else {
            let lost = lost_events(line).ok_or_else(|| {
                Error::new(Kind::Syntax, "is not `task-pid [cpu] time: event: ...`").of_field("line", 0, line)
            })?;
            context.no_record();
            context.ledger.lost += lost;
            return Ok(());
        };
        if let Some(kind) = EventKind::of_event(parts.event) {
            return self.block(kind, &parts, context, out);
        }
        if let Some(event) = KernelEvent::by_name(parts.event) {
            return self.beside(event, &parts, context, out);
        }
        context.skip();
        Ok(())
    }

    fn finish(&mut self, context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        self.matcher.finish(&mut context.ledger, out);
        self.activity = self.matcher.activity(|_| None).to_json();
        if context.ledger.seen == 0 {
            return Err(Error::new(Kind::Empty, "the file holds no event of the kernel's tracer").hint(
                "record block events: `atrace` has them in the category `disk`, tracefs in events/block",
            ));
        }
        Ok(())
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> Header {
        Header {
            format: self.format.into(),
            clock: "monotonic".into(),
            activity: self.activity.clone(),
            ..Header::default()
        }
    }
}

/// `CPU:3 [LOST 17 EVENTS]`, also of an unknown number, and the notices that tracefs puts between processors.
fn lost_events(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"CPU:")?;
    if let Some(at) = memmem::find(rest, b"[LOST ") {
        let number = blank_separated(&rest[at + 6..]).next()?;
        return Some(unsigned(number, "lost", 0).unwrap_or(1));
    }
    memmem::find(rest, b"buffer started").map(|_| 0)
}
