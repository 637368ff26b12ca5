//! Finds journals and checkpoints by the addresses and times of writes alone.
//!
//! The journal of ext4 (JBD2) is a circular log: each write begins where the previous one ended, and no block is written again before the
//! log wraps. A transaction is a *group* of writes that are submitted together (descriptors and logged blocks), then a *commit block* of
//! one file-system block, which is submitted when the group is complete. Appended files have long ascending runs, too, but no such groups:
//! an append waits for the one before it, whatever its size.
//!
//! F2FS has no journal. Its checkpoints are written to two *packs*, in turns, which begin in neighbouring segments of 2 MB (Linux,
//! `Documentation/filesystems/f2fs.rst`); the last block of a pack is written after all the others, like a commit block.

use std::collections::BTreeMap;

use emmclab_trace::{Nanos, Request};

use super::SECTORS_PER_KB;
use super::over_time::JournalOverTime;
use crate::bins::pct;
use crate::options::MergeRelation;
use crate::processes::NameMap;
use crate::report::FoundJournalRow;

/// The runs that a write may continue are stored in sets, by their ends. A new run replaces the run of its set that was continued longest ago,
/// if possible one without commits.
const SETS_LOG2: u32 = 10;
/// Number of runs in a set.
const WAYS: usize = 4;
/// Maximum number of regions, and of possible checkpoint packs that are stored.
const MOST_FOUND: usize = 4_096;
/// Minimum number of commits of a journal.
const LEAST_COMMITS: u64 = 8;
/// Minimum number of checkpoints in both packs together. It is larger, because blocks of other metadata lie 2 MB apart by chance.
const LEAST_CHECKPOINTS: u64 = 16;
/// Minimum share of the groups of a journal that a commit block ends, percent.
const LEAST_CLOSED_PCT: u64 = 80;
/// Minimum share of checkpoints that are not in the same pack as the previous one, percent.
const LEAST_TURNS_PCT: u64 = 90;
/// Minimum share of the writes in the range of a journal that follow its write pointer, percent. Then the other writes belong to it, too: a
/// recorder may lose a write, or record it too long.
const LEAST_WITHIN_PCT: f64 = 95.0;
/// Maximum number of sectors of a commit block (4 KB).
const COMMIT_BLOCK: u32 = 8;
/// Number of sectors between the starts of the checkpoint packs of F2FS (a segment of 2 MB).
const SEGMENT: u64 = 4_096;
/// Maximum size of a journal in sectors (1 GB, the largest that mke2fs makes by default).
const LARGEST_JOURNAL: u64 = 2 << 20;

/// Writes and commits of a run or of several.
#[derive(Clone, Copy, Debug, Default)]
struct PointerCounts {
    writes: u64,
    sectors: u64,
    commits: u64,
    /// Sectors of the commit blocks.
    commit_sectors: u64,
    /// Number of writes that waited for the previous write of their group. The writes of a transaction do not wait.
    waits: u64,
}

impl PointerCounts {
    fn are_of_a_journal(&self) -> bool {
        self.commits >= LEAST_COMMITS && 100 * self.commits >= LEAST_CLOSED_PCT * (self.commits + self.waits)
    }
}

/// Writes and commits with their times.
#[derive(Clone, Debug, Default)]
struct TimedCounts {
    counts: PointerCounts,
    over_time: JournalOverTime,
}

impl TimedCounts {
    /// Adds the writes of a run.
    fn add_run(&mut self, run: &AscendingRun) {
        self.add_counts(run.counts);
        match &run.over_time {
            Some(over_time) => self.over_time.merge(JournalOverTime::clone(over_time), false),
            None => self.over_time.bin(run.arrival).add_pointed(run.counts.sectors, false),
        }
    }

    fn add(&mut self, other: &Self, aligned: bool) {
        self.add_counts(other.counts);
        self.over_time.merge(other.over_time.clone(), aligned);
    }

    fn add_counts(&mut self, other: PointerCounts) {
        self.counts.writes += other.writes;
        self.counts.sectors += other.sectors;
        self.counts.commits += other.commits;
        self.counts.commit_sectors += other.commit_sectors;
        self.counts.waits += other.waits;
    }
}

/// Writes to ascending addresses, each of which begins where the previous one ends.
#[derive(Clone, Debug)]
struct AscendingRun {
    space: u32,
    /// Sectors of the group in progress; 0 directly after a commit block.
    group: u32,
    first: u64,
    end: u64,
    arrival: Nanos,
    /// The latest completion of a write of the group, if it was recorded.
    complete: Option<Nanos>,
    /// Number of the write that continued the run last, counted over all writes.
    used: u64,
    counts: PointerCounts,
    /// The writes over time, from the first commit on.
    over_time: Option<Box<JournalOverTime>>,
}

impl AscendingRun {
    fn new(request: &Request, space: u32) -> Self {
        let (first, counts) = (request.sector.0, PointerCounts::default());
        Self { space, group: 0, first, end: first, arrival: request.arrival, complete: None, used: 0, counts, over_time: None }
    }

