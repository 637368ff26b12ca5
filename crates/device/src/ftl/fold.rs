//! Writes to blocks in SLC mode, and folding of these blocks into others.

use arrayvec::ArrayVec;
use emmclab_base::Nanos;
use emmclab_settings::{ALWAYS, SlcMode};

use super::commit::{MoveRun, MovedUnits, ProgrammedPages};
use super::core::FtlCore;
use super::pool::{BlockPool, VictimProgress, WriteStream};
use super::write::next_page;
use crate::events::{Observer, PageRead, UnitsFolded};
use crate::geometry::MAX_UNITS;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use crate::nand::{BlockRetries, Nand, RetryCount, SourcePages};

impl FtlCore {
    #[inline(never)]
    pub(super) fn page_for_slc(&self, first: Lpn, units: u32, sectors: u32) -> (u8, u32) {
        let capacity = self.geometry.groups[usize::from(self.slc.group)].units_per_page();
        let region = self.geometry.slc_units;
        match self.slc.mode {
            SlcMode::Region if first.0 < region => (self.slc.group, units.min(capacity).min(region - first.0)),
            SlcMode::Cache if sectors <= self.slc.max_sectors && first.0 < self.slc.end && self.slc_has_room(first) => {
                let units = self.booster.as_ref().map_or(units, |booster| booster.equally_pinned(first, units));
                (self.slc.group, units.min(capacity).min(self.slc.end - first.0))
            }
            _ => next_page(&self.geometry, units),
        }
    }

    /// Whether the SLC cache accepts the data of a map unit. A cache that is folded only when full may have to be folded first.
    fn slc_has_room(&self, unit: Lpn) -> bool {
        if self.slc.units_per_block > 0 && !self.user_has_room() {
            return false;
        }
        if let Some(booster) = &self.booster {
            if self.booster_is_worn(booster) {
                return false;
            }
            if self.slc.fold_after.is_some() {
                let pinned = booster.pins(unit) && self.booster_has_room(booster, WriteStream::PINNED);
                return pinned || self.booster_has_room(booster, WriteStream::Host);
            }
        }
        self.slc.fold_after.is_none()
            || (0..self.geometry.planes).any(|plane| {
                let pool = self.tables.pool(self.geometry.pool(PlaneId(plane), self.slc.group));
                pool.free() > self.collector.low_watermark || pool.open(WriteStream::Host).is_some()
            })
    }

    pub(super) fn slc_pools(&self) -> impl Iterator<Item = &BlockPool> {
        (0..self.geometry.planes).map(|plane| self.tables.pool(self.slc_pool(PlaneId(plane))))
    }

    /// Whether the blocks that the SLC cache uses fit into the user's free space. The cache must not reduce the capacity of the device.
    fn user_has_room(&self) -> bool {
        let used: u32 = self.slc_pools().map(BlockPool::in_use).sum();
        used <= self.user_free() / self.slc.units_per_block
    }

    /// Number of map units of the device's capacity that contain no data.
    pub(super) fn user_free(&self) -> u32 {
        let held: u32 = self.tables.pools.iter().map(|pool| pool.valid).sum();
        self.geometry.logical_units.saturating_sub(held)
    }

    /// Whether the SLC cache is folded in an idle time that begins now.
    pub fn slc_is_due(&self) -> bool {
        if self.slc.flush_at_pct >= ALWAYS {
            return true;
        }
        let blocks = self.geometry.planes * self.slc_blocks();
        let used: u32 = self.slc_pools().map(BlockPool::in_use).sum();
        let free = blocks.saturating_sub(used);
        free * 100 <= blocks * self.slc.flush_at_pct
    }

    /// Whether writes never wait for garbage collection of a block pool. This is the case for an SLC cache that is folded in idle time:
    /// when the cache is full, writes go to other blocks.
    #[inline]
    pub fn is_skipped(&self, pool: PoolId) -> bool {
        self.slc.folds_after().is_some() && self.geometry.of_pool(pool).1 == self.slc.group
    }

