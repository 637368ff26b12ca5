//! Properties of a request, as a set of bits.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// Properties of a request, one bit each; the bit numbers are part of the Parquet schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestFlags(pub u16);

bitflags! {
    impl RequestFlags: u16 {
        /// A task waits for it (`REQ_SYNC`).
        const SYNC = 1;
        /// Durable on completion (`REQ_FUA`).
        const FUA = 1 << 1;
        /// The device flushes its cache before it (`REQ_PREFLUSH`).
        const PREFLUSH = 1 << 2;
        /// File-system metadata (`REQ_META`).
        const META = 1 << 3;
        /// Read ahead of use (`REQ_RAHEAD`).
        const READAHEAD = 1 << 4;
        /// It was sent as an eMMC packed command; its 512-byte header block was stripped from the size.
        const PACKED = 1 << 5;
        /// The recorder noted that the queue was empty on arrival; only with [`RequestFlags::NO_WAIT_KNOWN`].
        const NO_WAIT = 1 << 6;
        /// The recorder noted whether the request waited.
        const NO_WAIT_KNOWN = 1 << 7;
        /// Written by the thread of an ext4 journal (`jbd2/...`): descriptors, journal blocks and commit blocks (with `META`
        /// if the kernel marks them), and rarely data that a commit depends on.
        const JOURNAL = 1 << 8;
        /// It is suspected to be another request, issued a second time; found on reading, not recorded.
        const REISSUED = 1 << 9;
        /// It ended with an error: its times are not those of a device that does its work.
        const FAILED = 1 << 10;
        /// A zone append; its sector is the one that the device wrote, not the start of the zone.
        const APPEND = 1 << 11;
    }
}

impl RequestFlags {
    /// Names in the order of the bits.
    pub const NAMES: [&'static str; 12] = [
        "sync",
        "fua",
        "preflush",
        "meta",
        "readahead",
        "packed",
        "no_wait",
        "no_wait_known",
        "journal",
        "reissued",
        "failed",
        "append",
    ];
}
