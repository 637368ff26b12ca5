//! Writes of a block-mapped device: page by page, each to the location that the scheme chooses.

use emmclab_base::Nanos;

use super::io::BlockSchemeIo;
use super::{BlockMapping, Place};
use crate::events::{LatencyBreakdown, MapConsulted, MapLookedUp, Observer, OperationCause, PartOverwritten};
use crate::ftl::commit::{PageUnits, ProgrammedPages, UnitList};
use crate::ftl::core::FtlCore;
use crate::ftl::request_sectors::RequestSectors;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;
use crate::nand::Nand;

/// Size of a page's entry in a page map, in bytes.
const ENTRY_BYTES: u32 = 4;

impl BlockMapping {
    /// Reads the page maps of these units that are not in memory.
    pub fn fetch_maps<L: Observer>(
        &mut self,
        core: &mut FtlCore,
        nand: &mut Nand,
        request: &mut RequestState,
        (first, units): (Lpn, u32),
        log: &mut L,
    ) {
        if self.cache.holds_all() || units == 0 {
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
            // The blocks of the map itself are not part of the model; their pages are assumed to be in the same plane.
            let op = FtlCore::read_unplaced(nand, (plane, 0), request.ready, bytes, OperationCause::Map, log);
            request.look_up(&op);
            missed = true;
        }
        log.map_consulted(&MapConsulted { missed });
    }

    /// Writes the span of a request.
    pub fn write<L: Observer>(
        &mut self,
        core: &mut FtlCore,
        nand: &mut Nand,
        request: &mut RequestState,
        span: RequestSectors,
        log: &mut L,
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

impl<L: Observer> BlockSchemeIo<'_, L> {
    /// Programs the part of a logical page that the host writes, together with the rest of its old data. Returns the waits, the start of
    /// the first operation, and the completion.
    fn program_page(
        &mut self,
        (block, page): Place,
        logical: u32,
        span: RequestSectors,
        request: &RequestState,
    ) -> (LatencyBreakdown, Nanos, Nanos) {
        let unit_sectors = self.core.geometry.unit_sectors;
        let mut units = PageUnits::new();
        self.page_units(&mut units, logical, span, request.command());
        let (mut old, mut kept, mut given) = (None, 0, 0);
        for unit in &units {
            let covered = unit.covered.count_ones();
            given += covered * 512;
            if covered < unit_sectors
                && let Some(ppn) = unit.from
            {
                old = Some((unit.lpn, ppn));
                kept += (unit_sectors - covered) * 512;
            }
        }
        let (mut at, mut waits, mut begin) = (self.ready, LatencyBreakdown::default(), None);
        if let Some((lpn, ppn)) = old {
            self.log.part_overwritten(&PartOverwritten { lpn });
            // With copy-back, the page register holds the old data and receives the new part over the bus.
            let out = if self.nand.copies_back() { 0 } else { kept };
            let op = self.core.read_page(self.nand, ppn, at, out, OperationCause::ReadModifyWrite, self.log);
            (at, waits, begin) = (op.end, LatencyBreakdown::of(&op, self.ready, op.end), Some(op.begin));
        }
        let bytes = if self.nand.copies_back() { given } else { given + kept };
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
