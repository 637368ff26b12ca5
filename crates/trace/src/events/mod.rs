//! Events of the kernel's tracer, independent of their encoding: ring-buffer pages, text, or Perfetto's packets.
//!
//! A reader finds the fields of an event by the kernel's names ([`EventField`]) and puts them into [`EventFieldValues`]; a [`EventMatcher`] makes
//! requests from block events and counts the activity beside them.

mod accounted_requests;
mod activity;
mod activity_meter;
mod command;
mod driver_requests;
mod kernel_event;
mod matcher;
mod task_names;

pub use activity::{
    CommandCounts, FsWriterThreads, HostActivity, JournalCounts, LostEventsGap, RecordedActivity, SyncCounts, SyncWait,
    UnfinishedWait,
};
pub use command::{CommandEvent, CommandKind, CommandStep, CommandTarget, EraseKind};
pub use kernel_event::{DecodedEvent, EventField, EventFieldValues, FsEvent, FsStep, KernelEvent};
pub use matcher::EventMatcher;
