//! Changes of the map that are complete and in no durable record yet: the next flush records them.
//!
//! Their number is bounded. Beyond it they are forgotten, and a flush waits for a checkpoint, which has the whole map.

use rustc_hash::FxHashMap;

use super::record::{NOWHERE, Run};

#[derive(Clone, Copy, Debug)]
struct Change {
    block: u32,
    /// [`NOWHERE`] where it was discarded.
    place: u32,
    write: u64,
    /// Number of the change.
    order: u64,
    /// A later change is durable by itself.
    dead: bool,
}

/// The changes, oldest first, with at most one of each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    changes: Vec<Change>,
    index: FxHashMap<u32, u32>,
    limit: usize,
    /// Changes so far.
    order: u64,
    /// Changes up to this one may have been forgotten.
    forgotten: u64,
    /// All further ones are forgotten, too, until a checkpoint begins.
    overflows: bool,
    /// Changes up to this one are durable by a checkpoint.
    checkpointed: u64,
}

impl Pending {
    /// Keeps up to `limit` changes.
    pub fn new(limit: usize) -> Self {
        let (mut changes, mut index) = (Vec::new(), FxHashMap::default());
        changes.reserve(limit);
        index.reserve(limit);
        Self { changes, index, limit, ..Self::default() }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.changes.capacity() * size_of::<Change>() + self.index.capacity() * 9) as u64
    }

    /// Number of the newest change.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many runs record all, at most.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// A block lies elsewhere; `place` is `None` if it was discarded.
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
        self.kill(block);
        self.index.insert(block, self.changes.len() as u32);
        let place = place.unwrap_or(NOWHERE);
        self.changes.push(Change { block, place, write, order: self.order, dead: false });
    }

    /// A change of a block is durable by itself, and needs no record.
    #[inline]
    pub fn kill(&mut self, block: u32) {
        if let Some(place) = self.index.remove(&block) {
            self.changes[place as usize].dead = true;
        }
    }

    /// Whether records of the changes that are there say all that changed up to `order`, beside the newest checkpoint.
    pub fn covers(&self, order: u64) -> bool {
        self.forgotten <= self.checkpointed || order <= self.checkpointed
    }

    /// The changes as runs.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let mut changes = self.changes.iter().filter(|change| !change.dead).peekable();
        std::iter::from_fn(move || {
            let first = changes.next()?;
            let mut run = Run { block: first.block, place: first.place, blocks: 1, write: first.write };
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

    /// Changes up to this one are recorded.
    pub fn recorded(&mut self, order: u64) {
        if self.changes.first().is_none_or(|change| change.order > order) {
            return;
        }
        self.changes.retain(|change| change.order > order && !change.dead);
        self.index.clear();
        self.index.extend(self.changes.iter().zip(0..).map(|(change, place)| (change.block, place)));
    }

    /// A checkpoint begins; returns what [`Pending::checkpointed`] takes.
    pub fn begin_checkpoint(&mut self) -> u64 {
        self.overflows = false;
        self.order
    }

    /// A checkpoint is durable.
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
        let mut pending = Pending::new(10);
        for block in 5..9 {
            pending.change(block, Some(block + 100), 1);
        }
        pending.change(6, Some(7), 2);
        pending.change(20, None, 3);
        pending.change(21, None, 3);
        let run = |block, place, blocks, write| Run { block, place, blocks, write };
        let all = [run(5, 105, 1, 1), run(7, 107, 2, 1), run(6, 7, 1, 2), run(20, NOWHERE, 2, 3)];
        assert_eq!(pending.runs().collect::<Vec<_>>(), all);
        pending.recorded(4);
        assert_eq!(pending.runs().collect::<Vec<_>>(), all[2..]);
        pending.kill(6);
        assert_eq!(pending.runs().collect::<Vec<_>>(), all[3..]);
    }

    #[test]
    fn beyond_the_limit_only_a_checkpoint_knows_what_changed() {
        let mut pending = Pending::new(2);
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
