//! Flash operations of block-mapped schemes: allocation, copies, merges and erases of blocks.

use std::ops::Range;

use emmclab_base::Nanos;

use super::{BlockMapLayout, BlockMapping, Place};
use crate::events::{
    CollectionPurpose, GcFinished, GcStarted, LatencyBreakdown, LogMerged, MapConsulted, MapLookedUp, MergeKind, Observer,
    OperationCause, PageRead, PartOverwritten, UnitWritten,
};
use crate::ftl::commit::{MappedUnits, PageUnits, ProgrammedPages, UnitList};
use crate::ftl::core::FtlCore;
use crate::ftl::pool::WriteStream;
use crate::ftl::request_state::RequestState;
use crate::ftl::write::RequestSectors;
use crate::ids::{BlockId, Lpn, Ppn};
use crate::nand::{Nand, SourcePages};

/// The tables and the flash of an FTL, for a block-mapped scheme that chooses the location of each page itself.
pub(crate) struct BlockSchemeIo<'a, L> {
    pub core: &'a mut FtlCore,
    pub nand: &'a mut Nand,
    pub log: &'a mut L,
    pub layout: BlockMapLayout,
    /// Time at which the data of the page is available.
    pub ready: Nanos,
}

impl<L: Observer> BlockSchemeIo<'_, L> {
    pub fn written_pages(&self, block: BlockId) -> u32 {
        self.nand.next_page(block)
    }

    /// Whether a block has an unwritten page.
    pub fn has_room(&self, block: BlockId) -> bool {
        self.written_pages(block) < self.layout.pages
    }

    /// Returns `Some` if a block is full, otherwise `None`. The write stream in it has no meaning, because block-mapped schemes manage open
    /// blocks themselves.
    pub fn filled(&self, block: BlockId) -> Option<WriteStream> {
        (!self.has_room(block)).then_some(WriteStream::Host)
    }

    pub fn valid(&self, block: BlockId) -> u32 {
        self.core.tables.valid(block)
    }

    /// The first location of a block, and the end of its locations.
    pub fn places(&self, block: BlockId) -> (Ppn, Ppn) {
        let first = self.core.geometry.first_ppn(block);
        (first, first.plus(self.layout.pages << self.layout.page_shift))
    }

    pub fn valid_pages(&self, block: BlockId) -> u32 {
        let (first, end) = self.places(block);
        self.core.tables.reverse.count_pages(first..end, self.layout.page_shift)
    }

    /// The first valid location in a range, and the logical page that it belongs to.
    pub fn next_page_in(&self, from: Ppn, end: Ppn) -> Option<(Ppn, u32)> {
        let (place, unit) = self.core.tables.reverse.valid(from..end).next()?;
        Some((place, unit.0 >> self.layout.page_shift))
    }

    /// Takes a free block of the plane at position `stripe` of the striping order.
    pub fn claim(&mut self, stripe: u32) -> Option<BlockId> {
        let plane = self.core.geometry.striped(stripe);
        let pool = self.core.geometry.pool(plane, 0);
        let block = self.core.tables.pool_mut(pool).take()?;
        self.nand.open(block, self.ready);
        Some(block)
    }

    /// Returns the data block of a logical block, and allocates one if there is none; `None` if no block is free.
    pub fn data_block(&mut self, data: &mut BlockId, block: u32) -> Option<BlockId> {
        if *data == BlockId::NONE {
            *data = self.claim(block)?;
        }
        Some(*data)
    }

    /// Erases a block without valid data.
    pub fn release(&mut self, block: BlockId) {
        self.core.tables.unlist(block);
        self.nand.begin_collecting(block);
        self.core.erase(self.nand, block, self.ready, self.log);
    }

    /// Reports a merge that begins with this block. Returns the number of its valid units.
    pub fn merge_begins(&mut self, block: BlockId) -> u32 {
        let valid = self.valid(block);
        let (collection, at) = (CollectionPurpose::Space, self.ready);
        self.log.gc_started(&GcStarted { block, valid, collection, at });
        valid
    }

    pub fn count_merge(&mut self, kind: MergeKind) {
        self.log.log_merged(&LogMerged { kind });
    }

    /// Reports the end of a merge; `valid` is the number of valid units at its beginning.
    pub fn merge_ends(&mut self, block: BlockId, valid: u32) {
        let at = self.nand.timelines.plane_free(self.nand.block(block).plane).max(self.ready);
        self.log.gc_finished(&GcFinished { block, valid, at });
    }

    /// Merges all valid data of a logical block into one block. The target is `log` if its pages are at their own offsets, otherwise a free
    /// block. `data` and `log` may be [`BlockId::NONE`]. Afterwards `data` is the new data block, or [`BlockId::NONE`] if there is no valid
    /// data. Returns the kind of merge; `None` if no block is free.
    pub fn merge_blocks(&mut self, logical_block: u32, data: &mut BlockId, log: BlockId) -> Option<MergeKind> {
        let begun = if log == BlockId::NONE { *data } else { log };
        let valid = if begun == BlockId::NONE { 0 } else { self.merge_begins(begun) };
        let in_place = log != BlockId::NONE && self.is_in_place(logical_block, log);
        let (mut target, from) = if in_place { (log, self.written_pages(log)) } else { (BlockId::NONE, 0) };
        let mut copies = 0;
        for offset in from..self.layout.pages {
            let logical = self.layout.page(logical_block, offset);
            let Some(from) = self.place_of_page(logical) else { continue };
            if target == BlockId::NONE {
                target = self.claim(logical_block)?;
            }
            self.copy_page((target, offset), from, logical);
            copies += 1;
        }
        if in_place && copies == 0 && self.valid(log) == 0 {
            target = BlockId::NONE;
        }
        let kind = match (in_place, copies) {
            (false, _) => MergeKind::Full,
            (true, 0) => MergeKind::Switch,
            (true, _) => MergeKind::Partial,
        };
        if begun != BlockId::NONE {
            self.merge_ends(begun, valid);
        }
        for old in [*data, log] {
            if old != BlockId::NONE && old != target {
                self.release(old);
            }
        }
        *data = target;
        Some(kind)
    }

    /// Whether the block contains only a prefix of the logical block, with every page at its own offset.
    fn is_in_place(&self, logical_block: u32, block: BlockId) -> bool {
        let (geometry, shift) = (&self.core.geometry, self.layout.page_shift);
        let mut inside = 0;
        for offset in 0..self.written_pages(block) {
            for unit in self.units_of_page(self.layout.page(logical_block, offset)).map(Lpn) {
                let Some(ppn) = self.core.tables.lookup(unit) else { continue };
                if geometry.block_of(ppn) != block || geometry.offset_of(ppn) >> shift != offset {
                    return false;
                }
                inside += 1;
            }
        }
        inside == self.valid(block)
    }

    /// The map units of a logical page, without those beyond the end of the device.
    fn units_of_page(&self, logical: u32) -> Range<u32> {
        self.layout.units_of_page(logical, &self.core.geometry)
    }

    /// The location of a valid unit of a logical page; `None` if there is none.
    pub fn place_of_page(&self, logical: u32) -> Option<Ppn> {
        self.units_of_page(logical).find_map(|unit| self.core.tables.lookup(Lpn(unit)))
    }

    /// Copies a logical page with a valid unit at `ppn`. Pages that are skipped before its new location stay empty.
    pub fn copy_page(&mut self, (block, page): Place, ppn: Ppn, logical: u32) {
        let from = self.core.geometry.block_of(ppn);
        let kind = &self.core.geometry.groups[0];
        let from_page = self.core.page_of(ppn, 0);
        let of_block = self.nand.retries(from, self.ready);
        let (mut reads, retries) = (SourcePages::default(), of_block.of(from_page));
        reads.add(kind, from_page);
        let mut copies = self.nand.copies(from, (block, page), self.ready);
        let (begin, end) = copies.page(reads, of_block.time(retries));
        copies.finish();
        let bus_bytes = if self.nand.timelines.interface.copy_back { 0 } else { u64::from(kind.page_bytes) };
        let cause = OperationCause::Gc;
        let read = PageRead { block: from, page: from_page, pages: 1, group: 0, bus_bytes, retries, cause, begin, end };
        self.log.page_read(&read);
        let filled = self.filled(block);
        let pages = 1;
        let at = ProgrammedPages { block, group: 0, page, pages, bus_bytes, cause, filled, begin, end };
        self.core.commit_page(at, &MappedUnits(self.units_of_page(logical)), self.log);
    }

    /// Programs the part of a logical page that the host writes, together with the preserved old data. Returns the waiting times, the start
    /// of the first operation, and the completion.
    fn program_page(
        &mut self, (block, page): Place, logical: u32, span: RequestSectors, request: &RequestState,
    ) -> (LatencyBreakdown, Nanos, Nanos) {
        let unit_sectors = self.core.geometry.unit_sectors;
        let mut units = PageUnits::new();
        let (mut old, mut kept, mut new) = (None, 0, 0);
        for lpn in self.units_of_page(logical).map(Lpn) {
            let (from, covered) = (self.core.tables.lookup(lpn), span.covered(lpn, unit_sectors));
            if covered == 0 && from.is_none() {
                continue;
            }
            units.push(UnitWritten { lpn, from, covered, command: request.command() });
            let covered = covered.count_ones();
            new += covered * 512;
            if covered < unit_sectors
                && let Some(ppn) = from
            {
                old = Some((lpn, ppn));
                kept += (unit_sectors - covered) * 512;
            }
        }
        let (mut at, mut waits, mut begin) = (self.ready, LatencyBreakdown::default(), None);
        if let Some((lpn, ppn)) = old {
            self.log.part_overwritten(&PartOverwritten { lpn });
            // With copy-back, the old data stays in the page register, and only the new part is transferred over the bus.
            let out = if self.nand.timelines.interface.copy_back { 0 } else { kept };
            let op = self.core.read_page(self.nand, ppn, at, out, OperationCause::ReadModifyWrite, self.log);
            (at, waits, begin) = (op.end, LatencyBreakdown::of(&op, self.ready, op.end), Some(op.begin));
        }
        let bytes = if self.nand.timelines.interface.copy_back { new } else { new + kept };
        let op = self.nand.program(block, page, at, bytes);
        let programmed = ProgrammedPages {
            block,
            group: 0,
            page,
            pages: 1,
            bus_bytes: u64::from(bytes),
            cause: OperationCause::Host,
            filled: self.filled(block),
            begin: op.begin,
            end: op.end,
        };
        self.core.commit_page(programmed, &UnitList(&units), self.log);
        let complete = self.core.completion(&op, request.event.modifiers);
        (waits.then(LatencyBreakdown::of(&op, at, complete)), begin.unwrap_or(op.begin), complete)
    }
}

