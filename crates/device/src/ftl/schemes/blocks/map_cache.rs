//! The page maps of logical blocks that are in memory: those used last.

use crate::lru::LruSet;

/// Numbers of the maps in memory.
#[derive(Clone, Debug)]
pub(super) struct PageMapCache {
    /// Capacity in maps; 0 = all maps.
    most: u32,
    maps: LruSet,
}

impl PageMapCache {
    /// A cache of at most `most` of this number of maps.
    pub fn new(most: u32, maps: u32) -> Self {
        Self { most, maps: LruSet::new(if most > 0 { maps as usize } else { 0 }, most as usize) }
    }

    /// Capacity in maps; 0 = all maps.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether all maps are in memory.
    pub fn holds_all(&self) -> bool {
        self.most == 0
    }

    /// Uses a map; returns false if it has to be read first.
    pub fn touch(&mut self, map: u32) -> bool {
        if self.maps.touch(map) {
            return true;
        }
        if self.maps.len() == self.most as usize {
            self.maps.pop();
        }
        self.maps.push(map);
        false
    }

    /// Removes all maps from memory.
    pub fn clear(&mut self) {
        self.maps.clear();
    }
}
