//! Zoned mapping: a zone has its own blocks in every plane and is written sequentially; its pages use the planes in rotation. Data in a
//! zone is never moved, and a reset erases the blocks of the zone. Therefore the mapping of a zone consists of its blocks and its write
//! pointer.
//!
//! A page is programmed when all of its data has arrived. If a flush must write data earlier, the data is written to a page in SLC mode,
//! and is read back when the rest of its page is written. Pages that a power cut damages are lost until the zone is reset. To replace them,
//! the same number of pages at the end of the zone is written in SLC mode. The conventional zones are in SLC mode too, with a page-level
//! mapping table.

use emmclab_base::Nanos;

use super::ENTRY_BYTES;
use crate::events::{LatencyBreakdown, Observer, OperationCause, UnitWritten};
use crate::ftl::commit::{PageUnits, ProgrammedPages, UnitList};
use crate::ftl::core::FtlCore;
use crate::ftl::pool::WriteStream;
use crate::ftl::request_state::RequestState;
use crate::ftl::write::{PageWrite, RequestSectors, all_sectors};
use crate::geometry::{Geometry, ZoneLayout};
use crate::ids::{BlockId, Lpn};
use crate::nand::{BlockState, Nand, PageOperationTimes};

/// The block group in which sequential zones are stored.
const GROUP: u8 = 0;

#[derive(Clone, Default)]
struct FlashZone {
    /// Blocks of the zone, plane by plane in striping order; [`BlockId::NONE`] if not allocated yet. The list is empty for an empty zone.
    blocks: Vec<BlockId>,
    /// Whether the host has finished the zone. A finished zone is full, although it is not written to its end.
    finished: bool,
}

/// Adds a page program to a request, after `waits`. A completion that promises durability is delayed until all earlier pages are
/// programmed, because after a power cut a page is lost if an earlier page is missing.
fn absorb(core: &FtlCore, request: &mut RequestState, (op, ready): (&PageOperationTimes, Nanos), waits: LatencyBreakdown) {
    let modifiers = request.event.modifiers;
    let own = core.completion(op, modifiers);
    let order = core.in_order.filter(|_| !core.transferred || modifiers.durable());
    let complete = order.map_or(own, |latest| latest.max(own));
    let mut waits = waits.then(LatencyBreakdown::of(op, ready, own));
    waits.queue += complete - own;
    request.absorb(waits, op.begin, complete);
}

/// The blocks of all zones.
#[derive(Clone)]
pub(crate) struct ZonedMapping {
    layout: ZoneLayout,
    planes: u32,
    page_shift: u32,
    /// Total number of map units in blocks in SLC mode.
    fine_units: u32,
    entries: Vec<FlashZone>,
}

impl ZonedMapping {
    pub fn new(layout: ZoneLayout, geometry: &Geometry) -> Self {
        let slc = geometry.groups.last().map_or(0, |group| group.blocks * group.units_per_block());
        Self {
            layout,
            planes: geometry.planes,
            page_shift: geometry.groups[usize::from(GROUP)].page_shift,
            fine_units: slc * geometry.planes,
            entries: vec![FlashZone::default(); layout.count as usize],
        }
    }

    /// Bytes of device RAM for the mapping: a write pointer and the blocks of each zone, and an entry for each map unit in SLC mode.
    pub fn ram_bytes(&self) -> u64 {
        let zone = 1 + u64::from(self.layout.blocks) * u64::from(self.planes);
        ENTRY_BYTES * (zone * u64::from(self.layout.count) + u64::from(self.fine_units))
    }

    /// The state of the zones, encoded as words of a device image.
    pub fn words(&self) -> Vec<u32> {
        let words = |zone: &FlashZone| {
            let blocks: Vec<u32> = zone.blocks.iter().map(|block| block.0).collect();
            [u32::from(zone.finished), blocks.len() as u32].into_iter().chain(blocks)
        };
        self.entries.iter().flat_map(words).collect()
    }

    /// Restores the state of the zones from the words of a device image; `None` if the words are invalid. [`ZonedMapping::fault`] checks
    /// whether the restored state agrees with the flash.
    pub fn restore(&mut self, geometry: &Geometry, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        let most = self.layout.blocks * self.planes;
        for zone in &mut self.entries {
            zone.finished = match words.next()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let count = words.next().filter(|count| [0, most].contains(count))?;
            zone.blocks = words.take(count as usize).map(BlockId).collect();
            let known = |block: &BlockId| *block == BlockId::NONE || block.0 < geometry.blocks();
            (zone.blocks.len() == count as usize && zone.blocks.iter().all(known)).then_some(())?;
        }
        Some(())
    }

