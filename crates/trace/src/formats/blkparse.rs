//! The default output of `blkparse` (man page blkparse(1), "Default output"), and the classic output of the kernel's tracer `blk`
//! (`options/blk_classic`), which is the same without sequence numbers.
//!
//! `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`. [`crate::EventPairer`] combines the
//! events into requests. The number of lost events comes from the summary after the events, and from the output of blktrace
//! itself. Headings are skipped; other lines that are not part of the trace are counted.

use super::fields::{cuts_a_length, is_blank};
use super::ftrace::{device_name, error_of, packet_of, range, remapped_from};
use super::prelude::*;
use super::rwbs::{self, RwbsMeaning, RwbsOperation};
use crate::{BlockEventKind, BlockLayerEvent, EventPairer, ZoneCommand};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "blkparse",
    about: "blkparse's default text, and the kernel's tracer `blk` with blk_classic",
    known_by: "`major,minor cpu sequence time pid action`, of blk_classic without the sequence number",
    from: "`blktrace -d /dev/DISK -o - \\| blkparse -i -`, or `blkparse -i NAME`",
    gives: TraceColumn::OF_BLOCK_LAYER,
    unknown: "the time of the device itself: the driver's events are not in it",
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    ..TraceFormat::READ_ONLY
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    head.split(|byte| *byte == b'\n').any(is_event)
}

/// Whether the line is an event, from its device to its action.
pub(super) fn is_event(line: &[u8]) -> bool {
    let mut fields = blank_separated(line);
    let Some(device) = fields.next().filter(|field| device_name(field, 1).is_ok()) else { return false };
    let mut next = || fields.next().unwrap_or(&[]);
    let (cpu, mut third) = (next(), next());
    if device.is_empty() || !is_digits(cpu) {
        return false;
    }
    if is_digits(third) {
        third = next();
    }
    third.contains(&b'.') && is_decimal(third) && is_digits(next()) && is_action(next())
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let actions = [0; LAST_LETTER as usize + 1];
    let format = BlkparseFormat { pairer: EventPairer::default(), actions, in_summary: false };
    LineSource::open(FORMAT.name, format, input, options)
}

/// The greatest letter with which an action begins.
const LAST_LETTER: u8 = b'm';

struct BlkparseFormat {
    pairer: EventPairer,
    actions: [u64; LAST_LETTER as usize + 1],
    in_summary: bool,
}

/// The name of the process in the brackets at the end of the line.
fn process_name(line: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'[', line)?;
    line[open + 1..].strip_suffix(b"]")
}

/// Whether the line begins like an event, possibly an incomplete one, and has at most one invalid field.
#[cold]
fn begins_like_an_event(line: &[u8]) -> bool {
    let mut fields = blank_separated(line);
    let mut next = || fields.next().unwrap_or(&[]);
    let (device, cpu, sequence, time) = (next(), next(), next(), next());
    let is_device = device_name(device, 1).is_ok();
    let others = [is_digits(cpu), is_digits(sequence), time.contains(&b'.') && is_decimal(time)];
    let good = others.into_iter().filter(|good| *good).count();
    if !is_device {
        return good == 3 && device.contains(&b',');
    }
    // The line was truncated after one of its first fields, or the kernel's `blk` tracer wrote it without a sequence number.
    let lacks_a_sequence = sequence.is_empty() || sequence.contains(&b'.');
    cpu.is_empty() || good > 1 || is_digits(cpu) && lacks_a_sequence
}

/// Parses the number of lost events in `Skips: 4 forward (4 -   0.0%)` of blkparse or `Total:  90 events (dropped 4), 5 KiB data` of
/// blktrace; 0 for other lines. `You have 4 dropped events` of blktrace is ignored, because the total over all devices and CPUs includes it.
fn lost(line: &[u8]) -> Result<u64> {
    let mut fields = blank_separated(line);
    match fields.next() {
        Some(b"Skips:") => unsigned(need(&mut fields, "skips", 2)?, "skips", 2),
        Some(b"Total:") => {
            let Some(at) = memchr::memmem::find(line, b"(dropped ") else { return Ok(0) };
            let digits = line[at + 9..].split(|byte| !byte.is_ascii_digit()).next().unwrap_or(&[]);
            unsigned(digits, "dropped", 0)
        }
        _ => Ok(0),
    }
}

