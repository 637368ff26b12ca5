//! Block events of the kernel's tracer as text: `trace` and `trace_pipe` of tracefs, `trace-cmd report`, `perf script`, `perf
//! trace` (Documentation/trace/ftrace.rst, and `print fmt` of the events in `events/block/*/format`), and the output of the
//! tracer `blk` (`echo blk > current_tracer`).
//!
//! [`FtraceLine`] splits the lines of events, and [`FtraceNotice`] recognises the other lines. [`crate::EventMatcher`] combines
//! the events, including those of the MMC and UFS drivers and of file systems. Other events are skipped and counted. Lost events,
//! call stacks, foreign lines, and lines that a mail program broke are counted, too.

mod line;
mod notice;
mod payload;

use std::borrow::Cow;

use super::blkparse::{self, ActionMeaning, BlkAction, is_action, rest_after};
use super::fields::cuts_a_length;
use super::prelude::*;
use super::rwbs::{self, RwbsMeaning};
use crate::{
    BlockEventKind, BlockLayerEvent, DecodedEvent, EventMatcher, KernelEvent, NameId, ZoneCommand, dev_t_label,
    diagnosis::NameCounts,
};
use line::FtraceLine;
use notice::FtraceNotice;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "ftrace",
    about: "events as text: tracefs trace and trace_pipe, tracer `blk`, trace-cmd report, perf script and perf trace",
    known_by: "`# tracer:`, or a line `task-pid [cpu] time: event:`",
    from: "`cat /sys/kernel/tracing/trace`, `trace-cmd report`, `perf script`, `perf trace -e 'block:*'`, tracer `blk`",
    gives: TraceColumn::OF_EVENTS,
    unknown: "what was not recorded: see [events that are used](../guides/read-what-others-recorded.md#events-that-are-used)",
    recorded: RecordedFeatures::BLOCK_EVENTS,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open: |input, options| LineSource::open(FORMAT.name, FtraceFormat::default(), input, options),
    ..TraceFormat::READ_ONLY
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    let mut is_blk = false;
    for line in head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end) {
        if let Some(tracer) = line.strip_prefix(b"# tracer:") {
            if tracer.trim_ascii() != b"blk" {
                return true;
            }
            is_blk = true;
        } else if is_blk && blkparse::is_event(line) {
            // The classic output of the `blk` tracer has the format of blkparse, which has its own reader.
            return false;
        } else if FtraceLine::of(line).is_some_and(|line| is_certain(&line)) {
            return true;
        }
    }
    is_blk
}

fn is_certain(line: &FtraceLine) -> bool {
    let is_known = || FtraceEventKind::by_name(line.event).is_some();
    let is_action_of_blk = || blank_separated(line.payload).nth(1).is_some_and(is_action);
    line.task().is_ok()
        && match line.event {
            b"" => is_action_of_blk(),
            _ => line.has_cpu && line.time().is_ok() || is_known(),
        }
}

/// The kind of a kernel event that the reader uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FtraceEventKind {
    Block(BlockEventKind),
    /// `block_io_start` and `block_io_done`, which mark the accounting of a request.
    Accounted(BlockEventKind),
    Beside(KernelEvent),
}

impl FtraceEventKind {
    pub(super) fn by_name(name: &[u8]) -> Option<FtraceEventKind> {
        match name {
            b"block_io_start" => Some(FtraceEventKind::Accounted(BlockEventKind::Insert)),
            b"block_io_done" => Some(FtraceEventKind::Accounted(BlockEventKind::Complete)),
            name => {
                let other = || KernelEvent::by_name(name).map(FtraceEventKind::Beside);
                BlockEventKind::of_event(name).map(FtraceEventKind::Block).or_else(other)
            }
        }
    }
}

/// Reads the text output of the kernel's tracer (ftrace), which is a file of its own or part of another format.
#[derive(Default)]
pub(super) struct FtraceFormat {
    matcher: EventMatcher,
    events: NameCounts<Option<FtraceEventKind>>,
    tracer: Option<String>,
    /// Whether times are relative to the start of the recording.
    is_relative: bool,
    /// Number of overwritten events, from the heading.
    overwritten: u64,
    /// Number of lost events, from the lines between events; these events are also counted in `overwritten`.
    lost: u64,
    activity: Option<String>,
}

/// Checks that a field is `major,minor`, and returns its text.
pub(super) fn device_name(field: &[u8], column: u64) -> Result<Cow<'_, str>> {
    let mut parts = field.split(|byte| *byte == b',');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(major), Some(minor), None) if is_digits(major) && is_digits(minor) => Ok(text(field)),
        _ => Err(Error::new(ErrorClass::Value, "the device number is not MAJOR,MINOR").of_field("device", column, field)),
    }
}

