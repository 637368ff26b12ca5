//! Counts writes by the roles of their blocks, and the journal blocks of each transaction.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use emmclab_trace::{BlockNote, BlockRole};

use super::{SECTORS_PER_KB, per_s};
use crate::bins::{HdrDistribution, pct};
use crate::options::MergeRelation;
use crate::report::{BlockKindRow, BlockRoleRow, ChangedSectorsRow, CommitSummary, LoggedBlockSummary};

const ROLES: usize = BlockRole::ALL.len();
/// Maximum number of sectors in a block.
const MOST_SECTORS: usize = 128;

/// The groups into which the roles of blocks are combined.
const KINDS: [&str; 3] = ["journal", "data", "home metadata"];

/// Counts of writes by the role of their blocks.
#[derive(Clone, Debug)]
pub(super) struct RoleCounters {
    by_role: [RoleCounter; ROLES],
    /// For each of [`KINDS`], the number of requests with a block of this kind.
    requests_of_kind: [u64; KINDS.len()],
    /// Number of logged blocks with 0, 1, 2 and more changed sectors.
    changed: [u64; MOST_SECTORS + 1],
    logged: CopyComparison,
    home: CopyComparison,
}

#[derive(Clone, Copy, Debug, Default)]
struct RoleCounter {
    requests: u64,
    runs: u64,
    sectors: u64,
}

/// Counts of blocks that are compared with their last logged copies.
#[derive(Clone, Copy, Debug, Default)]
struct CopyComparison {
    blocks: u64,
    sectors: u64,
    changed_sectors: u64,
    same_blocks: u64,
}

impl Default for RoleCounters {
    fn default() -> Self {
        Self {
            by_role: [RoleCounter::default(); ROLES],
            requests_of_kind: [0; KINDS.len()],
            changed: [0; MOST_SECTORS + 1],
            logged: CopyComparison::default(),
            home: CopyComparison::default(),
        }
    }
}

