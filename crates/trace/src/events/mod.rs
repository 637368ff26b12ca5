//! Events of the kernel's tracer, independent of their encoding: ring-buffer pages, text, or Perfetto's packets.
//!
//! A reader finds the fields of an event by the kernel's names ([`Slot`]) and puts them into [`Values`]; a [`Matcher`] makes
//! requests from block events and counts the activity beside them.

mod accounts;
mod activity;
mod command;
mod decoded_event;
mod driver;
mod file;
mod kernel_event;
mod matcher;
mod meter;
mod place;
mod scsi;
mod tasks;
mod values;
mod writers;

pub use activity::{
    Activity, CommandCounts, Gap, HostActivity, JournalCounts, SyncCounts, SyncWait, UnfinishedWait, Writers,
};
pub use command::{CommandEvent, CommandKind, CommandStep, Erase, Target};
pub use decoded_event::DecodedEvent;
pub use file::{FsEvent, FsStep};
pub use kernel_event::KernelEvent;
pub use matcher::Matcher;
pub use values::{Slot, Values};
