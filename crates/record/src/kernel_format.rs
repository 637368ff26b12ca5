//! The properties of a kernel that are needed to decode its records: those of `block` events (source: the kernel's
//! `include/trace/events/block.h`) and of events of the MMC and UFS drivers and the file systems.

use std::collections::BTreeMap;

use emmclab_trace::{BlockEventKind, DecodedEvent, Error, ErrorClass, EventField, EventFieldValues, KernelEvent, Result, fixed};

use crate::event_format::{EventFormat, EventFormatField, KernelByteOrder};
use crate::ring_page::{LostEvents, RingPageLayout};

/// Texts of the recorded machine by name: tracefs files by their path in the instance (`events/header_page`,
/// `events/block/block_rq_issue/format`, `trace_clock`, ...), and those listed at [`KernelFormat::from_files`].
pub type Files = BTreeMap<String, String>;

/// A decoded record of the ring buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedEvent {
    /// An event of the block layer.
    Block(BlockEvent),
    /// An event of a driver below the block layer, or of a file system above it.
    Extra(DecodedEvent),
}

#[derive(Clone, Debug)]
enum EventDecoder {
    Block(Box<BlockDecoder>),
    Extra(ExtraDecoder),
}

/// Layout of pages and records of one kernel.
#[derive(Clone, Debug)]
pub struct KernelFormat {
    /// The layout of the ring buffer pages.
    pub layout: RingPageLayout,
    decoders: Vec<(u16, EventDecoder)>,
    /// The paths of the events to record, relative to the folder `events`.
    pub events: Vec<String>,
    smallest_record: usize,
}

/// Counts of the records of a ring-buffer page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPageSummary {
    /// Events that were decoded.
    pub events: u64,
    /// Records of events that were not enabled.
    pub other: u64,
    /// Events that were lost before this page, as reported by the kernel.
    pub lost: u64,
    /// Whether an unknown number of events was lost; at least one is counted in `lost`.
    pub lost_unknown: bool,
    /// Whether the page ends with a record that does not fit into it.
    pub damaged: bool,
}

impl KernelFormat {
    /// Reads the layout from `events/header_page`, `events/header_event` and the `format` files of the block events. Also reads the
    /// `format` files of MMC, UFS and file-system events, if they exist. The byte order is read from `byte_order`: 1 for little-endian, 2
    /// for big-endian, from the ELF header of a program of the machine.
    /// Errors: [`ErrorClass::Unsupported`] if a required file is missing or describes another layout.
    pub fn from_files(files: &Files) -> Result<Self> {
        Self::read(files, true)
    }

    /// Like [`KernelFormat::from_files`], but block events may be missing, as in recordings of other tools.
    /// Errors: as [`KernelFormat::from_files`].
    pub fn of_any_events(files: &Files) -> Result<Self> {
        Self::read(files, false)
    }

    fn read(files: &Files, needs_block: bool) -> Result<Self> {
        let file = |name: &str| {
            files.get(name).map(String::as_str).filter(|text| !text.trim().is_empty()).ok_or_else(|| {
                Error::new(ErrorClass::Unsupported, format!("the recorded machine has no `{name}`"))
                    .hint("use a kernel with CONFIG_BLK_DEV_IO_TRACE or CONFIG_EVENT_TRACING, and make tracefs readable")
            })
        };
        let order = match file("byte_order")?.trim() {
            "\u{1}" => KernelByteOrder::Little,
            "\u{2}" => KernelByteOrder::Big,
            other => {
                return Err(Error::new(ErrorClass::Value, "the byte order must be 1 (little endian) or 2 (big endian)")
                    .of_field("byte_order", 0, other.as_bytes()));
            }
        };
        let layout = RingPageLayout::parse(file("events/header_page")?, file("events/header_event")?, order)?;
        let mut decoders = Vec::new();
        let mut smallest_record = usize::MAX;
        let mut events = Vec::new();
        for (name, may_lack) in EVENTS {
            let path = format!("events/block/{name}/format");
            let text = match files.get(&path) {
                None if may_lack || !needs_block => continue,
                _ => file(&path)?,
            };
            let format = EventFormat::parse(text).map_err(|error| error.of_field(name, 0, b""))?;
            let Some(kind) = BlockEventKind::of_event(name.as_bytes()) else { continue };
            smallest_record = smallest_record.min(format.record_bytes());
            decoders.push((format.id, EventDecoder::Block(Box::new(BlockDecoder::new(kind, &format)?))));
            events.push(format!("block/{name}"));
        }
        for (name, kind) in ACCOUNTED.into_iter().filter(|_| !needs_block) {
            let Some(text) = files.get(&format!("events/block/{name}/format")) else { continue };
            let format = EventFormat::parse(text).map_err(|error| error.of_field(name, 0, b""))?;
            smallest_record = smallest_record.min(format.record_bytes());
            decoders.push((format.id, EventDecoder::Block(Box::new(BlockDecoder::accounted(kind, &format)?))));
        }
        // If block events are recorded, SCSI events add no information.
        for (path, event) in KernelEvent::ALL.into_iter().filter(|(_, event)| !(needs_block && event.is_scsi())) {
            // Vendor kernels may have events of the same name with other fields. These are skipped, because they are not required.
            let format = files.get(&format!("events/{path}/format")).and_then(|text| EventFormat::parse(text).ok());
            if let Some(format) = format
                && let Some(decoder) = ExtraDecoder::new(event, &format)
            {
                smallest_record = smallest_record.min(format.record_bytes());
                decoders.push((format.id, EventDecoder::Extra(decoder)));
                events.push(path.to_owned());
            }
        }
        Ok(Self { layout, decoders, events, smallest_record })
    }

