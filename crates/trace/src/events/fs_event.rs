//! Events of file systems: waits of tasks for a file to be durable, and commits of a journal. Source: the kernel's
//! `include/trace/events/ext4.h`, `f2fs.h` and `jbd2.h`.

use crate::{EventField, EventFieldValues, KernelEvent};

/// The journal of ext4.
const JBD2: &str = "jbd2";

/// The kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsStep {
    /// `fsync` or `fdatasync` begins.
    SyncBegin,
    /// `fsync` or `fdatasync` ends.
    SyncEnd {
        /// Whether it returned an error.
        failed: bool,
    },
    /// The thread of a journal begins to commit a transaction.
    CommitBegin,
    /// It has committed the transaction.
    CommitEnd,
    /// The counts of a transaction that is committed.
    Commit {
        /// Number of metadata changes (handles) in the transaction.
        handles: u64,
        /// Number of blocks written to the journal, including descriptors and the commit block.
        blocks: u64,
    },
}

/// An event of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEvent {
    /// `ext4`, `f2fs` or `jbd2`.
    pub system: &'static str,
    /// The device that is mounted (a partition, a mapped device), as the kernel's `dev_t`.
    pub device: u32,
    /// Id of the task that was running.
    pub pid: i32,
    /// The kind of event.
    pub step: FsStep,
}

impl FsEvent {
    /// The meaning of an event with these fields; `None` if it does not concern a file system.
    pub(super) fn read(event: KernelEvent, pid: i32, values: &EventFieldValues) -> Option<Self> {
        let (system, step) = match event {
            KernelEvent::SyncBegin(system) => (system, FsStep::SyncBegin),
            KernelEvent::SyncEnd(system) => (system, FsStep::SyncEnd { failed: values.number(EventField::Result) < 0 }),
            KernelEvent::CommitBegin => (JBD2, FsStep::CommitBegin),
            KernelEvent::CommitEnd => (JBD2, FsStep::CommitEnd),
            KernelEvent::Commit => {
                let (handles, blocks) = (values.number(EventField::Handles), values.number(EventField::JournalBlocks));
                (JBD2, FsStep::Commit { handles: handles as u64, blocks: blocks as u64 })
            }
            _ => return None,
        };
        Some(Self { system, device: values.number(EventField::Device) as u32, pid, step })
    }
}
