//! The map: the place of each block, how often it was rewritten, and which pages of the map the next checkpoint must write.

use super::record::ENTRIES;

/// Bits of an entry that hold the place plus one; 0 = no place.
const PLACE: u32 = (1 << 30) - 1;
const HEAT_SHIFT: u32 = 30;
/// Highest number of rewrites that is counted.
const HOTTEST: u32 = 3;

/// The map of all blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockMap {
    entries: Vec<u32>,
    mapped: u64,
    /// Pages that changed since they were last taken, each once; and by page, whether it is among them.
    changed: Vec<u32>,
    is_changed: Vec<bool>,
}

impl BlockMap {
    /// A map of this many blocks, all without a place.
    pub fn new(blocks: u32) -> Self {
        let pages = blocks.div_ceil(ENTRIES) as usize;
        Self { entries: vec![0; blocks as usize], mapped: 0, changed: Vec::new(), is_changed: vec![false; pages] }
    }

    /// Number of blocks that have a place.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.entries.len() * 4 + self.is_changed.len() + self.changed.capacity() * 4) as u64
    }

    /// The place of a block; `None` if it was never written or was discarded.
    #[inline]
    pub fn place(&self, block: u32) -> Option<u32> {
        (self.entries[block as usize] & PLACE).checked_sub(1)
    }

    /// How often the block was rewritten since it was last moved, up to 3.
    #[inline]
    pub fn heat(&self, block: u32) -> u32 {
        self.entries[block as usize] >> HEAT_SHIFT
    }

    /// Maps a block to the place to which it was written.
    #[inline]
    pub fn write(&mut self, block: u32, place: u32) {
        let old = self.entries[block as usize];
        let heat = if old & PLACE == 0 { 0 } else { ((old >> HEAT_SHIFT) + 1).min(HOTTEST) };
        self.set(block, (place + 1) | (heat << HEAT_SHIFT));
    }

    /// Maps a block to the place to which it was moved, or where recovery found it: its count of rewrites starts again.
    #[inline]
    pub fn relocate(&mut self, block: u32, place: u32) {
        self.set(block, place + 1);
    }

    /// Removes the place of a block that was discarded.
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

    /// Number of pages that changed.
    pub fn changed(&self) -> usize {
        self.changed.len()
    }

    /// Takes the pages that changed, in order.
    pub fn take_changed(&mut self, to: &mut Vec<u32>) {
        to.clear();
        to.append(&mut self.changed);
        to.sort_unstable();
        for page in to.iter() {
            self.is_changed[*page as usize] = false;
        }
    }

    /// Returns the entries of a page in the form in which they are stored.
    pub fn page(&self, page: u32) -> &[u32] {
        let first = (page * ENTRIES) as usize;
        &self.entries[first..self.entries.len().min(first + ENTRIES as usize)]
    }

    /// Restores a page from its stored entries; false if an entry is beyond `places`.
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
        assert_eq!((table.place(5), table.mapped()), (None, 0));
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
        assert_eq!((other.place(ENTRIES * 3 + 1), other.mapped()), (Some(ENTRIES * 3 + 1), 2));
        assert!(!other.restore(3, [9].into_iter(), 8), "a place beyond the log");
    }
}