    pub fn slc_pool(&self, plane: PlaneId) -> PoolId {
        self.geometry.pool(plane, self.slc.group)
    }

    /// Returns the next block of the SLC cache to fold, which is the oldest full one; `None` if there is none.
    pub(super) fn next_to_fold(&self, nand: &Nand, pool: PoolId) -> Option<BlockId> {
        if let Some(booster) = &self.booster {
            return self.next_to_leave_booster(booster, nand, pool);
        }
        self.tables.pool(pool).full_blocks(nand).min_by_key(|block| self.tables.closed(*block))
    }

    /// Maximum number of units that folding writes to one page.
    pub(super) fn fold_units(&self) -> u32 {
        let largest = self.geometry.by_size.first();
        let units = largest.map_or(1, |group| self.geometry.groups[usize::from(*group)].units_per_page());
        units.min(MAX_UNITS as u32)
    }

    /// Selects the block pool into which `count` units are folded: in the plane of the folded block if it has room, otherwise in another.
    pub(super) fn fold_destination<L: Observer>(
        &mut self, nand: &mut Nand, plane: PlaneId, count: u32, ready: Nanos, log: &mut L,
    ) -> Option<PoolId> {
        let (best, _) = next_page(&self.geometry, count);
        for crowded in [false, true] {
            for i in 0..self.geometry.planes {
                let to_plane = PlaneId((plane.0 + i) % self.geometry.planes);
                for turn in 0..=self.geometry.by_size.len() {
                    let group = if turn == 0 { best } else { self.geometry.by_size[turn - 1] };
                    let pool = self.geometry.pool(to_plane, group);
                    let entry = self.tables.pool(pool);
                    if entry.valid < entry.valid_limit || crowded {
                        let open = entry.open(WriteStream::Gc).is_some() && entry.victim.is_none();
                        if open || self.reclaim(nand, pool, ready, log) {
                            return Some(pool);
                        }
                    }
                    if self.stop.is_some() {
                        return None;
                    }
                }
            }
        }
        None
    }

