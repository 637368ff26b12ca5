//! Lists of keys and values in the order of their last use (LRU), for the write buffer, read cache and mapping cache; and sets of numbers.
//! Every operation on a single key or value takes constant time.

use std::ops::Range;

/// A set of keys from 0 on, ordered from the oldest to the newest.
#[derive(Clone, Debug)]
pub(crate) struct LruSet {
    /// Index in `nodes` of each key, plus 1; 0 = not in the set.
    indices: Vec<u32>,
    nodes: LinkedLists<u32>,
    order: ListEnds,
}

impl LruSet {
    /// An empty set of keys below `keys`, with memory for at most `most` of them at a time.
    pub fn new(keys: usize, most: usize) -> Self {
        Self { indices: vec![0; keys], nodes: LinkedLists::new(most), order: ListEnds::EMPTY }
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.order.oldest != NO_NODE).then(|| self.nodes.get(self.order.oldest))
    }

    pub fn newest(&self) -> Option<u32> {
        (self.order.newest != NO_NODE).then(|| self.nodes.get(self.order.newest))
    }

    pub fn holds(&self, key: u32) -> bool {
        self.indices[key as usize] != 0
    }

    /// Index of a key in the set; `None` if it is not in the set. The index is below the maximum number of keys that were in the set at a
    /// time.
    #[inline]
    pub fn place(&self, key: u32) -> Option<usize> {
        self.indices[key as usize].checked_sub(1).map(|place| place as usize)
    }

    /// Adds a key as the newest; it must not be in the set.
    pub fn push(&mut self, key: u32) {
        self.put(key, false);
    }

    /// Returns the index of a key. A new key is added as the newest. A key in the set becomes the newest if `renew` is true.
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

    /// Removes a key. Returns false if it is not in the set.
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

    /// Makes a key the newest if it is in the set, without changing its index. Returns whether it is in the set.
    pub fn touch(&mut self, key: u32) -> bool {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return false };
        self.nodes.renew(&mut self.order, place);
        true
    }

    /// Makes consecutive keys the newest, in ascending order. The first key is `key`; the last one precedes the first key that is not in
    /// the set. Returns the number of these keys, which is at most `most`.
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