impl RoleCounters {
    /// Adds a write, described by the notes on its blocks.
    pub fn add(&mut self, notes: &[BlockNote]) {
        let mut held = [false; ROLES];
        let mut kinds = [false; KINDS.len()];
        for note in notes {
            let count = &mut self.by_role[note.role as usize];
            count.runs += 1;
            count.sectors += u64::from(note.sectors);
            count.requests += u64::from(!std::mem::replace(&mut held[note.role as usize], true));
            let kind = kind(note.role);
            self.requests_of_kind[kind] += u64::from(!std::mem::replace(&mut kinds[kind], true));
            let Some(changed) = note.changed else { continue };
            if note.role == BlockRole::Logged {
                self.logged.add(note, changed.len());
                self.changed[changed.len() as usize] += 1;
            } else if note.role.at_home() {
                self.home.add(note, changed.len());
            }
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.by_role.iter_mut().zip(&other.by_role) {
            mine.requests += theirs.requests;
            mine.runs += theirs.runs;
            mine.sectors += theirs.sectors;
        }
        let add = |mine: &mut [u64], theirs: &[u64]| mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        add(&mut self.requests_of_kind, &other.requests_of_kind);
        add(&mut self.changed, &other.changed);
        self.logged.merge(&other.logged);
        self.home.merge(&other.home);
    }

    /// Number of blocks with a role. Blocks with the role [`BlockRole::Data`] are not counted.
    pub fn blocks(&self, role: BlockRole) -> u64 {
        self.by_role[role as usize].runs
    }

    /// Sectors of all roles.
    pub fn sectors(&self) -> u64 {
        self.by_role.iter().map(|count| count.sectors).sum()
    }

    pub fn journal_sectors(&self) -> u64 {
        self.sectors_of(0)
    }

    fn sectors_of(&self, wanted: usize) -> u64 {
        let of = BlockRole::ALL.into_iter().zip(&self.by_role).filter(|(role, _)| kind(*role) == wanted);
        of.map(|(_, count)| count.sectors).sum()
    }

    /// Returns rows for the roles that occur, in the order of [`BlockRole::ALL`]. Percentages refer to `written`, the number of all written
    /// sectors.
    pub fn rows(&self, written: u64) -> Vec<BlockRoleRow> {
        let used = BlockRole::ALL.into_iter().zip(&self.by_role).filter(|(_, count)| count.runs > 0);
        used.map(|(role, count)| BlockRoleRow {
            role: role.name(),
            requests: count.requests,
            blocks: (role != BlockRole::Data).then_some(count.runs),
            kb: count.sectors as f64 / SECTORS_PER_KB,
            written_pct: pct(count.sectors, written),
        })
        .collect()
    }

    pub fn kinds(&self, written: u64) -> Vec<BlockKindRow> {
        let row = |(place, kind): (usize, &'static str)| {
            let sectors = self.sectors_of(place);
            BlockKindRow {
                kind,
                requests: self.requests_of_kind[place],
                kb: sectors as f64 / SECTORS_PER_KB,
                written_pct: pct(sectors, written),
            }
        };
        KINDS.into_iter().enumerate().map(row).collect()
    }

    pub fn logged(&self) -> LoggedBlockSummary {
        let blocks = self.blocks(BlockRole::Logged);
        let unchanged = |compared: &CopyComparison| pct(compared.sectors - compared.changed_sectors, compared.sectors);
        LoggedBlockSummary {
            blocks,
            compared: self.logged.blocks,
            unchanged_sectors_pct: unchanged(&self.logged),
            mean_changed_sectors: (self.logged.blocks > 0)
                .then(|| self.logged.changed_sectors as f64 / self.logged.blocks as f64),
            home_compared: self.home.blocks,
            home_as_logged_pct: pct(self.home.same_blocks, self.home.blocks),
        }
    }

    /// Distribution of logged blocks by the number of their changed sectors. There is a row for each number, up to the largest one that
    /// occurs.
    pub fn changed_rows(&self) -> Vec<ChangedSectorsRow> {
        let most = self.changed.iter().rposition(|blocks| *blocks > 0).map_or(0, |most| most + 1);
        let row = |(changed, blocks): (usize, &u64)| {
            Some(ChangedSectorsRow { changed_sectors: changed as u32, blocks: *blocks, pct: pct(*blocks, self.logged.blocks)? })
        };
        self.changed[..most].iter().enumerate().filter_map(row).collect()
    }
}

impl CopyComparison {
    fn add(&mut self, note: &BlockNote, changed: u32) {
        self.blocks += 1;
        self.sectors += u64::from(note.sectors);
        self.changed_sectors += u64::from(changed.min(note.sectors));
        self.same_blocks += u64::from(changed == 0);
    }

    fn merge(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.sectors += other.sectors;
        self.changed_sectors += other.changed_sectors;
        self.same_blocks += other.same_blocks;
    }
}

/// The index of a role's group in [`KINDS`].
fn kind(role: BlockRole) -> usize {
    if role.in_journal() {
        0
    } else if role.at_home() {
        2
    } else {
        1
    }
}

/// Maximum number of transactions in progress that are stored. A journal has only one at a time. If there are more, the one with the lowest
/// device and number counts as not committed.
const OPEN: usize = 256;

/// Transactions in progress, and the sizes of the committed ones.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionCounters {
    /// Transactions in progress, by device and number.
    open: BTreeMap<(u32, Option<u32>), TransactionBlocks>,
    /// The first commit of each device. A recording may be read in pieces, and some blocks of this commit may be in the previous piece.
    first: BTreeMap<u32, (Option<u32>, TransactionBlocks)>,
    /// The sizes of all commits. The first commit of each device is excluded, because some of its blocks may not be in this recording.
    committed: CommitSizes,
    count: u64,
    /// Number of logged blocks in transactions whose tracking ended before a commit was seen.
    abandoned: u64,
}

/// Journal blocks of a transaction: descriptor, logged, revoke and commit blocks.
#[derive(Clone, Copy, Debug, Default)]
struct TransactionBlocks {
    logged: u64,
    all: u64,
    sectors: u64,
}

