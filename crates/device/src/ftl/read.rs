//! Reads units, each page once.

use emmclab_base::{CommandFlags, Nanos};
use emmclab_settings::UnwrittenRead;

use super::allocation::PageRequest;
use super::commit::{PageUnits, ProgrammedPages, UnitList};
use super::core::FtlCore;
use super::pool::WriteStream;
use super::request_state::RequestState;
use super::write::{ProgramTarget, RequestSectors, next_page};
use crate::events::{
    DataMoved, LatencyBreakdown, Observer, OperationCause, PageRead, UnitWritten, UnplacedRead, UnwrittenUnits,
};
use crate::geometry::MAX_UNITS;
use crate::ids::{Lpn, PlaneId, Ppn};
use crate::nand::{Nand, PageOperationTimes};

impl FtlCore {
    /// Reads the page with this location; `bytes` cross the bus.
    #[inline]
    pub fn read_page<L: Observer>(
        &mut self,
        nand: &mut Nand,
        ppn: Ppn,
        ready: Nanos,
        bytes: u32,
        cause: OperationCause,
        log: &mut L,
    ) -> PageOperationTimes {
        let block = self.geometry.block_of(ppn);
        let group = nand.group(block);
        let page = self.page_of(ppn, group);
        let op = nand.read(block, page, ready, bytes);
        let (bus_bytes, begin, end) = (u64::from(bytes), op.begin, op.end);
        log.page_read(&PageRead { block, page, pages: 1, group, bus_bytes, cause, begin, end });
        op
    }

    /// Reads a page of a plane that no block of the model holds; `bytes` cross the bus.
    #[inline]
    pub fn read_unplaced<L: Observer>(
        nand: &mut Nand,
        (plane, group): (PlaneId, u8),
        ready: Nanos,
        bytes: u32,
        cause: OperationCause,
        log: &mut L,
    ) -> PageOperationTimes {
        let op = nand.read_somewhere(plane, group, 0, ready, bytes);
        let (bus_bytes, begin, end) = (u64::from(bytes), op.begin, op.end);
        log.unplaced_read(&UnplacedRead { plane, group, bus_bytes, cause, begin, end });
        op
    }

    /// Reads the units `first..end` of a request's span from the flash.
    #[inline]
    pub fn read_units<L: Observer>(
        &mut self,
        nand: &mut Nand,
        request: &mut RequestState,
        span: RequestSectors,
        (first, end): (Lpn, Lpn),
        log: &mut L,
    ) {
        let mut at = first;
        while at < end {
            let from = at;
            at = at.plus(1);
            let Some(ppn) = self.tables.lookup(from) else {
                at = self.unwritten_run(from, end);
                self.read_unwritten(nand, request, span, (from, at), log);
                continue;
            };
            let group = nand.group(self.geometry.block_of(ppn));
            let shift = self.geometry.groups[usize::from(group)].page_shift;
            while at < end && self.tables.lookup(at).is_some_and(|other| other.0 >> shift == ppn.0 >> shift) {
                at = at.plus(1);
            }
            let bytes = span.bytes_between(from, at, self.geometry.unit_shift);
            let op = self.read_page(nand, ppn, request.ready, bytes, OperationCause::Host, log);
            request.absorb(LatencyBreakdown::of(&op, request.ready, op.end), op.begin, op.end);
            if let Some(booster) = &mut self.booster {
                booster.note_use(self.geometry.block_of(ppn));
            }
        }
    }

    /// The end of the run of unwritten units from `from` on that would have been in one page.
    fn unwritten_run(&self, from: Lpn, end: Lpn) -> Lpn {
        let group = self.geometry.by_size[0];
        let units = self.geometry.groups[usize::from(group)].units_per_page();
        let page_end = (from.0 / units + 1).saturating_mul(units).min(end.0);
        let written = |lpn: &u32| self.tables.lookup(Lpn(*lpn)).is_some();
        Lpn((from.0 + 1..page_end).find(written).unwrap_or(page_end))
    }

    /// Reads data that was never written: in the same way as written data, or without any cost.
    fn read_unwritten<L: Observer>(
        &mut self,
        nand: &mut Nand,
        request: &mut RequestState,
        span: RequestSectors,
        (from, to): (Lpn, Lpn),
        log: &mut L,
    ) {
        let count = to.0 - from.0;
        let bytes = span.bytes_between(from, to, self.geometry.unit_shift);
        log.unwritten_read(&UnwrittenUnits { first: from, count, bytes });
        if self.unwritten == UnwrittenRead::Free {
            return;
        }
        let (group, _) = self.page_for(from, count, u32::MAX);
        let plane = self.geometry.home_plane(from, group);
        let op = Self::read_unplaced(nand, (plane, group), request.ready, bytes, OperationCause::Host, log);
        request.absorb(LatencyBreakdown::of(&op, request.ready, op.end), op.begin, op.end);
    }
}

// Writes the data of a packed write as one stream: a page may hold data of several entries.
//
// Entries are programmed in their order, and a unit that occurs again begins a new page. Data of two entries must never be merged before
// it is programmed, because then a later entry could survive a power cut without an earlier one.