/// Whether a line belongs to the summary of blkparse or blktrace, or is a heading or separator.
fn is_notice(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let separates = |byte: &u8| matches!(byte, b'-' | b'=' | b'*' | b'~' | b'|' | b'+' | b'_' | b' ');
    let begins = |words: &[&[u8]]| words.iter().any(|word| line.starts_with(word));
    line.starts_with(b"#")
        || line.iter().all(separates)
        || begins(&[b"Input file ", b"Skips:", b"Total:", b"=== ", b"You have ", b"Consider using ", b"Unresolved"])
}

impl BlkparseFormat {
    /// Skips and counts a line that is not an event.
    fn pass(&mut self, line: &[u8], context: &mut ParseContext) -> Result<()> {
        context.ledger.lost += lost(line)?;
        let begins_summary = line.trim_ascii_start().starts_with(b"CPU") || line.starts_with(b"Total (");
        self.in_summary |= begins_summary;
        if self.in_summary || is_notice(line) {
            context.no_record();
        } else {
            context.foreign();
        }
        Ok(())
    }
}

impl LineFormat for BlkparseFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = blank_separated(line);
        let device = fields.next().unwrap_or(&[]);
        if context.last_device.last().is_none_or(|(_, last)| last != device) && !begins_like_an_event(line) {
            return self.pass(line, context);
        }
        context.restarts |= self.in_summary;
        self.in_summary = false;
        let device = context.device_named(device, |raw| device_name(raw, 1))?;
        unsigned(need(&mut fields, "cpu", 2)?, "cpu", 2)?;
        let mut column = 3;
        let mut field = need(&mut fields, "sequence", column)?;
        // The kernel's `blk` tracer does not number events.
        if !field.contains(&b'.') {
            unsigned(field, "sequence", column)?;
            column += 1;
            field = need(&mut fields, "time", column)?;
        }
        let time = Nanos(decimal_time(field, TimeUnit::Seconds, "time", column)?);
        let id = pid(need(&mut fields, "pid", column + 1)?, "pid", column + 1)?;
        let rest = rest_after(line, column as usize + 1);
        let step = ActionMeaning::read(rest, column + 2)?;
        let name = process_name(rest);
        let is_part = matches!(step, ActionMeaning::Request(_)) && name.is_none() || context.joining && cuts_a_length(rest);
        if is_part && context.waits_for_rest() {
            return Ok(());
        }
        self.actions[usize::from(rest[0].min(LAST_LETTER))] += 1;
        let BlkAction { kind, op, flags, sector, sectors, zeroes } = match step {
            ActionMeaning::Request(action) => action,
            other => {
                match other {
                    ActionMeaning::Zone(command, kind) => self.pairer.special.zones.see(command, kind),
                    ActionMeaning::Packet(code, kind) => self.pairer.special.packets.see(code, kind),
                    ActionMeaning::Remap(from) => {
                        if let Some(from) = context.devices.id(from) {
                            self.pairer.remap(from);
                        }
                    }
                    ActionMeaning::Request(_) | ActionMeaning::Other => {}
                }
                context.skip();
                return Ok(());
            }
        };
        let process = match name {
            // In a completion, the brackets contain the error code instead of a process name.
            Some(name) if kind != BlockEventKind::Complete => Some(context.process(name)?),
            _ => None,
        };
        let error = if kind == BlockEventKind::Complete { error_of(rest) } else { 0 };
        let pid = Some(id);
        let event = BlockLayerEvent { time, kind, device, op, flags, sector, sectors, pid, process, error, zeroes };
        self.pairer.feed(&event, &mut context.ledger, out);
        Ok(())
    }

    fn may_be_rest(&self, line: &[u8]) -> bool {
        !begins_like_an_event(line) && !is_notice(line)
    }

    fn finish(&mut self, context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        self.pairer.finish(&mut context.ledger, out);
        if context.ledger.seen == 0 {
            return Err(Error::new(ErrorClass::Empty, "the file contains no event of blkparse")
                .hint("print the events with `blkparse -i NAME`, without -q or a format of your own (-f)"));
        }
        Ok(())
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn tally(&self) -> EventTally {
        let mut tally = EventTally::new((0..).map(char::from).zip(self.actions));
        tally.packets = self.pairer.special.packets_text();
        tally
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "relative".into(), note: self.pairer.special.note(), ..TraceHeader::default() }
    }
}

