//! The map: the location of each block in the log, its number of rewrites, the pages that the next checkpoint must write, and the changes
//! that the next flush must record.

use rustc_hash::FxHashMap;

use super::records::{ENTRIES, LogRun, NOWHERE};

/// Bits of a map entry for the location of the block plus one; 0 = no location.
const PLACE: u32 = (1 << 30) - 1;
const HEAT_SHIFT: u32 = 30;
/// Maximum count of rewrites.
const HOTTEST: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct BlockMap {
    entries: Vec<u32>,
    pub mapped: u64,
    /// Map pages that changed since the last call of `take_changed`, each once. `is_changed` is true for the pages in this list.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

impl BlockMap {
    /// Returns a map of `blocks` blocks, none of which has a location.
    pub fn new(blocks: u32) -> Self {
        let pages = blocks.div_ceil(ENTRIES) as usize;
        Self { entries: vec![0; blocks as usize], mapped: 0, changed: Vec::new(), is_changed: vec![false; pages] }
    }

    pub fn bytes(&self) -> u64 {
        (self.entries.len() * 4 + self.is_changed.len() + self.changed.capacity() * 4) as u64
    }

    /// Returns the location of a block in the log; `None` if it was never written or was discarded.
    #[inline]
    pub fn place(&self, block: u32) -> Option<u32> {
        (self.entries[block as usize] & PLACE).checked_sub(1)
    }

    /// Number of rewrites of the block since its last move, up to 3.
    #[inline]
    pub fn heat(&self, block: u32) -> u32 {
        self.entries[block as usize] >> HEAT_SHIFT
    }

    /// Maps a block to the location to which it was written.
    #[inline]
    pub fn write(&mut self, block: u32, place: u32) {
        let old = self.entries[block as usize];
        let heat = if old & PLACE == 0 { 0 } else { ((old >> HEAT_SHIFT) + 1).min(HOTTEST) };
        self.set(block, (place + 1) | (heat << HEAT_SHIFT));
    }

    /// Maps a block to its new location after a move or in recovery. The count of rewrites restarts.
    #[inline]
    pub fn relocate(&mut self, block: u32, place: u32) {
        self.set(block, place + 1);
    }

    /// Removes the location of a block that was discarded.
    pub fn discard(&mut self, block: u32) {
        self.set(block, 0);
    }

    fn set(&mut self, block: u32, entry: u32) {
        let old = std::mem::replace(&mut self.entries[block as usize], entry);
        self.mapped = self.mapped + u64::from(entry & PLACE > 0) - u64::from(old & PLACE > 0);
        let page = (block / ENTRIES) as usize;
        if !std::mem::replace(&mut self.is_changed[page], true) {
            self.changed.push(page as u32);
        }
    }

    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Moves the list of changed pages to `to`, in order.
    pub fn take_changed(&mut self, to: &mut Vec<u32>) {
        to.clear();
        to.append(&mut self.changed);
        to.sort_unstable();
        for page in to.iter() {
            self.is_changed[*page as usize] = false;
        }
    }

    /// Returns the entries of a map page in the form in which they are stored.
    pub fn page(&self, page: u32) -> &[u32] {
        let first = (page * ENTRIES) as usize;
        &self.entries[first..self.entries.len().min(first + ENTRIES as usize)]
    }

    /// Restores a map page from its stored entries. Returns false if a location in an entry is not below `places`.
    pub fn restore(&mut self, page: u32, entries: impl Iterator<Item = u32>, places: u32) -> bool {
        let first = (page * ENTRIES) as usize;
        let end = self.entries.len().min(first + ENTRIES as usize);
        for (to, entry) in self.entries[first..end].iter_mut().zip(entries) {
            if entry & PLACE > places {
                return false;
            }
            *to = entry;
            self.mapped += u64::from(entry & PLACE > 0);
        }
        true
    }
}

#[derive(Clone, Copy, Debug)]
struct MapChange {
    block: u32,
    /// The new location of the block; [`NOWHERE`] if the block was discarded.
    place: u32,
    write: u64,
    order: u64,
    /// Whether this change is obsolete, because a record with a later change of the same block is already durable.
    dead: bool,
}

/// Changes of the block map that no record in the log contains yet, the oldest first. At most one change of each block is valid.
#[derive(Clone, Debug, Default)]
pub(super) struct UnrecordedChanges {
    changes: Vec<MapChange>,
    index: FxHashMap<u32, u32>,
    limit: usize,
    /// Number of changes so far.
    order: u64,
    /// Changes up to this number may be missing: they were dropped because the list was full.
    forgotten: u64,
    /// Whether the list was full. Further changes are then dropped until the next checkpoint begins.
    overflows: bool,
    /// Changes up to this number have been made durable by a checkpoint.
    checkpointed: u64,
}

impl UnrecordedChanges {
    /// Returns a list that stores up to `limit` changes.
    pub fn new(limit: usize) -> Self {
        let (mut changes, mut index) = (Vec::new(), FxHashMap::default());
        changes.reserve(limit);
        index.reserve(limit);
        Self { changes, index, limit, ..Self::default() }
    }

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

    /// Maximum number of runs in a record of all stored changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Adds a change: the new location of a block, or `None` if it was discarded.
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

    /// Marks the stored change of a block as obsolete, because a later change of the block has been made durable by a record of its own.
    #[inline]
    pub fn mark_dead(&mut self, block: u32) {
        if let Some(place) = self.index.remove(&block) {
            self.changes[place as usize].dead = true;
        }
    }

    /// Whether the newest checkpoint and the stored changes contain all changes up to `order`.
    pub fn covers(&self, order: u64) -> bool {
        self.forgotten <= self.checkpointed || order <= self.checkpointed
    }

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

    /// Drops the changes up to this number, which are now recorded.
    pub fn recorded(&mut self, order: u64) {
        if self.changes.first().is_none_or(|change| change.order > order) {
            return;
        }
        self.changes.retain(|change| change.order > order && !change.dead);
        self.index.clear();
        self.index.extend(self.changes.iter().zip(0..).map(|(change, place)| (change.block, place)));
    }

    /// Begins a checkpoint. Returns the number of the newest change, which must be passed to [`UnrecordedChanges::checkpointed`].
    pub fn begin_checkpoint(&mut self) -> u64 {
        self.overflows = false;
        self.order
    }

    /// Called when a checkpoint is durable. Drops the changes that the checkpoint contains.
    pub fn checkpointed(&mut self, order: u64) {
        self.checkpointed = order;
        self.recorded(order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_are_counted_until_a_block_is_moved() {
        let mut table = BlockMap::new(2000);
        for heat in [0, 1, 2, 3, 3] {
            table.write(5, 7);
            assert_eq!((table.heat(5), table.place(5)), (heat, Some(7)));
        }
        table.relocate(5, (1 << 30) - 3);
        assert_eq!((table.heat(5), table.place(5)), (0, Some((1 << 30) - 3)));
        table.discard(5);
        assert_eq!((table.place(5), table.mapped), (None, 0));
    }

    #[test]
    fn a_page_is_written_once_for_all_its_changes() {
        let mut table = BlockMap::new(4 * ENTRIES);
        for block in [ENTRIES * 3, 0, 5, ENTRIES * 3 + 1] {
            table.write(block, block);
        }
        let mut pages = vec![9];
        table.take_changed(&mut pages);
        assert_eq!((pages, table.changed()), (vec![0, 3], 0));
        let mut other = BlockMap::new(4 * ENTRIES);
        assert!(other.restore(3, table.page(3).iter().copied(), 4 * ENTRIES));
        assert_eq!((other.place(ENTRIES * 3 + 1), other.mapped), (Some(ENTRIES * 3 + 1), 2));
        assert!(!other.restore(3, [9].into_iter(), 8), "a place beyond the log");
    }

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
