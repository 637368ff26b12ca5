//! The map of the disk: runs of blocks, each of one kind.

use std::collections::BTreeMap;

use emmclab_base::BlockRole;

/// The kind of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockRunKind {
    /// Metadata at a fixed place that refers to no other metadata.
    Fixed(BlockRole),
    /// Group descriptors; numbered by block of their table.
    Descriptors,
    /// Inodes; numbered by group (high 32 bits) and block of the group's table.
    Inodes,
    /// The journal; numbered by block of the journal.
    Journal,
    /// Metadata whose place was found in other metadata, and may become free.
    Learned(BlockRole),
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockRun {
    /// The first block.
    pub start: u64,
    /// The block after the last.
    pub end: u64,
    pub kind: BlockRunKind,
    /// The number of the first block, which depends on the [`BlockRunKind`].
    pub first: u64,
}

impl BlockRun {
    /// The number of one of the blocks.
    pub fn number(&self, block: u64) -> u64 {
        self.first + (block - self.start)
    }
}

/// What is known about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockLookup {
    Place(BlockRun),
    /// Nothing is known, up to this block.
    Gap(u64),
}

#[derive(Clone, Copy)]
struct BlockRunEntry {
    end: u64,
    kind: BlockRunKind,
    first: u64,
}

/// Runs by their first block, without overlaps.
#[derive(Default)]
pub(super) struct BlockRunMap {
    runs: BTreeMap<u64, BlockRunEntry>,
}

impl BlockRunMap {
    /// Returns what is known about a block.
    pub fn at(&self, block: u64) -> BlockLookup {
        let before = self.runs.range(..=block).next_back().filter(|(_, run)| run.end > block);
        if let Some((start, run)) = before {
            return BlockLookup::Place(BlockRun { start: *start, end: run.end, kind: run.kind, first: run.first });
        }
        BlockLookup::Gap(self.runs.range(block..).next().map_or(u64::MAX, |(start, _)| *start))
    }

    /// Makes the blocks from `start` to before `end` a run of this kind; replaces what was there.
    pub fn set(&mut self, start: u64, end: u64, kind: BlockRunKind, first: u64) {
        if start < end {
            self.remove(start, end);
            self.runs.insert(start, BlockRunEntry { end, kind, first });
        }
    }

    /// Marks blocks as learnt metadata, except blocks of other kinds.
    pub fn learn(&mut self, start: u64, end: u64, role: BlockRole) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                BlockLookup::Gap(until) => {
                    self.add_learned(at, until.min(end), role);
                    until.min(end)
                }
                BlockLookup::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, BlockRunKind::Learned(known) if known != role) {
                        self.remove(at, stop);
                        self.add_learned(at, stop, role);
                    }
                    stop
                }
            };
        }
    }

    /// Forgets learnt blocks; with a role, only those of that role.
    pub fn forget(&mut self, start: u64, end: u64, role: Option<BlockRole>) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                BlockLookup::Gap(until) => until,
                BlockLookup::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, BlockRunKind::Learned(known) if role.is_none_or(|role| role == known)) {
                        self.remove(at, stop);
                    }
                    stop
                }
            };
        }
    }

    /// Keeps only the runs for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(BlockRunKind) -> bool) {
        self.runs.retain(|_, run| keep(run.kind));
    }

    /// Number of runs.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds a learnt run to a gap; joins it with adjacent runs of the same role.
    fn add_learned(&mut self, start: u64, end: u64, role: BlockRole) {
        let kind = BlockRunKind::Learned(role);
        let (mut start, mut end) = (start, end);
        if let Some((before, run)) = self.runs.range(..start).next_back()
            && run.end == start
            && run.kind == kind
        {
            start = *before;
        }
        if let Some(run) = self.runs.get(&end).filter(|run| run.kind == kind) {
            let after = run.end;
            self.runs.remove(&end);
            end = after;
        }
        self.runs.insert(start, BlockRunEntry { end, kind, first: 0 });
    }

    /// Removes blocks from all runs.
    pub fn remove(&mut self, start: u64, end: u64) {
        if let Some((before, run)) = self.runs.range_mut(..start).next_back()
            && run.end > start
        {
            let old = *run;
            run.end = start;
            if old.end > end {
                let first = old.first + (end - before);
                self.runs.insert(end, BlockRunEntry { first, ..old });
            }
        }
        while let Some((at, run)) = self.runs.range(start..end).next().map(|(at, run)| (*at, *run)) {
            self.runs.remove(&at);
            if run.end > end {
                self.runs.insert(end, BlockRunEntry { first: run.first + (end - at), ..run });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(BlockRunKind, u64),
        Learn(BlockRole),
        Forget(Option<BlockRole>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let role = prop_oneof![Just(BlockRole::Directory), Just(BlockRole::Metadata)];
        prop_oneof![
            (
                prop_oneof![
                    Just(BlockRunKind::Journal),
                    Just(BlockRunKind::Inodes),
                    Just(BlockRunKind::Fixed(BlockRole::Superblock))
                ],
                0..9_u64
            )
                .prop_map(|(kind, first)| Step::Set(kind, first)),
            role.clone().prop_map(Step::Learn),
            prop::option::of(role).prop_map(Step::Forget),
        ]
    }

    proptest! {
        #[test]
        fn places_agree_with_a_table_of_blocks(steps in prop::collection::vec((step(), 0..40_u64, 0..12_u64), 1..60)) {
            let mut places = BlockRunMap::default();
            let mut table: Vec<Option<(BlockRunKind, u64)>> = vec![None; 60];
            for (step, start, length) in steps {
                let end = start + length;
                match step {
                    Step::Set(kind, first) => places.set(start, end, kind, first),
                    Step::Learn(role) => places.learn(start, end, role),
                    Step::Forget(role) => places.forget(start, end, role),
                }
                for block in start..end {
                    let entry = &mut table[block as usize];
                    match step {
                        Step::Set(kind, first) => *entry = Some((kind, first + block - start)),
                        Step::Learn(role) => {
                            if matches!(entry, None | Some((BlockRunKind::Learned(_), _))) {
                                *entry = Some((BlockRunKind::Learned(role), 0));
                            }
                        }
                        Step::Forget(role) => {
                            let known = match entry { Some((BlockRunKind::Learned(known), _)) => Some(*known), _ => None };
                            if known.is_some_and(|known| role.is_none_or(|role| role == known)) {
                                *entry = None;
                            }
                        }
                    }
                }
                for (block, entry) in table.iter().enumerate() {
                    match (places.at(block as u64), entry) {
                        (BlockLookup::Gap(until), None) => {
                            let next = table[block..].iter().position(Option::is_some);
                            prop_assert_eq!(until, next.map_or(u64::MAX, |next| (block + next) as u64));
                        }
                        (BlockLookup::Place(place), Some((kind, number))) => {
                            prop_assert_eq!(place.kind, *kind);
                            if !matches!(kind, BlockRunKind::Learned(_)) {
                                prop_assert_eq!(place.number(block as u64), *number);
                            }
                        }
                        (found, wanted) => prop_assert!(false, "{block}: {found:?}, {wanted:?}"),
                    }
                }
            }
            // Adjacent learnt runs of the same role are joined.
            prop_assert!(places.len() <= 60);
        }
    }
}
