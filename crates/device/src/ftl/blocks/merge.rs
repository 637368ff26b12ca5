//! Merging: making one data block of what a logical block has in several.

use super::Layout;
use crate::device::Device;
use crate::event::{Cause, GcFinished, GcStarted, Observer};
use crate::nand::{BlockState, NONE};

/// The kinds of merges of the log-block schemes (Kim et al. 2002, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The log block becomes the data block as it is.
    Switch,
    /// It does so after the rest of the data has been copied to it.
    Partial,
    /// Everything is copied to a fresh block.
    Full,
}

impl Device {
    /// A free block of the plane that a stripe number belongs to.
    pub(super) fn claim(&mut self, stripe: u32) -> Option<u32> {
        let plane = self.geometry.stripe[(stripe % self.geometry.planes) as usize];
        let pool = self.pool_index(plane, 0);
        let block = self.pools[pool].take()?;
        let entry = &mut self.blocks[block as usize];
        (entry.plane, entry.group) = (plane as u16, 0);
        (entry.state, entry.written) = (BlockState::Open, 0);
        Some(block)
    }

    /// The data block of a logical block, which gets one where it has none; `None` where no block is free.
    pub(super) fn data_block(&mut self, data: &mut u32, block: u32) -> Option<u32> {
        if *data == NONE {
            *data = self.claim(block)?;
        }
        Some(*data)
    }

    /// Erases a block in which nothing is valid any more.
    pub(super) fn release<O: Observer>(&mut self, block: u32, ready: i64, observer: &mut O) {
        let plane = u32::from(self.blocks[block as usize].plane);
        if self.blocks[block as usize].state == BlockState::Full {
            let pool = self.pool_index(plane, 0);
            self.pools[pool].remove(block);
        }
        self.blocks[block as usize].state = BlockState::Collecting;
        let before = self.flash.plane_free(plane).max(ready);
        let op = self.erase(block, ready, observer);
        self.flash.note_gc(plane, before, op.end);
        self.counters.gc_ns += (op.end - before) as u64;
    }

    /// Counts and tells a merge that begins with this block; returns its valid units.
    pub(super) fn merge_begins<O: Observer>(&mut self, block: u32, at: i64, observer: &mut O) -> u32 {
        let valid = self.blocks[block as usize].valid;
        self.counters.gc_count += 1;
        observer.gc_started(&GcStarted { block, valid, cause: Cause::Gc, at });
        valid
    }

    /// Counts a merge by its kind.
    pub(super) fn count_merge(&mut self, kind: Merge) {
        *match kind {
            Merge::Switch => &mut self.counters.switch_merges,
            Merge::Partial => &mut self.counters.partial_merges,
            Merge::Full => &mut self.counters.full_merges,
        } += 1;
    }

    /// Tells the end of a merge.
    pub(super) fn merge_ends<O: Observer>(&mut self, block: u32, valid: u32, at: i64, observer: &mut O) {
        let plane = u32::from(self.blocks[block as usize].plane);
        let at = self.flash.plane_free(plane).max(at);
        observer.gc_finished(&GcFinished { block, valid, at });
    }

    /// Brings all that is valid of a logical block into one block: into `log` where its pages are in their places, else into a fresh
    /// one. `data` and `log` may be [`NONE`]; `data` is the new data block then, [`NONE`] where nothing is valid. Returns the kind
    /// of merge; `None` where no block is free.
    pub(super) fn merge_blocks<O: Observer>(
        &mut self,
        layout: Layout,
        logical_block: u32,
        (data, log): (&mut u32, u32),
        ready: i64,
        observer: &mut O,
    ) -> Option<Merge> {
        let told = if log == NONE { *data } else { log };
        let valid = if told == NONE { 0 } else { self.merge_begins(told, ready, observer) };
        let in_place = log != NONE && self.in_place(layout, logical_block, log);
        let (mut target, from) = if in_place { (log, self.blocks[log as usize].written) } else { (NONE, 0) };
        let mut copies = 0;
        for offset in from..layout.pages {
            let logical = layout.page(logical_block, offset);
            if self.slot_of_page(logical).is_none() {
                continue;
            }
            if target == NONE {
                target = self.claim(logical_block)?;
            }
            self.copy_logical((target, offset), logical, ready, observer);
            copies += 1;
        }
        if in_place && copies == 0 && self.blocks[log as usize].valid == 0 {
            target = NONE;
        }
        let kind = match (in_place, copies) {
            (false, _) => Merge::Full,
            (true, 0) => Merge::Switch,
            (true, _) => Merge::Partial,
        };
        if told != NONE {
            self.merge_ends(told, valid, ready, observer);
        }
        for old in [*data, log] {
            if old != NONE && old != target {
                self.release(old, ready, observer);
            }
        }
        *data = target;
        Some(kind)
    }

    /// Whether the block holds the beginning of the logical block, every page in its place, and nothing else.
    fn in_place(&self, layout: Layout, logical_block: u32, block: u32) -> bool {
        let entry = self.blocks[block as usize];
        let shift = layout.page_shift;
        let mut inside = 0;
        for offset in 0..entry.written {
            let unit = layout.page(logical_block, offset) << shift;
            let end = (unit + (1 << shift)).min(self.geometry.logical_units);
            for slot in (unit..end).filter_map(|unit| self.lookup(unit)) {
                if self.geometry.block_of(slot) != block || self.geometry.offset_of(slot) >> shift != offset {
                    return false;
                }
                inside += 1;
            }
        }
        inside == entry.valid
    }
}
