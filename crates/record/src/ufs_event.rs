//! Records of the UFS driver: a command goes to the device, and is done. Source: the kernel's
//! `include/trace/events/ufs.h` and `drivers/ufs/core/ufshcd.c`; opcodes: SBC-4.
//!
//! The event names the controller, not the disk (one controller has several), and its address counts sectors or logical
//! blocks by the kernel's version: so commands are counted and timed, and requests keep the times of the block layer.

use emmclab_trace::Result;

use crate::block_event::fixed;
use crate::byte_order::ByteOrder;
use crate::command_event::{CommandEvent, CommandKind, CommandStep};
use crate::event_format::{EventFormat, Field};

/// The event that is recorded.
pub(crate) const EVENT: &str = "ufs/ufshcd_command";

/// `UFS_CMD_SEND` of `enum ufs_trace_str_t`; the event's others are ends.
const COMMAND_SEND: i64 = 0;

/// Decodes `ufshcd_command`.
#[derive(Clone, Debug)]
pub(crate) struct UfsDecoder {
    /// Kernels from 6.15 on have a pointer instead.
    host: Option<Field>,
    step: Step,
    tag: Field,
    bytes: Field,
    opcode: Field,
}

/// How a kernel tells the beginning from the end.
#[derive(Clone, Debug)]
enum Step {
    /// By a word: `send`, `send_req`, `complete`, `complete_rsp`, `dev_complete` (before kernel 5.12).
    Word(Field),
    /// By a number.
    Number(Field),
}

impl UfsDecoder {
    /// Finds the fields in this kernel's format.
    pub(crate) fn new(format: &EventFormat) -> Result<Self> {
        let required = |name| format.required(name).cloned();
        let step = match format.field("str_t") {
            Some(field) => Step::Number(field.clone()),
            None => Step::Word(required("str")?),
        };
        let bytes = match format.field("affected_bytes") {
            Some(field) => field.clone(),
            None => required("transfer_len")?,
        };
        let host = format.field("dev_name").cloned();
        Ok(Self { host, step, tag: required("tag")?, bytes, opcode: required("opcode")? })
    }

    /// The event; `None` where the record is too short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<CommandEvent> {
        let number = |field: &Field| field.number(order, record);
        let begins = match &self.step {
            Step::Word(word) => {
                let word = word.text(order, record)?;
                !word.windows(5).any(|part| part == b"compl")
            }
            Step::Number(step) => number(step)? == COMMAND_SEND,
        };
        let step = if begins {
            let kind = match number(&self.opcode)? & 0xff {
                0x08 | 0x28 | 0x88 => CommandKind::Read,
                0x0a | 0x2a | 0x8a => CommandKind::Write,
                0x35 | 0x91 => CommandKind::Flush,
                0x42 => CommandKind::Discard,
                0x1b => CommandKind::Sleep,
                _ => CommandKind::Other,
            };
            // -1 where the command carries no data, in a field with or without a sign.
            let bytes = u64::from(
                u32::try_from(number(&self.bytes)?).ok().filter(|bytes| *bytes != u32::MAX).unwrap_or(0),
            );
            CommandStep::Start { kind, bytes, sector: None, packed: false, reliable: false }
        } else {
            CommandStep::Done { failed: false, again: false }
        };
        let host = match &self.host {
            Some(host) => host.text(order, record)?,
            None => b"ufs",
        };
        Some(CommandEvent { host: fixed(host), device: 0, id: number(&self.tag)? as u64, step })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::block_event::unfilled;

    fn format(fields: &[(&str, usize, usize)]) -> EventFormat {
        let mut text = "name: ufshcd_command\nID: 9\nformat:\n".to_owned();
        for (declaration, offset, size) in fields {
            writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;").unwrap();
        }
        EventFormat::parse(&text).unwrap()
    }

    /// A record of words from offset 8 on, then texts.
    fn record(words: &[u32], texts: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        [9, 0, 0, 0, 7, 0, 0, 0].into_iter().chain(words).chain(texts.iter().copied()).collect()
    }

    fn start(kind: CommandKind, bytes: u64) -> CommandStep {
        CommandStep::Start { kind, bytes, sector: None, packed: false, reliable: false }
    }

    const DONE: CommandStep = CommandStep::Done { failed: false, again: false };

    #[test]
    fn kernel_4_tells_begin_and_end_by_words() {
        let format = format(&[
            ("__data_loc char[] dev_name", 8, 4),
            ("__data_loc char[] str", 12, 4),
            ("unsigned int tag", 16, 4),
            ("u32 transfer_len", 20, 4),
            ("u64 lba", 24, 8),
            ("u8 opcode", 32, 1),
        ]);
        let decoder = UfsDecoder::new(&format).unwrap();
        let decode = |word: &[u8], tag, bytes, opcode| {
            let (host, at) = (b"624000.ufshc\0", 36);
            let texts: Vec<u8> = host.iter().chain(word).copied().collect();
            let place = |at: usize, length: usize| (length << 16 | at) as u32;
            let (host, word) = (place(at, host.len()), place(at + host.len(), word.len()));
            decoder
                .decode(ByteOrder::Little, &record(&[host, word, tag, bytes, 8, 0, opcode], &texts))
                .unwrap()
        };
        let event = decode(b"send\0", 3, 4096, 0x2a);
        assert_eq!((unfilled(&event.host), event.id), (&b"624000.ufshc"[..], 3));
        assert_eq!(event.step, start(CommandKind::Write, 4096));
        assert_eq!(decode(b"complete\0", 3, 4096, 0x2a).step, DONE);
        assert_eq!(decode(b"dev_complete\0", 3, 0, 0).step, DONE);
        // No length: -1.
        assert_eq!(decode(b"send\0", 4, u32::MAX, 0x35).step, start(CommandKind::Flush, 0));
    }

    #[test]
    fn kernel_6_tells_begin_and_end_by_numbers_and_the_host_not_at_all() {
        let format = format(&[
            ("struct scsi_device * sdev", 8, 8),
            ("struct ufs_hba * hba", 16, 8),
            ("enum ufs_trace_str_t str_t", 24, 4),
            ("unsigned int tag", 28, 4),
            ("u32 hwq_id", 32, 4),
            ("int transfer_len", 36, 4),
            ("u64 lba", 40, 8),
            ("u8 opcode", 48, 1),
        ]);
        let decoder = UfsDecoder::new(&format).unwrap();
        let decode = |step, opcode| {
            let words = [1, 2, 3, 4, step, 31, 0, 65536, 5, 0, opcode];
            decoder.decode(ByteOrder::Little, &record(&words, b"")).unwrap()
        };
        let event = decode(0, 0x28);
        assert_eq!((unfilled(&event.host), event.id), (&b"ufs"[..], 31));
        assert_eq!(event.step, start(CommandKind::Read, 65536));
        assert_eq!(decode(0, 0x42).step, start(CommandKind::Discard, 65536));
        assert_eq!(decode(1, 0x28).step, DONE);
        assert!(decoder.decode(ByteOrder::Little, &record(&[1, 2, 3, 4, 0], b"")).is_none());
    }
}
