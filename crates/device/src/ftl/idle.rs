//! Collection while no request is being served: background operations (BKOPS; JESD84-B51, 6.6.25), autonomous
//! (`EXT_CSD` `BKOPS_EN`, `AUTO_EN`).
//!
//! They start after some idle time and go page by page. With HPI, a request interrupts them after the page under way, for
//! a fixed time; without it, the request waits for the whole block. When free blocks are very few (`EXT_CSD` `BKOPS_STATUS`
//! level 3) they start at once and are not interrupted.

use crate::config::Settings;
use crate::device::Device;
use crate::event::Observer;
use crate::geometry::ns;

/// When collection works on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleCollection {
    /// Idle time before it starts; 0 = never.
    after: i64,
    /// Free blocks of a pool at or below which it works.
    free: u32,
    hpi: bool,
    hpi_ns: i64,
    /// Free blocks at or below which it is urgent; 0 = never.
    urgent: u32,
}

impl IdleCollection {
    pub fn new(settings: &Settings) -> Self {
        let gc = &settings.gc;
        let collects = gc.policy != super::gc::NONE;
        Self {
            after: if collects { ns(gc.idle_after_us) } else { 0 },
            free: if gc.idle_free_blocks > 0 { gc.idle_free_blocks } else { gc.soft_free_blocks },
            hpi: gc.hpi,
            hpi_ns: ns(gc.hpi_us),
            urgent: if collects { gc.urgent_free_blocks } else { 0 },
        }
    }

    /// Whether there is any.
    #[inline]
    pub fn works(self) -> bool {
        self.after > 0 || self.urgent > 0
    }
}

impl Device {
    /// Collects in the time since the last work as far as a step begins before `until`. Returns the time that it takes to
    /// interrupt it there; 0 where it was done.
    pub(crate) fn collect_until<O: Observer>(&mut self, until: i64, observer: &mut O) -> i64 {
        let IdleCollection { after, free, hpi, hpi_ns, urgent } = self.idle;
        let mut interrupted = false;
        for pool in 0..self.pools.len() {
            if urgent > 0 && !self.passed_by_when_full(pool) && self.pools[pool].free() <= urgent {
                self.collect_pool(pool, (self.idle_from, i64::MAX), urgent, true, observer);
            }
        }
        let from = self.idle_from.saturating_add(after);
        if after > 0 && from < until {
            for pool in 0..self.pools.len() {
                if !self.passed_by_when_full(pool) {
                    interrupted |= self.collect_pool(pool, (from, until), free, hpi, observer);
                }
            }
        }
        self.counters.gc_interruptions += u64::from(interrupted);
        if interrupted && hpi { hpi_ns } else { 0 }
    }

    /// Folds the SLC cache in the time since the last work, page by page, as far as a page begins before `until`.
    pub(crate) fn fold_until<O: Observer>(&mut self, until: i64, observer: &mut O) {
        let from = self.idle_from.saturating_add(self.slc.fold_after);
        if from < until {
            for plane in 0..self.geometry.planes {
                let pool = self.pool_index(plane, self.slc.group);
                self.collect_pool(pool, (from, until), u32::MAX, true, observer);
            }
        }
    }

    /// Collects in one pool until more than `free` blocks are, as long as a step begins in the time given; with `steps` a
    /// step is a page, else a block. Returns whether there was more to do.
    fn collect_pool<O: Observer>(
        &mut self,
        pool: usize,
        (from, until): (i64, i64),
        free: u32,
        steps: bool,
        observer: &mut O,
    ) -> bool {
        let plane = (pool / self.geometry.groups.len()) as u32;
        let busy = self.counters.gc_ns;
        // As in reclaim_blocks; with times of zero the clock would not end it.
        let mut patience = self.pools[pool].full + 2;
        let mut more = false;
        while self.pools[pool].free() <= free {
            let block_under_way = !steps && self.pools[pool].victim.is_some();
            if self.flash.plane_free(plane).max(from) >= until && !block_under_way {
                more = true;
                break;
            }
            if patience == 0 || self.stop.is_some() || !self.begin_victim(pool, from, observer) {
                break;
            }
            if !self.copy_pages(pool, 1, from, observer) {
                self.counters.gc_idle_count += u64::from(!self.passed_by_when_full(pool));
                patience -= 1;
            }
        }
        let spent = self.counters.gc_ns - busy;
        self.counters.gc_idle_ns += spent;
        if spent > 0 {
            self.idle_from = self.idle_from.max(self.flash.plane_free(plane));
        }
        more && spent > 0
    }
}
