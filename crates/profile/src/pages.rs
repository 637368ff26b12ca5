//! Unique pages, updates, hot pages and reused start addresses (temporal locality, section III-C).

use std::collections::BTreeMap;

use emmclab_trace::{Op, Request};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bins::{DoublingBins, pct, time_label};
use crate::options::MergeRelation;
use crate::report::{HotPagesRow, UpdateIntervalRow, WorkingSet};

/// Sectors in a 4 KB page.
pub(crate) const PAGE_SECTORS: u64 = 8;
/// Maximum number of tracked pages per request (1 GB). Longer requests do not occur on devices, and would cost time and memory.
const MAX_PAGES: u64 = 1 << 18;
/// Bins of update intervals from 1 ms to 18 hours, in microseconds.
type IntervalBins = DoublingBins<1_000, 28>;
/// Percentages of the most accessed pages for which the share of accesses is reported.
const HOT_PCT: [u64; 3] = [1, 5, 20];

/// Statistics of pages. This is the only part of a profile that grows with the trace. It needs 12 bytes for each 4 KB page of every 512 KB
/// range with an access, and about 18 bytes for each start address that is not on a page boundary.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageStatistics {
    table: PageTable,
    /// Start addresses that are not on a page boundary, by device.
    odd_starts: BTreeMap<u32, FxHashSet<u64>>,
    /// The time that is stored as 0 in the state of pages, in microseconds.
    base_us: Option<i64>,
    address_hits: u64,
    unique: u64,
    written: u64,
    read: u64,
    page_writes: u64,
    overwrites: u64,
    intervals: IntervalBins,
    untracked: u64,
    /// Pages of merged recordings that have their own address spaces: number of pages by number of accesses, for reads and for writes.
    other_recordings: [BTreeMap<u32, u64>; 2],
}

/// Number of pages that a request is the first to access, and number of pages that it is the first to write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewPages {
    pub touched: u64,
    pub written: u64,
}

/// The pages that a request covers, at most [`MAX_PAGES`].
#[inline]
pub(crate) fn pages_of(request: &Request) -> std::ops::Range<u64> {
    let first = request.sector.0 / PAGE_SECTORS;
    let end = request.end().0.div_ceil(PAGE_SECTORS).max(first);
    first..end.min(first + MAX_PAGES)
}

impl PageStatistics {
    /// Prefetches the state of the request's first page into the CPU cache. If this is done for many requests in a row, their memory
    /// accesses overlap. Without prefetching, these accesses would take half the time of a profile.
    #[inline]
    pub fn warm(&self, request: &Request, space: u32) -> u32 {
        self.table.peek(space, request.sector.0 / PAGE_SECTORS)
    }

    /// Adds a read or write.
    #[inline]
    pub fn add(&mut self, request: &Request, space: u32) -> NewPages {
        let at_us = request.arrival.0.div_euclid(1_000);
        let at_us = at_us.saturating_sub(*self.base_us.get_or_insert(at_us)).max(0) as u64;
        let covered = pages_of(request);
        self.untracked += request.end().0.div_ceil(PAGE_SECTORS).saturating_sub(covered.end);
        let aligned = request.sector.0.is_multiple_of(PAGE_SECTORS) && !covered.is_empty();
        if !aligned {
            let starts = self.odd_starts.entry(space).or_default();
            self.address_hits += u64::from(!starts.insert(request.sector.0));
        }
        let write = request.op == Op::Write;
        let mut new = NewPages::default();
        let mut page = covered.start;
        while page < covered.end {
            let leaf = self.table.leaf(space, page / LEAF_PAGES);
            let from = (page % LEAF_PAGES) as usize;
            let count = (covered.end - page).min(LEAF_PAGES - page % LEAF_PAGES);
            let entries = &mut leaf[from..from + count as usize];
            if aligned && page == covered.start {
                self.address_hits += u64::from(entries[0].start());
            }
            for entry in entries {
                new.touched += u64::from(entry.is_new());
                if write {
                    if entry.writes() > 0 {
                        self.overwrites += 1;
                        self.intervals.add(at_us.saturating_sub(entry.last_write_us()), 1);
                    } else {
                        new.written += 1;
                    }
                    entry.write(at_us);
                } else {
                    self.read += u64::from(entry.reads() == 0);
                    entry.read();
                }
            }
            page += count;
        }
        if write {
            self.page_writes += covered.end - covered.start;
        }
        self.unique += new.touched;
        self.written += new.written;
        new
    }