    /// Number of units of a zone before its write pointer, and whether the host has finished the zone.
    pub fn state(&self, core: &FtlCore, zone: u32) -> (u32, bool) {
        let start = self.layout.start(zone);
        // The written units are a prefix of the zone, so a binary search finds its end.
        let (mut written, mut end) = (0, self.layout.units);
        while written < end {
            let middle = written.midpoint(end);
            if core.tables.lookup(Lpn(start + middle)).is_some() {
                written = middle + 1;
            } else {
                end = middle;
            }
        }
        (written, self.entries[zone as usize].finished)
    }

    /// Marks a zone as finished by the host.
    pub fn finish(&mut self, zone: u32) {
        self.entries[zone as usize].finished = true;
    }

    /// Writes the data of a request: whole units of one zone, at its write pointer, or units of the conventional zones.
    pub fn write<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L,
    ) {
        let (first, units) = span.units(core.geometry.unit_shift);
        let Some(zone) = self.layout.zone_of(first.0) else {
            // Outside of sequential zones, pages need not become durable in order.
            let in_order = core.in_order.take();
            core.write_pages(nand, request, span, log);
            core.in_order = in_order;
            return;
        };
        let (mut at, end) = (first.0, first.0 + units);
        while at < end {
            let page = (at - self.layout.first_unit) >> self.page_shift;
            let page_end = self.layout.first_unit + ((page + 1) << self.page_shift);
            let to = end.min(page_end);
            let block = if to == page_end { self.block_for(core, nand, (zone, page), request.ready) } else { None };
            let written = match block {
                Some(block) => self.program_page(core, nand, request, (block, at, page_end), log),
                None => Self::program_part(core, nand, request, span, (at, to), log),
            };
            if written.is_none() {
                return;
            }
            at = to;
        }
    }

    /// Returns the block for the next page of a zone; `None` if the blocks of the zone in that plane are already full.
    fn block_for(&mut self, core: &mut FtlCore, nand: &mut Nand, (zone, page): (u32, u32), at: Nanos) -> Option<BlockId> {
        let position = page % self.planes;
        let rows = self.layout.blocks as usize;
        let blocks = &mut self.entries[zone as usize].blocks;
        if blocks.is_empty() {
            blocks.resize(rows * self.planes as usize, BlockId::NONE);
        }
        for block in &mut blocks[position as usize * rows..][..rows] {
            if *block == BlockId::NONE {
                let pool = core.geometry.pool(core.geometry.striped(position), GROUP);
                *block = core.tables.pool_mut(pool).take()?;
                nand.open(*block, at);
                return Some(*block);
            }
            if nand.state(*block) == BlockState::Open {
                return Some(*block);
            }
        }
        None
    }

    /// Programs the page that the host completes with the units `at..end`. The units before them are read from pages in SLC mode.
    fn program_page<L: Observer>(
        &self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, (block, at, end): (BlockId, u32, u32),
        log: &mut L,
    ) -> Option<()> {
        let start = end - (1 << self.page_shift);
        let (mut ready, mut waits) = (request.ready, LatencyBreakdown::default());
        let mut from = start;
        while from < at {
            let place = core.tables.lookup(Lpn(from))?;
            let same = |unit: &u32| {
                core.tables.lookup(Lpn(*unit)).is_some_and(|ppn| ppn.0 >> self.page_shift == place.0 >> self.page_shift)
            };
            let to = (from + 1..at).find(|unit| !same(unit)).unwrap_or(at);
            let bytes = (to - from) * core.geometry.unit_bytes;
            let op = core.read_page(nand, place, request.ready, bytes, OperationCause::ReadModifyWrite, log);
            if op.end > ready {
                (ready, waits) = (op.end, LatencyBreakdown::of(&op, request.ready, op.end));
            }
            from = to;
        }
        let (whole, command) = (all_sectors(core.geometry.unit_sectors), request.command());
        let units: PageUnits = (start..end)
            .map(Lpn)
            .map(|lpn| {
                let covered = if lpn.0 < at { 0 } else { whole };
                UnitWritten { lpn, from: core.tables.lookup(lpn), covered, command }
            })
            .collect();
        let bytes = (end - start) * core.geometry.unit_bytes;
        let next = nand.program_next(block, ready, bytes);
        let programmed = ProgrammedPages::next(block, GROUP, &next, bytes, OperationCause::Host, WriteStream::Host);
        core.commit_page(programmed, &UnitList(&units), log);
        absorb(core, request, (&next.op, ready), waits);
        Some(())
    }

    /// Programs units in SLC mode. This is necessary if they do not fill a page, or if their zone has no free page.
    fn program_part<L: Observer>(
        core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, (at, to): (u32, u32), log: &mut L,
    ) -> Option<()> {
        let page = PageWrite {
            first: Lpn(at),
            units: to - at,
            group: core.slc.group,
            span,
            whole_units: true,
            hot: false,
            command: request.command(),
        };
        let (op, _) = core.program_host(nand, request.ready, page, log)?;
        let ready = request.ready;
        absorb(core, request, (&op, ready), LatencyBreakdown::default());
        Some(())
    }

    /// Handles a discard: resets the completely discarded zones and erases their blocks.
    pub fn reset<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, (first, count): (Lpn, u32), ready: Nanos, log: &mut L,
    ) {
        let first_zone = first.0.saturating_sub(self.layout.first_unit).div_ceil(self.layout.units);
        let end_zone = (first.0 + count).saturating_sub(self.layout.first_unit) / self.layout.units;
        for zone in first_zone..end_zone {
            let FlashZone { blocks, .. } = std::mem::take(&mut self.entries[zone as usize]);
            for block in blocks.into_iter().filter(|block| *block != BlockId::NONE) {
                core.tables.unlist(block);
                nand.begin_collecting(block);
                core.erase(nand, block, ready, log);
            }
        }
    }

    /// Handles a power loss: keeps the written prefix of each zone up to the first gap, and drops the data after it.
    pub fn cut(&self, core: &mut FtlCore) {
        for (zone, _) in (0..).zip(&self.entries) {
            let start = self.layout.start(zone);
            let mut units = (start..start + self.layout.units).map(Lpn);
            let there = units.by_ref().take_while(|unit| core.tables.lookup(*unit).is_some()).count() as u32;
            for unit in (start + there..start + self.layout.units).map(Lpn) {
                core.tables.unmap(unit);
            }
        }
    }

    /// Describes the first inconsistency between the zones and the flash; `None` if there is none.
    pub fn fault(&self, core: &FtlCore, nand: &Nand) -> Option<String> {
        let geometry = &core.geometry;
        let mut held = vec![false; nand.block_count()];
        let rows = self.layout.blocks as usize;
        for (zone, entry) in (0..).zip(&self.entries) {
            for (index, block) in entry.blocks.iter().enumerate().filter(|(_, block)| **block != BlockId::NONE) {
                let plane = geometry.striped((index / rows) as u32);
                let known = core.tables.pool_of(*block) == geometry.pool(plane, GROUP);
                let used = matches!(nand.state(*block), BlockState::Open | BlockState::Full);
                if !known || !used || std::mem::replace(&mut held[block.index()], true) {
                    return Some(format!("zone {zone} contains block {block} of another use"));
                }
            }
            let (start, (written, _)) = (self.layout.start(zone), self.state(core, zone));
            for unit in (start..start + self.layout.units).map(Lpn) {
                let place = core.tables.lookup(unit);
                if place.is_some() != (unit.0 < start + written) {
                    return Some(format!("the data of zone {zone} does not match its write pointer at unit {unit}"));
                }
                let block = place.map(|place| geometry.block_of(place));
                let own = |block: &BlockId| core.slc.holds(nand.group(*block)) || entry.blocks.contains(block);
                if block.is_some_and(|block| !own(&block)) {
                    return Some(format!("unit {unit} of zone {zone} is stored in block {block:?}, which does not belong to it"));
                }
            }
        }
        let in_use =
            |block: &BlockId| nand.group(*block) == GROUP && matches!(nand.state(*block), BlockState::Open | BlockState::Full);
        let lost = (0..nand.block_count() as u32).map(BlockId).filter(in_use).find(|block| !held[block.index()]);
        lost.map(|block| format!("block {block} is in use and belongs to no zone"))
    }
}