/// Actions that are not steps of a request: remaps, bounces, plugs, sleeps, messages.
const OTHER_ACTIONS: [&[u8]; 9] = [b"A", b"B", b"P", b"S", b"U", b"UT", b"T", b"m", b"?"];

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlkAction {
    pub kind: BlockEventKind,
    pub op: Op,
    pub flags: RequestFlags,
    pub sector: u64,
    pub sectors: u32,
    pub zeroes: bool,
}

impl BlkAction {
    #[inline]
    pub fn new(kind: BlockEventKind, operation: RwbsOperation, sector: u64, sectors: u32) -> Self {
        let (op, flags) = operation.of(sectors);
        Self { kind, op, flags, sector, sectors, zeroes: operation.is_zeroes(sectors) }
    }
}

/// The kind of event for the letters of an action; `None` for other letters.
fn kind_of(letter: &[u8]) -> Option<BlockEventKind> {
    Some(match letter {
        b"Q" => BlockEventKind::Queue,
        b"G" => BlockEventKind::GetRequest,
        b"I" => BlockEventKind::Insert,
        b"D" => BlockEventKind::Issue,
        b"C" => BlockEventKind::Complete,
        b"R" => BlockEventKind::Requeue,
        b"M" => BlockEventKind::BackMerge,
        b"F" => BlockEventKind::FrontMerge,
        b"X" => BlockEventKind::Split(0),
        _ => return None,
    })
}