    /// Adds the pages of another profile. `space_of` maps the device numbers of `other` to those of this profile. If a page is overwritten
    /// after the boundary of two pieces, the interval since its last write is unknown: the overwrite is counted, but not included in the
    /// distribution of intervals.
    pub fn merge(&mut self, other: Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        self.address_hits += other.address_hits;
        self.unique += other.unique;
        self.written += other.written;
        self.read += other.read;
        self.page_writes += other.page_writes;
        self.overwrites += other.overwrites;
        self.intervals.merge(&other.intervals);
        self.untracked += other.untracked;
        for (mine, theirs) in self.other_recordings.iter_mut().zip(&other.other_recordings) {
            for (touches, pages) in theirs {
                *mine.entry(*touches).or_default() += pages;
            }
        }
        if join == MergeRelation::Separate {
            for page in other.table.pages() {
                for (pages, touches) in self.other_recordings.iter_mut().zip([page.reads(), page.writes()]) {
                    if touches > 0 {
                        *pages.entry(touches).or_default() += 1;
                    }
                }
            }
            return;
        }
        let base_us = *self.base_us.get_or_insert(other.base_us.unwrap_or(0));
        let shift_us = other.base_us.map_or(0, |other_us| other_us.saturating_sub(base_us).max(0)) as u64;
        for (space, number, theirs) in other.table.leaves() {
            let mine = self.table.leaf(space_of(space), number);
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                self.unique -= u64::from(!mine.is_new() && !theirs.is_new());
                self.read -= u64::from(mine.reads() > 0 && theirs.reads() > 0);
                let rewritten = u64::from(mine.writes() > 0 && theirs.writes() > 0);
                self.written -= rewritten;
                self.overwrites += rewritten;
                self.address_hits += u64::from(mine.has_started() && theirs.has_started());
                mine.merge(*theirs, shift_us);
            }
        }
        for (space, theirs) in other.odd_starts {
            let mine = self.odd_starts.entry(space_of(space)).or_default();
            for start in theirs {
                self.address_hits += u64::from(!mine.insert(start));
            }
        }
    }

    pub fn address_hits(&self) -> u64 {
        self.address_hits
    }

    pub fn overwrite_pct(&self) -> Option<f64> {
        pct(self.overwrites, self.page_writes)
    }

    /// Upper edge of the bin that contains the median update interval, in seconds.
    pub fn median_interval_s(&self) -> Option<f64> {
        let total = self.intervals.total();
        let mut below = 0;
        let bin = self.intervals.bins().find(|bin| {
            below += bin.count;
            total > 0 && 2 * below >= total
        })?;
        bin.high.map(|us| us as f64 / 1e6)
    }

    pub fn working_set(&self) -> Option<WorkingSet> {
        (self.unique > 0).then_some(WorkingSet {
            unique_pages: self.unique,
            written_pages: self.written,
            read_pages: self.read,
            unique_kb: self.unique * 4,
            written_kb: self.written * 4,
            untracked_pages: self.untracked,
        })
    }

    pub fn interval_rows(&self) -> Vec<UpdateIntervalRow> {
        let total = self.intervals.total();
        let mut below = 0;
        let rows = self.intervals.bins().take(self.intervals.used().end).filter_map(|bin| {
            below += bin.count;
            let (low_s, high_s) = (bin.low as f64 / 1e6, bin.high.map(|high| high as f64 / 1e6));
            Some(UpdateIntervalRow {
                bin: time_label(low_s, high_s),
                low_s,
                high_s,
                page_writes: bin.count,
                pct: pct(bin.count, total)?,
                cumulative_pct: pct(below, total)?,
            })
        });
        rows.collect()
    }

    pub fn hot_rows(&self) -> Vec<HotPagesRow> {
        let mut rows = Vec::new();
        for (op, touches_of) in
            [(Op::Read, PageAccessState::reads as fn(PageAccessState) -> u32), (Op::Write, PageAccessState::writes)]
        {
            let mut pages_by_touches = self.other_recordings[op as usize].clone();
            // Most pages have few accesses, so small counts are kept in an array instead of the tree.
            let mut few = vec![0_u64; 1 << 12];
            for touches in self.table.pages().map(touches_of).filter(|touches| *touches > 0) {
                match few.get_mut(touches as usize) {
                    Some(pages) => *pages += 1,
                    None => *pages_by_touches.entry(touches).or_default() += 1,
                }
            }
            for (touches, pages) in (0..).zip(few).filter(|(_, pages)| *pages > 0) {
                *pages_by_touches.entry(touches).or_default() += pages;
            }
            rows.extend(hottest(op.name(), &pages_by_touches));
        }
        rows
    }
}

