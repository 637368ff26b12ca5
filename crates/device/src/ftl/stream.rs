//! The data of a packed write as one stream: pages are filled across its entries.
//!
//! Entries are programmed in their order, and a unit that comes again begins a new page: data of two entries is never
//! merged before it is programmed, or a later entry could be there after a power cut without an earlier one.

use super::place::{MAX_SLOTS, Place, Span};
use super::split::next_page;
use crate::controller::Progress;
use crate::device::{Device, Stop};
use crate::event::{Cause, Observer, PageProgrammed, UnitWritten, Waits};
use crate::nand::Stream;

/// A map unit of the stream, and the entry that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    unit: u32,
    entry: usize,
}

/// What is left of the stream.
struct Cursor {
    /// Entry and unit of it that come next.
    entry: usize,
    offset: u32,
}

impl Device {
    /// Programs the entries of a packed write, whose data has come. Every unit of a page is of one entry; what a page
    /// cost is told of each entry in it, the page itself of the first.
    pub(crate) fn write_stream<O: Observer>(&mut self, entries: &mut [Progress], observer: &mut O) {
        for entry in entries.iter() {
            self.counters.host_bytes_written += u64::from(entry.event.sectors) * 512;
        }
        let mut cursor = Cursor { entry: 0, offset: 0 };
        let mut pieces = [Piece::default(); MAX_SLOTS];
        loop {
            let found = self.pieces(entries, &cursor, &mut pieces);
            if found == 0 {
                return;
            }
            let (group, units) = next_page(&self.geometry, found as u32);
            let Some(taken) = self.program_pieces(entries, &pieces[..units as usize], group, observer) else {
                return;
            };
            let Piece { unit, entry } = pieces[taken - 1];
            let first = self.units_of(entries[entry].event.sector, entries[entry].event.sectors).0;
            cursor = Cursor { entry, offset: unit - first + 1 };
        }
    }

    /// The next units of the stream, up to the largest page or a unit that comes again.
    fn pieces(&self, entries: &[Progress], cursor: &Cursor, pieces: &mut [Piece; MAX_SLOTS]) -> usize {
        let mut found = 0;
        for (entry, progress) in entries.iter().enumerate().skip(cursor.entry) {
            let (first, units) = self.units_of(progress.event.sector, progress.event.sectors);
            let from = if entry == cursor.entry { cursor.offset } else { 0 };
            for unit in first + from..first + units {
                if found == MAX_SLOTS || pieces[..found].iter().any(|piece| piece.unit == unit) {
                    return found;
                }
                pieces[found] = Piece { unit, entry };
                found += 1;
            }
        }
        found
    }

    /// Programs one page; returns how many of the pieces it took, or `None` where the device is full.
    fn program_pieces<O: Observer>(
        &mut self,
        entries: &mut [Progress],
        pieces: &[Piece],
        group: u8,
        observer: &mut O,
    ) -> Option<usize> {
        let span_of = |entries: &[Progress], piece: &Piece| {
            let event = &entries[piece.entry].event;
            Span { first: event.sector, end: event.sector + u64::from(event.sectors) }
        };
        let head = &entries[pieces[0].entry];
        let stream = if head.event.sectors <= self.hot_sectors { Stream::Hot } else { Stream::Host };
        let (mut ready, mut waits) = (head.ready, Waits::default());
        for piece in pieces {
            let span = span_of(entries, piece);
            if self.partial(span, piece.unit, 1) {
                let merged = self.merge(span, piece.unit, 1, head.ready, observer);
                if merged.0 > ready {
                    (ready, waits) = merged;
                }
            }
        }
        let Some(place) = self.place(ready, pieces[0].unit, group, stream, observer) else {
            self.stop.get_or_insert(Stop::Full);
            return None;
        };
        let Place { plane, group, pool, block } = place;
        let kind = &self.geometry.groups[usize::from(group)];
        let pieces = &pieces[..pieces.len().min(kind.slots_per_page() as usize)];
        let page = self.blocks[block as usize].written;
        let first_slot = self.geometry.first_slot(block) + (page << kind.page_shift);
        let mut written = [UnitWritten::default(); MAX_SLOTS];
        let mut bytes = 0;
        for (told, piece) in written.iter_mut().zip(pieces) {
            let span = span_of(entries, piece);
            bytes += self.bytes_to_move(span, piece.unit, 1);
            let covered = span.covered(piece.unit, self.geometry.unit_sectors);
            *told = UnitWritten { logical: piece.unit, from: self.lookup(piece.unit), covered };
        }
        let op = self.flash.program(plane, kind, page, ready, bytes);
        self.counters.bus_bytes += u64::from(bytes);
        self.counters.programmed(Cause::Host, group, kind.page_bytes, 1);
        observer.page_programmed(&PageProgrammed {
            block,
            page,
            cause: Cause::Host,
            units: &written[..pieces.len()],
            begin: op.begin,
            end: op.end,
        });
        for (slot, piece) in (first_slot..).zip(pieces) {
            self.books().remap(piece.unit, 1, slot);
        }
        self.books().fill(pool, block, 1, pieces.len() as u32, stream);
        self.last_program = self.last_program.max(op.end);
        if self.incremental && self.pools[pool].free() <= self.soft {
            self.collect_some(pool, ready, observer);
        }
        let complete = self.completion(&op);
        let waits = waits.then(Waits::of(&op, ready, complete));
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
