//! The cached mapping table: map entries by the time of their last use.

use crate::nand::NONE;

#[derive(Clone, Copy, Debug)]
struct Entry {
    unit: u32,
    changed: bool,
    prev: u32,
    next: u32,
}

/// Entries of at most `most` units, the one used last in front.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    most: u32,
    entries: Vec<Entry>,
    /// Entry + 1 of each unit; 0 = not in memory.
    at: Vec<u32>,
    first: u32,
    last: u32,
}

impl Cache {
    pub fn new(most: u32, units: u32) -> Self {
        let most = most.min(units);
        let entries = Vec::with_capacity(most as usize);
        Self { most, entries, at: vec![0; units as usize], first: NONE, last: NONE }
    }

    pub fn most(&self) -> u32 {
        self.most
    }

    /// Uses an entry; false where it is not in memory.
    pub fn touch(&mut self, unit: u32) -> bool {
        let Some(entry) = self.at[unit as usize].checked_sub(1) else { return false };
        if entry != self.first {
            self.unlink(entry);
            self.link(entry);
        }
        true
    }

    /// Marks an entry as changed; false where it is not in memory.
    pub fn mark(&mut self, unit: u32) -> bool {
        let Some(entry) = self.at[unit as usize].checked_sub(1) else { return false };
        self.entries[entry as usize].changed = true;
        true
    }

    /// An entry stands on the flash as it is here.
    pub fn clean(&mut self, unit: u32) {
        if let Some(entry) = self.at[unit as usize].checked_sub(1) {
            self.entries[entry as usize].changed = false;
        }
    }

    /// Gives up the entry used longest ago where there is no room; its unit where it has to be written back.
    pub fn make_room(&mut self) -> Option<u32> {
        if (self.entries.len() as u32) < self.most {
            return None;
        }
        let entry = self.last;
        let Entry { unit, changed, .. } = self.entries[entry as usize];
        self.at[unit as usize] = 0;
        changed.then_some(unit)
    }

    /// Puts an entry in the room that was made.
    pub fn insert(&mut self, unit: u32) {
        let fresh = Entry { unit, changed: false, prev: NONE, next: NONE };
        let entry = if (self.entries.len() as u32) < self.most {
            self.entries.push(fresh);
            self.entries.len() as u32 - 1
        } else {
            let entry = self.last;
            self.unlink(entry);
            self.entries[entry as usize] = fresh;
            entry
        };
        self.at[unit as usize] = entry + 1;
        self.link(entry);
    }

    fn link(&mut self, entry: u32) {
        let first = self.first;
        let node = &mut self.entries[entry as usize];
        (node.prev, node.next) = (NONE, first);
        match first {
            NONE => self.last = entry,
            first => self.entries[first as usize].prev = entry,
        }
        self.first = entry;
    }

    fn unlink(&mut self, entry: u32) {
        let Entry { prev, next, .. } = self.entries[entry as usize];
        match prev {
            NONE => self.first = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NONE => self.last = prev,
            next => self.entries[next as usize].prev = prev,
        }
    }

    pub fn words(&self) -> Vec<u32> {
        let mut out = vec![self.entries.len() as u32];
        let mut entry = self.last;
        while entry != NONE {
            let Entry { unit, changed, prev, .. } = self.entries[entry as usize];
            out.extend([unit, u32::from(changed)]);
            entry = prev;
        }
        out
    }

    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        let count = words.next()?;
        if count > self.most {
            return None;
        }
        for _ in 0..count {
            let (unit, changed) = (words.next()?, words.next()?);
            if self.at.get(unit as usize).is_none_or(|at| *at != 0) {
                return None;
            }
            self.insert(unit);
            if changed == 1 {
                self.mark(unit);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_used_longest_ago_makes_room_and_is_written_back_if_changed() {
        let mut cache = Cache::new(2, 10);
        for unit in [3, 5] {
            assert!(!cache.touch(unit));
            assert_eq!(cache.make_room(), None);
            cache.insert(unit);
        }
        assert!(cache.mark(3) && cache.touch(3) && cache.mark(5));
        assert_eq!(cache.make_room(), Some(5));
        cache.insert(7);
        cache.clean(3);
        assert_eq!(cache.make_room(), None);
        cache.insert(9);
        assert!(!cache.touch(3) && !cache.touch(5) && cache.touch(7) && cache.touch(9));
        let mut copy = Cache::new(2, 10);
        copy.restore(&mut cache.words().into_iter()).unwrap();
        assert_eq!(copy.words(), cache.words());
    }
}
