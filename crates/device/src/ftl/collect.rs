//! Garbage collection: the policy chooses, this acts. A victim's valid units are packed into whole pages of the same plane.

use super::gc::{Choice, View};
use super::mapping::Mapping;
use super::place::MAX_SLOTS;
use super::reverse::ReverseMap;
use crate::config::SlcMode;
use crate::device::Device;
use crate::event::{Cause, GcFinished, GcStarted, Observer, PageProgrammed, PageRead, UnitWritten};
use crate::nand::{BlockState, Copies, NONE, Order, Stream, Victim};

impl Victim {
    /// The next valid units: slots in the block and logical units, as many as there is room for, fewer at its end.
    #[inline]
    fn find(&self, reverse: &ReverseMap, (first, end): (u32, u32), room: &mut [(u32, u32)]) -> usize {
        let mut count = 0;
        for (place, (slot, logical)) in room.iter_mut().zip(reverse.valid(first + self.cursor..end)) {
            *place = (slot - first, logical);
            count += 1;
        }
        count
    }

    /// Source pages that have to be read for these slots: those that the register does not hold already.
    fn reads(&mut self, found: &[(u32, u32)], page_shift: u32) -> u32 {
        let mut reads = 0;
        for (slot, _) in found {
            let page = slot >> page_shift;
            if page != self.in_register {
                self.in_register = page;
                reads += 1;
            }
        }
        reads
    }
}

impl Device {
    /// Collects until more than the hard threshold of blocks is free; false where that cannot be.
    #[inline]
    pub(crate) fn reclaim<O: Observer>(&mut self, pool: usize, ready: i64, observer: &mut O) -> bool {
        self.pools[pool].free() > self.hard
            || !self.passed_by_when_full(pool) && self.reclaim_blocks(pool, ready, observer)
    }

    fn reclaim_blocks<O: Observer>(&mut self, pool: usize, ready: i64, observer: &mut O) -> bool {
        // Policies by age may meet blocks that are wholly valid; once round all of them is enough.
        let mut patience = self.pools[pool].full + 2;
        while self.pools[pool].free() <= self.hard {
            if patience == 0 || self.stop.is_some() || !self.begin_victim(pool, ready, observer) {
                return false;
            }
            patience -= 1;
            self.copy_pages(pool, u32::MAX, ready, observer);
        }
        true
    }

    /// Incremental collection: a few pages' worth.
    pub(crate) fn collect_some<O: Observer>(&mut self, pool: usize, ready: i64, observer: &mut O) {
        for _ in 0..self.pages_per_step {
            if self.stop.is_some() || !self.begin_victim(pool, ready, observer) {
                return;
            }
            self.copy_pages(pool, 1, ready, observer);
        }
    }

    /// Chooses a victim unless one is under way; false where no block is worth it.
    pub(super) fn begin_victim<O: Observer>(&mut self, pool: usize, at: i64, observer: &mut O) -> bool {
        if self.pools[pool].victim.is_some() {
            return true;
        }
        let Some(policy) = &self.policy else { return false };
        if self.slc.folds((pool % self.geometry.groups.len()) as u8) {
            let Some(block) = self.oldest_to_fold(pool) else { return false };
            self.start_victim(pool, block, Cause::Gc, at, observer);
            return true;
        }
        let entry = &mut self.pools[pool];
        entry.settle();
        let groups = self.geometry.groups.len();
        let kind = &self.geometry.groups[pool % groups];
        let (slots_per_block, slots_per_page) = (kind.slots_per_block(), kind.slots_per_page());
        let view = View {
            pool: &self.pools[pool],
            blocks: &self.blocks,
            now: self.programs,
            slots_per_block,
            turn: self.turn,
        };
        let Choice::Collect(mut block) = policy.choose(&view) else { return false };
        let order = policy.order();
        self.turn += 1;
        // A block that would fill as many pages again gives nothing. Policies by age go on to the next one; a sampling one
        // may have missed what there is.
        let gives = |block: u32| self.blocks[block as usize].valid + slots_per_page <= slots_per_block;
        if order == Order::Valid && !gives(block) {
            match self.pools[pool].least_valid() {
                Some(least) if gives(least) => block = least,
                _ => return false,
            }
        }
        self.start_victim(pool, block, Cause::Gc, at, observer);
        true
    }

