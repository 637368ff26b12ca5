//! Commands of SCSI disks. Source: the kernel's `include/trace/events/scsi.h`; layout of commands: SBC-4.

use std::io::Write;

use super::command::scsi_kind;
use crate::opcodes::SCSI_UNMAP;
use crate::{CommandKind, CommandStep, CommandTarget, EventField, EventFieldValues};

/// The beginning of the host's name in a command event; `HOST:CHANNEL:TARGET:UNIT` follows.
pub(super) const HOST: &[u8] = b"scsi ";
/// Set in an id that is a tag, so that it differs from those made from a command's blocks.
const TAG: u64 = 1 << 63;

/// The name of the disk of a command, truncated or padded with zeros.
pub(super) fn host(values: &EventFieldValues) -> [u8; 16] {
    let number = |slot| values.number(slot);
    let mut name = [0; 16];
    let [host, unit] = [number(EventField::HostNumber), number(EventField::Unit)];
    let [channel, target] = [number(EventField::Channel), number(EventField::Target)];
    // A name that is too long is truncated.
    let _ = write!(&mut name[..], "scsi {host}:{channel}:{target}:{unit}");
    name
}

/// The id of a command in progress: its tag, or before kernel 5.14, a number from its opcode and blocks.
pub(super) fn id(values: &EventFieldValues) -> u64 {
    let tag = values.number(EventField::Tag);
    if values.has(EventField::Tag) && tag >= 0 {
        return TAG | tag as u64;
    }
    let ScsiCommand { opcode, first, count } = ScsiCommand::of(values);
    (first << 24 ^ u64::from(count) << 8 ^ u64::from(opcode)) & !TAG
}

/// The start of a command.
pub(super) fn start(values: &EventFieldValues) -> CommandStep {
    let ScsiCommand { opcode, first, count } = ScsiCommand::of(values);
    let kind = scsi_kind(i64::from(opcode));
    let target = match kind {
        CommandKind::Discard if opcode == SCSI_UNMAP => CommandTarget::Nowhere,
        CommandKind::Read | CommandKind::Write | CommandKind::Discard => {
            CommandTarget::Blocks { first, count: Some(count), is_recent: false }
        }
        _ => CommandTarget::Nowhere,
    };
    CommandStep::Start { kind, bytes: 0, target, packed: false, reliable: false }
}

/// Opcode, first block and number of blocks.
struct ScsiCommand {
    opcode: u8,
    first: u64,
    count: u32,
}

impl ScsiCommand {
    /// Decodes the command descriptor block if the event contains it; otherwise uses the fields of the text.
    fn of(values: &EventFieldValues) -> Self {
        let bytes = values.text(EventField::Cdb);
        let number = |from: usize, to: usize| {
            bytes.get(from..to).unwrap_or_default().iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        let opcode = (values.number(EventField::Opcode) & 0xff) as u8;
        let (first, count) = match opcode {
            _ if bytes.is_empty() => (values.number(EventField::Lba) as u64, values.number(EventField::Blocks) as u64),
            // Groups of commands by length: 6, 10, 16 and 12 bytes. In the first group, 0 means 256 blocks.
            0x00..=0x1f => (number(1, 4) & 0x1f_ffff, (number(4, 5) + 255) % 256 + 1),
            0x20..=0x5f => (number(2, 6), number(7, 9)),
            0x80..=0x9f => (number(2, 10), number(10, 14)),
            0xa0..=0xbf => (number(2, 6), number(6, 10)),
            _ => (0, 0),
        };
        Self { opcode, first, count: u32::try_from(count).unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_every_length_tell_first_block_and_number() {
        let blocks = |bytes: &[u8]| {
            let mut values = EventFieldValues::default();
            values.set(EventField::Opcode, i64::from(bytes[0]));
            values.set_text(EventField::Cdb, bytes);
            match start(&values) {
                CommandStep::Start { kind, target: CommandTarget::Blocks { first, count, .. }, .. } => {
                    Some((kind, first, count?))
                }
                _ => None,
            }
        };
        assert_eq!(blocks(&[0x08, 0x1f, 0, 2, 0, 0]), Some((CommandKind::Read, 0x1f_0002, 256)));
        assert_eq!(blocks(&[0x2a, 0, 0, 0, 8, 0, 0, 0, 8, 0]), Some((CommandKind::Write, 2048, 8)));
        assert_eq!(blocks(&[0xa8, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0]), Some((CommandKind::Read, 2048, 256)));
        let long = [0x8a, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
        assert_eq!(blocks(&long), Some((CommandKind::Write, 1 << 32, 8)));
        assert_eq!((blocks(&[0x42, 0]), blocks(&[0x35, 0])), (None, None));
        assert_eq!(blocks(&[0x2a, 0]), Some((CommandKind::Write, 0, 0)));
    }
}
