//! Lists of values in the order of their use, in one shared store. A value is in one list at a time, and every operation takes constant
//! time.

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct LinkNode<T> {
    value: T,
    newer: u32,
    older: u32,
}

/// The two ends of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListEnds {
    pub oldest: u32,
    pub newest: u32,
}

impl ListEnds {
    pub const EMPTY: Self = Self { oldest: NONE, newest: NONE };
}

/// The values of all lists, each at a fixed index, its place.
#[derive(Clone, Debug)]
pub(crate) struct LinkedLists<T> {
    nodes: Vec<LinkNode<T>>,
    /// The place that was freed last, from which `newer` leads to those freed before, and the number of free places.
    spare: u32,
    spares: usize,
}

impl<T: Copy> LinkedLists<T> {
    /// An empty store with memory for `most` values.
    pub fn new(most: usize) -> Self {
        Self { nodes: Vec::with_capacity(most), spare: NONE, spares: 0 }
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

    /// Adds a value to a list as its newest; returns its place.
    #[inline]
    pub fn add(&mut self, list: &mut ListEnds, value: T) -> u32 {
        let place = self.spare;
        if place == NONE {
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
        self.nodes.push(LinkNode { value, newer: NONE, older: NONE });
        self.link(list, place, place);
        place
    }

    /// Removes a value from its list and returns it.
    #[inline]
    pub fn remove(&mut self, list: &mut ListEnds, place: u32) -> T {
        self.remove_chain(list, (place, place), 1);
        self.get(place)
    }

    /// Removes `count` consecutive values, from the first place to the last, from their list.
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

    /// Makes values of a list its newest, in the order of the given places.
    #[inline]
    pub fn renew_all(&mut self, list: &mut ListEnds, mut places: impl Iterator<Item = u32>) {
        let Some(mut first) = places.next() else { return };
        let mut last = first;
        // Places that already follow each other are moved together.
        for place in places {
            if self.newer(last) != place {
                self.renew_chain(list, first, last);
                first = place;
            }
            last = place;
        }
        self.renew_chain(list, first, last);
    }

    /// Makes consecutive values of a list, from the first place to the last, its newest.
    #[inline]
    fn renew_chain(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        if list.newest != last {
            self.unlink(list, first, last);
            self.link(list, first, last);
        }
    }

    /// The values of a list, by their indices, from the oldest to the newest.
    pub fn places(&self, list: ListEnds) -> impl Iterator<Item = u32> + '_ {
        let next = |place: u32| (place != NONE).then_some(place);
        std::iter::successors(next(list.oldest), move |place| next(self.nodes[*place as usize].newer))
    }

    /// Place of the next newer value of the same list; [`NONE`] after the newest.
    #[inline]
    pub fn newer(&self, place: u32) -> u32 {
        self.nodes[place as usize].newer
    }

    /// Appends linked values, from the first place to the last, to a list as its newest.
    #[inline]
    fn link(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        let older = std::mem::replace(&mut list.newest, last);
        self.nodes[last as usize].newer = NONE;
        self.nodes[first as usize].older = older;
        if older == NONE {
            list.oldest = first;
        } else {
            self.nodes[older as usize].newer = first;
        }
    }

    /// Unlinks consecutive values, from the first place to the last, from a list.
    #[inline]
    fn unlink(&mut self, list: &mut ListEnds, first: u32, last: u32) {
        let (older, newer) = (self.nodes[first as usize].older, self.nodes[last as usize].newer);
        if older == NONE {
            list.oldest = newer;
        } else {
            self.nodes[older as usize].newer = newer;
        }
        if newer == NONE {
            list.newest = older;
        } else {
            self.nodes[newer as usize].older = older;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LinkedLists, ListEnds};

    proptest! {
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
