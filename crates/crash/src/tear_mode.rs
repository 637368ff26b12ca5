//! The parts of a write that a cut may leave.

use std::str::FromStr;

use emmclab_base::{Error, ErrorClass, Result};

use crate::disk_contents::BLOCK;

/// The parts that a cut may leave of a write that it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TearMode {
    /// Each block of 4 KiB is entirely old or entirely new.
    #[default]
    None,
    /// Each sector is old or new.
    Sector,
    /// Each sector is old or new, or garbled if the contract leaves it undefined: that is, for a write in flight that is not
    /// reliable.
    Inside,
}

impl TearMode {
    /// All values with their names on the command line.
    pub const ALL: [(TearMode, &'static str); 3] =
        [(TearMode::None, "none"), (TearMode::Sector, "sector"), (TearMode::Inside, "inside")];

    /// Number of sectors of an atom, which is written completely or not at all.
    pub(crate) fn atom(self) -> u64 {
        if self == Self::None { BLOCK } else { 1 }
    }
}

impl FromStr for TearMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(tear, _)| tear).ok_or_else(|| {
            Error::new(ErrorClass::Config, "is not a way to tear a write")
                .of_field("tear", 0, text.as_bytes())
                .hint(Self::ALL.map(|(_, name)| name).join(", "))
        })
    }
}
