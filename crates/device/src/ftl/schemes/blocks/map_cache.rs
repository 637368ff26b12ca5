//! Which page maps of logical blocks are in memory: the ones used last.

use crate::lru::Lru;

/// Numbers of the maps in memory.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    /// How many fit; 0 = all.
    most: u32,
    maps: Lru,
}

impl MapCache {
    /// Room for `most` of this many maps.
    pub fn new(most: u32, maps: u32) -> Self {
        Self { most, maps: Lru::new(if most > 0 { maps as usize } else { 0 }, most as usize) }
    }

    /// How many maps are in memory at once; 0 = all.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Whether all maps are in memory.
    pub fn holds_all(&self) -> bool {
        self.most == 0
    }

    /// Uses a map; false if it has to be read first.
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

    /// Nothing is in memory any more.
    pub fn clear(&mut self) {
        self.maps.clear();
    }
}
