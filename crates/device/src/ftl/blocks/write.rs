//! How a block-mapped device writes: page by page, each where the scheme says.

use super::Blocks;
use crate::controller::Progress;
use crate::device::{Device, Stop};
use crate::event::{Cause, Observer, PageProgrammed, UnitWritten, Waits};
use crate::ftl::place::{MAX_SLOTS, Span};
use crate::nand::Stream;

/// Bytes of a page's entry in a page map.
const ENTRY_BYTES: u32 = 4;

impl Blocks {
    /// Reads the page maps of the units that are not in memory.
    pub fn fetch_maps(&mut self, device: &mut Device, progress: &mut Progress, first: u32, units: u32) {
        if self.cache.holds_all() || units == 0 {
            return;
        }
        let shift = self.layout.page_shift;
        let row = |unit: u32| self.layout.row(self.layout.split(unit >> shift).0);
        for row in row(first)..=row(first + units - 1) {
            let map = self.scheme.tables().map_of(row);
            if self.cache.touch(map) {
                device.counters.map_hits += 1;
                continue;
            }
            device.counters.map_misses += 1;
            let plane = device.geometry.stripe[(map % self.layout.planes) as usize];
            let kind = &device.geometry.groups[0];
            let bytes = (self.layout.pages * ENTRY_BYTES).next_multiple_of(512).min(kind.page_bytes);
            // The blocks of the map itself are not part of the model; their pages lie in the same plane.
            let op = device.flash.read(plane, kind, 0, progress.ready, bytes);
            device.count_read(0, bytes, Cause::Map);
            progress.look_up(&op);
        }
    }

    /// Forgets which maps were in memory.
    pub fn power_cycle(&mut self) {
        self.cache.clear();
    }

    /// Writes the span of a request.
    pub fn write<O: Observer>(
        &mut self,
        device: &mut Device,
        progress: &mut Progress,
        span: Span,
        observer: &mut O,
    ) {
        let (first, units) = device.units_of(span.first, progress.event.sectors);
        self.fetch_maps(device, progress, first, units);
        let shift = self.layout.page_shift;
        for logical in first >> shift..=(first + units - 1) >> shift {
            let ready = progress.ready;
            let place = self.scheme.place(device, self.layout, logical, ready, observer);
            let Some((block, page)) = place.filter(|_| device.stop.is_none()) else {
                device.stop.get_or_insert(Stop::Full);
                return;
            };
            let (waits, begin, complete) =
                device.program_logical((block, page), logical, span, ready, observer);
            progress.absorb(waits, begin, complete);
        }
    }
}

/// Units of a logical page that the device has.
fn units_of_page(device: &Device, logical: u32) -> std::ops::Range<u32> {
    let shift = device.geometry.groups[0].page_shift;
    let first = logical << shift;
    first..(first + (1 << shift)).min(device.geometry.logical_units)
}

impl Device {
    /// Whether anything of a logical page is valid; its slot.
    pub(super) fn slot_of_page(&self, logical: u32) -> Option<u32> {
        units_of_page(self, logical).find_map(|unit| self.lookup(unit))
    }

    /// Programs the host's part of a logical page with what it leaves of the old. Returns what it waited for, when its first
    /// operation began and when it was complete.
    fn program_logical<O: Observer>(
        &mut self,
        (block, page): (u32, u32),
        logical: u32,
        span: Span,
        ready: i64,
        observer: &mut O,
    ) -> (Waits, i64, i64) {
        let (mut old, mut kept, mut given) = (None, 0, 0);
        for unit in units_of_page(self, logical) {
            let covered = span.covered(unit, self.geometry.unit_sectors).count_ones();
            given += covered * 512;
            if covered < self.geometry.unit_sectors
                && let Some(slot) = self.lookup(unit)
            {
                old = Some(slot);
                kept += (self.geometry.unit_sectors - covered) * 512;
            }
        }
        let (mut at, mut waits, mut begin) = (ready, Waits::default(), None);
        if let Some(slot) = old {
            self.counters.merges += 1;
            // With copy-back the page register keeps the old data and takes the new part over the bus.
            let out = if self.copy_back { 0 } else { kept };
            let op = self.read_page(slot, ready, out, Cause::Merge, observer);
            (at, waits, begin) = (op.end, Waits::of(&op, ready, op.end), Some(op.begin));
        }
        let bytes = if self.copy_back { given } else { given + kept };
        let plane = u32::from(self.blocks[block as usize].plane);
        let op = self.flash.program(plane, &self.geometry.groups[0], page, at, bytes);
        self.counters.bus_bytes += u64::from(bytes);
        self.counters.programmed(Cause::Host, 0, self.geometry.groups[0].page_bytes, 1);
        self.settle_page((block, page), logical, Some(span), Cause::Host, (op.begin, op.end), observer);
        let complete = self.completion(&op);
        (waits.then(Waits::of(&op, at, complete)), begin.unwrap_or(op.begin), complete)
    }

    /// Copies a logical page; false where nothing of it is valid.
    pub(super) fn copy_logical<O: Observer>(
        &mut self,
        (block, page): (u32, u32),
        logical: u32,
        ready: i64,
        observer: &mut O,
    ) -> bool {
        let Some(slot) = self.slot_of_page(logical) else { return false };
        let from = self.geometry.block_of(slot);
        let plane = u32::from(self.blocks[block as usize].plane);
        let kind = &self.geometry.groups[0];
        let from_page = self.geometry.offset_of(slot) >> kind.page_shift;
        let (begin, end) = self.flash.copies((plane, plane), (kind, kind), ready).page(1, page);
        if !self.copy_back {
            self.counters.bus_bytes += 2 * u64::from(kind.page_bytes);
        }
        self.counters.gc_ns += (end - begin) as u64;
        self.counters.page_reads[Cause::Gc as usize] += 1;
        self.counters.group_reads[0] += 1;
        self.counters.programmed(Cause::Gc, 0, kind.page_bytes, 1);
        let read = crate::PageRead { block: from, page: from_page, cause: Cause::Gc, begin, end };
        observer.page_read(&read);
        self.settle_page((block, page), logical, None, Cause::Gc, (begin, end), observer);
        true
    }

    /// A logical page has been programmed: tells of it and moves the map. Pages left out before it stay empty.
    fn settle_page<O: Observer>(
        &mut self,
        (block, page): (u32, u32),
        logical: u32,
        span: Option<Span>,
        cause: Cause,
        (begin, end): (i64, i64),
        observer: &mut O,
    ) {
        let mut written = [UnitWritten::default(); MAX_SLOTS];
        let mut count = 0;
        for unit in units_of_page(self, logical) {
            let covered = span.map_or(0, |span| span.covered(unit, self.geometry.unit_sectors));
            let from = self.lookup(unit);
            if covered != 0 || from.is_some() {
                written[count] = UnitWritten { logical: unit, from, covered };
                count += 1;
            }
        }
        let units = &written[..count];
        observer.page_programmed(&PageProgrammed { block, page, cause, units, begin, end });
        let slot = self.geometry.first_slot(block) + (page << self.geometry.groups[0].page_shift);
        for (i, unit) in units.iter().enumerate() {
            if let Some(old) = unit.from {
                self.books().invalidate(old);
            }
            self.map[unit.logical as usize] = slot + i as u32 + 1;
            self.reverse.set(slot + i as u32, unit.logical);
        }
        let pool = self.pool_index(u32::from(self.blocks[block as usize].plane), 0);
        self.blocks[block as usize].written = page;
        self.books().fill(pool, block, 1, count as u32, Stream::Host);
        self.last_program = self.last_program.max(end);
    }
}