/// Returns the percentage of accesses that go to the most accessed pages.
fn hottest(op: &'static str, pages_by_touches: &BTreeMap<u32, u64>) -> impl Iterator<Item = HotPagesRow> {
    let pages: u64 = pages_by_touches.values().sum();
    let all: u64 = pages_by_touches.iter().map(|(touches, pages)| u64::from(*touches) * pages).sum();
    HOT_PCT.into_iter().filter_map(move |pages_pct| {
        let hot = (pages * pages_pct).div_ceil(100);
        let mut left = hot;
        let accesses = pages_by_touches
            .iter()
            .rev()
            .map(|(touches, pages)| {
                let taken = left.min(*pages);
                left -= taken;
                taken * u64::from(*touches)
            })
            .sum();
        Some(HotPagesRow { op, pages_pct, pages: hot, accesses, share_pct: pct(accesses, all)? })
    })
}

/// Number of pages in a leaf of the page table: 512 KB of address space.
pub(crate) const LEAF_PAGES: u64 = 128;
/// Number of leaves of the page table in one allocation.
const SLAB_LEAVES: usize = 32;
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;
/// Bit of the page state that is set if a request has started at the page's first sector.
const STARTED: u32 = 1 << 31;

/// The state of one page in three words. From the low end: the time of the last write (47 bits of microseconds, 4 years), the bit
/// [`STARTED`], and the numbers of writes and reads (24 bits each, saturating at 16,777,215).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageAccessState([u32; 3]);

impl PageAccessState {
    #[inline]
    pub fn writes(self) -> u32 {
        self.0[1] & COUNT_MAX
    }

    #[inline]
    pub fn reads(self) -> u32 {
        self.0[2] & COUNT_MAX
    }

    #[inline]
    pub fn is_new(self) -> bool {
        (self.0[1] | self.0[2]) & COUNT_MAX == 0
    }

    #[inline]
    pub fn read(&mut self) {
        self.0[2] += u32::from(self.reads() < COUNT_MAX);
    }

    /// Counts a write to the page at this time.
    #[inline]
    pub fn write(&mut self, at_us: u64) {
        let writes = (self.writes() + 1).min(COUNT_MAX);
        self.set_last_write(at_us);
        self.0[1] = (self.0[1] & !COUNT_MAX) | writes;
    }

    #[inline]
    pub fn last_write_us(self) -> u64 {
        let middle = u64::from(self.0[1] >> COUNT_BITS) << 32;
        let high = u64::from((self.0[2] & !STARTED) >> COUNT_BITS) << 40;
        u64::from(self.0[0]) | middle | high
    }

    #[inline]
    fn set_last_write(&mut self, at_us: u64) {
        let at_us = at_us.min((1 << 47) - 1);
        self.0[0] = at_us as u32;
        self.0[1] = self.writes() | ((at_us >> 32) as u32 & 0xFF) << COUNT_BITS;
        self.0[2] = (self.0[2] & (COUNT_MAX | STARTED)) | ((at_us >> 40) as u32) << COUNT_BITS;
    }

    /// Records that a request starts at the first sector of the page. Returns whether an earlier request has started there.
    #[inline]
    pub fn start(&mut self) -> bool {
        let before = self.has_started();
        self.0[2] |= STARTED;
        before
    }

    #[inline]
    pub fn has_started(self) -> bool {
        self.0[2] & STARTED != 0
    }

    /// Merges the state of the same page from a later piece of the recording. The times in `later` are relative to a base that is
    /// `shift_us` microseconds later.
    pub fn merge(&mut self, later: PageAccessState, shift_us: u64) {
        let writes = self.writes().saturating_add(later.writes()).min(COUNT_MAX);
        let reads = self.reads().saturating_add(later.reads()).min(COUNT_MAX);
        if later.writes() > 0 {
            self.set_last_write(later.last_write_us().saturating_add(shift_us));
        }
        self.0[1] = (self.0[1] & !COUNT_MAX) | writes;
        self.0[2] = (self.0[2] & !COUNT_MAX) | reads | (later.0[2] & STARTED);
    }
}

type Leaf = [PageAccessState; LEAF_PAGES as usize];

