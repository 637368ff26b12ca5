//! The values that a format can represent.

use emmclab_base::{BlockNote, Flags, Nanos, Op, Request};

use crate::columns::Column;

/// The values that a format can represent; [`crate::TraceWriter`] counts all others as lost.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// The operations; requests with other operations are left out.
    pub ops: &'static [Op],
    /// The columns, except arrival, sector, sectors, op and flags.
    pub columns: &'static [Column],
    /// The flags that the format can represent.
    pub flags: Flags,
    /// Resolution of its times, in nanoseconds.
    pub tick_ns: i64,
}

impl Holds {
    /// All values of a trace.
    pub const EVERYTHING: Holds =
        Holds { ops: &Op::ALL, columns: &Column::ALL, flags: Flags(u16::MAX), tick_ns: 1 };

    /// All values of a trace except block notes.
    pub const ALL_BUT_NOTES: Holds = Holds { columns: Column::OF_REQUEST, ..Holds::EVERYTHING };

    /// True for a format that loses nothing of a batch with or without block notes.
    pub const fn is_everything(&self, notes: bool) -> bool {
        let columns = if notes { Column::ALL.len() } else { Column::OF_REQUEST.len() };
        self.ops.len() == Op::ALL.len() && self.columns.len() >= columns && self.tick_ns == 1
    }

    /// Whether writing `request` with its notes loses its value in `column`.
    pub(crate) fn loses(&self, column: Column, request: &Request, notes: &[BlockNote]) -> bool {
        let time = |time: Option<Nanos>| {
            time.is_some_and(|time| !self.columns.contains(&column) || time.0 % self.tick_ns != 0)
        };
        let noted = |has: fn(&BlockNote) -> bool| notes.iter().any(has) && !self.columns.contains(&column);
        match column {
            Column::Arrival => request.arrival.0 % self.tick_ns != 0,
            Column::Start => time(request.start),
            Column::Issue => time(request.issue),
            Column::Served => time(request.served),
            Column::Complete => time(request.complete),
            Column::Sector | Column::Sectors | Column::Op => false,
            // Suspected re-issues are no loss: they are found again when the file is read.
            Column::Flags => !self.flags.union(Flags::REISSUED).contains(request.flags),
            Column::Pid => request.pid.is_some() && !self.columns.contains(&column),
            Column::Process => request.process.is_some() && !self.columns.contains(&column),
            Column::Device => request.device.is_some() && !self.columns.contains(&column),
            Column::Role | Column::RoleSectors => noted(|_| true),
            Column::HomeSector => noted(|note| note.home.is_some()),
            Column::ChangedSectors => noted(|note| note.changed.is_some()),
            Column::Transaction => noted(|note| note.transaction.is_some()),
        }
    }
}
