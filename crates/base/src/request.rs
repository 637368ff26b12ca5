//! A block I/O request as it is recorded in a trace.

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

use crate::{ByteCount, Nanos, SECTOR_BYTES, Sector};

/// Index of a process or device name in a trace's table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// A block I/O request in a trace. Times are on the trace's clock; all times except the arrival may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Time at which the request entered the queue of the block layer.
    pub arrival: Nanos,
    /// Time at which the driver fetched the request from the queue.
    pub start: Option<Nanos>,
    /// Time at which the request was submitted to the device.
    pub issue: Option<Nanos>,
    /// Time at which the driver saw the end of the request's command.
    pub served: Option<Nanos>,
    /// Time at which the request was complete.
    pub complete: Option<Nanos>,
    /// First sector of the request.
    pub sector: Sector,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Operation of the request, such as read or write.
    pub op: Op,
    /// Properties of the request, as flags.
    pub flags: RequestFlags,
    /// Id of the process that issued the request.
    pub pid: Option<i32>,
    /// Name of the process that issued the request, as an index in the trace's table of names.
    pub process: Option<NameId>,
    /// Device of the request, as an index in the trace's table of names.
    pub device: Option<NameId>,
}

impl Request {
    /// Creates a request with arrival, operation and sector range only.
    #[inline]
    pub const fn new(arrival: Nanos, op: Op, sector: Sector, sectors: u32) -> Self {
        Self {
            arrival,
            start: None,
            issue: None,
            served: None,
            complete: None,
            sector,
            sectors,
            op,
            flags: RequestFlags(0),
            pid: None,
            process: None,
            device: None,
        }
    }

    /// Length in bytes.
    #[inline]
    pub const fn bytes(&self) -> ByteCount {
        ByteCount(self.sectors as u64 * SECTOR_BYTES)
    }

    /// The sector after the last one; saturates at the end of the address space.
    #[inline]
    pub const fn end(&self) -> Sector {
        Sector(self.sector.0.saturating_add(self.sectors as u64))
    }

    /// Completion time of a successful request; `None` if the request failed or the time is not known. Used for latency statistics.
    #[inline]
    pub fn succeeded(&self) -> Option<Nanos> {
        self.complete.filter(|_| !self.flags.contains(RequestFlags::FAILED))
    }

    /// Response time: from arrival to completion; `None` if it is not known or the request failed.
    #[inline]
    pub fn response(&self) -> Option<Nanos> {
        self.succeeded().map(|complete| complete - self.arrival)
    }

    /// Service time: from issue to the end of the command at the device if both were recorded, otherwise from start to
    /// completion. `None` if it is not known or the request failed.
    #[inline]
    pub fn service(&self) -> Option<Nanos> {
        let complete = self.succeeded()?;
        let (begin, end) = match (self.issue, self.served) {
            (Some(issue), Some(served)) => (issue, served),
            _ => (self.start?, complete),
        };
        Some(Nanos(end.0.saturating_sub(begin.0)))
    }

    /// Name and value of the first time that is out of order; `None` if there is none. The order is arrival, start, issue, served,
    /// complete.
    #[inline]
    pub fn early_time(&self) -> Option<(&'static str, Nanos)> {
        let mut latest = self.arrival;
        for (name, time) in [("start", self.start), ("issue", self.issue), ("served", self.served), ("complete", self.complete)] {
            let Some(time) = time else { continue };
            if time < latest {
                return Some((name, time));
            }
            latest = time;
        }
        None
    }
}

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Op {
    /// Reads data from the device.
    Read = 0,
    /// Writes data to the device.
    Write = 1,
    /// Tells the device that the data of the range is no longer needed (TRIM).
    Discard = 2,
    /// Makes all previously written data durable. A flush transfers no data.
    Flush = 3,
    /// Makes the data of the range unreadable.
    SecureErase = 4,
}

impl Op {
    /// All operations, in the order of their codes.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Discard, Op::Flush, Op::SecureErase];

    /// The name of the operation in files, JSON and tables.
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

    /// Returns the operation with this numeric code; the inverse of `op as u8`.
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

    /// Whether the operation transfers data (reads and writes). Statistics of sizes and rates do not include other operations.
    #[inline]
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// Properties of a request, one bit each; the bit numbers are part of the Parquet schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestFlags(pub u16);

bitflags! {
    impl RequestFlags: u16 {
        /// A task waits for the request (`REQ_SYNC`).
        const SYNC = 1;
        /// The write is durable on completion (`REQ_FUA`).
        const FUA = 1 << 1;
        /// The device flushes its cache before the request (`REQ_PREFLUSH`).
        const PREFLUSH = 1 << 2;
        /// The request accesses file-system metadata (`REQ_META`).
        const META = 1 << 3;
        /// The request is a read-ahead (`REQ_RAHEAD`).
        const READAHEAD = 1 << 4;
        /// The request was sent as an eMMC packed command. The 512 bytes of the header block were subtracted from its size.
        const PACKED = 1 << 5;
        /// The recorder reported that the queue was empty when the request arrived; valid only with [`RequestFlags::NO_WAIT_KNOWN`].
        const NO_WAIT = 1 << 6;
        /// The recorder reported whether the request waited in the queue. Without this flag, [`RequestFlags::NO_WAIT`] has no meaning.
        const NO_WAIT_KNOWN = 1 << 7;
        /// The request was written by the thread of an ext4 journal (`jbd2/...`): descriptors, logged blocks and commit blocks (with `META`
        /// if the kernel marks them), and in rare cases data on which a commit depends.
        const JOURNAL = 1 << 8;
        /// Suspected re-issue: a second record of an earlier request. The trace reader sets this flag; recorders do not report it.
        const REISSUED = 1 << 9;
        /// The request ended with an error, so its times do not describe a completed operation.
        const FAILED = 1 << 10;
        /// The request is a zone append. Its sector is the one that the device wrote, not the start of the zone.
        const APPEND = 1 << 11;
    }
}

impl RequestFlags {
    /// Names of the flags in the order of their bits.
    pub const NAMES: [&'static str; 12] = [
        "sync", "fua", "preflush", "meta", "readahead", "packed", "no_wait", "no_wait_known", "journal", "reissued", "failed",
        "append",
    ];
}
