//! Properties of a request, as a set of bits.

use serde::{Deserialize, Serialize};

/// Properties of a request, one bit each; the bit numbers are part of the Parquet schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flags(pub u16);

impl Flags {
    /// A task waits for it (`REQ_SYNC`).
    pub const SYNC: Flags = Flags(1);
    /// Durable on completion (`REQ_FUA`).
    pub const FUA: Flags = Flags(1 << 1);
    /// The device flushes its cache before it (`REQ_PREFLUSH`).
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
    /// where the kernel marks them), and rarely data that a commit depends on.
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