/// Parses `sector + sectors`, or `sector / new sector` of a split, which follow the operation.
pub(super) fn range<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, kind: BlockEventKind) -> Result<(u64, u32, BlockEventKind)> {
    let sector = unsigned(need(fields, "sector", 0)?, "sector", 0)?;
    let sign = need(fields, "+", 0)?;
    let number = need(fields, "sectors", 0)?;
    let value = unsigned(number, "sectors", 0)?;
    match (kind, sign) {
        (BlockEventKind::Split(_), b"/") => Ok((sector, 0, BlockEventKind::Split(value))),
        (BlockEventKind::Split(_), _) | (_, b"/") => {
            Err(Error::new(ErrorClass::Syntax, "the sign is `/` in split events, and `+` in other events").of_field("+", 0, sign))
        }
        (kind, b"+") => {
            let sectors = u32::try_from(value)
                .map_err(|_| Error::new(ErrorClass::Value, "the request exceeds 2 TB").of_field("sectors", 0, number))?;
            Ok((sector, sectors, kind))
        }
        _ => Err(Error::new(ErrorClass::Syntax, "the sign between sector and length must be `+`").of_field("+", 0, sign)),
    }
}

/// The text after device and operation.
fn payload_of(payload: &[u8]) -> &[u8] {
    let mut rest = payload.trim_ascii_start();
    for _ in 0..2 {
        rest = rest.iter().position(|byte| *byte == b' ').map_or(&[][..], |end| rest[end..].trim_ascii_start());
    }
    rest
}

/// Returns the text after `(command)` or `bytes (command)` of a request event. This text begins with the range of sectors.
fn after_command(rest: &[u8]) -> &[u8] {
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let command = rest[digits..].trim_ascii_start();
    match memchr::memchr(b')', command) {
        Some(end) if command.starts_with(b"(") => &command[end + 1..],
        _ => rest,
    }
}

/// The error at the end of a completion as a negative number, 0 for success: `[-5]`, `[5]` in kernels before 4.15, `[65531]` in blkparse.
pub(super) fn error_of(payload: &[u8]) -> i32 {
    let payload = payload.trim_ascii_end();
    let code = payload.strip_suffix(b"]").and_then(|rest| Some(&rest[memchr::memrchr(b'[', rest)? + 1..]));
    let Some(code) = code.filter(|code| *code != b"0") else { return 0 };
    let digits = code.strip_prefix(b"-").unwrap_or(code);
    let number = unsigned(digits, "error", 0).ok().and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    if (0x8000..=0xffff).contains(&number) { number - 0x1_0000 } else { -number }
}

/// The operation code of a command in brackets, as in `512 (a1 08 ...)`. `None` for `()`, because the request is then not a command that a
/// program passed through.
pub(super) fn packet_of(rest: &[u8]) -> Option<u8> {
    let open = rest.iter().position(|byte| !byte.is_ascii_digit() && *byte != b' ')?;
    // Most requests have `()` instead of a command.
    match &rest[open..] {
        [b'(', high, low, ..] if *high != b')' => u8::from_str_radix(std::str::from_utf8(&[*high, *low]).ok()?, 16).ok(),
        _ => None,
    }
}

/// The device from which I/O was remapped, from the end of `... <- (MAJOR,MINOR) SECTOR`; `None` if there is none.
pub(super) fn remapped_from(payload: &[u8]) -> Option<&str> {
    let rest = &payload[memchr::memmem::rfind(payload, b"<- (")? + 4..];
    std::str::from_utf8(&rest[..memchr::memchr(b')', rest)?]).ok()
}

impl FtraceFormat {
    /// Parses an event of the block layer; returns false if the line seems to be only a part of one. `accounted` is set for
    /// `block_io_start` and `block_io_done`.
    fn block(
        &mut self, kind: BlockEventKind, accounted: bool, line: &FtraceLine, context: &mut ParseContext, out: &mut Vec<Request>,
    ) -> Result<bool> {
        if let Some(named) = payload::NamedBlockEvent::read(kind, line.payload)? {
            let device = self.device(named.device.as_bytes(), context)?;
            let operation = match rwbs::read(named.rwbs, 0)? {
                RwbsMeaning::Request(operation) => operation,
                RwbsMeaning::Zone(command) => return Ok(self.zone(command, kind, context)),
            };
            let action = BlkAction::new(named.kind, operation, named.sector, named.sectors);
            return self.action(line, device, action, accounted, context, out).map(|()| true);
        }
        let mut fields = blank_separated(line.payload);
        let device = need(&mut fields, "device", 0)?;
        let operation = match rwbs::read(need(&mut fields, "rwbs", 0)?, 0)? {
            RwbsMeaning::Request(operation) => operation,
            RwbsMeaning::Zone(command) => return Ok(self.zone(command, kind, context)),
        };
        // A request event contains `bytes (command)` or `(command)` before the range of sectors.
        let rest = payload_of(line.payload);
        let range_text = after_command(rest);
        let (sector, sectors, kind) = range(&mut blank_separated(range_text), kind)?;
        let is_part = !line.payload.trim_ascii_end().ends_with(b"]") || context.joining && cuts_a_length(range_text);
        if is_part && context.waits_for_rest() {
            return Ok(false);
        }
        if let Some(code) = packet_of(rest) {
            self.matcher.packet(Some(code), kind);
            context.skip();
            return Ok(true);
        }
        let device = self.device(device, context)?;
        let action = BlkAction::new(kind, operation, sector, sectors);
        self.action(line, device, action, accounted, context, out)?;
        Ok(true)
    }