/// Represents the absence of a node.
pub(crate) const NO_NODE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct LinkNode<T> {
    value: T,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ListEnds {
    pub oldest: u32,
    pub newest: u32,
}

impl ListEnds {
    pub const EMPTY: Self = Self { oldest: NO_NODE, newest: NO_NODE };
}

/// Lists of values in the order of their use. All lists share one block of memory. A value is in one list at a time, and every operation on
/// a value takes constant time.
#[derive(Clone, Debug)]
pub(crate) struct LinkedLists<T> {
    nodes: Vec<LinkNode<T>>,
    /// Index of the last freed node. `newer` links each free node to the one that was freed before it.
    spare: u32,
    /// Number of free nodes.
    spares: usize,
}

impl<T: Copy> LinkedLists<T> {
    /// An empty store with memory for `most` values.
    pub fn new(most: usize) -> Self {
        Self { nodes: Vec::with_capacity(most), spare: NO_NODE, spares: 0 }
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.spares
    }

    #[inline]
    pub fn get(&self, place: u32) -> T {
        self.nodes[place as usize].value
    }

    #[inline]
    pub fn get_mut(&mut self, place: u32) -> &mut T {
        &mut self.nodes[place as usize].value
    }

    /// Adds a value to a list as its newest. Returns its index.
    #[inline]
    pub fn add(&mut self, list: &mut ListEnds, value: T) -> u32 {
        let place = self.spare;
        if place == NO_NODE {
            return self.append(list, value);
        }
        let node = &mut self.nodes[place as usize];
        node.value = value;
        self.spare = node.newer;
        self.spares -= 1;
        self.link(list, place, place);
        place
    }

    fn append(&mut self, list: &mut ListEnds, value: T) -> u32 {
        let place = self.nodes.len() as u32;
        self.nodes.push(LinkNode { value, newer: NO_NODE, older: NO_NODE });
        self.link(list, place, place);
        place
    }

    /// Removes a value from its list and returns it.
    #[inline]
    pub fn remove(&mut self, list: &mut ListEnds, place: u32) -> T {
        self.remove_chain(list, (place, place), 1);
        self.get(place)
    }

    /// Removes `count` consecutive values of a list, from index `first` to `last`.
    #[inline]
    pub fn remove_chain(&mut self, list: &mut ListEnds, (first, last): (u32, u32), count: u32) {
        self.unlink(list, first, last);
        self.nodes[last as usize].newer = std::mem::replace(&mut self.spare, first);
        self.spares += count as usize;
    }

    /// Makes a value the newest of its list.
    #[inline]
    pub fn renew(&mut self, list: &mut ListEnds, place: u32) {
        self.renew_chain(list, place, place);
    }

    /// Moves values to the newest end of their list, in the order of `places`. `places` contains the indices of the values.
    #[inline]
    pub fn renew_all(&mut self, list: &mut ListEnds, mut places: impl Iterator<Item = u32>) {
        let Some(mut first) = places.next() else { return };
        let mut last = first;
        // Values that already follow each other in the list are moved together.
        for place in places {
            if self.newer(last) != place {
                self.renew_chain(list, first, last);
                first = place;
            }
            last = place;
        }
        self.renew_chain(list, first, last);
    }

    /// Moves consecutive values of a list to its newest end. `first` is the index of the first of these values, `last` that of the last
    /// one.
    #[inline]
    fn renew_chain(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        if list.newest != last {
            self.unlink(list, first, last);
            self.link(list, first, last);
        }
    }

    /// Indices of the values of a list, from the oldest to the newest.
    pub fn places(&self, list: ListEnds) -> impl Iterator<Item = u32> + '_ {
        let next = |place: u32| (place != NO_NODE).then_some(place);
        std::iter::successors(next(list.oldest), move |place| next(self.nodes[*place as usize].newer))
    }

    /// Index of the next newer value of the same list; [`NO_NODE`] after the newest.
    #[inline]
    pub fn newer(&self, place: u32) -> u32 {
        self.nodes[place as usize].newer
    }

    /// Appends a chain of linked nodes to a list as its newest part. The chain begins at index `first` and ends at index `last`.
    #[inline]
    fn link(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        let older = std::mem::replace(&mut list.newest, last);
        self.nodes[last as usize].newer = NO_NODE;
        self.nodes[first as usize].older = older;
        if older == NO_NODE {
            list.oldest = first;
        } else {
            self.nodes[older as usize].newer = first;
        }
    }

    /// Unlinks consecutive values, from index `first` to `last`, from a list.
    #[inline]
    fn unlink(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        let (older, newer) = (self.nodes[first as usize].older, self.nodes[last as usize].newer);
        if older == NO_NODE {
            list.oldest = newer;
        } else {
            self.nodes[older as usize].newer = newer;
        }
        if newer == NO_NODE {
            list.newest = older;
        } else {
            self.nodes[newer as usize].older = older;
        }
    }
}

const WORD: u32 = u64::BITS;

#[derive(Clone, Debug)]
pub(crate) struct BitSet(Box<[u64]>);

const fn word(number: u32) -> usize {
    (number / WORD) as usize
}

const fn bit(number: u32) -> u64 {
    1 << (number % WORD)
}

/// Returns the words of a bit set that contain the numbers of a range: (index of the word, bits of the numbers).
fn words(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let stop = (at - at % WORD).saturating_add(WORD).min(end);
        let bits = u64::MAX >> (WORD - (stop - at)) << (at % WORD);
        let word = word(at);
        at = stop;
        Some((word, bits))
    })
}

impl BitSet {
    /// An empty set of numbers below `bound`.
    pub fn new(bound: u32) -> Self {
        Self(vec![0; bound.div_ceil(WORD) as usize].into_boxed_slice())
    }

