//! Operations: read, write, discard, flush, secure erase.

use serde::{Deserialize, Serialize};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Op {
    /// Data from the device.
    Read = 0,
    /// Data to the device.
    Write = 1,
    /// The data of the range is no longer needed (TRIM).
    Discard = 2,
    /// Makes everything written so far durable; carries no data.
    Flush = 3,
    /// The range must become unreadable.
    SecureErase = 4,
}

impl Op {
    /// All operations, in the order of their codes.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Discard, Op::Flush, Op::SecureErase];

    /// The name in files, JSON and tables.
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Discard => "discard",
            Op::Flush => "flush",
            Op::SecureErase => "secure_erase",
        }
    }

    /// The operation with this code, the inverse of `op as u8`.
    #[inline]
    pub const fn from_code(code: u8) -> Option<Op> {
        match code {
            0 => Some(Op::Read),
            1 => Some(Op::Write),
            2 => Some(Op::Discard),
            3 => Some(Op::Flush),
            4 => Some(Op::SecureErase),
            _ => None,
        }
    }

    /// Reads and writes carry data; the others do not count in sizes and rates.
    #[inline]
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}
