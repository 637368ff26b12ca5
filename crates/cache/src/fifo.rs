//! FIFO: evicts the page that was loaded longest ago.

use std::collections::VecDeque;

use crate::page_hash::{Key, KeySet};
use crate::policy::SimulatedCache;

#[derive(Clone, Debug)]
pub(crate) struct FifoCache {
    pages: usize,
    resident: KeySet,
    queue: VecDeque<Key>,
}

impl FifoCache {
    pub fn new(pages: usize) -> Self {
        Self { pages, resident: KeySet::default(), queue: VecDeque::new() }
    }
}

impl SimulatedCache for FifoCache {
    fn touch(&mut self, page: Key) -> bool {
        if !self.resident.insert(page) {
            return true;
        }
        if self.queue.len() == self.pages
            && let Some(oldest) = self.queue.pop_front()
        {
            self.resident.remove(&oldest);
        }
        self.queue.push_back(page);
        false
    }
}
