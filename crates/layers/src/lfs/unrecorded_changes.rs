//! Changes of the map that are complete but not in a durable record yet; the next flush records them.
//!
//! Their number is limited. If it is exceeded, all are dropped, and a flush waits for a checkpoint, which contains the whole map.

use rustc_hash::FxHashMap;

use super::record::{LogRun, NOWHERE};

#[derive(Clone, Copy, Debug)]
struct MapChange {
    block: u32,
    /// The new place; [`NOWHERE`] if the block was discarded.
    place: u32,
    write: u64,
    /// Number of the change.
    order: u64,
    /// A later change of the block is already durable by its own record.
    dead: bool,
}

/// The changes, oldest first, with at most one valid change of each block.
#[derive(Clone, Debug, Default)]
pub(super) struct UnrecordedChanges {
    changes: Vec<MapChange>,
    index: FxHashMap<u32, u32>,
    limit: usize,
    /// Number of changes so far.
    order: u64,
    /// Changes up to this number may have been dropped.
    forgotten: u64,
    /// Whether further changes are dropped, too, until a checkpoint begins.
    overflows: bool,
    /// Changes up to this number are durable by a checkpoint.
    checkpointed: u64,
}

impl UnrecordedChanges {
    /// Keeps up to `limit` changes.
    pub fn new(limit: usize) -> Self {
        let (mut changes, mut index) = (Vec::new(), FxHashMap::default());
        changes.reserve(limit);
        index.reserve(limit);
        Self { changes, index, limit, ..Self::default() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.changes.capacity() * size_of::<MapChange>() + self.index.capacity() * 9) as u64
    }

    /// Number of the newest change.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Maximum number of runs that are needed to record all changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds a change: a block has a new place, or `None` if it was discarded.
    #[inline]
    pub fn change(&mut self, block: u32, place: Option<u32>, write: u64) {
        self.order += 1;
        if self.overflows || self.changes.len() >= self.limit {
            self.changes.clear();
            self.index.clear();
            self.overflows = true;
            self.forgotten = self.order;
            return;
        }
        self.mark_dead(block);
        self.index.insert(block, self.changes.len() as u32);
        let place = place.unwrap_or(NOWHERE);
        self.changes.push(MapChange { block, place, write, order: self.order, dead: false });
    }

    /// Invalidates the change of a block because a later one is durable by its own record.
    #[inline]
    pub fn mark_dead(&mut self, block: u32) {
        if let Some(place) = self.index.remove(&block) {
            self.changes[place as usize].dead = true;
        }
    }

    /// Whether no change up to `order` is missing: the newest checkpoint and the changes kept here contain all of them.
    pub fn covers(&self, order: u64) -> bool {
        self.forgotten <= self.checkpointed || order <= self.checkpointed
    }

    /// The changes as runs.
    pub fn runs(&self) -> impl Iterator<Item = LogRun> {
        let mut changes = self.changes.iter().filter(|change| !change.dead).peekable();
        std::iter::from_fn(move || {
            let first = changes.next()?;
            let mut run = LogRun { block: first.block, place: first.place, blocks: 1, write: first.write };
            while let Some(next) = changes.peek() {
                let place = if run.place == NOWHERE { NOWHERE } else { run.place + run.blocks };
                if (next.block, next.place, next.write) != (run.block + run.blocks, place, run.write) {
                    break;
                }
                run.blocks += 1;
                changes.next();
            }
            Some(run)
        })
    }

    /// Drops the changes up to this number, which are recorded now.
    pub fn recorded(&mut self, order: u64) {
        if self.changes.first().is_none_or(|change| change.order > order) {
            return;
        }
        self.changes.retain(|change| change.order > order && !change.dead);
        self.index.clear();
        self.index.extend(self.changes.iter().zip(0..).map(|(change, place)| (change.block, place)));
    }

    /// Called when a checkpoint begins; returns the number that [`UnrecordedChanges::checkpointed`] expects.
    pub fn begin_checkpoint(&mut self) -> u64 {
        self.overflows = false;
        self.order
    }

    /// Called when a checkpoint is durable: drops the changes in it.
    pub fn checkpointed(&mut self, order: u64) {
        self.checkpointed = order;
        self.recorded(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_write_make_one_run_and_a_newer_one_takes_its_block() {
        let mut pending = UnrecordedChanges::new(10);
        for block in 5..9 {
            pending.change(block, Some(block + 100), 1);
        }
        pending.change(6, Some(7), 2);
        pending.change(20, None, 3);
        pending.change(21, None, 3);
        let run = |block, place, blocks, write| LogRun { block, place, blocks, write };
        let all = [run(5, 105, 1, 1), run(7, 107, 2, 1), run(6, 7, 1, 2), run(20, NOWHERE, 2, 3)];
        assert_eq!(pending.runs().collect::<Vec<_>>(), all);
        pending.recorded(4);
        assert_eq!(pending.runs().collect::<Vec<_>>(), all[2..]);
        pending.mark_dead(6);
        assert_eq!(pending.runs().collect::<Vec<_>>(), all[3..]);
    }

    #[test]
    fn beyond_the_limit_only_a_checkpoint_knows_what_changed() {
        let mut pending = UnrecordedChanges::new(2);
        for block in 0..3 {
            pending.change(block, Some(block), 1);
        }
        assert!(pending.is_empty() && !pending.covers(pending.order()));
        let begun = pending.begin_checkpoint();
        pending.change(9, Some(9), 2);
        assert!(!pending.covers(pending.order()), "the checkpoint is not durable yet");
        pending.checkpointed(begun);
        assert!(pending.covers(pending.order()));
        assert_eq!(pending.runs().count(), 1);
    }
}
