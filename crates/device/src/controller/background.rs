//! Background work while no request is executed: write-back, folding of the SLC cache, and garbage collection (BKOPS; JESD84-B51, 6.6.25),
//! which the device starts itself (`EXT_CSD` `BKOPS_EN`, `AUTO_EN`).
//!
//! Steps of work are executed in the order of their earliest start times, so that several calls have the same effect as one longer call. An
//! idle gap begins when all host work is done. In a gap, each kind of work waits for its own idle time. The idle time of write-back counts
//! from the start of the gap, that of folding from the last write-back, and that of collection from the last write-back or folding.
//! Collection moves one page at a time. With HPI, a request interrupts collection after the current page; the interruption takes a fixed
//! time. Without HPI, the request waits for the whole block. If very few blocks are free (`EXT_CSD` `BKOPS_STATUS` level 3), collection
//! starts at once and is not interrupted.
//!
//! Data that was read often or is old is refreshed by collection page by page, after the same idle time. A host that leaves no such time does not
//! prevent it: then the move of a page begins with a command that arrives when the previous move has ended.

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, WriteBackMode};

use super::LowerLayers;
use super::write_buffer::WriteBuffer;
use crate::counters::CountingObserver;
use crate::events::{IdleCollected, IdleInterrupted};
use crate::ftl::gc;
use crate::geometry::{Geometry, nanos};
use crate::ids::{BlockId, PlaneId, PoolId};

/// A step of background work.
#[derive(Clone, Copy, Debug)]
enum BackgroundTask {
    WriteBack,
    Fold(PoolId),
    Urgent,
    Refresh(PoolId, BlockId),
    Collect(PoolId),
}

/// Background work on a block pool since the idle gap began.
#[derive(Clone, Copy, Debug, Default)]
struct PoolWork {
    /// Number of blocks that may still be collected in this idle gap; `None` = not yet determined. The limit prevents an age-based policy
    /// from collecting fully valid blocks endlessly.
    patience: Option<u32>,
    /// Whether no block of the pool is worth collecting.
    exhausted: bool,
    urgent_patience: Option<u32>,
    urgent_exhausted: bool,
    /// Whether garbage collection in this idle gap took time.
    worked: bool,
}

/// The background step with the earliest start among the steps considered; `None` if none can start before `before`.
struct EarliestTask {
    before: Nanos,
    task: Option<BackgroundTask>,
}

impl EarliestTask {
    #[inline]
    fn consider(&mut self, at: Nanos, task: BackgroundTask) {
        if at < self.before {
            (self.before, self.task) = (at, Some(task));
        }
    }
}

/// The start of an idle period. Three idle times are counted from it: for write-back, for folding the SLC cache, and for garbage
/// collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdlePeriod {
    write_back: Nanos,
    fold: Nanos,
    collect: Nanos,
    /// Whether the SLC cache is folded in this idle gap, which depends on its free space at the start; `None` = not yet determined.
    folds: Option<bool>,
}

/// Start conditions of background work, and the work since the last command.
#[derive(Clone, Debug)]
pub(super) struct BackgroundScheduler {
    /// Whether the device does any background work.
    pub works: bool,
    /// Idle time before garbage collection starts; `None` = never.
    collect_after: Option<Nanos>,
    /// Number of free blocks of a pool at or below which garbage collection of the pool is started.
    free: u32,
    hpi: bool,
    hpi_time: Nanos,
    /// Number of free blocks at or below which garbage collection is urgent; `None` = never.
    urgent: Option<u32>,
    fold_after: Option<Nanos>,
    planes: u32,
    pub gap: Option<IdlePeriod>,
    pools: Vec<PoolWork>,
    /// Whether `pools` has entries, from the current idle gap or from an earlier one.
    touched: bool,
    /// Time at which the background work ends.
    pub busy_until: Nanos,
}

