//! One block-layer I/O.

use serde::{Deserialize, Serialize};

use crate::names::NameId;
use crate::units::{Bytes, Nanos, SECTOR_BYTES, Sector};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Op {
    /// Data from the device.
    Read = 0,
    /// Data to the device.
    Write = 1,
    /// The range holds nothing worth keeping (TRIM).
    Discard = 2,
    /// Everything written so far must be durable; carries no data.
    Flush = 3,
    /// The range must become unreadable.
    SecureErase = 4,
}

impl Op {
    /// All operations, in the order of their codes.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Discard, Op::Flush, Op::SecureErase];

    /// The name in files, JSON and tables.
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

/// Properties of a request, one bit each; the bit numbers are part of the Parquet schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// Somebody waits for it (`REQ_SYNC`).
    pub const SYNC: Flags = Flags(1);
    /// Durable on completion (`REQ_FUA`).
    pub const FUA: Flags = Flags(1 << 1);
    /// The cache is flushed before it (`REQ_PREFLUSH`).
    pub const PREFLUSH: Flags = Flags(1 << 2);
    /// File-system metadata (`REQ_META`).
    pub const META: Flags = Flags(1 << 3);
    /// Read ahead of use (`REQ_RAHEAD`).
    pub const READAHEAD: Flags = Flags(1 << 4);
    /// It was sent as an eMMC packed command; its 512-byte header block was stripped from the size.
    pub const PACKED: Flags = Flags(1 << 5);
    /// The recorder says that the queue was empty on arrival; only with [`Flags::NO_WAIT_KNOWN`].
    pub const NO_WAIT: Flags = Flags(1 << 6);
    /// The recorder noted whether the request waited.
    pub const NO_WAIT_KNOWN: Flags = Flags(1 << 7);
    /// Written by the thread of an ext4 journal (`jbd2/...`): descriptors, journal blocks and commit blocks (with `META`
    /// where the kernel marks them), and now and then data that had to be in place before a commit.
    pub const JOURNAL: Flags = Flags(1 << 8);

    /// Names in the order of the bits.
    pub const NAMES: [&'static str; 9] =
        ["sync", "fua", "preflush", "meta", "readahead", "packed", "no_wait", "no_wait_known", "journal"];

    /// True where every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// One block-layer I/O. Times are on the trace's clock; all but the arrival may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was generated and put into the queue.
    pub arrival: Nanos,
    /// When the driver fetched it.
    pub start: Option<Nanos>,
    /// When it was submitted to the device.
    pub issue: Option<Nanos>,
    /// When the device had finished it.
    pub complete: Option<Nanos>,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// What it does.
    pub op: Op,
    /// Its properties.
    pub flags: Flags,
    /// The process behind it.
    pub pid: Option<i32>,
    /// The name of that process, in the trace's [`crate::Names`].
    pub process: Option<NameId>,
    /// The device it went to, in the trace's [`crate::Names`].
    pub device: Option<NameId>,
}

impl Request {
    /// A request of which only arrival, place and operation are known.
    pub const fn new(arrival: Nanos, op: Op, sector: Sector, sectors: u32) -> Self {
        Self {
            arrival,
            start: None,
            issue: None,
            complete: None,
            sector,
            sectors,
            op,
            flags: Flags(0),
            pid: None,
            process: None,
            device: None,
        }
    }

    /// Length in bytes.
    #[inline]
    pub const fn bytes(&self) -> Bytes {
        Bytes(self.sectors as u64 * SECTOR_BYTES)
    }

    /// The sector behind the last one; saturates at the end of the address space.
    #[inline]
    pub const fn end(&self) -> Sector {
        Sector(self.sector.0.saturating_add(self.sectors as u64))
    }

    /// Complete - arrival, what the application feels.
    #[inline]
    pub fn response(&self) -> Option<Nanos> {
        self.complete.map(|complete| complete - self.arrival)
    }

    /// Complete - start, what the device took.
    #[inline]
    pub fn service(&self) -> Option<Nanos> {
        Some(self.complete? - self.start?)
    }

    /// The first of start, issue and complete that is earlier than a time that comes before it, with its name.
    #[inline]
    pub(crate) fn early_time(&self) -> Option<(&'static str, Nanos)> {
        let mut latest = self.arrival;
        for (name, time) in [("start", self.start), ("issue", self.issue), ("complete", self.complete)] {
            let Some(time) = time else { continue };
            if time < latest {
                return Some((name, time));
            }
            latest = time;
        }
        None
    }
}
