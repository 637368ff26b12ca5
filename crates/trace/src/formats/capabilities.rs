//! The values that a format can represent.

use crate::{BlockNote, Nanos, Op, Request, RequestFlags, TraceColumn};

/// The values that a format can represent; [`crate::TraceWriter`] counts all others as lost.
#[derive(Clone, Copy, Debug)]
pub struct FormatCapabilities {
    /// The operations; requests with other operations are left out.
    pub ops: &'static [Op],
    /// The columns, except arrival, sector, sectors, op and flags.
    pub columns: &'static [TraceColumn],
    /// The flags that the format can represent.
    pub flags: RequestFlags,
    /// Resolution of its times, in nanoseconds.
    pub tick_ns: i64,
}

impl FormatCapabilities {
    /// All values of a trace.
    pub const EVERYTHING: FormatCapabilities =
        FormatCapabilities { ops: &Op::ALL, columns: &TraceColumn::ALL, flags: RequestFlags(u16::MAX), tick_ns: 1 };

    /// All values of a trace except block notes.
    pub const ALL_BUT_NOTES: FormatCapabilities =
        FormatCapabilities { columns: TraceColumn::OF_REQUEST, ..FormatCapabilities::EVERYTHING };

    /// True for a format that loses nothing of a batch with or without block notes.
    pub const fn is_everything(&self, notes: bool) -> bool {
        let columns = if notes { TraceColumn::ALL.len() } else { TraceColumn::OF_REQUEST.len() };
        self.ops.len() == Op::ALL.len() && self.columns.len() >= columns && self.tick_ns == 1
    }

    /// Whether writing `request` with its notes loses its value in `column`.
    pub(crate) fn loses(&self, column: TraceColumn, request: &Request, notes: &[BlockNote]) -> bool {
        let time = |time: Option<Nanos>| {
            time.is_some_and(|time| !self.columns.contains(&column) || time.0 % self.tick_ns != 0)
        };
        let noted = |has: fn(&BlockNote) -> bool| notes.iter().any(has) && !self.columns.contains(&column);
        match column {
            TraceColumn::Arrival => request.arrival.0 % self.tick_ns != 0,
            TraceColumn::Start => time(request.start),
            TraceColumn::Issue => time(request.issue),
            TraceColumn::Served => time(request.served),
            TraceColumn::Complete => time(request.complete),
            TraceColumn::Sector | TraceColumn::Sectors | TraceColumn::Op => false,
            // Suspected re-issues are no loss: they are found again when the file is read.
            TraceColumn::Flags => !self.flags.union(RequestFlags::REISSUED).contains(request.flags),
            TraceColumn::Pid => request.pid.is_some() && !self.columns.contains(&column),
            TraceColumn::Process => request.process.is_some() && !self.columns.contains(&column),
            TraceColumn::Device => request.device.is_some() && !self.columns.contains(&column),
            TraceColumn::Role | TraceColumn::RoleSectors => noted(|_| true),
            TraceColumn::HomeSector => noted(|note| note.home.is_some()),
            TraceColumn::ChangedSectors => noted(|note| note.changed.is_some()),
            TraceColumn::Transaction => noted(|note| note.transaction.is_some()),
        }
    }
}
