//! Decodes records of the MMC and UFS drivers and of file systems by the event formats of the recorded kernel.

use emmclab_trace::{DecodedEvent, EventField, EventFieldValues, KernelEvent};

use crate::byte_order::KernelByteOrder;
use crate::event_format::{EventFormat, EventFormatField};

/// Decodes the records of one event.
#[derive(Clone, Debug)]
pub(crate) struct ExtraDecoder {
    event: KernelEvent,
    pid: EventFormatField,
    fields: Vec<(EventField, EventFormatField)>,
}

impl ExtraDecoder {
    /// Finds the fields in the event format; `None` if it lacks fields that are needed.
    pub(crate) fn new(event: KernelEvent, format: &EventFormat) -> Option<Self> {
        let pid = format.field("common_pid")?.clone();
        let known = format.fields().filter_map(|field| {
            let slot = EventField::by_name(field.name.as_bytes())?;
            // Some kernels store a pointer to the host instead of its name; such a field is ignored.
            (slot.is_text() == field.is_text()).then(|| (slot, field.clone()))
        });
        let fields: Vec<_> = known.collect();
        let mut values = EventFieldValues::default();
        for (slot, _) in &fields {
            if slot.is_text() { values.set_text(*slot, b"") } else { values.set(*slot, 0) }
        }
        event.is_complete_in(&values).then_some(Self { event, pid, fields })
    }

    /// Decodes a record; `None` if it is too short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: KernelByteOrder, record: &[u8]) -> Option<DecodedEvent> {
        let mut values = EventFieldValues::default();
        for (slot, field) in &self.fields {
            if *slot == EventField::Cdb {
                values.set_text(*slot, field.bytes(order, record)?);
            } else if slot.is_text() {
                values.set_text(*slot, field.text(order, record)?);
            } else {
                values.set(*slot, field.number(order, record)?);
            }
        }
        DecodedEvent::read(self.event, self.pid.number(order, record)? as i32, &values)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use emmclab_trace::{CommandKind, CommandStep, CommandTarget, unfilled};

    use super::*;

    /// A decoder for an event with these fields: declaration, offset, size.
    fn decoder(event: &str, fields: &[(&str, usize, usize)]) -> Option<ExtraDecoder> {
        let mut text =
            format!("name: {event}\nID: 9\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n");
        for (declaration, offset, size) in fields {
            writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;").unwrap();
        }
        let event = KernelEvent::by_name(event.as_bytes()).unwrap();
        ExtraDecoder::new(event, &EventFormat::parse(&text).unwrap())
    }

    /// Host, id and step of the command in a record.
    fn command(decoder: &ExtraDecoder, record: &[u8]) -> (String, u64, CommandStep) {
        let Some(DecodedEvent::Command(event)) = decoder.decode(KernelByteOrder::Little, record) else { panic!() };
        (String::from_utf8_lossy(unfilled(&event.host)).into_owned(), event.id, event.step)
    }

    /// A record with these words from offset 8 on, followed by texts.
    fn record(words: &[u32], texts: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        [9, 0, 0, 0, 7, 0, 0, 0].into_iter().chain(words).chain(texts.iter().copied()).collect()
    }

    fn start(kind: CommandKind, bytes: u64) -> CommandStep {
        CommandStep::Start { kind, bytes, target: CommandTarget::Nowhere, packed: false, reliable: false }
    }

    /// A data command at this block; the event specifies only the length in bytes.
    fn start_at(first: u64, kind: CommandKind, bytes: u64) -> CommandStep {
        let target = CommandTarget::Blocks { first, count: None, is_recent: false };
        CommandStep::Start { kind, bytes, target, packed: false, reliable: false }
    }

    const DONE: CommandStep = CommandStep::Done { failed: false, will_be_repeated: false };

    #[test]
    fn kernel_4_tells_begin_and_end_of_a_ufs_command_by_words() {
        let fields = [
            ("__data_loc char[] dev_name", 8, 4),
            ("__data_loc char[] str", 12, 4),
            ("unsigned int tag", 16, 4),
            ("u32 transfer_len", 20, 4),
            ("u64 lba", 24, 8),
            ("u8 opcode", 32, 1),
        ];
        let decoder = decoder("ufshcd_command", &fields).unwrap();
        let decode = |word: &[u8], tag, bytes, opcode| {
            let (host, at) = (b"624000.ufshc\0", 36);
            let texts: Vec<u8> = host.iter().chain(word).copied().collect();
            let place = |at: usize, length: usize| (length << 16 | at) as u32;
            let (host, word) = (place(at, host.len()), place(at + host.len(), word.len()));
            command(&decoder, &record(&[host, word, tag, bytes, 8, 0, opcode], &texts))
        };
        let host = || "624000.ufshc".to_owned();
        assert_eq!(decode(b"send\0", 3, 4096, 0x2a), (host(), 3, start_at(8, CommandKind::Write, 4096)));
        assert_eq!(decode(b"complete\0", 3, 4096, 0x2a), (host(), 3, DONE));
        assert_eq!(decode(b"dev_complete\0", 3, 0, 0), (host(), 3, DONE));
        // A length of -1 means that there is none.
        assert_eq!(decode(b"send\0", 4, u32::MAX, 0x35).2, start(CommandKind::Flush, 0));
    }

