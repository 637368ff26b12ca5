//! What happens to data that stays in a block: reads of old data need retries, and data that was read often or is old needs a refresh.

use std::collections::BTreeSet;

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, RetryPoint};

use crate::geometry::{Geometry, GroupGeometry};
use crate::ids::BlockId;

/// Retries of page reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCount {
    /// Number of pages that were read more than once.
    pub pages: u32,
    /// Number of retries of all pages.
    pub steps: u32,
}

impl RetryCount {
    #[inline]
    pub(crate) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.steps += other.steps;
    }
}

/// The read retries of the pages of a block at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockRetries {
    block: u32,
    /// Mean number of retries of a page.
    mean: f64,
    /// Time of a retry.
    step: Nanos,
}

impl BlockRetries {
    /// Every read succeeds at the first try.
    pub const NONE: Self = Self { block: 0, mean: 0.0, step: Nanos::ZERO };

    #[inline]
    pub fn is_none(self) -> bool {
        self.mean <= 0.0
    }

    /// The retries of a page: the mean plus a number from 0 to 1 that is a property of the page, rounded down. So reads of a page at the
    /// same wear and age need the same number of retries, and the mean over all pages is that of the table.
    #[inline]
    pub fn of(self, page: u32) -> RetryCount {
        if self.is_none() {
            return RetryCount::default();
        }
        let drawn = mix(u64::from(self.block) << 32 | u64::from(page)) >> 32;
        let steps = (self.mean + drawn as f64 / 4_294_967_296.0) as u32;
        RetryCount { pages: u32::from(steps > 0), steps }
    }

    /// Time of retries.
    #[inline]
    pub fn time(self, retries: RetryCount) -> Nanos {
        Nanos(self.step.0 * i64::from(retries.steps))
    }
}

/// Ages and reads of the data in all blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockAging {
    /// Time at which each block was opened for programs; [`Nanos::MIN`] if that was before the simulation.
    opened: Vec<Nanos>,
    /// Age in days, at time 0, of data from before the simulation.
    days_before: f64,
    /// Number of reads of each block since its erase, but not of those that move its data; empty if no block group has a limit.
    reads: Vec<u32>,
    /// Blocks that have reached their limit of reads, in this order.
    pub disturbed: Vec<BlockId>,
    /// Blocks with data of a limited age, with the times at which they reach it.
    pub due: BTreeSet<(Nanos, BlockId)>,
}

impl BlockAging {
    /// The state of a new device; `None` if its settings have neither a table of retries nor a limit of reads or age.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Box<Self>> {
        let blocks = geometry.blocks() as usize;
        let limited = geometry.groups.iter().any(|group| group.read_disturb_limit > 0);
        let ages = limited || geometry.groups.iter().any(|group| !group.retries.is_empty() || group.refresh_after > Nanos::ZERO);
        let (opened, reads) = (|| vec![Nanos::MIN; blocks], || vec![0; if limited { blocks } else { 0 }]);
        let days_before = settings.wear.data_age_days;
        ages.then(|| {
            Box::new(Self { opened: opened(), days_before, reads: reads(), disturbed: Vec::new(), due: BTreeSet::new() })
        })
    }

    /// Counts a read of a block whose data needs a refresh after `limit` reads.
    pub fn count_read(&mut self, block: BlockId, limit: u32) {
        let Some(reads) = self.reads.get_mut(block.index()) else { return };
        *reads = reads.saturating_add(1);
        if *reads == limit {
            self.disturbed.push(block);
        }
    }

    /// Forgets the reads and the age of an erased block of a group.
    pub fn erase(&mut self, block: BlockId, group: &GroupGeometry) {
        self.due.remove(&self.due_of(block, group));
        if let Some(reads) = self.reads.get_mut(block.index()) {
            *reads = 0;
            self.disturbed.retain(|disturbed| *disturbed != block);
        }
    }

    pub fn open(&mut self, block: BlockId, group: &GroupGeometry, at: Nanos) {
        self.opened[block.index()] = at.max(Nanos::ZERO);
        self.watch(block, group);
    }

    /// Watches the age of a block with data, if its group has a limit.
    pub fn watch(&mut self, block: BlockId, group: &GroupGeometry) {
        if group.refresh_after > Nanos::ZERO {
            self.due.insert(self.due_of(block, group));
        }
    }

    fn due_of(&self, block: BlockId, group: &GroupGeometry) -> (Nanos, BlockId) {
        let since = match self.opened[block.index()] {
            Nanos::MIN => Nanos((self.days_before * -86_400e9) as i64),
            opened => opened,
        };
        (since.saturating_add(group.refresh_after), block)
    }

    /// All data is from before the new run, and its reads are not counted any more.
    pub fn rewind(&mut self) {
        self.opened.fill(Nanos::MIN);
        self.reads.fill(0);
        self.disturbed.clear();
        self.due.clear();
    }

    #[inline(never)]
    pub fn retries(&self, group: &GroupGeometry, (block, erases): (BlockId, u32), at: Nanos) -> BlockRetries {
        let days = match self.opened[block.index()] {
            Nanos::MIN => self.days_before + days(at.max(Nanos::ZERO)),
            opened => days(at.saturating_sub(opened).max(Nanos::ZERO)),
        };
        BlockRetries { block: block.0, mean: mean(&group.retries, erases, days), step: group.retry }
    }
}

fn days(time: Nanos) -> f64 {
    time.as_secs_f64() / 86_400.0
}

/// The mean number of retries at a number of erases and an age.
fn mean(points: &[RetryPoint], erases: u32, days: f64) -> f64 {
    let by_wear = points.chunk_by(|one, other| one.erases == other.erases).map(|level| {
        let by_age = level.iter().map(|point| (point.days, point.steps));
        (f64::from(level[0].erases), interpolate(by_age, days))
    });
    interpolate(by_wear, f64::from(erases))
}

/// The value at `at` on the line through points in ascending order; beyond the ends, the value of the first or last point; 0 without points.
fn interpolate(points: impl Iterator<Item = (f64, f64)>, at: f64) -> f64 {
    let mut before: Option<(f64, f64)> = None;
    for (x, y) in points {
        if at <= x {
            return before.map_or(y, |(x0, y0)| y0 + (y - y0) * (at - x0) / (x - x0));
        }
        before = Some((x, y));
    }
    before.map_or(0.0, |(_, y)| y)
}

/// A bijection that spreads neighbouring numbers over all 64 bits (the finaliser of `SplitMix64`).
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
