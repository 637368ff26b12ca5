//! Events of the kernel's tracer in any encoding: ring-buffer pages, text, or Perfetto packets.
//!
//! A reader stores the fields of an event, by the kernel's names ([`EventField`]), in [`EventFieldValues`]. An [`EventMatcher`]
//! builds requests from block events and counts other activity.

mod activity;
mod activity_meter;
mod command;
mod driver_requests;
mod kernel_event;
mod matcher;

pub use activity::{
    CommandCounts, FsWriterThreads, HostActivity, JournalCounts, LostEventsGap, RecordedActivity, SyncCounts, SyncWait,
    UnfinishedWait,
};
pub use command::{CommandEvent, CommandKind, CommandStep, CommandTarget, EraseKind};
pub use kernel_event::{DecodedEvent, EventField, EventFieldValues, FsEvent, FsStep, KernelEvent};
pub use matcher::EventMatcher;
