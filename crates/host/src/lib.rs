//! The host above a block device, in simulated time: page cache, write-back, block layer, and file systems.
//!
//! A [`SimulatedHost`] is a deterministic state machine. It turns file operations into block requests, independently of the programs above
//! it and the device below it. The contents of files are not modelled, only their locations.

mod block;
mod cache;
mod config;
mod core;
mod filesystem;
mod host;
mod operation;
mod request;
mod writeback;

pub use config::{BarrierMode, CpuCosts, ElevatorKind, HostConfig, SyncedClasses};
pub use config::{FileExtent, FilesystemKind, Mount, MountOptions};
pub use host::SimulatedHost;
pub use operation::{CallerId, FileClass, FileId, FileOp, FileSpec, FolderId, MountId};
pub use operation::{FinishedOperation, FinishedOperations, WaitBreakdown, WaitCategory, WaitReason};
pub use request::{BlockRequestId, HostBlockRequest, HostBlockRequests, IoCause};
