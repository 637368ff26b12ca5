//! Blocks in SLC mode: a region of the address space that lies in them for good (the enhanced area of JESD84-A441), or a
//! cache that small writes go to first and that is folded into the other blocks later.
//!
//! They are a block group of their own, last in the list and never used unless asked for here. As a region they count
//! towards the capacity and are collected like any group. As a cache they do not: all that is in them finds room in the
//! other groups, where folding moves it, oldest block first.

use super::place::MAX_SLOTS;
use super::split::next_page;
use crate::config::{Settings, SlcMode};
use crate::device::Device;
use crate::event::Observer;
use crate::geometry::{Geometry, ns};
use crate::nand::{NONE, Stream};

/// How blocks in SLC mode are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slc {
    pub mode: SlcMode,
    /// Their block group.
    pub group: u8,
    /// Longest write that goes to the cache.
    max_sectors: u32,
    /// Idle time before folding; 0 = fold when full.
    pub fold_after: i64,
}

impl Slc {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        let slc = &settings.slc;
        Self {
            mode: slc.mode,
            group: geometry.groups.len() as u8 - 1,
            max_sectors: slc.max_kb.saturating_mul(2),
            fold_after: ns(slc.fold_after_us),
        }
    }

    /// Whether collection of this group means folding into others.
    #[inline]
    pub fn folds(self, group: u8) -> bool {
        self.mode == SlcMode::Cache && group == self.group
    }

    /// Whether blocks of this group are in SLC mode.
    #[inline]
    pub fn holds(self, group: u8) -> bool {
        self.mode != SlcMode::Off && group == self.group
    }

    /// Whether there is folding while idle.
    #[inline]
    pub fn folds_when_idle(self) -> bool {
        self.mode == SlcMode::Cache && self.fold_after > 0
    }
}

impl Device {
    /// The next page for a run of units of a request of so many sectors: block group, and units it takes.
    #[inline]
    pub(crate) fn page_for(&self, first: u32, units: u32, sectors: u32) -> (u8, u32) {
        if self.slc.mode == SlcMode::Off {
            next_page(&self.geometry, units)
        } else {
            self.page_for_slc(first, units, sectors)
        }
    }

    #[inline(never)]
    fn page_for_slc(&self, first: u32, units: u32, sectors: u32) -> (u8, u32) {
        let slots = self.geometry.groups[usize::from(self.slc.group)].slots_per_page();
        let region = self.geometry.slc_units;
        let slc = match self.slc.mode {
            SlcMode::Region => first < region,
            SlcMode::Cache => sectors <= self.slc.max_sectors && self.slc_has_room(),
            SlcMode::Off => false,
        };
        match self.slc.mode {
            _ if !slc => next_page(&self.geometry, units),
            SlcMode::Region => (self.slc.group, units.min(slots).min(region - first)),
            SlcMode::Cache | SlcMode::Off => (self.slc.group, units.min(slots)),
        }
    }

    /// Whether the SLC cache takes data, folding first if it does so when full.
    fn slc_has_room(&self) -> bool {
        self.slc.fold_after == 0
            || (0..self.geometry.planes).any(|plane| {
                let pool = &self.pools[self.pool_index(plane, self.slc.group)];
                pool.free() > self.hard || pool.open[Stream::Host as usize] != NONE
            })
    }

    /// Whether a pool is never collected while a write waits: an SLC cache folded in idle time; full, it is passed by.
    #[inline]
    pub(super) fn passed_by_when_full(&self, pool: usize) -> bool {
        self.slc.folds_when_idle() && pool % self.geometry.groups.len() == usize::from(self.slc.group)
    }

    /// The oldest full block of an SLC cache.
    pub(super) fn oldest_to_fold(&self, pool: usize) -> Option<u32> {
        self.pools[pool].full_blocks(&self.blocks).min_by_key(|block| self.blocks[*block as usize].closed)
    }

    /// Units that folding puts into one page at most.
    pub(super) fn fold_slots(&self) -> u32 {
        let largest = self
            .geometry
            .by_size
            .first()
            .map_or(1, |group| self.geometry.groups[usize::from(*group)].slots_per_page());
        largest.min(MAX_SLOTS as u32)
    }

    /// Plane, group and pool that `count` units are folded into: in the same plane where it has room, else elsewhere.
    pub(super) fn fold_destination<O: Observer>(
        &mut self,
        plane: u32,
        count: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<(u32, u8, usize)> {
        let (best, _) = next_page(&self.geometry, count);
        for crowded in [false, true] {
            for i in 0..self.geometry.planes {
                let to_plane = (plane + i) % self.geometry.planes;
                for turn in 0..=self.geometry.by_size.len() {
                    let group = if turn == 0 { best } else { self.geometry.by_size[turn - 1] };
                    let pool = self.pool_index(to_plane, group);
                    let entry = &self.pools[pool];
                    if entry.valid < entry.valid_limit || crowded {
                        let open = entry.open[Stream::Gc as usize] != NONE && entry.victim.is_none();
                        if open || self.reclaim(pool, ready, observer) {
                            return Some((to_plane, group, pool));
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
}
