//! Live recording of block requests through tracefs, on this host, over ssh and over adb.
//!
//! The kernel writes events into one ring buffer per CPU. Their raw pages are decoded here by the event formats of the recorded kernel
//! ([`KernelFormat`]), merged into one stream, and combined into requests. Nothing is installed or written on the recorded machine.

mod arrival_order;
mod block_event;
mod byte_order;
mod disks;
mod event_format;
mod extra_event;
mod helper_stream;
mod kernel_format;
mod pipeline;
mod recorder;
mod registers;
mod ring_page;
mod statistics;
mod target;
mod trace_dat;
mod trace_file;
mod tracefs_instance;
mod transports;
mod watched_devices;

pub use block_event::BlockEvent;
pub use byte_order::KernelByteOrder;
pub use disks::{TargetDisk, TargetDisks};
pub use event_format::{EventFormat, EventFormatField};
pub use helper_stream::{HelperFrame, HelperStream};
pub use kernel_format::{Files, KernelFormat, RingPageSummary, TracedEvent};
pub use pipeline::CpuCounters;
pub use recorder::{RecordOptions, RecordOutcome, TracefsRecorder, helper_command};
pub use registers::DeviceRegisters;
pub use ring_page::{LostEvents, RingPage, RingPageLayout, RingRecord};
pub use statistics::{ProcessStatistics, RecordStatistics};
pub use target::RecordTarget;
pub use trace_file::{FORMATS, open_trace};