pub(crate) fn is_action(letter: &[u8]) -> bool {
    kind_of(letter).is_some() || OTHER_ACTIONS.contains(&letter)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionMeaning<'a> {
    /// A step of a request.
    Request(BlkAction),
    /// A step of a pass-through command of a program, with its operation code.
    Packet(Option<u8>, BlockEventKind),
    /// The device of this name passed I/O on to another device.
    Remap(&'a str),
    Zone(ZoneCommand, BlockEventKind),
    /// Any other action.
    Other,
}

impl<'a> ActionMeaning<'a> {
    /// Parses an action and the fields after it; `column` is the column of the action, for errors.
    pub(super) fn read(text: &'a [u8], column: u64) -> Result<Self> {
        let mut fields = blank_separated(text);
        let letter = need(&mut fields, "action", column)?;
        if OTHER_ACTIONS.contains(&letter) {
            let from = if letter == b"A" { remapped_from(text) } else { None };
            return Ok(from.map_or(ActionMeaning::Other, ActionMeaning::Remap));
        }
        let kind = kind_of(letter)
            .ok_or_else(|| Error::new(ErrorClass::Value, "unknown action of blkparse").of_field("action", column, letter))?;
        let operation = match rwbs::read(need(&mut fields, "rwbs", column + 1)?, column + 1)? {
            RwbsMeaning::Request(operation) => operation,
            RwbsMeaning::Zone(command) => return Ok(ActionMeaning::Zone(command, kind)),
        };
        let rest = rest_after(text, 2);
        if is_command(rest) {
            return Ok(ActionMeaning::Packet(packet_of(rest), kind));
        }
        let (sector, sectors, kind) = match zero_length(rest) {
            Some(sector) => (unsigned(sector, "sector", column + 2)?, 0, kind),
            None => range(&mut blank_separated(rest), kind)?,
        };
        Ok(ActionMeaning::Request(BlkAction::new(kind, operation, sector, sectors)))
    }
}

/// The text after the first `count` fields.
pub(super) fn rest_after(line: &[u8], count: usize) -> &[u8] {
    let mut rest = line;
    for _ in 0..count {
        let begin = rest.iter().position(|byte| !is_blank(*byte)).unwrap_or(rest.len());
        let end = rest[begin..].iter().position(|byte| is_blank(*byte)).unwrap_or(rest.len() - begin);
        rest = &rest[begin + end..];
    }
    rest.trim_ascii_start()
}

/// Whether the fields are those of a command that is not block I/O: `(hex payload)`, or a number of bytes and `(hex payload)`,
/// instead of a range.
fn is_command(rest: &[u8]) -> bool {
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    rest[digits..].trim_ascii_start().starts_with(b"(")
}

/// The sector of an event with length 0; `None` for other events. For such an event, blkparse prints no length. It does not print a sector
/// of 0 either.
fn zero_length(rest: &[u8]) -> Option<&[u8]> {
    if rest.starts_with(b"[") {
        return Some(b"0");
    }
    let mut fields = blank_separated(rest);
    let sector = fields.next().filter(|field| is_digits(field))?;
    fields.next().is_some_and(|field| field.starts_with(b"[")).then_some(sector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<BlkAction> {
        match ActionMeaning::read(text.as_bytes(), 6).unwrap() {
            ActionMeaning::Request(action) => Some(action),
            ActionMeaning::Zone(..) | ActionMeaning::Packet(..) | ActionMeaning::Remap(_) | ActionMeaning::Other => None,
        }
    }

    #[test]
    fn a_command_to_a_zone_is_no_request() {
        let step = ActionMeaning::read(b"D  ZR 524288 + 0 [dd]", 6).unwrap();
        assert_eq!(step, ActionMeaning::Zone(ZoneCommand::Reset, BlockEventKind::Issue));
    }

    #[test]
    fn actions_on_requests_have_a_range() {
        let action = read("D   W 1056768 + 8 [dd]").unwrap();
        assert_eq!((action.kind, action.op, action.sector, action.sectors), (BlockEventKind::Issue, Op::Write, 1_056_768, 8));
        assert_eq!(read("X   W 10 / 14 [dd]").unwrap().kind, BlockEventKind::Split(14));
    }

    #[test]
    fn flushes_have_no_length_and_maybe_no_sector() {
        for text in ["D FFS [kworker/1:1H]", "C FFS 0 [0]"] {
            let action = read(text).unwrap();
            assert_eq!((action.op, action.sector, action.sectors), (Op::Flush, 0, 0), "{text}");
        }
    }

    #[test]
    fn other_actions_and_commands_of_scsi_are_no_requests() {
        for text in ["P   N [dd]", "m   N cfq: x"] {
            assert_eq!(ActionMeaning::read(text.as_bytes(), 6).unwrap(), ActionMeaning::Other, "{text}");
        }
        assert_eq!(ActionMeaning::read(b"A   W 8 + 8 <- (179,1) 0", 6).unwrap(), ActionMeaning::Remap("179,1"));
        for (text, code) in [("D   R 36 (12 00 00 24 00) [udevd]", 0x12), ("D   N (1b 00) [x]", 0x1b)] {
            let step = ActionMeaning::read(text.as_bytes(), 6).unwrap();
            assert_eq!(step, ActionMeaning::Packet(Some(code), BlockEventKind::Issue), "{text}");
        }
    }

    #[test]
    fn a_bad_field_is_named_by_its_column() {
        for (text, field) in [("Y   W 8 + 8 [x]", "action"), ("D   K 8 + 8 [x]", "rwbs"), ("D   W 8", "+")] {
            let error = ActionMeaning::read(text.as_bytes(), 6).unwrap_err();
            assert_eq!(error.field(), Some(field), "{text}: {error}");
        }
    }
}
