//! Keys in the order of their last use, for write buffer, read cache and mapping cache. Every operation takes constant time.

use crate::linked_lists::{LinkedLists, ListEnds, NONE};

/// A set of keys from 0 on, ordered from the oldest to the newest.
#[derive(Clone, Debug)]
pub(crate) struct LruSet {
    /// Index in `nodes` of each key, plus 1; 0 = not in the set.
    indices: Vec<u32>,
    nodes: LinkedLists<u32>,
    order: ListEnds,
}

impl LruSet {
    /// An empty set of keys below `keys`, with room for `most` of them at a time.
    pub fn new(keys: usize, most: usize) -> Self {
        Self { indices: vec![0; keys], nodes: LinkedLists::new(most), order: ListEnds::EMPTY }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.order.oldest != NONE).then(|| self.nodes.get(self.order.oldest))
    }

    pub fn newest(&self) -> Option<u32> {
        (self.order.newest != NONE).then(|| self.nodes.get(self.order.newest))
    }

    pub fn holds(&self, key: u32) -> bool {
        self.indices[key as usize] != 0
    }

    /// Index of a key while it is in the set. It is smaller than the largest number of keys that were in the set at a time.
    #[inline]
    pub fn place(&self, key: u32) -> Option<usize> {
        self.indices[key as usize].checked_sub(1).map(|place| place as usize)
    }

    /// Adds a key as the newest; it must not be in the set.
    pub fn push(&mut self, key: u32) {
        self.put(key, false);
    }

    /// Returns the index of a key. A key that is not in the set is added as the newest; one that is becomes the newest if `renew` is set.
    #[inline]
    pub fn put(&mut self, key: u32, renew: bool) -> usize {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return self.add(key) };
        if renew {
            self.nodes.renew(&mut self.order, place);
        }
        place as usize
    }

    fn add(&mut self, key: u32) -> usize {
        let place = self.nodes.add(&mut self.order, key);
        self.indices[key as usize] = place + 1;
        place as usize
    }

    /// Removes a key; returns false if it is not in the set.
    pub fn remove(&mut self, key: u32) -> bool {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return false };
        self.nodes.remove(&mut self.order, place);
        self.indices[key as usize] = 0;
        true
    }

    /// The keys from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.places(self.order).map(|place| self.nodes.get(place))
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Makes a key the newest if it is in the set, and returns whether it is; its index stays the same.
    pub fn touch(&mut self, key: u32) -> bool {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return false };
        self.nodes.renew(&mut self.order, place);
        true
    }

    /// Makes consecutive keys from `key` on the newest, in order, up to the first that is not in the set; returns their number, at most
    /// `most`.
    #[inline]
    pub fn touch_all(&mut self, key: u32, most: u32) -> u32 {
        let indices = &self.indices[key as usize..][..most as usize];
        let there = indices.iter().take_while(|index| **index != 0).count();
        self.nodes.renew_all(&mut self.order, indices[..there].iter().map(|index| index - 1));
        there as u32
    }

    /// Removes and returns the oldest key.
    pub fn pop(&mut self) -> Option<u32> {
        let key = self.oldest()?;
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_in_order_of_use(steps in prop::collection::vec((0u8..5, 0u32..12), 1..200)) {
            let mut set = LruSet::new(12, 4);
            let mut model: Vec<u32> = Vec::new();
            for (step, key) in steps {
                match step {
                    0 if !model.contains(&key) => {
                        set.push(key);
                        model.push(key);
                    }
                    1 => {
                        prop_assert_eq!(set.remove(key), model.contains(&key));
                        model.retain(|other| *other != key);
                    }
                    2 => {
                        let there = model.contains(&key);
                        let place = set.place(key);
                        prop_assert_eq!(set.touch(key), there);
                        prop_assert_eq!(set.place(key), place);
                        model.retain(|other| *other != key);
                        if there {
                            model.push(key);
                        }
                    }
                    4 => {
                        let most = (12 - key).min(3);
                        let there = (key..key + most).take_while(|key| model.contains(key)).count() as u32;
                        prop_assert_eq!(set.touch_all(key, most), there);
                        model.retain(|other| !(key..key + there).contains(other));
                        model.extend(key..key + there);
                    }
                    3 => {
                        let wanted = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(set.pop(), wanted);
                    }
                    _ => {}
                }
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.oldest(), model.first().copied());
                prop_assert_eq!(set.newest(), model.last().copied());
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.clone());
                prop_assert!((0..12).all(|key| set.holds(key) == model.contains(&key)));
                let mut places: Vec<_> = set.iter().filter_map(|key| set.place(key)).collect();
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(places.len(), model.len());
            }
        }
    }
}
