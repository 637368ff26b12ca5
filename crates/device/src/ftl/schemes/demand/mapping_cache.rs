//! The cached mapping table (CMT): map entries by the time of their last use, and which of them changed.

use crate::ids::Lpn;
use crate::lru::Lru;

/// Entries of at most `most` units.
#[derive(Clone, Debug)]
pub(super) struct MappingCache {
    most: u32,
    entries: Lru,
    /// Whether the entry of each unit differs from the one on the flash, one bit each.
    changed: Vec<u64>,
}

const fn word(unit: u32) -> usize {
    (unit / u64::BITS) as usize
}

const fn bit(unit: u32) -> u64 {
    1 << (unit % u64::BITS)
}

impl MappingCache {
    pub fn new(most: u32, units: u32) -> Self {
        let most = most.min(units);
        let changed = vec![0; word(units) + 1];
        Self { most, entries: Lru::new(units as usize, most as usize), changed }
    }

    pub fn most(&self) -> u32 {
        self.most
    }

    /// Uses an entry; false where it is not in memory.
    pub fn touch(&mut self, unit: Lpn) -> bool {
        self.entries.touch(unit.0)
    }

    /// Marks an entry as changed; false where it is not in memory.
    pub fn mark(&mut self, unit: Lpn) -> bool {
        let there = self.entries.holds(unit.0);
        if there {
            self.changed[word(unit.0)] |= bit(unit.0);
        }
        there
    }

    /// The flash has the entry as it is here.
    pub fn clean(&mut self, unit: Lpn) {
        self.changed[word(unit.0)] &= !bit(unit.0);
    }

    /// Gives up the entry used longest ago where there is no room; returns its unit where it has to be written back.
    pub fn make_room(&mut self) -> Option<Lpn> {
        if self.entries.len() < self.most as usize {
            return None;
        }
        let unit = self.entries.pop()?;
        let changed = self.changed[word(unit)] & bit(unit) != 0;
        self.clean(Lpn(unit));
        changed.then_some(Lpn(unit))
    }

    /// Puts an entry in the room that was made.
    pub fn insert(&mut self, unit: Lpn) {
        self.entries.push(unit.0);
    }

    /// The entries from the one used longest ago on, each as unit and whether it changed, with their count in front.
    pub fn words(&self) -> Vec<u32> {
        let mut out = vec![self.entries.len() as u32];
        for unit in self.entries.iter() {
            out.extend([unit, u32::from(self.changed[word(unit)] & bit(unit) != 0)]);
        }
        out
    }

    /// Takes up such entries; `None` where they are none.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>, units: u32) -> Option<()> {
        let count = words.next()?;
        if count > self.most {
            return None;
        }
        for _ in 0..count {
            let (unit, changed) = (words.next()?, words.next()?);
            if unit >= units || self.entries.holds(unit) {
                return None;
            }
            self.insert(Lpn(unit));
            if changed == 1 {
                self.mark(Lpn(unit));
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
        let mut cache = MappingCache::new(2, 10);
        for unit in [3, 5].map(Lpn) {
            assert!(!cache.touch(unit));
            assert_eq!(cache.make_room(), None);
            cache.insert(unit);
        }
        assert!(cache.mark(Lpn(3)) && cache.touch(Lpn(3)) && cache.mark(Lpn(5)));
        assert_eq!(cache.make_room(), Some(Lpn(5)));
        cache.insert(Lpn(7));
        cache.clean(Lpn(3));
        assert_eq!(cache.make_room(), None);
        cache.insert(Lpn(9));
        let there = [3, 5, 7, 9].map(|unit| cache.touch(Lpn(unit)));
        assert_eq!(there, [false, false, true, true]);
        let mut copy = MappingCache::new(2, 10);
        copy.restore(&mut cache.words().into_iter(), 10).unwrap();
        assert_eq!(copy.words(), cache.words());
    }
}