/// Size of an entry in a page map, in bytes.
const ENTRY_BYTES: u32 = 4;

impl BlockMapping {
    /// Reads the page maps of these units, unless they are in RAM.
    pub fn fetch_maps<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, (first, units): (Lpn, u32), log: &mut L,
    ) {
        if self.cache.most == 0 || units == 0 {
            return;
        }
        let shift = self.layout.page_shift;
        let row = |unit: u32| self.layout.row(self.layout.split(unit >> shift).0);
        let mut missed = false;
        for row in row(first.0)..=row(first.0 + units - 1) {
            let map = self.scheme.tables().map_of(row);
            let hit = self.cache.touch(map);
            log.map_looked_up(&MapLookedUp { hit });
            if hit {
                continue;
            }
            let plane = core.geometry.striped(map);
            let page_bytes = core.geometry.groups[0].page_bytes;
            let bytes = (self.layout.pages * ENTRY_BYTES).next_multiple_of(512).min(page_bytes);
            // The simulated flash contains no blocks for map pages. Each map page is assumed to be in a fixed plane.
            let op = FtlCore::read_unplaced(
                nand,
                (plane, 0, map / core.geometry.planes),
                request.ready,
                bytes,
                OperationCause::Map,
                log,
            );
            request.look_up(&op);
            missed = true;
        }
        log.map_consulted(&MapConsulted { missed });
    }

    /// Writes the data of a request with a block-mapped scheme.
    pub fn write<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L,
    ) {
        let (first, units) = span.units(core.geometry.unit_shift);
        self.fetch_maps(core, nand, request, (first, units), log);
        let shift = self.layout.page_shift;
        let mut io = BlockSchemeIo { core, nand, log, layout: self.layout, ready: request.ready };
        for logical in first.0 >> shift..=(first.0 + units - 1) >> shift {
            let place = self.scheme.place(&mut io, logical);
            let Some(place) = place.filter(|_| io.core.stop.is_none()) else {
                io.core.stop_full();
                return;
            };
            let (waits, begin, complete) = io.program_page(place, logical, span, request);
            request.absorb(waits, begin, complete);
        }
    }
}
