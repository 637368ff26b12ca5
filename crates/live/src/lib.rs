//! A simulated device with its layers as a block device for real software.
//!
//! A [`LiveDevice`] uses the same stack of layers and device models as a replay, and adds the contents of the device and a clock: simulated
//! time follows the host's time, or advances when requests are served. It implements [`BlockDevice`](emmclab_serve::BlockDevice), so that
//! every export of `emmclab-serve` can export it.

mod clock;
mod core;
mod live;
mod log;
mod request;
mod state;
mod status;
mod trace_recording;

pub use clock::ClockPace;
pub use live::{LiveDevice, LiveOptions};
pub use state::PreviousRun;
pub use status::{LiveStatus, RefusedRequests};