    #[inline]
    pub fn has(&self, number: u32) -> bool {
        self.0[word(number)] & bit(number) != 0
    }

    #[inline]
    pub fn insert(&mut self, number: u32) {
        self.0[word(number)] |= bit(number);
    }

    #[inline]
    pub fn remove(&mut self, number: u32) {
        self.0[word(number)] &= !bit(number);
    }

    /// Inserts the numbers of a range, word by word. Returns how many of them are new.
    pub fn insert_range(&mut self, range: Range<u32>) -> u32 {
        let mut fresh = 0;
        for (word, bits) in words(range) {
            fresh += (bits & !self.0[word]).count_ones();
            self.0[word] |= bits;
        }
        fresh
    }

    /// Removes the numbers of a range, word by word.
    pub fn remove_range(&mut self, range: Range<u32>) {
        for (word, bits) in words(range) {
            self.0[word] &= !bits;
        }
    }

    /// Removes all numbers.
    pub fn clear(&mut self) {
        self.0.fill(0);
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

        #[test]
        fn values_that_move_together_stand_as_if_each_had_moved_by_itself(
            moves in prop::collection::vec((0usize..12, 1usize..6), 1..20),
        ) {
            let (mut together, mut single) = (LinkedLists::new(12), LinkedLists::new(12));
            let (mut list, mut other) = (ListEnds::EMPTY, ListEnds::EMPTY);
            let places: Vec<u32> = (0..12).map(|i| together.add(&mut list, i)).collect();
            (0..12).for_each(|i| assert_eq!(single.add(&mut other, i), places[i as usize]));
            for (from, count) in moves {
                let moved = &places[from..(from + count).min(12)];
                together.renew_all(&mut list, moved.iter().copied());
                for place in moved {
                    single.renew(&mut other, *place);
                }
                prop_assert_eq!(together.places(list).collect::<Vec<_>>(), single.places(other).collect::<Vec<_>>());
            }
            let chain: Vec<u32> = together.places(list).skip(3).take(4).collect();
            together.remove_chain(&mut list, (chain[0], chain[3]), 4);
            prop_assert_eq!((together.places(list).count(), together.len()), (8, 8));
            (0..5).for_each(|i| { together.add(&mut list, i); });
            prop_assert_eq!((together.places(list).count(), together.len()), (13, 13));
        }

        #[test]
        fn a_range_is_taken_out_and_nothing_else(from in 0u32..300, to in 0u32..300) {
            let mut set = BitSet::new(300);
            (0..300).for_each(|number| set.insert(number));
            set.remove_range(from..to);
            prop_assert!((0..300).all(|number| set.has(number) != (from..to).contains(&number)));
        }

        #[test]
        fn a_range_is_put_in_and_what_was_not_there_is_counted(from in 0u32..300, to in 0u32..300, step in 1usize..9) {
            let mut set = BitSet::new(300);
            (0..300).step_by(step).for_each(|number| set.insert(number));
            let fresh = (from..to).filter(|number| !set.has(*number)).count();
            prop_assert_eq!(set.insert_range(from..to) as usize, fresh);
            let there = |number: u32| number.is_multiple_of(step as u32) || (from..to).contains(&number);
            prop_assert!((0..300).all(|number| set.has(number) == there(number)));
        }
    }

    #[test]
    fn each_list_keeps_the_order_of_use_of_its_own_values() {
        let mut links = LinkedLists::new(4);
        let (mut even, mut odd) = (ListEnds::EMPTY, ListEnds::EMPTY);
        let places: Vec<u32> = (0..6).map(|i| links.add(if i % 2 == 0 { &mut even } else { &mut odd }, i)).collect();
        links.renew(&mut even, places[0]);
        assert_eq!(links.remove(&mut odd, places[3]), 3);
        links.add(&mut odd, 7);
        let values = |list| links.places(list).map(|place| links.get(place)).collect::<Vec<_>>();
        assert_eq!((values(even), values(odd), links.len()), (vec![2, 4, 0], vec![1, 5, 7], 6));
    }
}