    /// Adds the write that begins at the end of the run.
    #[inline]
    fn add(&mut self, request: &Request, number: u64) {
        let waited = self.complete.is_none_or(|complete| request.arrival >= complete);
        let commits = waited && request.sectors <= COMMIT_BLOCK && self.group >= 2 * request.sectors;
        self.counts.writes += 1;
        self.counts.sectors += u64::from(request.sectors);
        self.counts.waits += u64::from(self.group > 0 && waited && !commits);
        self.end = request.end().0;
        self.used = number;
        if commits {
            self.commit(request);
            return;
        }
        self.group = self.group.saturating_add(request.sectors);
        self.complete = self.complete.max(request.complete);
        if let Some(over_time) = &mut self.over_time {
            over_time.bin(request.arrival).add_pointed(request.sectors.into(), false);
        }
    }

    fn commit(&mut self, request: &Request) {
        let sectors = if self.counts.commits == 0 { self.counts.sectors } else { request.sectors.into() };
        self.over_time.get_or_insert_default().bin(request.arrival).add_pointed(sectors, true);
        self.counts.commits += 1;
        self.counts.commit_sectors += u64::from(request.sectors);
        self.group = 0;
        self.complete = request.complete;
    }
}

/// A range of addresses with one or several runs of a journal.
#[derive(Clone, Debug)]
struct JournalRegion {
    space: u32,
    first: u64,
    end: u64,
    /// Number of runs, at least one for each pass of the write pointer.
    runs: u64,
    writes: TimedCounts,
    /// Writes in the range that belong to no run of a journal.
    others: TimedCounts,
}

/// Groups that begin at the same sector, each followed by a commit block.
#[derive(Clone, Debug, Default)]
struct CheckpointPack {
    writes: TimedCounts,
    /// Number of checkpoints that were written after one of the other pack.
    turns: u64,
    used: u64,
}

/// Finds journals and checkpoints in one pass and in bounded memory.
#[derive(Clone, Debug, Default)]
pub(super) struct WritePointers {
    /// The runs that a write may continue, in sets of [`WAYS`]; empty before the first write.
    open: Vec<[Option<AscendingRun>; WAYS]>,
    regions: Vec<JournalRegion>,
    /// Possible checkpoint packs, by space and first sector.
    packs: BTreeMap<(u32, u64), CheckpointPack>,
    writes: u64,
}

/// The journals and checkpoints of a trace, and their sums.
#[derive(Default)]
pub(super) struct FoundJournals {
    pub rows: Vec<FoundJournalRow>,
    pub writes: u64,
    pub sectors: u64,
    pub commits: u64,
    pub over_time: JournalOverTime,
}

impl WritePointers {
    #[inline]
    pub fn add(&mut self, request: &Request, space: u32) {
        if request.sectors == 0 {
            return;
        }
        if self.open.is_empty() {
            self.open = vec![const { [const { None }; WAYS] }; 1 << SETS_LOG2];
        }
        self.writes += 1;
        let first = request.sector.0;
        let mut ways = self.open[set(space, first)].iter_mut();
        let continued = ways.find_map(|way| way.take_if(|run| run.end == first && run.space == space));
        let mut run = continued.unwrap_or_else(|| AscendingRun::new(request, space));
        run.add(request, self.writes);
        if run.counts.commits == 1 && run.group == 0 {
            self.note_checkpoint(&run);
        }
        let ways = &mut self.open[set(space, run.end)];
        let same = ways.iter().position(|way| way.as_ref().is_some_and(|other| other.end == run.end && other.space == space));
        let place = same.unwrap_or_else(|| {
            // Runs with commits stay longest, because many other writes may lie between two commits.
            let uses = ways.iter().map(|way| way.as_ref().map_or((false, 0), |run| (run.counts.commits > 0, run.used)));
            uses.enumerate().min_by_key(|(_, used)| *used).map_or(0, |(place, _)| place)
        });
        if let Some(ended) = ways[place].replace(run) {
            self.close(&ended);
        }
    }

    /// Counts a run that no write continues any more.
    fn close(&mut self, run: &AscendingRun) {
        if run.counts.are_of_a_journal() {
            let mut region = JournalRegion {
                space: run.space,
                first: run.first,
                end: run.end,
                runs: 1,
                writes: TimedCounts::default(),
                others: TimedCounts::default(),
            };
            region.writes.add_run(run);
            self.add_region(region, false);
            return;
        }
        let overlaps =
            |region: &&mut JournalRegion| region.space == run.space && run.first < region.end && run.end > region.first;
        if let Some(region) = self.regions.iter_mut().find(overlaps) {
            region.others.add_run(run);
        }
    }

    /// Adds a region to that of the same journal, if there is one.
    fn add_region(&mut self, region: JournalRegion, aligned: bool) {
        let same = |mine: &&mut JournalRegion| {
            let (first, end) = (mine.first.min(region.first), mine.end.max(region.end));
            mine.space == region.space && end - first <= LARGEST_JOURNAL
        };
        if let Some(mine) = self.regions.iter_mut().find(same) {
            (mine.first, mine.end) = (mine.first.min(region.first), mine.end.max(region.end));
            mine.runs += region.runs;
            mine.writes.add(&region.writes, aligned);
            mine.others.add(&region.others, aligned);
        } else if self.regions.len() < MOST_FOUND {
            self.regions.push(region);
        }
    }