    #[test]
    fn kernel_6_tells_begin_and_end_of_a_ufs_command_by_numbers_and_the_host_not_at_all() {
        let fields = [
            ("struct scsi_device * sdev", 8, 8),
            ("struct ufs_hba * hba", 16, 8),
            ("enum ufs_trace_str_t str_t", 24, 4),
            ("unsigned int tag", 28, 4),
            ("u32 hwq_id", 32, 4),
            ("int transfer_len", 36, 4),
            ("u64 lba", 40, 8),
            ("u8 opcode", 48, 1),
        ];
        let decoder = decoder("ufshcd_command", &fields).unwrap();
        let decode = |step, opcode| command(&decoder, &record(&[1, 2, 3, 4, step, 31, 0, 65536, 5, 0, opcode], b""));
        assert_eq!(decode(0, 0x28), ("ufs".to_owned(), 31, start_at(5, CommandKind::Read, 65536)));
        assert!(matches!(decode(0, 0x42).2, CommandStep::Start { kind: CommandKind::Discard, .. }));
        assert_eq!(decode(1, 0x28).2, DONE);
        assert!(decoder.decode(KernelByteOrder::Little, &record(&[1, 2, 3, 4, 0], b"")).is_none());
    }

    #[test]
    fn kernel_6_tells_when_the_link_of_a_ufs_hibernates() {
        let fields = [
            ("__data_loc char[] dev_name", 8, 4),
            ("enum ufs_trace_str_t str_t", 12, 4),
            ("u32 cmd", 16, 4),
            ("u32 arg1", 20, 4),
        ];
        let decoder = decoder("ufshcd_uic_command", &fields).unwrap();
        let name = b"0000:00:03.0\0";
        let decode = |step, opcode| command(&decoder, &record(&[13 << 16 | 0x18, step, opcode, 0], name));
        let host = || "0000:00:03.0".to_owned();
        assert_eq!(decode(0, 0x17), (host(), 1 << 32, start(CommandKind::Hibernate, 0)));
        assert_eq!(decode(1, 0), (host(), 1 << 32, DONE));
        assert_eq!(decode(0, 0x18).2, start(CommandKind::WakeUp, 0));
        // This one is another setting of the link.
        assert_eq!(decode(0, 0x02).2, start(CommandKind::Other, 0));
    }

    #[test]
    fn androids_kernel_3_10_tells_ranges_and_neither_host_nor_request() {
        let fields = [("unsigned int cmd", 8, 4), ("unsigned int addr", 12, 4), ("unsigned int size", 16, 4)];
        let begin = decoder("mmc_blk_rw_start", &fields).unwrap();
        let end = decoder("mmc_blk_rw_end", &fields).unwrap();
        let record = record(&[25, 0x8000_2000, 16], b"");
        let target = CommandTarget::Sectors { first: 0x8000_2000, count: 16 };
        let step = CommandStep::Start { kind: CommandKind::Write, bytes: 8192, target, packed: false, reliable: false };
        assert_eq!(command(&begin, &record), ("mmc".to_owned(), 0x8000_2000, step));
        assert_eq!(command(&end, &record), ("mmc".to_owned(), 0x8000_2000, DONE));
    }

    #[test]
    fn an_event_with_other_fields_is_left_out() {
        // Some vendors' kernels store the host as a pointer.
        let fields = [
            ("u32 cmd_opcode", 8, 4),
            ("u32 cmd_arg", 12, 4),
            ("unsigned int blocks", 16, 4),
            ("unsigned int blksz", 20, 4),
            ("unsigned int data_flags", 24, 4),
            ("struct mmc_host * name", 32, 8),
        ];
        assert!(decoder("mmc_request_start", &fields).is_none());
        assert!(decoder("jbd2_run_stats", &[("dev_t dev", 8, 4)]).is_none());
    }
}
