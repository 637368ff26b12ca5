//! S3-FIFO (Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023, algorithm 1): a small queue of a
//! tenth of the cache, a main queue, and a ghost queue of pages that left the small one, as many as the main queue holds.
//!
//! A new page enters the small queue, or the main one if the ghost queue has it. At the end of the small queue, pages
//! touched more than once since go to the main queue, others leave. At the end of the main queue, a page touched since goes
//! round again with one touch less.

use std::collections::VecDeque;

use crate::hash::{Key, KeyMap};
use crate::policy::Policy;

/// Touches are counted up to this.
const MOST: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the cache, with touches since it came to its queue.
    Held(u8),
    /// In the ghost queue, from this eviction.
    Ghost(u64),
}

#[derive(Clone, Debug)]
pub(crate) struct S3Fifo {
    pages: usize,
    small_pages: usize,
    places: KeyMap<Place>,
    small: VecDeque<Key>,
    main: VecDeque<Key>,
    /// Pages with the number of the eviction that put them here; a page that came back since has another place.
    ghost: VecDeque<(Key, u64)>,
    evictions: u64,
}

impl S3Fifo {
    pub fn new(pages: usize) -> Self {
        Self {
            pages,
            small_pages: (pages / 10).max(1),
            places: KeyMap::default(),
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
            if matches!(self.places.get(&page), Some(Place::Held(2..))) {
                if self.main.len() >= self.main_pages() {
                    self.evict_main();
                }
                self.places.insert(page, Place::Held(0));
                self.main.push_back(page);
            } else {
                self.remember(page);
                return;
            }
        }
        // All of them went to the main queue.
        if self.small.len() + self.main.len() >= self.pages {
            self.evict_main();
        }
    }

    fn evict_main(&mut self) {
        while let Some(page) = self.main.pop_front() {
            if let Some(Place::Held(touches @ 1..)) = self.places.get_mut(&page) {
                *touches -= 1;
                self.main.push_back(page);
            } else {
                self.places.remove(&page);
                return;
            }
        }
    }

    /// Moves a page to the ghost queue.
    fn remember(&mut self, page: Key) {
        self.evictions += 1;
        self.places.insert(page, Place::Ghost(self.evictions));
        self.ghost.push_back((page, self.evictions));
        if self.ghost.len() > self.main_pages()
            && let Some((oldest, eviction)) = self.ghost.pop_front()
            && matches!(self.places.get(&oldest), Some(Place::Ghost(latest)) if *latest == eviction)
        {
            self.places.remove(&oldest);
        }
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, page: Key) -> bool {
        let known = match self.places.get_mut(&page) {
            Some(Place::Held(touches)) => {
                *touches = (*touches + 1).min(MOST);
                return true;
            }
            Some(Place::Ghost(_)) => true,
            None => false,
        };
        if self.small.len() + self.main.len() >= self.pages {
            self.evict();
        }
        self.places.insert(page, Place::Held(0));
        if known {
            self.main.push_back(page);
        } else {
            self.small.push_back(page);
        }
        false
    }
}
