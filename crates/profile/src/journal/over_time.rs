//! Commits, journal writes and flushes over time, and the same figures grouped by the rate of commits.

use emmclab_timeline::{BinContent, CoarseningBins};
use emmclab_trace::{BlockNote, BlockRole, Nanos, Op, RecordedFeatures, Request, RequestFlags};

use super::SECTORS_PER_KB;
use crate::report::{CommitRateRow, JournalTimeRow};

/// Maximum number of bins; if there were more, pairs of neighbouring bins are merged.
const BINS: usize = 256;
/// Minimum width of a time bin, because the rate of commits is computed over at least a second.
const NARROWEST: Nanos = Nanos(1_000_000_000);
/// Upper edges of the classes of commit rates, in commits per second. A further class is above the last edge.
const RATES: [f64; 8] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// Flags of writes that are durable on completion, or that make earlier writes durable.
const DURABLE: RequestFlags = RequestFlags::FUA.union(RequestFlags::PREFLUSH);

#[derive(Clone, Debug)]
pub(super) struct JournalOverTime(CoarseningBins<JournalTimeBin>);

/// Counts of the requests in a bin of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JournalTimeBin {
    written: u64,
    flushes: u64,
    durable: u64,
    /// Number of commit blocks, according to the notes on blocks.
    commits: u64,
    journal: u64,
    /// Sectors written by the journal's thread, recognised by the `journal` flag.
    flagged: u64,
    flagged_durable: u64,
    durable_sectors: u64,
    /// Sectors written to a journal that is found by its addresses, and the number of its commits.
    pointed: u64,
    pointed_commits: u64,
}

/// How the writes of the journal are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalEvidence {
    /// By notes on the roles of blocks.
    Roles,
    /// By the flag of the journal's thread.
    Thread,
    /// By the addresses of writes that follow a write pointer.
    Addresses,
    /// By FUA and preflush. The result is an upper bound.
    Flags,
}

impl JournalEvidence {
    /// The value of [`JournalReport::known_by`](crate::report::JournalReport).
    pub fn name(self) -> &'static str {
        match self {
            Self::Roles => "roles",
            Self::Addresses => "addresses",
            Self::Thread | Self::Flags => "flags",
        }
    }
}

impl BinContent for JournalTimeBin {
    fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.flushes += other.flushes;
        self.durable += other.durable;
        self.commits += other.commits;
        self.journal += other.journal;
        self.flagged += other.flagged;
        self.flagged_durable += other.flagged_durable;
        self.durable_sectors += other.durable_sectors;
        self.pointed += other.pointed;
        self.pointed_commits += other.pointed_commits;
    }
}

impl JournalTimeBin {
    pub fn add(&mut self, request: &Request) {
        self.flushes += u64::from(request.op == Op::Flush);
        if request.op != Op::Write {
            return;
        }
        let sectors = u64::from(request.sectors);
        self.written += sectors;
        let durable = request.flags.intersects(DURABLE);
        if durable {
            self.durable += 1;
            self.durable_sectors += sectors;
        }
        if request.flags.contains(RequestFlags::JOURNAL) {
            self.flagged += sectors;
            self.flagged_durable += u64::from(durable);
        }
    }

    /// Adds sectors of a journal that is found by its addresses. `commit` is whether a commit block is among them.
    pub fn add_pointed(&mut self, sectors: u64, commit: bool) {
        self.pointed += sectors;
        self.pointed_commits += u64::from(commit);
    }

    pub fn add_notes(&mut self, notes: &[BlockNote]) {
        for note in notes.iter().filter(|note| note.role.in_journal()) {
            self.journal += u64::from(note.sectors);
            self.commits += u64::from(note.role == BlockRole::Commit);
        }
    }
}

impl Default for JournalOverTime {
    fn default() -> Self {
        Self(CoarseningBins::with_width(BINS, NARROWEST))
    }
}

impl JournalOverTime {
    pub fn bin(&mut self, arrival: Nanos) -> &mut JournalTimeBin {
        self.0.at(arrival)
    }

    pub fn merge(&mut self, other: Self, aligned: bool) {
        self.0.merge(other.0, aligned);
    }

    /// Returns a row for each bin with a write or flush. Without [`JournalEvidence::Roles`] or [`JournalEvidence::Addresses`], writes with FUA
    /// or preflush count as commits; with [`JournalEvidence::Thread`], only those of the journal's thread do. If the trace does not state
    /// what it records, flushes and flags that occur in it count as recorded.
    pub fn rows(&self, origin: Nanos, evidence: JournalEvidence, recorded: Option<RecordedFeatures>) -> Vec<JournalTimeRow> {
        let occurs = |count: fn(&JournalTimeBin) -> u64| self.0.iter(origin).any(|(_, _, bin)| count(bin) > 0);
        let flushes = recorded.map_or_else(|| occurs(|bin| bin.flushes), |recorded| recorded.has_op(Op::Flush));
        let durable = recorded.map_or_else(|| occurs(|bin| bin.durable), |recorded| recorded.has(DURABLE));
        let used = self.0.iter(origin).filter(|(_, _, bin)| bin.written + bin.flushes > 0);
        used.map(|(time_s, width_s, bin)| {
            let (commits, journal) = match evidence {
                JournalEvidence::Roles => (bin.commits, bin.journal),
                JournalEvidence::Thread => (bin.flagged_durable, bin.flagged),
                JournalEvidence::Addresses => (bin.pointed_commits, bin.pointed),
                JournalEvidence::Flags => (bin.durable, bin.durable_sectors),
            };
            JournalTimeRow {
                time_s,
                width_s,
                commits,
                // The first bin may be shorter, because the trace begins in it. For the rate, its width counts as at least `NARROWEST`.
                commits_per_s: commits as f64 / width_s.max(NARROWEST.as_secs_f64()),
                flushes: flushes.then_some(bin.flushes),
                fua_or_preflush_writes: durable.then_some(bin.durable),
                written_kb: bin.written as f64 / SECTORS_PER_KB,
                journal_kb: journal as f64 / SECTORS_PER_KB,
                journal_pct: (bin.written > 0).then(|| 100.0 * journal as f64 / bin.written as f64),
            }
        })
        .collect()
    }
}

/// Combines the bins whose rates of commits are in the same class; classes without a bin are omitted.
pub(super) fn by_rate(rows: &[JournalTimeRow]) -> Vec<CommitRateRow> {
    let class = |row: &&JournalTimeRow| RATES.iter().position(|edge| row.commits_per_s <= *edge).unwrap_or(RATES.len());
    (0..=RATES.len())
        .filter_map(|wanted| {
            let of: Vec<_> = rows.iter().filter(|row| class(row) == wanted).collect();
            let sum = |value: fn(&JournalTimeRow) -> f64| of.iter().map(|row| value(row)).sum::<f64>();
            let (written_kb, journal_kb) = (sum(|row| row.written_kb), sum(|row| row.journal_kb));
            (!of.is_empty()).then(|| CommitRateRow {
                from_per_s: wanted.checked_sub(1).map_or(0.0, |below| RATES[below]),
                to_per_s: RATES.get(wanted).copied(),
                seconds: sum(|row| row.width_s),
                commits: of.iter().map(|row| row.commits).sum(),
                flushes: of.iter().map(|row| row.flushes).sum(),
                written_kb,
                journal_kb,
                journal_pct: (written_kb > 0.0).then(|| 100.0 * journal_kb / written_kb),
            })
        })
        .collect()
}
