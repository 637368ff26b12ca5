//! S3-FIFO (Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023, algorithm 1): a small queue with a tenth of
//! the cache, a main queue, and a ghost queue of pages evicted from the small one, with as many entries as the main queue.
//!
//! A new page enters the small queue, or the main queue if it is in the ghost queue. At the end of the small queue, a page that was
//! touched more than once since it entered moves to the main queue; another page is evicted. At the end of the main queue, a page
//! that was touched is inserted again with one touch less.

use std::collections::VecDeque;

use crate::page_hash::{Key, KeyMap};
use crate::policy::SimulatedCache;

/// Highest number of touches that is counted.
const MOST: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum QueueSlot {
    /// In the cache; the number of touches since it entered its queue.
    Held(u8),
    /// In the ghost queue; the number of the eviction that put it there.
    Ghost(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct S3Fifo {
    pages: usize,
    small_pages: usize,
    slots: KeyMap<QueueSlot>,
    small: VecDeque<Key>,
    main: VecDeque<Key>,
    /// Pages with the number of the eviction that put them here; outdated if `places` has another entry for the page.
    ghost: VecDeque<(Key, u64)>,
    evictions: u64,
}

impl S3Fifo {
    pub fn new(pages: usize) -> Self {
        Self {
            pages,
            small_pages: (pages / 10).max(1),
            slots: KeyMap::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            evictions: 0,
        }
    }

    fn main_pages(&self) -> usize {
        (self.pages - self.small_pages).max(1)
    }

    fn evict(&mut self) {
        if self.small.len() >= self.small_pages || self.main.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(page) = self.small.pop_front() {
            if matches!(self.slots.get(&page), Some(QueueSlot::Held(2..))) {
                if self.main.len() >= self.main_pages() {
                    self.evict_main();
                }
                self.slots.insert(page, QueueSlot::Held(0));
                self.main.push_back(page);
            } else {
                self.remember(page);
                return;
            }
        }
        // All pages of the small queue moved to the main queue.
        if self.small.len() + self.main.len() >= self.pages {
            self.evict_main();
        }
    }

    fn evict_main(&mut self) {
        while let Some(page) = self.main.pop_front() {
            if let Some(QueueSlot::Held(touches @ 1..)) = self.slots.get_mut(&page) {
                *touches -= 1;
                self.main.push_back(page);
            } else {
                self.slots.remove(&page);
                return;
            }
        }
    }

    /// Moves a page to the ghost queue.
    fn remember(&mut self, page: Key) {
        self.evictions += 1;
        self.slots.insert(page, QueueSlot::Ghost(self.evictions));
        self.ghost.push_back((page, self.evictions));
        if self.ghost.len() > self.main_pages()
            && let Some((oldest, eviction)) = self.ghost.pop_front()
            && matches!(self.slots.get(&oldest), Some(QueueSlot::Ghost(latest)) if *latest == eviction)
        {
            self.slots.remove(&oldest);
        }
    }
}

impl SimulatedCache for S3Fifo {
    fn touch(&mut self, page: Key) -> bool {
        let known = match self.slots.get_mut(&page) {
            Some(QueueSlot::Held(touches)) => {
                *touches = (*touches + 1).min(MOST);
                return true;
            }
            Some(QueueSlot::Ghost(_)) => true,
            None => false,
        };
        if self.small.len() + self.main.len() >= self.pages {
            self.evict();
        }
        self.slots.insert(page, QueueSlot::Held(0));
        if known {
            self.main.push_back(page);
        } else {
            self.small.push_back(page);
        }
        false
    }
}
