//! The map of the disk: runs of blocks, each of one kind.

use std::collections::BTreeMap;

use emmclab_base::Role;

/// The kind of a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Metadata at a fixed place that refers to no other metadata.
    Fixed(Role),
    /// Group descriptors; numbered by block of their table.
    Descriptors,
    /// Inodes; numbered by group (high 32 bits) and block of the group's table.
    Inodes,
    /// The journal; numbered by block of the journal.
    Journal,
    /// Metadata whose place was found in other metadata, and may become free.
    Learned(Role),
}

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The first block.
    pub start: u64,
    /// The block after the last.
    pub end: u64,
    pub kind: Kind,
    /// The number of the first block, which depends on the [`Kind`].
    pub first: u64,
}

impl Place {
    /// The number of one of the blocks.
    pub fn number(&self, block: u64) -> u64 {
        self.first + (block - self.start)
    }
}

/// What is known about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Place(Place),
    /// Nothing is known, up to this block.
    Gap(u64),
}

#[derive(Clone, Copy)]
struct Run {
    end: u64,
    kind: Kind,
    first: u64,
}

/// Runs by their first block, without overlaps.
#[derive(Default)]
pub(super) struct Places {
    runs: BTreeMap<u64, Run>,
}

impl Places {
    /// Returns what is known about a block.
    pub fn at(&self, block: u64) -> At {
        let before = self.runs.range(..=block).next_back().filter(|(_, run)| run.end > block);
        if let Some((start, run)) = before {
            return At::Place(Place { start: *start, end: run.end, kind: run.kind, first: run.first });
        }
        At::Gap(self.runs.range(block..).next().map_or(u64::MAX, |(start, _)| *start))
    }

    /// Makes the blocks from `start` to before `end` a run of this kind; replaces what was there.
    pub fn set(&mut self, start: u64, end: u64, kind: Kind, first: u64) {
        if start < end {
            self.remove(start, end);
            self.runs.insert(start, Run { end, kind, first });
        }
    }

    /// Marks blocks as learnt metadata, except blocks of other kinds.
    pub fn learn(&mut self, start: u64, end: u64, role: Role) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                At::Gap(until) => {
                    self.add_learned(at, until.min(end), role);
                    until.min(end)
                }
                At::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, Kind::Learned(known) if known != role) {
                        self.remove(at, stop);
                        self.add_learned(at, stop, role);
                    }
                    stop
                }
            };
        }
    }

    /// Forgets learnt blocks; with a role, only those of that role.
    pub fn forget(&mut self, start: u64, end: u64, role: Option<Role>) {
        let mut at = start;
        while at < end {
            at = match self.at(at) {
                At::Gap(until) => until,
                At::Place(place) => {
                    let stop = place.end.min(end);
                    if matches!(place.kind, Kind::Learned(known) if role.is_none_or(|role| role == known)) {
                        self.remove(at, stop);
                    }
                    stop
                }
            };
        }
    }

    /// Keeps only the runs for which `keep` is true.
    pub fn retain(&mut self, keep: impl Fn(Kind) -> bool) {
        self.runs.retain(|_, run| keep(run.kind));
    }

    /// Number of runs.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds a learnt run to a gap; joins it with adjacent runs of the same role.
    fn add_learned(&mut self, start: u64, end: u64, role: Role) {
        let kind = Kind::Learned(role);
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
        self.runs.insert(start, Run { end, kind, first: 0 });
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
                self.runs.insert(end, Run { first, ..old });
            }
        }
        while let Some((at, run)) = self.runs.range(start..end).next().map(|(at, run)| (*at, *run)) {
            self.runs.remove(&at);
            if run.end > end {
                self.runs.insert(end, Run { first: run.first + (end - at), ..run });
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
        Set(Kind, u64),
        Learn(Role),
        Forget(Option<Role>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let role = prop_oneof![Just(Role::Directory), Just(Role::Metadata)];
        prop_oneof![
            (
                prop_oneof![Just(Kind::Journal), Just(Kind::Inodes), Just(Kind::Fixed(Role::Superblock))],
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
            let mut places = Places::default();
            let mut table: Vec<Option<(Kind, u64)>> = vec![None; 60];
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
                            if matches!(entry, None | Some((Kind::Learned(_), _))) {
                                *entry = Some((Kind::Learned(role), 0));
                            }
                        }
                        Step::Forget(role) => {
                            let known = match entry { Some((Kind::Learned(known), _)) => Some(*known), _ => None };
                            if known.is_some_and(|known| role.is_none_or(|role| role == known)) {
                                *entry = None;
                            }
                        }
                    }
                }
                for (block, entry) in table.iter().enumerate() {
                    match (places.at(block as u64), entry) {
                        (At::Gap(until), None) => {
                            let next = table[block..].iter().position(Option::is_some);
                            prop_assert_eq!(until, next.map_or(u64::MAX, |next| (block + next) as u64));
                        }
                        (At::Place(place), Some((kind, number))) => {
                            prop_assert_eq!(place.kind, *kind);
                            if !matches!(kind, Kind::Learned(_)) {
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