    /// Parses a line of the tracer `blk`: `MAJOR,MINOR ACTION RWBS SECTOR + SECTORS [PROCESS]`. Returns false if the line seems to be
    /// incomplete.
    fn blk(&mut self, line: &FtraceLine, context: &mut ParseContext, out: &mut Vec<Request>) -> Result<bool> {
        let text = rest_after(line.payload, 1);
        let step = ActionMeaning::read(text, 0)?;
        let letter = blank_separated(text).next().unwrap_or(&[]);
        if matches!(step, ActionMeaning::Request(_)) {
            let is_part = !text.trim_ascii_end().ends_with(b"]") || context.joining && cuts_a_length(text);
            if is_part && context.waits_for_rest() {
                return Ok(false);
            }
        }
        let (place, _) = self.events.name_index(letter, |_| None);
        self.events.add(place);
        match step {
            ActionMeaning::Request(action) => {
                let device = self.device(blank_separated(line.payload).next().unwrap_or(&[]), context)?;
                self.action(line, device, action, false, context, out)?;
            }
            ActionMeaning::Zone(command, kind) => {
                self.zone(command, kind, context);
            }
            ActionMeaning::Packet(code, kind) => {
                self.matcher.packet(code, kind);
                context.skip();
            }
            ActionMeaning::Remap(from) => {
                self.matcher.remap(from, &context.devices);
                context.skip();
            }
            ActionMeaning::Other => context.skip(),
        }
        Ok(true)
    }

    /// Counts a step of a zone command, which is not a request. Returns true, because its line is complete.
    fn zone(&mut self, command: ZoneCommand, kind: BlockEventKind, context: &mut ParseContext) -> bool {
        self.matcher.zone(command, kind);
        context.skip();
        true
    }

    #[inline]
    fn device(&mut self, field: &[u8], context: &mut ParseContext) -> Result<NameId> {
        let known = context.devices.len();
        let device = context.device_named(field, |raw| device_name(raw, 0))?;
        if context.devices.len() > known {
            let major = field.split(|byte| *byte == b',').next().unwrap_or_default();
            self.matcher.add_disk(device, unsigned(major, "device", 0)? as u32);
        }
        Ok(device)
    }

    #[inline]
    fn action(
        &mut self, line: &FtraceLine, device: NameId, action: BlkAction, accounted: bool, context: &mut ParseContext,
        out: &mut Vec<Request>,
    ) -> Result<()> {
        let BlkAction { kind, op, flags, sector, sectors, zeroes } = action;
        let (time, (name, pid)) = (line.time()?, line.task()?);
        let process = match name {
            b"" => None,
            name => Some(context.process(name)?),
        };
        let error = if kind == BlockEventKind::Complete { error_of(line.payload) } else { 0 };
        let event = BlockLayerEvent { time, kind, device, op, flags, sector, sectors, pid, process, error, zeroes };
        if accounted {
            self.matcher.accounted(event, name, &mut context.ledger, out);
        } else {
            self.matcher.block(event, name, &mut context.ledger, out);
        }
        Ok(())
    }

    /// Parses an event of a driver or file system; returns false if the line seems to be only a part of one.
    fn driver_or_fs_event(
        &mut self, event: KernelEvent, line: &FtraceLine, context: &mut ParseContext, out: &mut Vec<Request>,
    ) -> Result<bool> {
        let (time, (name, id)) = (line.time()?, line.task()?);
        let id = id.unwrap_or(0);
        if !payload::is_whole(event, line.payload) && context.waits_for_rest() {
            return Ok(false);
        }
        match DecodedEvent::read(event, id, &payload::values(event, line.payload)) {
            Some(DecodedEvent::Command(event)) => {
                self.matcher.command(time, &event, None, &mut context.devices, &mut context.ledger, out);
            }
            Some(DecodedEvent::File(event)) => {
                self.matcher.learn_task(id, name);
                self.matcher.file_system(time, &event, &dev_t_label(event.device), None);
            }
            // The kernel of a vendor has this event with other fields, so it is skipped.
            None => context.skip(),
        }
        Ok(true)
    }

