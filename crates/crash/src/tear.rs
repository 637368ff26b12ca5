//! The parts of a write that a cut may leave.

use std::str::FromStr;

use emmclab_base::{Error, Kind, Result};

use crate::contents::BLOCK;

/// The parts that a cut may leave of a write that it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tear {
    /// Each block of 4 KiB is entirely old or entirely new.
    #[default]
    None,
    /// Each sector is old or new.
    Sector,
    /// Each sector is old or new, or garbled if the contract leaves it undefined: that is, for a write in flight that is not
    /// reliable.
    Inside,
}

impl Tear {
    /// All values with their names on the command line.
    pub const ALL: [(Tear, &'static str); 3] =
        [(Tear::None, "none"), (Tear::Sector, "sector"), (Tear::Inside, "inside")];

    /// Number of sectors of an atom, which is written completely or not at all.
    pub(crate) fn atom(self) -> u64 {
        if self == Self::None { BLOCK } else { 1 }
    }
}

impl FromStr for Tear {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == text).map(|(tear, _)| tear).ok_or_else(|| {
            Error::new(Kind::Config, "is not a way to tear a write")
                .of_field("tear", 0, text.as_bytes())
                .hint(Self::ALL.map(|(_, name)| name).join(", "))
        })
    }
}
