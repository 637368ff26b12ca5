//! Records block requests of this host, or of another machine over ssh or adb, through tracefs.
//!
//! The kernel writes events into one ring buffer per CPU. This crate decodes the raw pages by the event formats of the recorded
//! kernel ([`KernelFormat`]), merges the events into one stream, and combines them into requests. Nothing is installed or stored
//! on the recorded machine.

mod disks;
mod event_format;
mod helper_stream;
mod kernel_format;
mod pipeline;
mod recorder;
mod registers;
mod ring_page;
mod statistics;
mod trace_dat;
mod transports;

pub use disks::{TargetDisk, TargetDisks};
pub use event_format::{EventFormat, EventFormatField, KernelByteOrder};
pub use helper_stream::{HelperFrame, HelperStream};
pub use kernel_format::{BlockEvent, Files, KernelFormat, RingPageSummary, TracedEvent};
pub use pipeline::CpuCounters;
pub use recorder::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder};
pub use registers::DeviceRegisters;
pub use ring_page::{LostEvents, RingPage, RingPageLayout, RingRecord};
pub use statistics::{ProcessStatistics, RecordStatistics};
pub use trace_dat::{FORMATS, open_trace};
pub use transports::helper_command;
