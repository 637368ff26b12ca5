//! Which page maps are in memory: the ones used last.

use std::collections::VecDeque;

/// Numbers of the maps in memory, the one used last at the back.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    /// How many fit; 0 = all.
    most: usize,
    maps: VecDeque<u32>,
}

impl MapCache {
    pub fn new(most: u32) -> Self {
        Self { most: most as usize, maps: VecDeque::with_capacity(most as usize) }
    }

    /// How many maps are in memory at once; 0 = all.
    pub fn most(&self) -> u32 {
        self.most as u32
    }

    /// Whether all maps are in memory.
    pub fn holds_all(&self) -> bool {
        self.most == 0
    }

    /// Uses a map; false where it has to be read first.
    pub fn touch(&mut self, map: u32) -> bool {
        if self.maps.back() == Some(&map) {
            return true;
        }
        let at = self.maps.iter().position(|held| *held == map);
        match at {
            Some(at) => drop(self.maps.remove(at)),
            None if self.maps.len() == self.most => drop(self.maps.pop_front()),
            None => {}
        }
        self.maps.push_back(map);
        at.is_some()
    }

    /// Nothing is in memory any more.
    pub fn clear(&mut self) {
        self.maps.clear();
    }
}
