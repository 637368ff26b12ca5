//! Types that every other crate shares: the error, the units, operations, flags, the request, flags of commands, notes on
//! blocks, and values by range of sectors; and the word that a user may have meant.
//!
//! Plain data without files or columns, so that the device and the layers above it depend on no reader of traces.

mod block_note;
mod closest;
mod error;
mod flags;
mod health;
mod input_file;
pub mod interrupt;
mod modifiers;
mod op;
mod ranges;
mod request;
mod settings_file;
mod units;

pub use block_note::{BlockNote, Role, SectorSet};
pub use closest::closest;
pub use error::{Error, Kind, Result};
pub use flags::Flags;
pub use health::Health;
pub use input_file::{InputFile, open_pipe, open_seekable, wait_writable};
pub use modifiers::Modifiers;
pub use op::Op;
pub use ranges::Ranges;
pub use request::{NameId, Request};
pub use settings_file::read_settings;
pub use units::{Bytes, Nanos, SECTOR_BYTES, Sector};
