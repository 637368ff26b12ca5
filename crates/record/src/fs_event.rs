//! Records of file systems: somebody waits for a file to be durable, and a journal commits. Source: the kernel's
//! `include/trace/events/ext4.h`, `f2fs.h` and `jbd2.h`.

use emmclab_trace::Result;

use crate::byte_order::ByteOrder;
use crate::event_format::{EventFormat, Field};

/// The events that are recorded.
pub(crate) const EVENTS: [&str; 5] = [
    "ext4/ext4_sync_file_enter",
    "ext4/ext4_sync_file_exit",
    "f2fs/f2fs_sync_file_enter",
    "f2fs/f2fs_sync_file_exit",
    "jbd2/jbd2_run_stats",
];

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsStep {
    /// `fsync` or `fdatasync` begins.
    SyncBegin,
    /// It ends.
    SyncEnd {
        /// Whether it returned an error.
        failed: bool,
    },
    /// A transaction of the journal was committed.
    Commit {
        /// Changes of metadata that it held together.
        handles: u64,
        /// Blocks written to the journal, descriptors and the commit block included.
        blocks: u64,
    },
}

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsEvent {
    /// `ext4`, `f2fs` or `jbd2`.
    pub system: &'static str,
    /// The device that is mounted (a partition, a mapped device), as the kernel's `dev_t`.
    pub device: u32,
    /// The task that ran.
    pub pid: i32,
    /// What happened.
    pub step: FsStep,
}

/// Decodes the events of one kind.
#[derive(Clone, Debug)]
pub(crate) struct FsDecoder {
    system: &'static str,
    device: Field,
    pid: Field,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Begin,
    End(Field),
    Commit { handles: Field, blocks: Field },
}

impl FsDecoder {
    /// Finds the fields of `event` (`SYSTEM/NAME`) in this kernel's format.
    pub(crate) fn new(event: &'static str, format: &EventFormat) -> Result<Self> {
        let required = |name| format.required(name).cloned();
        let step = if event.ends_with("_enter") {
            Step::Begin
        } else if event.ends_with("_exit") {
            Step::End(required("ret")?)
        } else {
            Step::Commit { handles: required("handle_count")?, blocks: required("blocks_logged")? }
        };
        let (system, _) = event.split_once('/').unwrap_or((event, ""));
        Ok(Self { system, device: required("dev")?, pid: required("common_pid")?, step })
    }

    /// The event; `None` where the record is too short for its format.
    #[inline]
    pub(crate) fn decode(&self, order: ByteOrder, record: &[u8]) -> Option<FsEvent> {
        let number = |field: &Field| field.number(order, record);
        let step = match &self.step {
            Step::Begin => FsStep::SyncBegin,
            Step::End(result) => FsStep::SyncEnd { failed: number(result)? < 0 },
            Step::Commit { handles, blocks } => {
                FsStep::Commit { handles: number(handles)? as u64, blocks: number(blocks)? as u64 }
            }
        };
        let (device, pid) = (number(&self.device)? as u32, number(&self.pid)? as i32);
        Some(FsEvent { system: self.system, device, pid, step })
    }
}