    fn start_victim<O: Observer>(
        &mut self,
        pool: usize,
        block: u32,
        cause: Cause,
        at: i64,
        observer: &mut O,
    ) {
        self.pools[pool].remove(block);
        let entry = &mut self.blocks[block as usize];
        entry.state = BlockState::Collecting;
        let valid = entry.valid;
        let wear = cause == Cause::Wear;
        self.pools[pool].victim = Some(Victim { block, cursor: 0, in_register: NONE, valid, wear });
        if wear {
            self.counters.wear_moves += 1;
        } else if self.slc.folds(self.blocks[block as usize].group) {
            self.counters.folds += 1;
        } else {
            self.counters.gc_count += 1;
        }
        observer.gc_started(&GcStarted { block, valid, cause, at });
    }

    /// Moves at most `pages` destination pages' worth of the victim, and erases it when nothing is left; false after
    /// the erase.
    pub(crate) fn copy_pages<O: Observer>(
        &mut self,
        pool: usize,
        pages: u32,
        ready: i64,
        observer: &mut O,
    ) -> bool {
        if self.slc.mode == SlcMode::Off {
            self.copy_units::<false, O>(pool, pages, ready, observer)
        } else {
            self.copy_units::<true, O>(pool, pages, ready, observer)
        }
    }

    /// The same, with all that blocks in SLC mode ask for or without.
    fn copy_units<const SLC: bool, O: Observer>(
        &mut self,
        pool: usize,
        pages: u32,
        ready: i64,
        observer: &mut O,
    ) -> bool {
        let Some(mut victim) = self.pools[pool].victim else { return false };
        let groups = self.geometry.groups.len();
        let (plane, group) = ((pool / groups) as u32, (pool % groups) as u8);
        let kind = self.geometry.groups[usize::from(group)].clone();
        let folds = SLC && self.slc.folds(group);
        let wanted = if folds { self.fold_slots() } else { kind.slots_per_page() };
        let first_slot = self.geometry.first_slot(victim.block);
        let end_slot = first_slot + kind.slots_per_block();
        let cause = if victim.wear { Cause::Wear } else { Cause::Gc };
        let mut left = pages;
        let mut room = [(0u32, 0u32); MAX_SLOTS];
        while left > 0 {
            let mut count = victim.find(&self.reverse, (first_slot, end_slot), &mut room[..wanted as usize]);
            if count == 0 {
                self.finish_victim(pool, victim, ready, observer);
                return false;
            }
            let destination = if folds {
                self.fold_destination(plane, count as u32, ready, observer)
            } else if count == wanted as usize || SLC && self.slc.holds(group) {
                Some((plane, group, pool))
            } else {
                let (to_group, to_pool) = self.remainder_group(plane, group, count as u32);
                Some((plane, to_group, to_pool))
            };
            let block = destination.and_then(|(to_plane, to_group, to_pool)| {
                self.open_block(to_pool, to_plane, to_group, Stream::Gc, ready, observer)
            });
            let (Some((to_plane, to_group, to_pool)), Some(block)) = (destination, block) else {
                // A block is always kept back for collection, so this is a device out of blocks.
                self.stop.get_or_insert(crate::Stop::Full);
                self.pools[pool].victim = Some(victim);
                return false;
            };
            let to_kind = self.geometry.groups[usize::from(to_group)].clone();
            count = count.min(to_kind.slots_per_page() as usize);
            let first_page = self.blocks[block as usize].written;
            let to_first = self.geometry.first_slot(block);
            let mut page = first_page;
            let (mut moved, mut reads, mut last) = (0, 0, self.last_program);
            let mut copies = self.flash.copies((plane, to_plane), (&kind, &to_kind), ready);
            // Page after page into the same block; what is counted by block or pool is counted once for all of them.
            if let (Copies::Whole(copies), Mapping::Page, 0, false) =
                (&mut copies, &self.mapping, kind.page_shift | to_kind.page_shift, O::UNITS)
            {
                let most = if to_pool == pool { left.min(to_kind.pages_per_block - page) } else { 1 };
                let from = first_slot + victim.cursor..end_slot;
                let (next, count) = self.reverse.relocate(from, to_first + page, most, &mut self.map);
                copies.pages(count);
                (moved, reads) = (count, count);
                (page, left) = (page + count, left - count);
                victim.cursor = next - first_slot;
                victim.in_register = victim.cursor - 1;
                last = last.max(copies.end());
            } else {
                loop {
                    let found = &room[..count];
                    let page_reads = victim.reads(found, kind.page_shift);
                    let (before, end) = copies.page(page_reads, page);
                    last = last.max(end);
                    reads += page_reads;
                    if O::UNITS {
                        let from = (victim.block, first_slot, kind.page_shift);
                        tell_copy(from, (block, page), found, cause, (before, end), observer);
                    }
                    for (to, (slot, logical)) in (to_first + (page << to_kind.page_shift)..).zip(found) {
                        self.reverse.clear(first_slot + slot);
                        self.map[*logical as usize] = to + 1;
                        self.reverse.set(to, *logical);
                    }
                    if let Mapping::Demand(map) = &mut self.mapping {
                        for (_, logical) in found {
                            map.changed(*logical);
                        }
                    }
                    moved += count as u32;
                    victim.cursor = found[count - 1].0 + 1;
                    page += 1;
                    left -= 1;
                    if left == 0 || page == to_kind.pages_per_block || to_pool != pool {
                        break;
                    }
                    count = victim.find(&self.reverse, (first_slot, end_slot), &mut room[..wanted as usize]);
                    if count < wanted as usize {
                        break;
                    }
                }
            }
            let gc_ns = copies.took() as u64;
            drop(copies);
            let pages = page - first_page;
            self.counters.gc_ns += gc_ns;
            self.counters.page_reads[cause as usize] += u64::from(reads);
            self.counters.group_reads[usize::from(group)] += u64::from(reads);
            if !self.copy_back {
                self.counters.bus_bytes += u64::from(reads) * u64::from(kind.page_bytes)
                    + u64::from(pages) * u64::from(to_kind.page_bytes);
            }
            self.counters.programmed(cause, to_group, to_kind.page_bytes, pages);
            self.last_program = last;
            self.blocks[victim.block as usize].valid -= moved;
            self.pools[pool].valid -= moved;
            self.books().fill(to_pool, block, pages, moved, Stream::Gc);
        }
        self.pools[pool].victim = Some(victim);
        true
    }