    /// Counts the first group of a run, with its commit block, as a possible checkpoint.
    fn note_checkpoint(&mut self, run: &AscendingRun) {
        if self.packs.len() == MOST_FOUND {
            let oldest = self.writes.saturating_sub(MOST_FOUND as u64);
            self.packs.retain(|_, pack| pack.writes.counts.commits >= LEAST_COMMITS || pack.used > oldest);
        }
        let used = |first: Option<u64>| first.and_then(|first| self.packs.get(&(run.space, first))).map_or(0, |pack| pack.used);
        let other = used(run.first.checked_sub(SEGMENT)).max(used(run.first.checked_add(SEGMENT)));
        let pack = self.packs.entry((run.space, run.first)).or_default();
        pack.turns += u64::from(other > pack.used);
        pack.used = self.writes;
        pack.writes.add_run(run);
    }

    /// Adds the findings in the next piece or in another recording. A group that continues across the boundary is not recognised.
    pub fn merge(&mut self, other: Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        let aligned = join == MergeRelation::Separate;
        for region in other.closed().regions {
            self.add_region(JournalRegion { space: space_of(region.space), ..region }, aligned);
        }
        for ((space, first), pack) in other.packs {
            let mine = self.packs.entry((space_of(space), first)).or_default();
            mine.writes.add(&pack.writes, aligned);
            mine.turns += pack.turns;
            mine.used = self.writes + pack.used;
        }
        self.writes += other.writes;
    }

    /// The same findings after the end of all runs.
    fn closed(&self) -> Self {
        let mut closed = Self { regions: self.regions.clone(), ..Self::default() };
        let mut open: Vec<_> = self.open.iter().flatten().flatten().collect();
        // Runs of a journal come first, so that its range is known for the other runs.
        open.sort_by_key(|run| (!run.counts.are_of_a_journal(), run.used));
        for run in open {
            closed.close(run);
        }
        closed
    }

    /// Returns the journals and checkpoint packs. `written` is the number of all written sectors.
    pub fn found(&self, names: &NameMap, written: u64) -> FoundJournals {
        let mut found = FoundJournals::default();
        for JournalRegion { space, first, end, runs, mut writes, others } in self.closed().regions {
            let PointerCounts { writes: number, commits, waits, .. } = writes.counts;
            let within_pct = pct(number, number + others.counts.writes);
            let closed_pct = pct(commits, commits + waits);
            if within_pct.is_some_and(|within| within >= LEAST_WITHIN_PCT) {
                writes.add(&others, false);
            }
            let device = names.name(space as usize);
            found.add(("ext4", "journal"), device, (first, end), (runs, closed_pct, within_pct), writes, written);
        }
        for ((space, first), pack) in &self.packs {
            let Some(other) = first.checked_add(SEGMENT).and_then(|second| self.packs.get(&(*space, second))) else { continue };
            let unequal = pack.writes.counts.commits.abs_diff(other.writes.counts.commits);
            let mut writes = pack.writes.clone();
            writes.add(&other.writes, false);
            let (commits, turns) = (writes.counts.commits, pack.turns + other.turns);
            if commits >= LEAST_CHECKPOINTS && unequal <= 1 + commits / 20 && 100 * turns >= LEAST_TURNS_PCT * (commits - 1) {
                let range = (*first, first.saturating_add(2 * SEGMENT));
                let evidence = (turns, pct(turns, commits - 1), None);
                found.add(("f2fs", "checkpoints"), names.name(*space as usize), range, evidence, writes, written);
            }
        }
        found
    }
}

impl FoundJournals {
    fn add(
        &mut self, (file_system, kind): (&'static str, &'static str), device: Option<&str>, (first, end): (u64, u64),
        (passes, closed_pct, within_pct): (u64, Option<f64>, Option<f64>), found: TimedCounts, written: u64,
    ) {
        let counts = found.counts;
        self.writes += counts.writes;
        self.sectors += counts.sectors;
        self.commits += counts.commits;
        self.rows.push(FoundJournalRow {
            device: device.map(Into::into),
            file_system,
            kind,
            first_sector: first,
            size_kb: (end - first) as f64 / SECTORS_PER_KB,
            writes: counts.writes,
            kb: counts.sectors as f64 / SECTORS_PER_KB,
            written_pct: pct(counts.sectors, written),
            commits: counts.commits,
            commit_kb: (counts.sectors - counts.commit_sectors) as f64 / SECTORS_PER_KB / counts.commits as f64,
            passes,
            closed_pct,
            within_pct,
        });
        self.over_time.merge(found.over_time, false);
    }
}

/// The set of the run that ends at a sector (Fibonacci hashing, Knuth, The Art of Computer Programming, volume 3, 6.4).
#[inline]
fn set(space: u32, end: u64) -> usize {
    ((end ^ u64::from(space) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SETS_LOG2)) as usize
}
