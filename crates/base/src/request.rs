//! One block-layer I/O.

use crate::op::Op;
use crate::request_flags::RequestFlags;
use crate::units::{ByteCount, Nanos, SECTOR_BYTES, Sector};

/// Index of a process or device name in a trace's table of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u32);

/// One block-layer I/O. Times are on the trace's clock; all but the arrival may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it was generated and put into the queue.
    pub arrival: Nanos,
    /// When the driver fetched it.
    pub start: Option<Nanos>,
    /// When it was submitted to the device.
    pub issue: Option<Nanos>,
    /// When the driver saw the end of its command at the device.
    pub served: Option<Nanos>,
    /// When the device had finished it.
    pub complete: Option<Nanos>,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 only for a flush.
    pub sectors: u32,
    /// Operation.
    pub op: Op,
    /// Property bits.
    pub flags: RequestFlags,
    /// Id of the process that caused it.
    pub pid: Option<i32>,
    /// The name of that process, in the trace's table of names.
    pub process: Option<NameId>,
    /// The device it went to, in the trace's table of names.
    pub device: Option<NameId>,
}

impl Request {
    /// A request of which only arrival, range and operation are known.
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

    /// Completion of a request that succeeded: times of failed ones are in no figure of latency.
    #[inline]
    pub fn succeeded(&self) -> Option<Nanos> {
        self.complete.filter(|_| !self.flags.contains(RequestFlags::FAILED))
    }

    /// Response time: from arrival to completion, as the application sees it; `None` if it failed.
    #[inline]
    pub fn response(&self) -> Option<Nanos> {
        self.succeeded().map(|complete| complete - self.arrival)
    }

    /// Service time: that of the device, from issue to the end of its command, if both were recorded; else from start to
    /// completion, as the driver sees it. `None` if it failed.
    #[inline]
    pub fn service(&self) -> Option<Nanos> {
        let complete = self.succeeded()?;
        let (begin, end) = match (self.issue, self.served) {
            (Some(issue), Some(served)) => (issue, served),
            _ => (self.start?, complete),
        };
        Some(Nanos(end.0.saturating_sub(begin.0)))
    }

    /// The first of start, issue, served and complete that is earlier than one of the times before it, with its name; `None` if they are in
    /// order.
    #[inline]
    pub fn early_time(&self) -> Option<(&'static str, Nanos)> {
        let mut latest = self.arrival;
        for (name, time) in
            [("start", self.start), ("issue", self.issue), ("served", self.served), ("complete", self.complete)]
        {
            let Some(time) = time else { continue };
            if time < latest {
                return Some((name, time));
            }
            latest = time;
        }
        None
    }
}