/// The states of the pages of all devices, as a table of two levels. It needs 12 bytes for each page of an allocated leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageTable {
    /// Tables for the first devices, indexed by the number of a leaf. An entry is the index of the leaf plus one; 0 if the leaf is not
    /// allocated.
    near: [Vec<u32>; NEAR_SPACES],
    /// Leaves without a place in a direct table, by device and leaf number. The value is the index of the leaf plus one. The order of
    /// iteration does not affect the output.
    far: FxHashMap<(u32, u64), u32>,
    slabs: Vec<Box<[Leaf]>>,
    used: u32,
}

/// Number of devices with a direct table.
const NEAR_SPACES: usize = 8;
/// Number of leaves in a direct table: 128 GB of addresses, 1 MB of memory.
const NEAR_LEAVES: u64 = 1 << 18;

impl PageTable {
    /// Returns the index of a leaf plus one; 0 if the leaf is not allocated.
    #[inline]
    fn find(&self, space: u32, number: u64) -> u32 {
        match self.near.get(space as usize) {
            Some(near) if number < NEAR_LEAVES => near.get(number as usize).copied().unwrap_or(0),
            _ => self.far.get(&(space, number)).copied().unwrap_or(0),
        }
    }

    /// Allocates a leaf; returns its index plus one.
    #[cold]
    fn insert(&mut self, space: u32, number: u64) -> u32 {
        if self.used as usize / SLAB_LEAVES == self.slabs.len() {
            self.slabs.push(vec![[PageAccessState::default(); LEAF_PAGES as usize]; SLAB_LEAVES].into());
        }
        self.used += 1;
        match self.near.get_mut(space as usize) {
            Some(near) if number < NEAR_LEAVES => {
                let number = number as usize;
                near.resize(near.len().max(number + 1), 0);
                near[number] = self.used;
            }
            _ => {
                self.far.insert((space, number), self.used);
            }
        }
        self.used
    }

    /// Returns the page states of a device in the leaf with this number, and allocates the leaf if necessary. The number is the page number
    /// / [`LEAF_PAGES`].
    #[inline]
    pub fn leaf(&mut self, space: u32, number: u64) -> &mut Leaf {
        let index = self.find(space, number);
        let index = if index == 0 { self.insert(space, number) } else { index };
        let place = index as usize - 1;
        &mut self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES]
    }

    /// Reads the memory of a page's state, if it is allocated, to load it into the CPU cache.
    #[inline]
    pub fn peek(&self, space: u32, page: u64) -> u32 {
        let Some(place) = (self.find(space, page / LEAF_PAGES) as usize).checked_sub(1) else { return 0 };
        self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES][(page % LEAF_PAGES) as usize].0[0]
    }

    /// All allocated leaves with their device and number, in no particular order.
    pub fn leaves(&self) -> impl Iterator<Item = (u32, u64, &Leaf)> {
        let near = (0..).zip(&self.near).flat_map(|(space, near)| (0..).zip(near).map(move |(number, id)| (space, number, *id)));
        let far = self.far.iter().map(|(&(space, number), &id)| (space, number, id));
        near.chain(far).filter(|(_, _, id)| *id > 0).map(|(space, number, id)| {
            let place = id as usize - 1;
            (space, number, &self.slabs[place / SLAB_LEAVES][place % SLAB_LEAVES])
        })
    }

    /// All pages, in the order of allocation of their leaves.
    pub fn pages(&self) -> impl Iterator<Item = PageAccessState> + '_ {
        self.slabs.iter().flatten().flatten().copied().filter(|page| !page.is_new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_times_and_the_start_bit_do_not_disturb_each_other() {
        let mut page = PageAccessState::default();
        assert!(page.is_new() && !page.start() && page.start() && page.is_new());
        for at_us in [0, 1, u64::from(u32::MAX), 0x7FFF_FFFF_FFFF, 0x1234_5678_9ABC] {
            page.write(at_us);
            page.read();
            assert_eq!(page.last_write_us(), at_us);
        }
        assert_eq!((page.writes(), page.reads(), page.has_started()), (5, 5, true));
        page.write(u64::MAX);
        assert_eq!((page.last_write_us(), page.writes(), page.has_started()), ((1 << 47) - 1, 6, true));
    }

    #[test]
    fn counts_saturate() {
        let mut page = PageAccessState([0, COUNT_MAX, COUNT_MAX]);
        page.write(7);
        page.read();
        assert_eq!((page.writes(), page.reads(), page.last_write_us()), (COUNT_MAX, COUNT_MAX, 7));
    }
}
