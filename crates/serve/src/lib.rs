//! Exports of a block device to other software, and the device as an export sees it.
//!
//! An export translates a protocol into [`BlockRequest`]s and [`Completion`]s. It knows nothing of simulation: whatever is a
//! [`BlockDevice`] can be exported, and a [`MemoryDevice`] measures what the export itself costs.

mod device;
mod fuse;
mod holders;
mod host_disk;
mod memory;
pub mod nbd;
mod private_socket;
mod programs;
mod sdhci;
mod supervisor;
mod ublk;

pub use device::{Action, BlockDevice, BlockRequest, Completion, Completions, Extent, Failure, Limits};
pub use fuse::FuseFile;
pub use host_disk::{FileSystem, HostDisk, LoopOptions, Mkfs, MountOptions};
pub use memory::MemoryDevice;
#[cfg(fuzzing)]
pub use sdhci::exercise::{exercise as exercise_sdhci, exercise_messages as exercise_vfio_user};
pub use sdhci::{CardSettings, SdhciExport, SessionEvent};
pub use ublk::{UblkOptions, delete_left_ublk};

/// Bytes of a sector, as a length in memory.
const SECTOR: usize = emmclab_base::SECTOR_BYTES as usize;
