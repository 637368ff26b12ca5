//! Hints of the host (HPB, JESD220-3): the host caches pages of the map in its memory. A read sends the host's entry along, so that the map
//! need not be read. Whenever the device reads a page of the map, the host caches this page too. The device recognises outdated entries,
//! because it tracks changes since.

use rustc_hash::FxHashMap;

use crate::bit_set::BitSet;
use crate::lru::LruSet;

/// Pages of the map that the host caches, in the order of their last use.
#[derive(Clone)]
pub(super) struct HpbHints {
    pages: LruSet,
    most: usize,
    /// Entries in a page.
    per_page: u32,
    /// Outdated entries of every page that the host caches.
    changed: FxHashMap<u32, BitSet>,
}

impl HpbHints {
    /// Hints of a host that caches at most `most` pages; `None` if that is 0.
    pub fn new(most: u32, per_page: u32, pages: usize) -> Option<Self> {
        let most = (most as usize).min(pages);
        (most > 0).then(|| Self { pages: LruSet::new(pages, most), most, per_page, changed: FxHashMap::default() })
    }

    /// Whether the host sends the entry of a unit along and the entry is up to date.
    pub fn has_current_entry(&mut self, unit: u32) -> bool {
        let (page, entry) = self.place(unit);
        self.changed.get(&page).is_some_and(|changed| !changed.has(entry)) && self.pages.touch(page)
    }

    /// Records that the host caches a page of the map that the device has just read.
    pub fn cache_page(&mut self, page: u32) {
        if self.pages.touch(page) {
            if let Some(changed) = self.changed.get_mut(&page) {
                changed.clear();
            }
            return;
        }
        let dropped = if self.pages.len() == self.most { self.pages.pop() } else { None };
        let mut changed =
            dropped.and_then(|page| self.changed.remove(&page)).unwrap_or_else(|| BitSet::new(self.per_page));
        changed.clear();
        self.pages.push(page);
        self.changed.insert(page, changed);
    }

    /// Records that the entry of a unit has changed.
    pub fn change(&mut self, unit: u32) {
        let (page, entry) = self.place(unit);
        if let Some(changed) = self.changed.get_mut(&page) {
            changed.insert(entry);
        }
    }

    /// Forgets all pages when the host restarts.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.changed.clear();
    }

    /// The page with the entry of a unit, and the index of the entry in it.
    fn place(&self, unit: u32) -> (u32, u32) {
        (unit / self.per_page, unit % self.per_page)
    }
}

#[cfg(test)]
mod tests {
    use super::HpbHints;

    #[test]
    fn an_entry_is_given_until_it_changes_and_again_after_its_page_was_taken() {
        let mut hints = HpbHints::new(2, 100, 10).unwrap();
        assert!(!hints.has_current_entry(250));
        hints.cache_page(2);
        assert!(hints.has_current_entry(250) && hints.has_current_entry(299) && !hints.has_current_entry(300));
        hints.change(250);
        assert!(!hints.has_current_entry(250) && hints.has_current_entry(251));
        hints.cache_page(2);
        assert!(hints.has_current_entry(250));
    }

    #[test]
    fn the_page_not_used_for_longest_makes_room() {
        let mut hints = HpbHints::new(2, 100, 10).unwrap();
        hints.cache_page(1);
        hints.change(150);
        hints.cache_page(2);
        assert!(hints.has_current_entry(199));
        hints.cache_page(3);
        assert!(!hints.has_current_entry(250) && hints.has_current_entry(199) && hints.has_current_entry(350));
        hints.cache_page(2);
        assert!(
            !hints.has_current_entry(150) && hints.has_current_entry(250),
            "what another page had changed is not counted against this one"
        );
        assert!(HpbHints::new(0, 100, 10).is_none());
    }
}
