//! Decodes a kernel event from its fields.

use crate::{CommandEvent, EventFieldValues, FsEvent, KernelEvent};

/// An event of the driver below the block layer, or of a file system above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedEvent {
    /// An event of the driver.
    Command(CommandEvent),
    /// An event of a file system.
    File(FsEvent),
}

impl DecodedEvent {
    /// Decodes the fields of an event that the task `pid` caused; `None` if fields are missing.
    pub fn read(event: KernelEvent, pid: i32, values: &EventFieldValues) -> Option<Self> {
        if !event.is_complete_in(values) {
            return None;
        }
        CommandEvent::read(event, values)
            .map(Self::Command)
            .or_else(|| FsEvent::read(event, pid, values).map(Self::File))
    }
}