    /// Where `count` units go that are too few for a page of their own group: to smaller pages of the plane if it has
    /// some to spare.
    fn remainder_group(&self, plane: u32, group: u8, count: u32) -> (u8, usize) {
        for index in &self.geometry.by_size {
            let kind = &self.geometry.groups[usize::from(*index)];
            let pool = self.pool_index(plane, *index);
            let entry = &self.pools[pool];
            // A collection under way there counts on the pages that are left in the open block.
            let open = entry.open[Stream::Gc as usize] != NONE && entry.victim.is_none();
            let room = open || entry.free() > self.hard;
            if kind.slots_per_page() <= count && room && entry.valid < entry.valid_limit {
                return (*index, pool);
            }
        }
        (group, self.pool_index(plane, group))
    }

    fn finish_victim<O: Observer>(&mut self, pool: usize, victim: Victim, ready: i64, observer: &mut O) {
        self.pools[pool].victim = None;
        let plane = u32::from(self.blocks[victim.block as usize].plane);
        let before = self.flash.plane_free(plane).max(ready);
        let op = self.erase(victim.block, ready, observer);
        self.flash.note_gc(plane, before, op.end);
        self.counters.gc_ns += (op.end - before) as u64;
        observer.gc_finished(&GcFinished { block: victim.block, valid: victim.valid, at: op.end });
        if self.static_wear > 0 && !victim.wear {
            self.level(pool, ready, observer);
        }
    }

    /// Static wear levelling: now and then, moves the data off the least worn full block if it lags too far behind.
    fn level<O: Observer>(&mut self, pool: usize, ready: i64, observer: &mut O) {
        let entry = &mut self.pools[pool];
        entry.wear_countdown -= 1;
        if entry.wear_countdown > 0 {
            return;
        }
        entry.wear_countdown = entry.blocks / 4 + 1;
        let least = entry.full_blocks(&self.blocks).min_by_key(|block| self.blocks[*block as usize].erases);
        let Some(block) = least else { return };
        if entry.most_erases - self.blocks[block as usize].erases > self.static_wear && entry.free() > 0 {
            self.start_victim(pool, block, Cause::Wear, ready, observer);
            self.copy_pages(pool, u32::MAX, ready, observer);
        }
    }
}

fn tell_copy<O: Observer>(
    (from, first_slot, page_shift): (u32, u32, u32),
    (block, page): (u32, u32),
    found: &[(u32, u32)],
    cause: Cause,
    (begin, end): (i64, i64),
    observer: &mut O,
) {
    let mut told = NONE;
    let mut units = [UnitWritten::default(); MAX_SLOTS];
    for (unit, (slot, logical)) in units.iter_mut().zip(found) {
        if slot >> page_shift != told {
            told = slot >> page_shift;
            observer.page_read(&PageRead { block: from, page: told, cause, begin, end });
        }
        let from = Some(first_slot + slot);
        *unit = UnitWritten { logical: *logical, from, covered: 0 };
    }
    let units = &units[..found.len()];
    observer.page_programmed(&PageProgrammed { block, page, cause, units, begin, end });
}
