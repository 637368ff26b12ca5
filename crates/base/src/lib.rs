//! Types and functions that several crates share: errors, units, sizes in settings, requests and their flags, command flags, notes on the
//! roles of blocks, maps of sector ranges, the choice of a segment to clean, and suggestions for misspelled words.
//!
//! They do not depend on trace files, so that the crates of the device and the layers do not depend on the trace readers.

mod block_note;
mod cleaning;
mod command_flags;
mod device_health;
mod error;
mod input_file;
pub mod interrupt;
mod request;
mod sector_range_map;
mod settings_file;
mod units;

pub use block_note::{BlockNote, BlockRole, SectorSet};
pub use cleaning::{CleaningCandidate, CleaningPolicy};
pub use command_flags::CommandFlags;
pub use device_health::DeviceHealth;
pub use error::{Error, ErrorClass, Result};
pub use input_file::{InputFile, open_pipe, open_seekable, wait_writable};
pub use request::{NameId, Op, Request, RequestFlags};
pub use sector_range_map::SectorRangeMap;
pub use settings_file::{closest, read_settings};
pub use units::{ByteCount, ByteSize, Nanos, SECTOR_BYTES, Sector};