    /// Calls `record` with the event id of each record in a page.
    pub(crate) fn numbers(&self, page: &[u8], mut record: impl FnMut(u16)) {
        let Ok(records) = self.layout.open(page) else { return };
        for item in records.map_while(Result::ok) {
            record(self.layout.order.unsigned(item.data, 0, 2).unwrap_or(0) as u16);
        }
    }

    /// Maximum number of events in a page.
    pub fn events_per_page(&self) -> usize {
        self.layout.records_per_page(self.smallest_record)
    }

    /// Decodes a page and calls `event` with each event and its time, in order. Never panics, even on damaged pages.
    /// Errors: [`ErrorClass::Truncated`] if the page is too short; other damage is reported by
    /// [`RingPageSummary::damaged`].
    pub fn decode(&self, page: &[u8], mut event: impl FnMut(u64, TracedEvent)) -> Result<RingPageSummary> {
        let records = self.layout.open(page)?;
        let mut summary = RingPageSummary::default();
        match records.lost {
            LostEvents::None => {}
            LostEvents::Count(count) => summary.lost = count,
            LostEvents::Unknown => (summary.lost, summary.lost_unknown) = (1, true),
        }
        let order = self.layout.order;
        for record in records {
            let Ok(record) = record else {
                summary.damaged = true;
                break;
            };
            let id = order.unsigned(record.data, 0, 2).unwrap_or(0) as u16;
            let Some((_, decoder)) = self.decoders.iter().find(|(known, _)| *known == id) else {
                summary.other += 1;
                continue;
            };
            let decoded = match decoder {
                EventDecoder::Block(decoder) => decoder.decode(order, record.data).map(TracedEvent::Block),
                EventDecoder::Extra(decoder) => decoder.decode(order, record.data).map(TracedEvent::Extra),
            };
            match decoded {
                Some(decoded) => {
                    summary.events += 1;
                    event(record.time, decoded);
                }
                None => summary.damaged = true,
            }
        }
        Ok(summary)
    }
}

/// The events to record, and whether a kernel that lacks the event can still be recorded.
pub(crate) const EVENTS: [(&str, bool); 9] = [
    ("block_bio_queue", false),
    ("block_bio_backmerge", true),
    ("block_bio_frontmerge", true),
    // `block_rq_merge` exists since kernel 5.10.
    ("block_rq_merge", true),
    ("block_split", true),
    ("block_rq_insert", true),
    ("block_rq_issue", false),
    ("block_rq_requeue", true),
    ("block_rq_complete", false),
];

/// Events that other tools record in place of block request events. Each has the kind of the event that it replaces.
pub(crate) const ACCOUNTED: [(&str, BlockEventKind); 2] =
    [("block_io_start", BlockEventKind::Insert), ("block_io_done", BlockEventKind::Complete)];

/// A decoded event of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// The kind of event.
    pub kind: BlockEventKind,
    /// The disk as the kernel's device number (major << 20 | minor); 0 if the event does not belong to a disk.
    pub device: u32,
    /// First sector; 2^64-1 if unknown.
    pub sector: u64,
    /// Length in sectors; 0 for a split event.
    pub sectors: u32,
    /// Operation and flags in the kernel's letters (`WSM`, `FWFS`, ...), padded with zeros.
    pub rwbs: [u8; 10],
    /// Id of the current task; for a completion, of the interrupted task.
    pub pid: i32,
    /// Name of the task `pid`, padded with zeros; empty if the event has no name.
    pub comm: [u8; 16],
    /// The error of a completion as a negative errno; 0 for success.
    pub error: i32,
    /// Whether the event is `block_io_start` or `block_io_done`.
    pub accounted: bool,
}

/// Decodes the records of one block event.
#[derive(Clone, Debug)]
pub(crate) struct BlockDecoder {
    kind: BlockEventKind,
    pid: EventFormatField,
    device: EventFormatField,
    sector: EventFormatField,
    sectors: Option<EventFormatField>,
    second: Option<EventFormatField>,
    rwbs: EventFormatField,
    comm: Option<EventFormatField>,
    error: Option<EventFormatField>,
    accounted: bool,
}