/// A map unit of the stream, and the entry that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct PackedUnit {
    unit: Lpn,
    entry: usize,
}

/// The next entry of the stream, and the next unit in it.
struct PackedCursor {
    entry: usize,
    offset: u32,
}

fn span_of(entry: &RequestState) -> RequestSectors {
    RequestSectors::new(entry.event.sector, entry.event.sectors)
}

impl FtlCore {
    /// Programs the entries of a packed write, whose data has been transferred. Every unit of a page belongs to one entry. Each entry with
    /// data in a page waits for it, and the first of them counts the page as a subrequest.
    pub fn write_stream<L: Observer>(&mut self, nand: &mut Nand, entries: &mut [RequestState], log: &mut L) {
        for entry in entries.iter() {
            log.data_moved(&DataMoved { op: entry.event.op, sectors: entry.event.sectors });
        }
        let mut cursor = PackedCursor { entry: 0, offset: 0 };
        let mut pieces = [PackedUnit::default(); MAX_UNITS];
        loop {
            let found = self.pieces(entries, &cursor, &mut pieces);
            if found == 0 {
                return;
            }
            let (group, units) = next_page(&self.geometry, found as u32);
            let Some(taken) = self.program_pieces(nand, entries, &pieces[..units as usize], group, log) else {
                return;
            };
            let PackedUnit { unit, entry } = pieces[taken - 1];
            let (first, _) = span_of(&entries[entry]).units(self.geometry.unit_shift);
            cursor = PackedCursor { entry, offset: unit.0 - first.0 + 1 };
        }
    }

    /// The next units of the stream, up to the largest page or to a unit that occurs again.
    fn pieces(&self, entries: &[RequestState], cursor: &PackedCursor, pieces: &mut [PackedUnit; MAX_UNITS]) -> usize {
        let mut found = 0;
        for (entry, state) in entries.iter().enumerate().skip(cursor.entry) {
            let (first, units) = span_of(state).units(self.geometry.unit_shift);
            let from = if entry == cursor.entry { cursor.offset } else { 0 };
            for unit in (first.0 + from..first.0 + units).map(Lpn) {
                if found == MAX_UNITS || pieces[..found].iter().any(|piece| piece.unit == unit) {
                    return found;
                }
                pieces[found] = PackedUnit { unit, entry };
                found += 1;
            }
        }
        found
    }

    /// Programs one page; returns how many of the pieces it holds, or `None` if the device is full.
    fn program_pieces<L: Observer>(
        &mut self,
        nand: &mut Nand,
        entries: &mut [RequestState],
        pieces: &[PackedUnit],
        group: u8,
        log: &mut L,
    ) -> Option<usize> {
        let (unit_sectors, unit_shift) = (self.geometry.unit_sectors, self.geometry.unit_shift);
        let head = entries[pieces[0].entry];
        let stream = if self.is_hot(head.event.sectors) { WriteStream::Hot } else { WriteStream::Host };
        let (mut ready, mut waits) = (head.ready, LatencyBreakdown::default());
        for piece in pieces {
            let span = span_of(&entries[piece.entry]);
            if span.is_partial(piece.unit, 1, unit_shift) {
                let rest = self.read_rest(nand, span, (piece.unit, 1), head.ready, |_| false, log);
                if rest.0 > ready {
                    (ready, waits) = rest;
                }
            }
        }
        let request = PageRequest { ready, first: pieces[0].unit, group };
        let Some(ProgramTarget { pool, group, block }) = self.allocate(nand, request, stream, log) else {
            self.stop_full();
            return None;
        };
        let pieces = &pieces[..pieces.len().min(self.geometry.groups[usize::from(group)].units_per_page() as usize)];
        let (mut written, mut bytes) = (PageUnits::new(), 0);
        for piece in pieces {
            let span = span_of(&entries[piece.entry]);
            bytes += self.bytes_to_move(span, piece.unit, 1);
            let covered = span.covered(piece.unit, unit_sectors);
            let (from, command) = (self.tables.lookup(piece.unit), entries[piece.entry].command());
            written.push(UnitWritten { lpn: piece.unit, from, covered, command });
        }
        let next = nand.program_next(block, ready, bytes);
        let op = next.op;
        let at = ProgrammedPages::next(block, group, &next, bytes, OperationCause::Host, stream);
        self.commit_page(at, &UnitList(&written), log);
        if self.collector.is_incremental() {
            self.collect_after(nand, pool, ready, log);
        }
        // Entries that are durable on completion are not packed into shared pages.
        let complete = self.completion(&op, CommandFlags::empty());
        let waits = waits.then(LatencyBreakdown::of(&op, ready, complete));
        for (i, piece) in pieces.iter().enumerate() {
            if i == 0 || pieces[i - 1].entry != piece.entry {
                let entry = &mut entries[piece.entry];
                entry.absorb(waits, op.begin, complete);
                entry.event.subrequests -= u32::from(i > 0);
            }
        }
        Some(pieces.len())
    }
}
