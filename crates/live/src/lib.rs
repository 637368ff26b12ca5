//! A simulated device, with its layers, as a block device that other software uses.
//!
//! A [`LiveDevice`] is the same stack as in a replay, with contents, driven by a clock: simulated time follows the host's, or goes on
//! as requests are served. It is a [`BlockDevice`](emmclab_serve::BlockDevice), so that every export of `emmclab-serve` offers it.

mod clock;
mod core;
mod live;
mod log;
mod naming;
mod refusals;
mod request;
mod state;
mod status;
mod trace;

pub use clock::Pace;
pub use live::{LiveDevice, LiveOptions};
pub use refusals::Refusal;
pub use state::Found;
pub use status::Status;