/// Distributions of the sizes of commits.
#[derive(Clone, Debug, Default)]
struct CommitSizes {
    logged: HdrDistribution,
    all: HdrDistribution,
    sectors: HdrDistribution,
}

impl TransactionCounters {
    pub fn add(&mut self, notes: &[BlockNote], space: u32) {
        for note in notes {
            if !matches!(note.role, BlockRole::Descriptor | BlockRole::Logged | BlockRole::Revoke | BlockRole::Commit) {
                continue;
            }
            let key = (space, note.transaction);
            let count = &mut self.count;
            let blocks = self.open.entry(key).or_insert_with(|| {
                *count += 1;
                TransactionBlocks::default()
            });
            blocks.all += 1;
            blocks.sectors += u64::from(note.sectors);
            blocks.logged += u64::from(note.role == BlockRole::Logged);
            if note.role == BlockRole::Commit {
                let blocks = *blocks;
                self.open.remove(&key);
                self.commit(space, note.transaction, blocks);
            }
        }
        self.bound();
    }

    fn commit(&mut self, space: u32, transaction: Option<u32>, blocks: TransactionBlocks) {
        match self.first.entry(space) {
            Entry::Vacant(first) => {
                first.insert((transaction, blocks));
            }
            Entry::Occupied(_) => self.committed.add(blocks),
        }
    }

    fn bound(&mut self) {
        while self.open.len() > OPEN {
            self.abandoned += self.open.pop_first().map_or(0, |(_, blocks)| blocks.logged);
        }
    }

    pub fn merge(&mut self, other: Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        self.committed.merge(&other.committed);
        self.count += other.count;
        self.abandoned += other.abandoned;
        for (space, (transaction, theirs)) in other.first {
            let space = space_of(space);
            let begun = if join == MergeRelation::Consecutive { self.open.remove(&(space, transaction)) } else { None };
            self.count -= u64::from(begun.is_some());
            let blocks = theirs.plus(begun.unwrap_or_default());
            self.commit(space, transaction, blocks);
        }
        if join == MergeRelation::Separate {
            // Commit blocks in a separate recording do not belong to the open transactions of this recording, so the open transactions are
            // abandoned.
            self.abandoned += std::mem::take(&mut self.open).values().map(|blocks| blocks.logged).sum::<u64>();
        }
        for ((space, transaction), theirs) in other.open {
            let begun = self.open.insert((space_of(space), transaction), theirs);
            self.count -= u64::from(begun.is_some());
            if let (Some(begun), Some(mine)) = (begun, self.open.get_mut(&(space_of(space), transaction))) {
                *mine = mine.plus(begun);
            }
        }
        self.bound();
    }

    pub fn report(&self, roles: &RoleCounters, duration_s: f64) -> CommitSummary {
        let mut committed = self.committed.clone();
        self.first.values().for_each(|(_, blocks)| committed.add(*blocks));
        let commits = roles.blocks(BlockRole::Commit);
        CommitSummary {
            counted_by: "commit blocks",
            commits,
            commits_per_s: per_s(commits, duration_s),
            fast_commits: Some(roles.blocks(BlockRole::FastCommit)),
            transactions: Some(self.count),
            not_committed: Some(self.abandoned + self.open.values().map(|blocks| blocks.logged).sum::<u64>()),
            logged_blocks: committed.logged.quantiles(1.0),
            journal_blocks: committed.all.quantiles(1.0),
            journal_kb: committed.sectors.quantiles(SECTORS_PER_KB),
        }
    }
}

impl TransactionBlocks {
    fn plus(self, other: Self) -> Self {
        Self { logged: self.logged + other.logged, all: self.all + other.all, sectors: self.sectors + other.sectors }
    }
}

impl CommitSizes {
    fn add(&mut self, blocks: TransactionBlocks) {
        self.logged.add(blocks.logged);
        self.all.add(blocks.all);
        self.sectors.add(blocks.sectors);
    }

    fn merge(&mut self, other: &Self) {
        self.logged.merge(&other.logged);
        self.all.merge(&other.all);
        self.sectors.merge(&other.sectors);
    }
}
