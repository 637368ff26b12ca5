//! Records of the kernel's `block` events, decoded by this kernel's own formats.

use emmclab_trace::Result;

use crate::byte_order::ByteOrder;
use crate::event_format::{EventFormat, Field};

/// What happened to a bio or request. Source: the kernel's `include/trace/events/block.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A bio was submitted to the block layer.
    Queue,
    /// A bio was taken into an existing request, at its end.
    BackMerge,
    /// A bio was taken into an existing request, at its front.
    FrontMerge,
    /// Two requests became one.
    RequestMerge,
    /// A bio was cut in two.
    Split,
    /// A request was put into the scheduler's queue.
    Insert,
    /// A request was given to the driver.
    Issue,
    /// The driver gave a request back.
    Requeue,
    /// A request, or a part of one, was finished.
    Complete,
}

impl Action {
    /// The event in `events/block/` of each action.
    pub const EVENTS: [(&'static str, Action); 9] = [
        ("block_bio_queue", Action::Queue),
        ("block_bio_backmerge", Action::BackMerge),
        ("block_bio_frontmerge", Action::FrontMerge),
        ("block_rq_merge", Action::RequestMerge),
        ("block_split", Action::Split),
        ("block_rq_insert", Action::Insert),
        ("block_rq_issue", Action::Issue),
        ("block_rq_requeue", Action::Requeue),
        ("block_rq_complete", Action::Complete),
    ];

    /// The action that this event reports.
    pub fn of_event(name: &str) -> Option<Action> {
        Action::EVENTS.iter().find(|(event, _)| *event == name).map(|(_, action)| *action)
    }
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// What happened.
    pub action: Action,
    /// The disk, as the kernel's `dev_t` (major << 20 | minor).
    pub device: u32,
    /// First sector; 2^64-1 where the kernel knows none.
    pub sector: u64,
    /// Length in sectors; 0 for a split, which has none.
    pub sectors: u32,
    /// Of a split: the first sector of the second half.
    pub second: u64,
    /// Operation and flags in the kernel's letters (`WSM`, `FWFS`, ...), filled with zeros.
    pub rwbs: [u8; 10],
    /// The task that ran: of a completion the one that was interrupted.
    pub pid: i32,
    /// Name of that task, filled with zeros; empty where the event has none.
    pub comm: [u8; 16],
}

/// A text in a fixed place, cut or filled with zeros.
#[inline]
fn fixed<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let length = text.len().min(N);
    out[..length].copy_from_slice(&text[..length]);
    out
}

/// The text up to its filling.
#[inline]
pub fn unfilled(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == 0).map_or(text, |end| &text[..end])
}

/// Decodes the records of one event.
#[derive(Clone, Debug)]
pub(crate) struct BlockDecoder {
    action: Action,
    pid: Field,
    device: Field,
    sector: Field,
    sectors: Option<Field>,
    second: Option<Field>,
    rwbs: Field,
    comm: Option<Field>,
}

impl BlockDecoder {
    /// Finds the fields in this kernel's format.
    pub(crate) fn new(action: Action, format: &EventFormat) -> Result<Self> {
        let split = action == Action::Split;
        let required = |name| format.required(name).cloned();
        Ok(Self {
            action,
            pid: required("common_pid")?,
            device: required("dev")?,
            sector: required("sector")?,
            sectors: if split { None } else { Some(required("nr_sector")?) },
            second: if split { Some(required("new_sector")?) } else { None },
            rwbs: required("rwbs")?,
            comm: format.field("comm").cloned(),
        })
    }

    /// The event; `None` where the record is too short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<BlockEvent> {
        let optional = |field: &Option<Field>| match field {
            Some(field) => field.number(order, record),
            None => Some(0),
        };
        Some(BlockEvent {
            action: self.action,
            device: self.device.number(order, record)? as u32,
            sector: self.sector.number(order, record)? as u64,
            sectors: optional(&self.sectors)? as u32,
            second: optional(&self.second)? as u64,
            rwbs: fixed(self.rwbs.text(order, record)?),
            pid: self.pid.number(order, record)? as i32,
            comm: match &self.comm {
                Some(comm) => fixed(comm.text(order, record)?),
                None => [0; 16],
            },
        })
    }
}