    /// Counts an event that is not used. Returns false if the name of the event seems to be cut off.
    fn other(&mut self, line: &FtraceLine, context: &mut ParseContext) -> Result<bool> {
        if context.joining {
            return Err(Error::new(ErrorClass::Syntax, "the joined lines are no known event").of_field("event", 0, line.event));
        }
        if let Some(count) = line.event.strip_prefix(b"PERF_RECORD_LOST") {
            let mut numbers = blank_separated(count).filter_map(|word| unsigned(word, "lost", 0).ok());
            self.lose(numbers.next().unwrap_or(1), context);
            context.no_record();
            return Ok(true);
        }
        if line.payload.is_empty() && is_cut_name(line.event) && context.waits_for_rest() {
            return Ok(false);
        }
        context.skip();
        Ok(true)
    }

    fn lose(&mut self, count: u64, context: &mut ParseContext) {
        self.lost += count;
        context.ledger.lost = self.lost.max(self.overwritten);
    }

    /// Handles a line that is not an event.
    #[cold]
    fn notice(&mut self, line: &[u8], context: &mut ParseContext) -> Result<()> {
        let notice = FtraceNotice::of(line);
        if matches!(notice, FtraceNotice::Foreign | FtraceNotice::Damaged) {
            let is_damaged = notice == FtraceNotice::Damaged;
            if context.joining || is_damaged || FtraceLine::may_begin(line) && context.waits_for_rest() {
                if is_damaged || context.joining {
                    let problem = "the line is not `task-pid [cpu] time: event: ...`";
                    return Err(Error::new(ErrorClass::Syntax, problem).of_field("line", 0, line));
                }
                return Ok(());
            }
            context.foreign();
            return Ok(());
        }
        context.no_record();
        match notice {
            FtraceNotice::Tracer(tracer) => {
                self.tracer = Some(text(tracer).into_owned());
                context.restarts = true;
            }
            FtraceNotice::Lost(count) => self.lose(count, context),
            FtraceNotice::Overwritten(count) => {
                self.overwritten += count;
                self.lose(0, context);
            }
            FtraceNotice::Stack => context.ledger.stack_lines += 1,
            FtraceNotice::Heading | FtraceNotice::Damaged | FtraceNotice::Foreign => {}
        }
        Ok(())
    }
}

/// Whether this is a truncated name of an event that is used.
fn is_cut_name(event: &[u8]) -> bool {
    let mut known = KernelEvent::ALL.iter().filter_map(|(path, _)| path.rsplit('/').next());
    !event.is_empty()
        && (BlockEventKind::NAMES.iter().any(|(name, _)| name.as_bytes().starts_with(event))
            || known.any(|name| name.as_bytes().starts_with(event)))
}

impl LineFormat for FtraceFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let Some(parts) = FtraceLine::of(line) else { return self.notice(line, context) };
        if parts.event.is_empty() {
            self.blk(&parts, context, out)?;
            return Ok(());
        }
        self.is_relative |= parts.is_relative();
        let (place, meaning) = self.events.name_index(parts.event, FtraceEventKind::by_name);
        let is_taken = match meaning {
            Some(FtraceEventKind::Block(kind)) => self.block(kind, false, &parts, context, out)?,
            Some(FtraceEventKind::Accounted(kind)) => self.block(kind, true, &parts, context, out)?,
            Some(FtraceEventKind::Beside(event)) => self.driver_or_fs_event(event, &parts, context, out)?,
            None => self.other(&parts, context)?,
        };
        if is_taken {
            self.events.add(place);
        }
        Ok(())
    }

    fn may_be_rest(&self, line: &[u8]) -> bool {
        FtraceLine::of(line).is_none() && matches!(FtraceNotice::of(line), FtraceNotice::Foreign | FtraceNotice::Damaged)
    }

    fn finish(&mut self, context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        self.matcher.finish(&mut context.devices, &mut context.ledger, out);
        self.activity = self.matcher.activity(|_| None).to_json();
        if context.ledger.seen == 0 {
            return Err(Error::new(ErrorClass::Empty, "the file contains no event of the kernel's tracer")
                .hint("record block events: `atrace` has them in the category `disk`, tracefs in events/block"));
        }
        Ok(())
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn tally(&self) -> EventTally {
        let mut tally = self.events.tally();
        tally.tracer.clone_from(&self.tracer);
        tally.packets = self.matcher.packets();
        tally
    }

    fn header(&self) -> TraceHeader {
        TraceHeader {
            clock: if self.is_relative { "relative" } else { "monotonic" }.into(),
            note: self.matcher.note(),
            activity: self.activity.clone(),
            ..TraceHeader::default()
        }
    }
}
