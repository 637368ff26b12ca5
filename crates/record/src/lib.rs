//! Live recording of block requests through tracefs, on this host, over ssh and over adb.
//!
//! The kernel writes events into one ring buffer per CPU. Their raw pages are decoded here by the event formats of the recorded kernel
//! ([`Kernel`]), merged into one stream, and combined into requests. Nothing is installed or written on the recorded machine.

mod block_event;
mod byte_order;
mod disks;
mod event_format;
mod extra_event;
mod instance;
mod kernel;
mod order;
mod page;
mod pipeline;
mod recorder;
mod registers;
mod stats;
mod stream;
mod target;
mod trace_dat;
mod trace_file;
mod transports;
mod watched;

pub use block_event::BlockEvent;
pub use byte_order::ByteOrder;
pub use disks::{Disk, Disks};
pub use event_format::{EventFormat, Field};
pub use kernel::{Files, Kernel, PageSummary, Traced};
pub use page::{Lost, Page, PageLayout, Record};
pub use pipeline::CpuCounts;
pub use recorder::{Outcome, RecordOptions, Recorder, helper_command};
pub use registers::DeviceRegisters;
pub use stats::{ProcessStats, Stats};
pub use stream::{Frame, HelperStream};
pub use target::Target;
pub use trace_file::{FORMATS, open_trace};