impl BackgroundScheduler {
    pub fn new(settings: &DeviceSettings, geometry: &Geometry, fold_after: Option<Nanos>, buffered: bool) -> Self {
        let gc = &settings.gc;
        let collects = gc.policy != gc::NONE;
        let collect_after = nanos(gc.idle_after_us);
        let collect_after = (collects && collect_after > Nanos::ZERO).then_some(collect_after);
        let refreshes = geometry.groups.iter().any(|group| group.read_disturb_limit > 0 || group.refresh_after > Nanos::ZERO);
        let urgent = (collects && gc.urgent_free_blocks > 0).then_some(gc.urgent_free_blocks);
        Self {
            works: buffered || collect_after.is_some() || urgent.is_some() || fold_after.is_some() || refreshes,
            collect_after,
            free: if gc.idle_free_blocks > 0 { gc.idle_free_blocks } else { gc.high_watermark },
            hpi: gc.hpi,
            hpi_time: nanos(gc.hpi_us),
            urgent,
            fold_after,
            planes: geometry.planes,
            gap: None,
            pools: vec![PoolWork::default(); geometry.planes as usize * geometry.groups.len()],
            touched: false,
            busy_until: Nanos::MIN,
        }
    }

    /// Replaces the settings. A new idle gap begins at `from`, the end of all host work, so that no background work begins earlier.
    pub fn replace_with(&mut self, other: Self, from: Nanos) {
        let gap = IdlePeriod { write_back: from, fold: from, collect: from, folds: Some(true) };
        *self = Self { busy_until: self.busy_until, gap: other.works.then_some(gap), ..other };
    }

    /// Resets the clock for a new run.
    pub fn rewind(&mut self) {
        self.gap = None;
        self.busy_until = Nanos::MIN;
    }

    /// Executes the background work that begins before `until`. The host's work on the device ends at `idle_from`.
    pub fn work_until<L: CountingObserver>(
        &mut self, until: Nanos, idle_from: Nanos, mut buffer: Option<&mut WriteBuffer>, below: &mut LowerLayers<'_, L>,
    ) {
        if self.gap.is_none() && self.touched {
            self.pools.fill(PoolWork::default());
            self.touched = false;
        }
        self.gap.get_or_insert(IdlePeriod { write_back: idle_from, fold: idle_from, collect: idle_from, folds: None });
        while below.ftl.core.stop.is_none()
            && let Some((at, task)) = self.next(until, buffer.as_deref(), below)
        {
            self.step(at, task, buffer.as_deref_mut(), below);
        }
    }

    /// Ends the idle gap because a command arrives at `at`. Background work that begins earlier and urgent collection are executed first.
    /// Returns the time that interrupting garbage collection takes.
    pub fn interrupt<L: CountingObserver>(
        &mut self, at: Nanos, idle_from: Nanos, mut buffer: Option<&mut WriteBuffer>, below: &mut LowerLayers<'_, L>,
    ) -> Nanos {
        self.work_until(at, idle_from, buffer.as_deref_mut(), below);
        if below.ftl.core.stop.is_none() && self.is_urgent(below) {
            self.step(at, BackgroundTask::Urgent, buffer.as_deref_mut(), below);
        }
        let refresh = below.ftl.refreshes(below.nand).find(|(from, ..)| *from <= at && below.ftl.core.stop.is_none());
        if let (Some((_, pool, block)), Some(gap)) = (refresh, self.gap)
            && plus(gap.collect, self.collect_after.unwrap_or_default()) >= at
            && self.busy_until <= at
        {
            self.step(at, BackgroundTask::Refresh(pool, block), buffer, below);
        }
        let Some(gap) = self.gap.take() else { return Nanos::ZERO };
        let begun = self.collect_after.is_some_and(|after| plus(gap.collect, after) < at);
        let unfinished = |pool: u32| {
            let work = self.pools[pool as usize];
            work.worked && !work.exhausted && below.ftl.free_blocks(PoolId(pool)) <= self.free
        };
        if !begun || below.ftl.core.stop.is_some() || !(0..self.pools.len() as u32).any(unfinished) {
            return Nanos::ZERO;
        }
        below.log.idle_interrupted(&IdleInterrupted { at });
        if self.hpi { self.hpi_time } else { Nanos::ZERO }
    }

