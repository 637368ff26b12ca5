//! The default output of `blkparse` (man page blkparse(1), "Default output"), and the classic one of the kernel's tracer
//! `blk`, which is the same without a sequence number (`options/blk_classic`).
//!
//! `MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PID ACTION RWBS SECTOR + SECTORS [PROCESS]`. [`crate::EventPairer`] combines the
//! events into requests. The number of lost events is read from the summary after the events, and from the output of blktrace
//! itself. Headings are skipped, and other lines that are not of the trace are counted.

use std::borrow::Cow;
use std::path::Path;

use super::blk_action::{ActionMeaning, BlkAction, is_action, rest_after};
use super::ftrace::{device_name, error_of};
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, blank_separated, cuts_a_length, decimal_time, is_decimal,
    is_digits, need, pid, text, unsigned,
};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    BlockEventKind, BlockLayerEvent, DecompressedInput, Error, ErrorClass, EventPairer, EventTally, Nanos, ReadOptions,
    RecordedFeatures, Request, Result, TraceColumn, TraceHeader, TraceSource,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "blkparse",
    about: "blkparse's default text, and the kernel's tracer `blk` with blk_classic",
    known_by: "`major,minor cpu sequence time pid action`, of blk_classic without the sequence number",
    origin: FormatOrigin {
        from: "`blktrace -d /dev/DISK -o - \\| blkparse -i -`, or `blkparse -i NAME`",
        gives: &[
            TraceColumn::Start,
            TraceColumn::Issue,
            TraceColumn::Complete,
            TraceColumn::Flags,
            TraceColumn::Pid,
            TraceColumn::Process,
            TraceColumn::Device,
        ],
        unknown: "the time of the device itself: the driver's events are not in it",
    },
    extensions: &[],
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open,
    writes: None,
};

fn sniff(head: &[u8], _path: &Path) -> bool {
    head.split(|byte| *byte == b'\n').any(is_event)
}

/// Whether the line is an event, from device to action.
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
    let format = BlkparseFormat {
        pairer: EventPairer::default(),
        process: NameIdCache::default(),
        device: NameIdCache::default(),
        actions: [0; LAST_LETTER as usize + 1],
        in_summary: false,
    };
    Ok(Box::new(LineSource::new(format, input, options)))
}

/// The largest first letter of an action.
const LAST_LETTER: u8 = b'm';

struct BlkparseFormat {
    pairer: EventPairer,
    process: NameIdCache,
    device: NameIdCache,
    /// Number of events by the first letter of their action.
    actions: [u64; LAST_LETTER as usize + 1],
    in_summary: bool,
}

/// The name of the process in the brackets at the end.
fn process_name(line: &[u8]) -> Option<&[u8]> {
    let open = memchr::memchr(b'[', line)?;
    line[open + 1..].strip_suffix(b"]")
}

/// Whether the line begins like an event, complete or not, with at most one bad field.
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
    // The line ends after one of its first fields, or is of the kernel's tracer, without a sequence number.
    let lacks_a_sequence = sequence.is_empty() || sequence.contains(&b'.');
    cpu.is_empty() || good > 1 || is_digits(cpu) && lacks_a_sequence
}

/// Reads the number of lost events in `Skips: 4 forward (4 -   0.0%)` of blkparse and `Total:  90 events (dropped 4), 5 KiB data`
/// of blktrace; 0 for other lines. `You have 4 dropped events` of blktrace is not read, because the total, which is of all devices
/// and CPUs, includes it.
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

/// Whether a line is of the summaries of blkparse and blktrace, a heading or a separator.
fn is_notice(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let separates = |byte: &u8| matches!(byte, b'-' | b'=' | b'*' | b'~' | b'|' | b'+' | b'_' | b' ');
    let begins = |words: &[&[u8]]| words.iter().any(|word| line.starts_with(word));
    line.starts_with(b"#")
        || line.iter().all(separates)
        || begins(&[b"Input file ", b"Skips:", b"Total:", b"=== ", b"You have ", b"Consider using ", b"Unresolved"])
}

impl BlkparseFormat {
    /// Skips a line that is not an event, and counts it.
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
        if self.device.last().is_none_or(|(_, last)| last != device) && !begins_like_an_event(line) {
            return self.pass(line, context);
        }
        context.restarts |= self.in_summary;
        self.in_summary = false;
        let device = self.device.id(device, &mut context.devices, |raw| device_name(raw, 1))?;
        unsigned(need(&mut fields, "cpu", 2)?, "cpu", 2)?;
        let mut column = 3;
        let mut field = need(&mut fields, "sequence", column)?;
        // The kernel's tracer does not number events.
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
        let is_part =
            matches!(step, ActionMeaning::Request(_)) && name.is_none() || context.joining && cuts_a_length(rest);
        if is_part && context.waits_for_rest() {
            return Ok(());
        }
        self.actions[usize::from(rest[0].min(LAST_LETTER))] += 1;
        let BlkAction { kind, op, flags, sector, sectors, zeroes } = match step {
            ActionMeaning::Request(action) => action,
            other => {
                match other {
                    ActionMeaning::Zone(command, kind) => self.pairer.zone(command, kind),
                    ActionMeaning::Packet(code, kind) => self.pairer.packet(code, kind),
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
            // In a completion, the brackets contain the error code.
            Some(name) if kind != BlockEventKind::Complete => {
                Some(self.process.id(name, &mut context.processes, |raw| Ok::<Cow<str>, Error>(text(raw)))?)
            }
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
            return Err(Error::new(ErrorClass::Empty, "the file holds no event of blkparse")
                .hint("print the events with `blkparse -i NAME`, without -q or a format of your own (-f)"));
        }
        Ok(())
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn tally(&self) -> EventTally {
        let mut tally = EventTally::new((0..).map(char::from).zip(self.actions));
        tally.packets = self.pairer.packets();
        tally
    }

    fn header(&self) -> TraceHeader {
        TraceHeader {
            format: FORMAT.name.into(),
            clock: "relative".into(),
            note: self.pairer.note(),
            ..TraceHeader::default()
        }
    }
}
