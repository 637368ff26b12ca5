//! CLOCK (Corbató, "A Paging Experiment with the Multics System", 1968): pages in a ring, each with a mark, which a touch sets. The
//! hand clears marks until it finds a page without one, which is evicted. A page is loaded without a mark.

use crate::page_hash::{Key, KeyMap};
use crate::policy::SimulatedCache;

#[derive(Clone, Debug)]
pub(crate) struct ClockCache {
    pages: usize,
    positions: KeyMap<u32>,
    ring: Vec<(Key, bool)>,
    hand: usize,
}

impl ClockCache {
    pub fn new(pages: usize) -> Self {
        Self { pages, positions: KeyMap::default(), ring: Vec::new(), hand: 0 }
    }
}

impl SimulatedCache for ClockCache {
    fn touch(&mut self, page: Key) -> bool {
        if let Some(place) = self.positions.get(&page) {
            self.ring[*place as usize].1 = true;
            return true;
        }
        if self.ring.len() < self.pages {
            self.positions.insert(page, self.ring.len() as u32);
            self.ring.push((page, false));
            return false;
        }
        while self.ring[self.hand].1 {
            self.ring[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.pages;
        }
        self.positions.remove(&self.ring[self.hand].0);
        self.positions.insert(page, self.hand as u32);
        self.ring[self.hand] = (page, false);
        self.hand = (self.hand + 1) % self.pages;
        false
    }
}