    /// Moves valid data of a victim to at most `pages` destination pages. When no data is left, erases the victim and returns false.
    pub fn move_pages<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, pages: u32, ready: Nanos, log: &mut L) -> bool {
        let Some(mut victim) = self.tables.pool(pool).victim else { return false };
        let (plane, group) = self.geometry.of_pool(pool);
        let kind = &self.geometry.groups[usize::from(group)];
        let first = self.geometry.first_ppn(victim.block);
        let wanted = if self.slc.folds(group) { self.fold_units() } else { kind.units_per_page() };
        let (page_shift, page_bytes) = (kind.page_shift, kind.page_bytes);
        let end = first.plus(kind.units_per_block());
        let source = MoveSource { pool, plane, group, first, end, units_per_page: wanted, page_shift, page_bytes };
        let mut left = pages;
        while left > 0 {
            let places = first.plus(victim.cursor)..end;
            let units: VictimUnits = self.tables.reverse.valid(places).take(wanted as usize).collect();
            let count = units.len();
            if count == 0 {
                self.finish_victim(nand, pool, victim, ready, log);
                return false;
            }
            let to = self.destination(nand, &source, count as u32, ready, log);
            let block = to.and_then(|to| self.open_block(nand, to, WriteStream::Gc, ready, log));
            let (Some(to), Some(block)) = (to, block) else {
                // One free block is always reserved for collection, so if no block can be opened, the device is full.
                self.stop_full();
                self.tables.pool_mut(pool).victim = Some(victim);
                return false;
            };
            let bulk = !L::UNITS && self.changed_entries.is_none() && to == pool && count == wanted as usize;
            if self.slc.folds(group) {
                log.units_folded(&UnitsFolded { units: count as u32 });
            }
            left -= if bulk {
                self.move_run(nand, &source, &mut victim, (block, left), ready, log)
            } else {
                self.move_page(nand, &source, &mut victim, (to, block), &units, ready, log);
                1
            };
        }
        self.tables.pool_mut(pool).victim = Some(victim);
        true
    }

    /// Selects the destination pool for `count` units of a victim; `None` if no plane has room.
    fn destination<L: Observer>(
        &mut self, nand: &mut Nand, source: &MoveSource, count: u32, ready: Nanos, log: &mut L,
    ) -> Option<PoolId> {
        if self.slc.folds(source.group) {
            self.fold_destination(nand, source.plane, count, ready, log)
        } else if count == source.units_per_page || self.slc.holds(source.group) {
            Some(source.pool)
        } else {
            Some(self.remainder_pool(source, count))
        }
    }

    /// Selects the pool for `count` units, which do not fill a page of their block group. Prefers a pool of the same plane that has smaller
    /// pages and free space. Otherwise returns the pool of the units.
    fn remainder_pool(&self, source: &MoveSource, count: u32) -> PoolId {
        for group in &self.geometry.by_size {
            let kind = &self.geometry.groups[usize::from(*group)];
            let pool = self.geometry.pool(source.plane, *group);
            let entry = self.tables.pool(pool);
            // While garbage collection of this pool is in progress, the remaining pages of the pool's open block are reserved for it.
            let open = entry.open(WriteStream::Gc).is_some() && entry.victim.is_none();
            let room = open || entry.free() > self.collector.low_watermark;
            if kind.units_per_page() <= count && room && entry.valid < entry.valid_limit {
                return pool;
            }
        }
        source.pool
    }

    /// Moves valid units of a victim into one page.
    #[expect(clippy::too_many_arguments, reason = "a victim, its destination, and what every operation needs")]
    fn move_page<L: Observer>(
        &mut self, nand: &mut Nand, source: &MoveSource, victim: &mut VictimProgress, (to, block): (PoolId, BlockId),
        units: &[(Ppn, Lpn)], ready: Nanos, log: &mut L,
    ) {
        let (_, group) = self.geometry.of_pool(to);
        let kind = &self.geometry.groups[usize::from(group)];
        let units = &units[..units.len().min(kind.units_per_page() as usize)];
        let page_of = |ppn: Ppn| (ppn.0 - source.first.0) >> source.page_shift;
        let of_block = nand.retries(victim.block, ready);
        let (mut reads, mut retried) = (SourcePages::default(), RetryCount::default());
        let mut in_register = victim.in_register;
        for page in units.iter().map(|(ppn, _)| page_of(*ppn)) {
            if page != in_register {
                reads.add(&self.geometry.groups[usize::from(source.group)], page);
                retried.add(of_block.of(page));
                in_register = page;
            }
        }
        let page = nand.next_page(block);
        let over_bus = !nand.timelines.interface.copy_back;
        let mut copies = nand.copies(victim.block, (block, page), ready);
        let (begin, end) = copies.page(reads, of_block.time(retried));
        copies.finish();
        let bus = |bytes: u32| if over_bus { u64::from(bytes) } else { 0 };
        let cause = victim.cause;
        for (ppn, _) in units {
            let page = page_of(*ppn);
            if page != victim.in_register {
                victim.in_register = page;
                let (block, group, bus_bytes, retries) = (victim.block, source.group, bus(source.page_bytes), of_block.of(page));
                log.page_read(&PageRead { block, page, pages: 1, group, bus_bytes, retries, cause, begin, end });
            }
        }
        let (last, _) = units[units.len() - 1];
        victim.cursor = last.0 + 1 - source.first.0;
        if let Some(changed_entries) = &mut self.changed_entries {
            changed_entries.extend(units.iter().map(|(_, lpn)| *lpn));
        }
        let bus_bytes = bus(kind.page_bytes);
        let filled = (page + 1 == kind.pages_per_block).then_some(WriteStream::Gc);
        let pages = 1;
        let at = ProgrammedPages { block, group, page, pages, bus_bytes, cause, filled, begin, end };
        self.commit_page(at, &MovedUnits { block: victim.block, units }, log);
    }

    /// Moves at most `most` whole pages of a victim into a block of the same pool, reported as one event. Returns the number of pages.
    fn move_run<L: Observer>(
        &mut self, nand: &mut Nand, source: &MoveSource, victim: &mut VictimProgress, (block, most): (BlockId, u32),
        ready: Nanos, log: &mut L,
    ) -> u32 {
        let page = nand.next_page(block);
        let room = self.geometry.groups[usize::from(source.group)].pages_per_block - page;
        let most = most.min(room);
        let over_bus = !nand.timelines.interface.copy_back;
        let from = source.first.plus(victim.cursor)..source.end;
        let of_block = nand.retries(victim.block, ready);
        let mut copies = nand.copies(victim.block, (block, page), ready);
        let (mut pages, mut reads, mut retries, mut next) = (0, 0, RetryCount::default(), from.start);
        let mut span = (Nanos::MAX, Nanos::MIN);
        if source.units_per_page == 1 && copies.are_alike() && of_block.is_none() {
            (pages, next) = self.tables.reverse.count(from.clone(), most);
            reads = pages;
            if let Some(times) = copies.pages(pages) {
                span = times;
            }
            victim.in_register = next.0 - source.first.0 - 1;
        } else {
            while pages < most
                && let Some((behind, fresh, retried)) = self.next_page_of(source, victim, next, of_block)
            {
                let (begin, end) = copies.page(fresh, of_block.time(retried));
                retries.add(retried);
                span = (span.0.min(begin), span.1.max(end));
                (pages, reads, next) = (pages + 1, reads + fresh.count, behind);
            }
        }
        let took = copies.finish();
        victim.cursor = next.0 - source.first.0;
        let bus = |pages: u32| if over_bus { u64::from(pages) * u64::from(source.page_bytes) } else { 0 };
        // The recorded duration of a run of moves excludes the gaps in which other work ran.
        let (begin, end) = (span.1 - took, span.1);
        let (group, cause) = (source.group, victim.cause);
        let first_page = (from.start.0 - source.first.0) >> source.page_shift;
        if reads > 0 {
            let (block, page, bus_bytes) = (victim.block, first_page, bus(reads));
            log.page_read(&PageRead { block, page, pages: reads, group, bus_bytes, retries, cause, begin, end });
        }
        let (bus_bytes, filled) = (bus(pages), (pages == room).then_some(WriteStream::Gc));
        let at = ProgrammedPages { block, group, page, pages, bus_bytes, cause, filled, begin, end };
        self.commit_page(at, &MoveRun { from, units: pages * source.units_per_page }, log);
        pages
    }

    /// Collects valid units of a victim, from location `from` on, until they fill a destination page. Returns the location after the last
    /// of these units, and the source pages to read with their retries; `None` if the remaining valid units do not fill a page.
    #[inline]
    fn next_page_of(
        &self, source: &MoveSource, victim: &mut VictimProgress, from: Ppn, of_block: BlockRetries,
    ) -> Option<(Ppn, SourcePages, RetryCount)> {
        let kind = &self.geometry.groups[usize::from(source.group)];
        let (mut units, mut reads, mut in_register, mut last) = (0, SourcePages::default(), victim.in_register, from);
        let mut retries = RetryCount::default();
        for ppn in self.tables.reverse.places(from..source.end).take(source.units_per_page as usize) {
            let page = (ppn.0 - source.first.0) >> source.page_shift;
            if page != in_register {
                reads.add(kind, page);
                retries.add(of_block.of(page));
            }
            (units, in_register, last) = (units + 1, page, ppn);
        }
        if units < source.units_per_page {
            return None;
        }
        victim.in_register = in_register;
        Some((last.plus(1), reads, retries))
    }
}

/// Map units of a victim block, each with its location.
type VictimUnits = ArrayVec<(Ppn, Lpn), MAX_UNITS>;

/// A victim whose collection is in progress, with values that apply to all its pages.
struct MoveSource {
    pool: PoolId,
    plane: PlaneId,
    group: u8,
    first: Ppn,
    end: Ppn,
    /// Number of units that fill a destination page.
    units_per_page: u32,
    page_shift: u32,
    page_bytes: u32,
}
