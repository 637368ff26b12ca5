//! ARC (Megiddo & Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4).
//!
//! `T1` holds pages touched once recently, `T2` pages touched again; `B1` and `B2` remember the pages that were evicted from them.
//! A touch of a remembered page changes the target size of `T1` in favour of the list that should have kept the page.

use crate::page_hash::Key;
use crate::page_lists::PageLists;
use crate::policy::SimulatedCache;

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct ArcCache {
    pages: usize,
    lists: PageLists<4>,
    /// Target size of `T1`, the paper's `p`.
    target: f64,
}

impl ArcCache {
    pub fn new(pages: usize) -> Self {
        Self { pages, lists: PageLists::default(), target: 0.0 }
    }

    /// Evicts a page from `T1` or `T2` into the list that remembers its evicted pages.
    fn replace(&mut self, in_b2: bool) {
        let recent = self.lists.len(T1) as f64;
        #[expect(
            clippy::float_cmp,
            reason = "the paper's condition; both are exact where the target is whole"
        )]
        let too_many = recent > self.target || (in_b2 && recent == self.target);
        if recent > 0.0 && (too_many || self.lists.len(T2) == 0) {
            self.lists.move_oldest(T1, B1);
        } else {
            self.lists.move_oldest(T2, B2);
        }
    }

    /// Makes room for a page that is in no list (case IV).
    fn make_room(&mut self) {
        let [recent, again, recent_ghosts, ghosts] = [T1, T2, B1, B2].map(|list| self.lists.len(list));
        if recent + recent_ghosts == self.pages {
            if recent < self.pages {
                self.lists.drop_oldest(B1);
                self.replace(false);
            } else {
                self.lists.drop_oldest(T1);
            }
        } else if recent + again + recent_ghosts + ghosts >= self.pages {
            if recent + again + recent_ghosts + ghosts == 2 * self.pages {
                self.lists.drop_oldest(B2);
            }
            self.replace(false);
        }
    }
}

impl SimulatedCache for ArcCache {
    fn touch(&mut self, page: Key) -> bool {
        let ratio = |more: usize, less: usize| (more as f64 / less as f64).max(1.0);
        let list = self.lists.list_of(page);
        match list {
            Some(T1 | T2) => self.lists.put(T2, page),
            Some(ghost) => {
                let (b1, b2) = (self.lists.len(B1), self.lists.len(B2));
                self.target = if ghost == B1 {
                    (self.target + ratio(b2, b1)).min(self.pages as f64)
                } else {
                    (self.target - ratio(b1, b2)).max(0.0)
                };
                self.replace(ghost == B2);
                self.lists.put(T2, page);
            }
            None => {
                self.make_room();
                self.lists.put(T1, page);
            }
        }
        matches!(list, Some(T1 | T2))
    }
}
