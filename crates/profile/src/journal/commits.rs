//! Transactions of a journal: the journal blocks that each commit makes durable.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use emmclab_trace::{BlockNote, Role};

use super::roles::Roles;
use super::{SECTORS_PER_KB, per_s};
use crate::latency::Distribution;
use crate::merge::Join;
use crate::report::Commits;

/// Maximum number of transactions without a commit block; a journal has one at a time. If there are more, the first by device and number is
/// given up.
const OPEN: usize = 256;

/// Transactions in progress, and the sizes of the committed ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Transactions {
    /// Transactions in progress, by device and number.
    open: BTreeMap<(u32, Option<u32>), Blocks>,
    /// The first commit of each device: some of its blocks may be in the previous piece of a recording.
    first: BTreeMap<u32, (Option<u32>, Blocks)>,
    /// The sizes of the other commits.
    committed: Committed,
    count: u64,
    /// Number of logged blocks of transactions that were given up.
    given_up: u64,
}

/// Journal blocks of a transaction: descriptor, logged, revoke and commit blocks.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    logged: u64,
    all: u64,
    sectors: u64,
}

/// Distributions of the sizes of commits.
#[derive(Clone, Debug, Default)]
struct Committed {
    logged: Distribution,
    all: Distribution,
    sectors: Distribution,
}

impl Transactions {
    pub fn add(&mut self, notes: &[BlockNote], space: u32) {
        for note in notes {
            if !matches!(note.role, Role::Descriptor | Role::Logged | Role::Revoke | Role::Commit) {
                continue;
            }
            let key = (space, note.transaction);
            let count = &mut self.count;
            let blocks = self.open.entry(key).or_insert_with(|| {
                *count += 1;
                Blocks::default()
            });
            blocks.all += 1;
            blocks.sectors += u64::from(note.sectors);
            blocks.logged += u64::from(note.role == Role::Logged);
            if note.role == Role::Commit {
                let blocks = *blocks;
                self.open.remove(&key);
                self.commit(space, note.transaction, blocks);
            }
        }
        self.bound();
    }

    fn commit(&mut self, space: u32, transaction: Option<u32>, blocks: Blocks) {
        match self.first.entry(space) {
            Entry::Vacant(first) => {
                first.insert((transaction, blocks));
            }
            Entry::Occupied(_) => self.committed.add(blocks),
        }
    }

    fn bound(&mut self) {
        while self.open.len() > OPEN {
            self.given_up += self.open.pop_first().map_or(0, |(_, blocks)| blocks.logged);
        }
    }

    pub fn merge(&mut self, other: Self, join: Join, space_of: impl Fn(u32) -> u32) {
        self.committed.merge(&other.committed);
        self.count += other.count;
        self.given_up += other.given_up;
        for (space, (transaction, theirs)) in other.first {
            let space = space_of(space);
            let begun =
                if join == Join::Consecutive { self.open.remove(&(space, transaction)) } else { None };
            self.count -= u64::from(begun.is_some());
            let blocks = theirs.plus(begun.unwrap_or_default());
            self.commit(space, transaction, blocks);
        }
        if join == Join::Separate {
            // None of their commit blocks belongs to our transactions.
            self.given_up += std::mem::take(&mut self.open).values().map(|blocks| blocks.logged).sum::<u64>();
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

    pub fn report(&self, roles: &Roles, duration_s: f64) -> Commits {
        let mut committed = self.committed.clone();
        self.first.values().for_each(|(_, blocks)| committed.add(*blocks));
        let commits = roles.blocks(Role::Commit);
        Commits {
            counted_by: "commit blocks",
            commits,
            commits_per_s: per_s(commits, duration_s),
            fast_commits: Some(roles.blocks(Role::FastCommit)),
            transactions: Some(self.count),
            not_committed: Some(self.given_up + self.open.values().map(|blocks| blocks.logged).sum::<u64>()),
            logged_blocks: committed.logged.quantiles(1.0),
            journal_blocks: committed.all.quantiles(1.0),
            journal_kb: committed.sectors.quantiles(SECTORS_PER_KB),
        }
    }
}

impl Blocks {
    fn plus(self, other: Self) -> Self {
        Self {
            logged: self.logged + other.logged,
            all: self.all + other.all,
            sectors: self.sectors + other.sectors,
        }
    }
}

impl Committed {
    fn add(&mut self, blocks: Blocks) {
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
