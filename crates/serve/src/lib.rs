//! The interface of a block device, and exports of a block device to other software (NBD, FUSE, loop and ublk devices, eMMC card).
//!
//! An export translates a protocol into [`ServedRequest`]s and [`ServedCompletion`]s. It does not depend on the simulation: every
//! [`BlockDevice`] can be exported. With a [`MemoryDevice`], the overhead of an export can be measured.

mod device;
mod fuse;
mod host_disk;
mod host_programs;
pub mod nbd;
mod private_socket;
mod sdhci;
mod ublk;
mod waker;

pub use device::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, MemoryDevice, RequestFailure,
    ServedCompletion, ServedRequest,
};
pub use fuse::FuseFile;
pub use host_disk::{HostDisk, LinuxFileSystem, LinuxMountOptions, LoopOptions, MkfsOptions};
#[cfg(fuzzing)]
pub use sdhci::fuzz_driver::{exercise as exercise_sdhci, exercise_messages as exercise_vfio_user};
pub use sdhci::{CardSettings, SdhciExport, SessionEvent};
pub use ublk::{UblkOptions, delete_left_ublk};

/// Bytes in a sector, as `usize`.
const SECTOR: usize = emmclab_base::SECTOR_BYTES as usize;
