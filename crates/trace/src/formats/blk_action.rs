//! Actions of the block tracer, as `blkparse` and the kernel's tracer `blk` print them: `ACTION RWBS SECTOR + SECTORS
//! [PROCESS]` (man page blkparse(1), "Trace actions"; `kernel/trace/blktrace.c`).

use super::ftrace::{packet_of, range, remapped_from};
use super::line_format::{blank_separated, is_digits, need, unsigned};
use super::rwbs::{self, RwbsMeaning, RwbsOperation};
use crate::{BlockEventKind, Error, ErrorClass, Op, RequestFlags, Result, ZoneCommand};

/// Actions that are not steps of a request: remapping, bouncing, plugging, sleeping, messages.
const OTHER_ACTIONS: [&[u8]; 9] = [b"A", b"B", b"P", b"S", b"U", b"UT", b"T", b"m", b"?"];

/// An action on a request.
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

/// The kind of event of an action's letter; `None` for other letters.
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

/// Whether this is the letter of an action.
pub(crate) fn is_action(letter: &[u8]) -> bool {
    kind_of(letter).is_some() || OTHER_ACTIONS.contains(&letter)
}

/// The meaning of a line with an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionMeaning<'a> {
    /// A step of a request.
    Request(BlkAction),
    /// A step of a packet of a program, with its operation code.
    Packet(Option<u8>, BlockEventKind),
    /// I/O was passed on from the device of this name.
    Remap(&'a str),
    /// A step of a command to a zone.
    Zone(ZoneCommand, BlockEventKind),
    /// Any other action.
    Other,
}

impl<'a> ActionMeaning<'a> {
    /// Reads an action and the fields after it; `column` is the column of the action, for errors.
    pub(super) fn read(text: &'a [u8], column: u64) -> Result<Self> {
        let mut fields = blank_separated(text);
        let letter = need(&mut fields, "action", column)?;
        if OTHER_ACTIONS.contains(&letter) {
            let from = if letter == b"A" { remapped_from(text) } else { None };
            return Ok(from.map_or(ActionMeaning::Other, ActionMeaning::Remap));
        }
        let kind = kind_of(letter).ok_or_else(|| {
            Error::new(ErrorClass::Value, "is not an action of blkparse").of_field("action", column, letter)
        })?;
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
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut rest = line;
    for _ in 0..count {
        let begin = rest.iter().position(|byte| !blank(byte)).unwrap_or(rest.len());
        let end = rest[begin..].iter().position(blank).unwrap_or(rest.len() - begin);
        rest = &rest[begin + end..];
    }
    rest.trim_ascii_start()
}

/// Whether this is a command that is not block I/O: it has `(hex payload)` instead of a range, or its number of bytes and `(hex
/// payload)`.
fn is_command(rest: &[u8]) -> bool {
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    rest[digits..].trim_ascii_start().starts_with(b"(")
}

/// The sector of an event without data; `None` for other events. Its length is not printed, nor its sector if it is 0.
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
            ActionMeaning::Zone(..) | ActionMeaning::Packet(..) | ActionMeaning::Remap(_) | ActionMeaning::Other => {
                None
            }
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
        assert_eq!(
            (action.kind, action.op, action.sector, action.sectors),
            (BlockEventKind::Issue, Op::Write, 1_056_768, 8)
        );
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