    /// Returns the background step that can start first, with its start time; `None` if none can start before `until`. Folding and
    /// collection require an examination of every pool, so they are considered only if they can start before the step chosen so far.
    #[inline]
    fn next<L: CountingObserver>(
        &mut self, until: Nanos, buffer: Option<&WriteBuffer>, below: &mut LowerLayers<'_, L>,
    ) -> Option<(Nanos, BackgroundTask)> {
        let gap = self.gap?;
        let mut soonest = EarliestTask { before: until, task: None };
        if let Some(from) = buffer.and_then(|buffer| write_back_from(buffer, gap.write_back)) {
            soonest.consider(below.nand.timelines.first_free_from(from), BackgroundTask::WriteBack);
        }
        if let Some(after) = self.fold_after {
            let from = plus(gap.fold, after);
            if from < soonest.before && self.folds(below) {
                self.consider_folds(from, &mut soonest, below);
            }
        }
        if gap.collect < soonest.before && self.is_urgent(below) {
            soonest.consider(gap.collect, BackgroundTask::Urgent);
        }
        for (due, pool, block) in below.ftl.refreshes(below.nand) {
            let (plane, _) = below.ftl.core.geometry.of_pool(pool);
            let from = plus(gap.collect, self.collect_after.unwrap_or_default()).max(due);
            soonest.consider(below.nand.timelines.plane_free(plane).max(from), BackgroundTask::Refresh(pool, block));
        }
        if let Some(after) = self.collect_after {
            let from = plus(gap.collect, after);
            if from < soonest.before {
                self.consider_collection(from, &mut soonest, below);
            }
        }
        soonest.task.map(|task| (soonest.before, task))
    }

    /// Whether the SLC cache is folded in this gap. This depends on its free space before the first step.
    #[inline]
    fn folds<L: CountingObserver>(&mut self, below: &mut LowerLayers<'_, L>) -> bool {
        let Some(gap) = &mut self.gap else { return false };
        *gap.folds.get_or_insert_with(|| below.ftl.begin_slc_gap(below.nand, below.log))
    }

    /// Considers folding of the SLC cache, which may begin at `from`, as the next step.
    fn consider_folds<L: CountingObserver>(&self, from: Nanos, soonest: &mut EarliestTask, below: &LowerLayers<'_, L>) {
        for plane in (0..self.planes).map(PlaneId) {
            let pool = below.ftl.core.slc_pool(plane);
            if !self.pools[pool.index()].exhausted {
                soonest.consider(below.nand.timelines.plane_free(plane).max(from), BackgroundTask::Fold(pool));
                // No pool can be folded earlier than `from`, so the search ends at the first pool that can be folded at `from`.
                if soonest.before <= from {
                    return;
                }
            }
        }
    }

    /// Considers idle garbage collection, which may begin at `from`, as the next step.
    fn consider_collection<L: CountingObserver>(&self, from: Nanos, soonest: &mut EarliestTask, below: &LowerLayers<'_, L>) {
        for pool in (0..self.pools.len() as u32).map(PoolId) {
            let due = below.ftl.free_blocks(pool) <= self.free && !below.ftl.core.is_skipped(pool);
            if due && !self.pools[pool.index()].exhausted {
                let (plane, _) = below.ftl.core.geometry.of_pool(pool);
                let goes_on = !self.hpi && below.ftl.collects_now(pool);
                let at = if goes_on { from } else { below.nand.timelines.plane_free(plane).max(from) };
                soonest.consider(at, BackgroundTask::Collect(pool));
            }
        }
    }

    /// Whether a block pool has so few free blocks that garbage collection must not wait.
    #[inline]
    fn is_urgent<L: CountingObserver>(&self, below: &LowerLayers<'_, L>) -> bool {
        self.urgent.is_some() && (0..self.pools.len() as u32).any(|pool| self.is_pool_urgent(PoolId(pool), below))
    }

    fn is_pool_urgent<L: CountingObserver>(&self, pool: PoolId, below: &LowerLayers<'_, L>) -> bool {
        self.urgent.is_some_and(|urgent| {
            below.ftl.free_blocks(pool) <= urgent
                && !self.pools[pool.index()].urgent_exhausted
                && !below.ftl.core.is_skipped(pool)
        })
    }

