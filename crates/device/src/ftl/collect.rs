//! Garbage collection: the policy chooses a victim, and this module moves its data and erases it. Valid units of a victim are packed into
//! whole pages of the same plane.

use std::sync::Arc;

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, GcMode, WearLevelling};

use super::core::{FtlCore, StopReason};
use super::gc::{VictimChoice, VictimPolicy, VictimView};
use super::pool::{FullBlockOrder, VictimProgress};
use crate::events::{BlockErased, BlockRetired, CollectionPurpose, GcFinished, GcStarted, Observer, OperationCause};
use crate::ids::{BlockId, PoolId};
use crate::nand::Nand;

impl FtlCore {
    /// Collects garbage until the number of free blocks is above the low watermark. Returns false if that is impossible.
    #[inline]
    pub fn reclaim<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, ready: Nanos, log: &mut L) -> bool {
        self.tables.pool(pool).free() > self.collector.low_watermark
            || !self.is_skipped(pool) && self.reclaim_blocks(nand, pool, ready, log)
    }

    fn reclaim_blocks<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, ready: Nanos, log: &mut L) -> bool {
        // `patience` limits the number of attempts, because FIFO and random draws may choose fully valid blocks. FIFO needs one attempt for
        // each full block. With 64 random draws for each full block, the probability of missing the only suitable block is e^-64.
        let passes = if self.tables.pool(pool).order == FullBlockOrder::Valid { 64 } else { 1 };
        let mut patience = self.tables.pool(pool).full.saturating_add(2).saturating_mul(passes);
        while self.tables.pool(pool).free() <= self.collector.low_watermark {
            if patience == 0 || self.stop.is_some() || !self.begin_victim(nand, pool, ready, log) {
                return false;
            }
            patience -= 1;
            self.move_pages(nand, pool, u32::MAX, ready, log);
        }
        true
    }

    /// Performs a step of incremental garbage collection after a page of the host: moves pages if few blocks are free (high watermark).
    pub fn collect_after<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, ready: Nanos, log: &mut L) {
        let waits = self.booster.is_some() && self.is_skipped(pool);
        if self.tables.pool(pool).free() > self.collector.high_watermark || waits {
            return;
        }
        for _ in 0..self.collector.pages_per_step {
            if self.stop.is_some() || !self.begin_victim(nand, pool, ready, log) {
                return;
            }
            self.move_pages(nand, pool, 1, ready, log);
        }
    }

    /// Chooses a victim unless a collection is in progress. Returns false if no block is worth collecting.
    pub fn begin_victim<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, at: Nanos, log: &mut L) -> bool {
        if self.tables.pool(pool).victim.is_some() {
            return true;
        }
        let Some(policy) = &self.collector.policy else { return false };
        let (_, group) = self.geometry.of_pool(pool);
        // Zones are reset by the host and not collected.
        if self.geometry.zones.is_some() && group != self.slc.group {
            return false;
        }
        if self.slc.folds(group) {
            let Some(block) = self.next_to_fold(nand, pool) else { return false };
            self.start_victim(nand, pool, block, CollectionPurpose::Fold, at, log);
            return true;
        }
        self.tables.pool_mut(pool).settle();
        let kind = &self.geometry.groups[usize::from(group)];
        let (units_per_block, units_per_page) = (kind.units_per_block(), kind.units_per_page());
        let view = VictimView::new(pool, &self.tables, nand, units_per_block, self.collector.decisions);
        let VictimChoice::Collect(block) = policy.choose(&view) else { return false };
        let order = policy.order();
        self.collector.decisions += 1;
        // Moving the valid units of a block frees space only if they need fewer pages than the block has. If this is not even true for the
        // block with the fewest valid units, no block is collected. Policies that do not sort blocks by valid units are not checked, so
        // they may collect blocks that free nothing.
        let gives = |block: BlockId| self.tables.valid(block) + units_per_page <= units_per_block;
        if order == FullBlockOrder::Valid && !self.tables.pool(pool).least_valid().is_some_and(gives) {
            return false;
        }
        self.start_victim(nand, pool, block, CollectionPurpose::Space, at, log);
        true
    }

    pub(super) fn start_victim<L: Observer>(
        &mut self, nand: &mut Nand, pool: PoolId, block: BlockId, collection: CollectionPurpose, at: Nanos, log: &mut L,
    ) {
        self.tables.unlist(block);
        nand.begin_collecting(block);
        let valid = self.tables.valid(block);
        let cause = match collection {
            CollectionPurpose::Space | CollectionPurpose::Fold => OperationCause::Gc,
            CollectionPurpose::Wear => OperationCause::Wear,
            CollectionPurpose::Refresh => OperationCause::Refresh,
        };
        self.tables.pool_mut(pool).victim = Some(VictimProgress { block, cursor: 0, in_register: u32::MAX, valid, cause });
        log.gc_started(&GcStarted { block, valid, collection, at });
    }

    /// Ends the collection of a victim without valid units by erasing it.
    pub(super) fn finish_victim<L: Observer>(
        &mut self, nand: &mut Nand, pool: PoolId, victim: VictimProgress, ready: Nanos, log: &mut L,
    ) {
        self.tables.pool_mut(pool).victim = None;
        let at = self.erase(nand, victim.block, ready, log);
        log.gc_finished(&GcFinished { block: victim.block, valid: victim.valid, at });
        if self.collector.wear_threshold > 0 && victim.cause == OperationCause::Gc {
            self.level(nand, pool, ready, log);
        }
    }

    /// Performs static wear levelling: from time to time, moves the data of the least worn full block if its erase count is too far below
    /// the largest erase count.
    fn level<L: Observer>(&mut self, nand: &mut Nand, pool: PoolId, ready: Nanos, log: &mut L) {
        let entry = self.tables.pool_mut(pool);
        entry.wear_countdown -= 1;
        if entry.wear_countdown > 0 {
            return;
        }
        entry.wear_countdown = entry.blocks / 4 + 1;
        let least = entry.full_blocks(nand).min_by_key(|block| nand.block(*block).erases);
        let Some(block) = least else { return };
        let spread = entry.most_erases - nand.block(block).erases;
        if spread > self.collector.wear_threshold && entry.free() > 0 {
            self.start_victim(nand, pool, block, CollectionPurpose::Wear, ready, log);
            self.move_pages(nand, pool, u32::MAX, ready, log);
        }
    }

    /// Erases a block without valid data, and frees or retires it. Returns the end of the erase.
    pub fn erase<L: Observer>(&mut self, nand: &mut Nand, block: BlockId, ready: Nanos, log: &mut L) -> Nanos {
        let erased = nand.erase(block, ready);
        let (pool, erases) = (self.tables.pool_of(block), erased.erases);
        if let Some(booster) = &mut self.booster {
            booster.pinned.remove(&block.0);
        }
        let (_, group) = self.geometry.of_pool(pool);
        let (begin, end) = (erased.op.begin, erased.op.end);
        log.block_erased(&BlockErased { block, group, erases, ready: erased.ready, begin, end });
        let pool = self.tables.pool_mut(pool);
        if erased.bad {
            log.block_retired(&BlockRetired { block });
            if !pool.retire(erases) {
                self.stop = Some(StopReason::WornOut);
            }
        } else {
            pool.give_back(block, erases);
        }
        end
    }
}

