//! FIFO: evicts the page that was loaded longest ago.

use std::collections::VecDeque;

use crate::hash::{Key, KeySet};
use crate::policy::Policy;

#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    pages: usize,
    held: KeySet,
    queue: VecDeque<Key>,
}

impl Fifo {
    pub fn new(pages: usize) -> Self {
        Self { pages, held: KeySet::default(), queue: VecDeque::new() }
    }
}

impl Policy for Fifo {
    fn touch(&mut self, page: Key) -> bool {
        if !self.held.insert(page) {
            return true;
        }
        if self.queue.len() == self.pages
            && let Some(oldest) = self.queue.pop_front()
        {
            self.held.remove(&oldest);
        }
        self.queue.push_back(page);
        false
    }
}
