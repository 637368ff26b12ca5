//! Disks of this machine: block devices, and files that are images of disks.
//!
//! [`DiskReplay`] sends a trace to a disk and measures the response times. [`LayeredDisk`] is a block device of layers whose data is on one or
//! two disks; every export of `emmclab-serve` can export it. Both open a disk for writing only if nothing else uses it.

mod disk_file;
mod layered_disk;
mod replay;
mod replay_result;
mod request_ring;
mod written_data;

pub use disk_file::{DiskAccess, DiskFacts, DiskFile};
pub use layered_disk::{LayeredDisk, LayeredDiskResult};
pub use replay::{DiskReplay, DiskReplayOptions, DiskReplayProgress};
pub use replay_result::{DiskReplayResult, DiskReplayRun, DiskRequestCounts, FailedDiskRequests, LeftOutRequests, SendingDelay};
pub use written_data::fill_sectors;