/// Settings and policy of garbage collection.
#[derive(Clone)]
pub(crate) struct GarbageCollector {
    pub policy: Option<Arc<dyn VictimPolicy>>,
    /// Number of free blocks at or below which a write waits for collection.
    pub low_watermark: u32,
    /// Number of free blocks at or below which incremental collection moves pages after each write.
    pub high_watermark: u32,
    /// Number of pages that incremental collection moves for each page written by the host; 0 = collection is not incremental.
    pub pages_per_step: u32,
    /// Difference between erase counts above which wear levelling moves cold data; 0 = off.
    pub wear_threshold: u32,
    /// Number of victim decisions of the policy so far.
    pub decisions: u64,
}

impl GarbageCollector {
    pub fn new(settings: &DeviceSettings, policy: Option<Arc<dyn VictimPolicy>>) -> Self {
        let gc = &settings.gc;
        let incremental = policy.is_some() && gc.mode == GcMode::Incremental;
        Self {
            policy,
            low_watermark: gc.low_watermark,
            high_watermark: gc.high_watermark,
            pages_per_step: if incremental { gc.pages_per_step } else { 0 },
            wear_threshold: match settings.wear.levelling {
                WearLevelling::Static => settings.wear.threshold,
                WearLevelling::None | WearLevelling::Dynamic => 0,
            },
            decisions: 0,
        }
    }

    /// Changes the thresholds of garbage collection. The policy and its number of decisions are kept.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        *self = Self { decisions: self.decisions, ..Self::new(settings, self.policy.take()) };
    }

    /// Whether a step of garbage collection follows each page written by the host.
    #[inline]
    pub fn is_incremental(&self) -> bool {
        self.pages_per_step > 0
    }
}
