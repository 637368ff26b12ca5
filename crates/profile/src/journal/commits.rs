//! Transactions of a journal: the journal blocks that each commit makes durable.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use emmclab_trace::{BlockNote, BlockRole};

use super::block_roles::RoleCounters;
use super::{SECTORS_PER_KB, per_s};
use crate::bins::HdrDistribution;
use crate::options::MergeRelation;
use crate::report::CommitSummary;

/// Maximum number of transactions without a commit block; a journal has one at a time. If there are more, the first by device and number is
/// given up.
const OPEN: usize = 256;

/// Transactions in progress, and the sizes of the committed ones.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionCounters {
    /// Transactions in progress, by device and number.
    open: BTreeMap<(u32, Option<u32>), TransactionBlocks>,
    /// The first commit of each device: some of its blocks may be in the previous piece of a recording.
    first: BTreeMap<u32, (Option<u32>, TransactionBlocks)>,
    /// The sizes of the other commits.
    committed: CommitSizes,
    count: u64,
    /// Number of logged blocks of transactions that were given up.
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
            // None of their commit blocks belongs to our transactions.
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
