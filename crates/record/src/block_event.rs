//! Decodes records of the kernel's `block` events by the event formats of the recorded kernel. Source: the kernel's
//! `include/trace/events/block.h`.

use emmclab_trace::{BlockEventKind, Result, fixed};

use crate::byte_order::KernelByteOrder;
use crate::event_format::{EventFormat, EventFormatField};

/// The events that are recorded, and whether a kernel without this event can still be recorded.
pub(crate) const EVENTS: [(&str, bool); 9] = [
    ("block_bio_queue", false),
    ("block_bio_backmerge", true),
    ("block_bio_frontmerge", true),
    // Since kernel 5.10.
    ("block_rq_merge", true),
    ("block_split", true),
    ("block_rq_insert", true),
    ("block_rq_issue", false),
    ("block_rq_requeue", true),
    ("block_rq_complete", false),
];

/// Events that replace the other block events in recordings of other tools, and the steps for which they stand.
pub(crate) const ACCOUNTED: [(&str, BlockEventKind); 2] =
    [("block_io_start", BlockEventKind::Insert), ("block_io_done", BlockEventKind::Complete)];

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// The kind of event.
    pub kind: BlockEventKind,
    /// The disk, as the kernel's `dev_t` (major << 20 | minor); 0 if the event does not belong to a disk.
    pub device: u32,
    /// First sector; 2^64-1 if unknown.
    pub sector: u64,
    /// Length in sectors; 0 for a split event.
    pub sectors: u32,
    /// Operation and flags in the kernel's letters (`WSM`, `FWFS`, ...), padded with zeros.
    pub rwbs: [u8; 10],
    /// The current task; for a completion, the interrupted task.
    pub pid: i32,
    /// Name of that task, padded with zeros; empty if the event has none.
    pub comm: [u8; 16],
    /// The error of a completion as the kernel's negative number; 0 if there is none.
    pub error: i32,
    /// Whether it is `block_io_start` or `block_io_done`.
    pub accounted: bool,
}

/// Decodes the records of one event.
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
    /// Finds the fields in the event format of the recorded kernel.
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
            // The name was `errors` before kernel 4.13.
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

    /// Decodes a record; `None` if it is too short for its format.
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
