//! Writing to blocks in SLC mode, and folding them into others.

use emmclab_base::Nanos;

use super::core::FtlCore;
use super::page_split::next_page;
use super::pool::{BlockPool, WriteStream};
use crate::events::Observer;
use crate::geometry::MAX_UNITS;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId};
use crate::nand::Nand;
use emmclab_settings::{ALWAYS, SlcMode};

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

    /// Whether the SLC cache accepts the data of a unit; a cache that is folded when it is full may have to be folded first.
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

    /// The pools of the blocks in SLC mode.
    pub(super) fn slc_pools(&self) -> impl Iterator<Item = &BlockPool> {
        (0..self.geometry.planes).map(|plane| self.tables.pool(self.slc_pool(PlaneId(plane))))
    }

    /// Whether the blocks of the SLC cache in use need no more than the user's free space, which the cache preserves.
    fn user_has_room(&self) -> bool {
        let used: u32 = self.slc_pools().map(BlockPool::in_use).sum();
        used <= self.user_free() / self.slc.units_per_block
    }

    /// Units of the capacity that hold no data.
    pub(super) fn user_free(&self) -> u32 {
        let held: u32 = self.tables.pools().iter().map(|pool| pool.valid).sum();
        self.geometry.logical_units.saturating_sub(held)
    }

    /// Whether idle time that begins now folds the SLC cache.
    pub fn slc_is_due(&self) -> bool {
        if self.slc.flush_at_pct >= ALWAYS {
            return true;
        }
        let blocks = self.geometry.planes * self.slc_blocks();
        let used: u32 = self.slc_pools().map(BlockPool::in_use).sum();
        let free = blocks.saturating_sub(used);
        free * 100 <= blocks * self.slc.flush_at_pct
    }

    /// Whether a pool is never collected while a write waits. This is an SLC cache that is folded in idle time; when it is full, writes go
    /// to other blocks.
    #[inline]
    pub fn is_skipped(&self, pool: PoolId) -> bool {
        self.slc.folds_after().is_some() && self.geometry.of_pool(pool).1 == self.slc.group
    }

    /// The pool of the SLC blocks of a plane.
    pub fn slc_pool(&self, plane: PlaneId) -> PoolId {
        self.geometry.pool(plane, self.slc.group)
    }

    /// The full block of the SLC cache that is folded next, the oldest one; `None` if there is none.
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

    /// The pool that `count` units are folded into: in the same plane if it has room, otherwise in another one.
    pub(super) fn fold_destination<L: Observer>(
        &mut self,
        nand: &mut Nand,
        plane: PlaneId,
        count: u32,
        ready: Nanos,
        log: &mut L,
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
}
