//! The host above a block device, in simulated time: page cache, write-back, block layer, and file systems.
//!
//! A [`Host`] is a deterministic state machine. It turns operations on files into block requests and knows neither the programs above nor
//! the device below. Contents are not modelled, only their locations.

mod block;
mod cache;
mod config;
mod core;
mod filesystem;
mod finished;
mod host;
mod mount;
mod operation;
mod request;
mod task;
mod writeback;

pub use config::{Barrier, CpuCosts, Elevator, HostConfig, Synced};
pub use finished::{Finished, FinishedOps, Wait, WaitGroup, Waited};
pub use host::Host;
pub use mount::{Extent, FilesystemKind, Mount, MountOptions};
pub use operation::{CallerId, FileClass, FileId, FileOp, FileSpec, FolderId, MountId};
pub use request::{BlockRequest, BlockRequestId, BlockRequests, Cause};