impl BlockDecoder {
    /// Looks up the fields in the event format of the recorded kernel.
    pub(crate) fn new(kind: BlockEventKind, format: &EventFormat) -> Result<Self> {
        let split = matches!(kind, BlockEventKind::Split(_));
        let required = |name| format.required(name).cloned();
        Ok(Self {
            kind,
            pid: required("common_pid")?,
            device: required("dev")?,
            sector: required("sector")?,
            sectors: if split { None } else { Some(required("nr_sector")?) },
            second: if split { Some(required("new_sector")?) } else { None },
            rwbs: required("rwbs")?,
            comm: format.field("comm").cloned(),
            // The field was named `errors` before kernel 4.13.
            error: (kind == BlockEventKind::Complete)
                .then(|| format.field("error").or_else(|| format.field("errors")).cloned())
                .flatten(),
            accounted: false,
        })
    }

    /// A decoder for an event of [`ACCOUNTED`].
    pub(crate) fn accounted(kind: BlockEventKind, format: &EventFormat) -> Result<Self> {
        Ok(Self { accounted: true, ..Self::new(kind, format)? })
    }

    /// Decodes a record; `None` if it is shorter than its format requires.
    #[inline]
    pub(crate) fn decode(&self, order: KernelByteOrder, record: &[u8]) -> Option<BlockEvent> {
        let number = |field: &EventFormatField| field.number(order, record);
        let kind = match &self.second {
            Some(second) => BlockEventKind::Split(number(second)? as u64),
            None => self.kind,
        };
        let sectors = match &self.sectors {
            Some(sectors) => number(sectors)? as u32,
            None => 0,
        };
        Some(BlockEvent {
            kind,
            device: number(&self.device)? as u32,
            sector: number(&self.sector)? as u64,
            sectors,
            rwbs: fixed(self.rwbs.text(order, record)?),
            pid: number(&self.pid)? as i32,
            comm: match &self.comm {
                Some(comm) => fixed(comm.text(order, record)?),
                None => [0; 16],
            },
            error: match &self.error {
                Some(error) => -(number(error)? as i32).saturating_abs(),
                None => 0,
            },
            accounted: self.accounted,
        })
    }
}

/// Decodes the records of one event of a driver or file system.
#[derive(Clone, Debug)]
pub(crate) struct ExtraDecoder {
    event: KernelEvent,
    pid: EventFormatField,
    fields: Vec<(EventField, EventFormatField)>,
}

impl ExtraDecoder {
    /// Looks up the fields in the event format; `None` if a required field is missing.
    pub(crate) fn new(event: KernelEvent, format: &EventFormat) -> Option<Self> {
        let pid = format.field("common_pid")?.clone();
        let known = format.fields.iter().filter_map(|field| {
            let slot = EventField::by_name(field.name.as_bytes())?;
            // Some kernels store a pointer to the host instead of its name; that field is ignored.
            (slot.is_text() == field.is_text).then(|| (slot, field.clone()))
        });
        let fields: Vec<_> = known.collect();
        let mut values = EventFieldValues::default();
        for (slot, _) in &fields {
            if slot.is_text() { values.set_text(*slot, b"") } else { values.set(*slot, 0) }
        }
        event.is_complete_in(&values).then_some(Self { event, pid, fields })
    }

    /// Decodes a record; `None` if it is shorter than its format requires.
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
        let mut text = format!("name: {event}\nID: 9\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n");
        for (declaration, offset, size) in fields {
            writeln!(text, "\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;").unwrap();
        }
        let event = KernelEvent::by_name(event.as_bytes()).unwrap();
        ExtraDecoder::new(event, &EventFormat::parse(&text).unwrap())
    }

    /// Returns host name, id and step of the command in a record.
    fn command(decoder: &ExtraDecoder, record: &[u8]) -> (String, u64, CommandStep) {
        let Some(DecodedEvent::Command(event)) = decoder.decode(KernelByteOrder::Little, record) else { panic!() };
        (String::from_utf8_lossy(unfilled(&event.host)).into_owned(), event.id, event.step)
    }

    /// Creates a record with these 32-bit words from offset 8 on, followed by texts.
    fn record(words: &[u32], texts: &[u8]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        [9, 0, 0, 0, 7, 0, 0, 0].into_iter().chain(words).chain(texts.iter().copied()).collect()
    }

    fn start(kind: CommandKind, bytes: u64) -> CommandStep {
        CommandStep::Start { kind, bytes, target: CommandTarget::Nowhere, packed: false, reliable: false }
    }

    /// Creates the start of a data command at block `first`; the event itself contains only the length in bytes.
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
        // A length of -1 means that the command has no data.
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
        // UIC command 0x02 (DME_SET) changes another setting of the link.
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
        // Some vendor kernels store a pointer to the host instead of its name.
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
