//! Exports of a block device to other software, and the device as an export sees it.
//!
//! An export translates a protocol into [`BlockRequest`]s and [`Completion`]s. It knows nothing of simulation: whatever is a
//! [`BlockDevice`] can be exported, and a [`MemoryDevice`] measures what the export itself costs.

mod device;
mod memory;
mod sdhci;

pub use device::{Action, BlockDevice, BlockRequest, Completion, Completions, Extent, Failure, Limits};
pub use memory::MemoryDevice;
#[cfg(fuzzing)]
pub use sdhci::exercise::{exercise as exercise_sdhci, exercise_messages as exercise_vfio_user};
pub use sdhci::{CardSettings, SdhciExport, SessionEvent};