    fn step<L: CountingObserver>(
        &mut self, at: Nanos, task: BackgroundTask, buffer: Option<&mut WriteBuffer>, below: &mut LowerLayers<'_, L>,
    ) {
        if self.fold_after.is_some() {
            // The next step may fill the SLC cache, so the decision whether to fold the cache is made before it.
            self.folds(below);
        }
        let Some(mut gap) = self.gap else { return };
        match task {
            BackgroundTask::WriteBack => {
                let Some(buffer) = buffer else { return };
                buffer.write_back_next(at, below);
                gap.fold = gap.fold.max(buffer.busy_until);
                gap.collect = gap.collect.max(buffer.busy_until);
            }
            BackgroundTask::Fold(pool) => {
                self.touched = true;
                let from = plus(gap.fold, self.fold_after.unwrap_or_default());
                self.collect_page(pool, from, below);
                gap.collect = gap.collect.max(self.busy_until);
            }
            BackgroundTask::Urgent => {
                self.touched = true;
                for pool in (0..self.pools.len() as u32).map(PoolId) {
                    self.collect_urgently(pool, gap.collect, below);
                    gap.collect = gap.collect.max(self.busy_until);
                }
            }
            BackgroundTask::Refresh(pool, block) => {
                if let Some((took, _)) = collect((pool, Some(block)), at, below) {
                    self.note(pool, took, below);
                }
            }
            BackgroundTask::Collect(pool) => {
                self.touched = true;
                let from = plus(gap.collect, self.collect_after.unwrap_or_default());
                let worked = self.collect_page(pool, from, below);
                self.pools[pool.index()].worked |= worked;
                while !self.hpi && below.ftl.core.stop.is_none() && below.ftl.collects_now(pool) {
                    if self.pools[pool.index()].exhausted {
                        break;
                    }
                    self.collect_page(pool, from, below);
                }
            }
        }
        self.gap = Some(gap);
    }

    /// Moves one page of valid data in a pool by garbage collection. Returns whether that took time.
    fn collect_page<L: CountingObserver>(&mut self, pool: PoolId, from: Nanos, below: &mut LowerLayers<'_, L>) -> bool {
        let work = &mut self.pools[pool.index()];
        let patience = work.patience.get_or_insert_with(|| below.ftl.full_blocks(pool) + 2);
        let collected = if *patience == 0 { None } else { collect((pool, None), from, below) };
        let Some((took, finished)) = collected else {
            work.exhausted = true;
            return false;
        };
        *patience -= u32::from(finished);
        self.note(pool, took, below);
        took > Nanos::ZERO
    }

    /// Collects blocks of a pool until the number of its free blocks is above the urgent threshold.
    fn collect_urgently<L: CountingObserver>(&mut self, pool: PoolId, from: Nanos, below: &mut LowerLayers<'_, L>) {
        while below.ftl.core.stop.is_none() && self.is_pool_urgent(pool, below) {
            let work = &mut self.pools[pool.index()];
            let patience = work.urgent_patience.get_or_insert_with(|| below.ftl.full_blocks(pool) + 2);
            let collected = if *patience == 0 { None } else { collect((pool, None), from, below) };
            let Some((took, finished)) = collected else {
                work.urgent_exhausted = true;
                return;
            };
            *patience -= u32::from(finished);
            self.note(pool, took, below);
        }
    }

    fn note<L: CountingObserver>(&mut self, pool: PoolId, took: Nanos, below: &LowerLayers<'_, L>) {
        if took > Nanos::ZERO {
            let (plane, _) = below.ftl.core.geometry.of_pool(pool);
            self.busy_until = self.busy_until.max(below.nand.timelines.plane_free(plane));
        }
    }
}

/// Moves one page of valid data in a block pool by garbage collection, or to refresh it. Returns the time that the flash ways were busy, and
/// whether a block was finished; `None` if no block is worth collecting.
fn collect<L: CountingObserver>(
    (pool, refresh): (PoolId, Option<BlockId>), from: Nanos, below: &mut LowerLayers<'_, L>,
) -> Option<(Nanos, bool)> {
    let before = below.log.gc_time();
    let goes_on = below.ftl.collect_step(below.nand, (pool, refresh), from, below.log);
    let took = below.log.gc_time() - before;
    let finished = goes_on == Some(false);
    let blocks = u32::from(finished && refresh.is_none() && !below.ftl.core.is_skipped(pool));
    if finished || took > Nanos::ZERO {
        let (plane, _) = below.ftl.core.geometry.of_pool(pool);
        below.log.idle_collected(&IdleCollected { plane, blocks, took });
    }
    goes_on.map(|_| (took, finished))
}

/// Earliest start of write-back; `None` if the buffer is empty or does not start write-back on its own.
#[inline]
fn write_back_from(buffer: &WriteBuffer, idle_from: Nanos) -> Option<Nanos> {
    match buffer.write_back {
        _ if buffer.is_empty() => None,
        WriteBackMode::WhenFull => None,
        WriteBackMode::Eager => Some(buffer.since),
        WriteBackMode::Idle => Some(plus(buffer.since.max(idle_from), buffer.idle_after)),
    }
}

#[inline]
fn plus(at: Nanos, time: Nanos) -> Nanos {
    if at == Nanos::MIN { Nanos::MIN } else { Nanos(at.0.saturating_add(time.0)) }
}
