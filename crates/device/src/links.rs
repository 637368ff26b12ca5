//! Lists of values in the order of their use, over one store: a value is in one list at a time, and every step takes constant time.

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    value: T,
    newer: u32,
    older: u32,
}

/// The two ends of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub oldest: u32,
    pub newest: u32,
}

impl List {
    pub const EMPTY: Self = Self { oldest: NONE, newest: NONE };
}

/// The values of all lists, each at a place that it keeps.
#[derive(Clone, Debug)]
pub(crate) struct Links<T> {
    nodes: Vec<Node<T>>,
    spare: Vec<u32>,
}

impl<T: Copy> Links<T> {
    /// An empty store with memory for `most` values.
    pub fn new(most: usize) -> Self {
        Self { nodes: Vec::with_capacity(most), spare: Vec::with_capacity(most) }
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.spare.len()
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
    pub fn add(&mut self, list: &mut List, value: T) -> u32 {
        let node = Node { value, newer: NONE, older: NONE };
        let place = if let Some(place) = self.spare.pop() {
            self.nodes[place as usize] = node;
            place
        } else {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        };
        self.link(list, place);
        place
    }

    /// Takes a value out of its list.
    pub fn remove(&mut self, list: &mut List, place: u32) -> T {
        self.unlink(list, place);
        self.spare.push(place);
        self.get(place)
    }

    /// Makes a value the newest of its list.
    #[inline]
    pub fn renew(&mut self, list: &mut List, place: u32) {
        if list.newest != place {
            self.unlink(list, place);
            self.link(list, place);
        }
    }

    /// Places of a list from the oldest to the newest.
    pub fn places(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        let next = |place: u32| (place != NONE).then_some(place);
        std::iter::successors(next(list.oldest), move |place| next(self.nodes[*place as usize].newer))
    }

    /// Place of the next newer value of the same list; [`NONE`] behind the newest.
    #[inline]
    pub fn newer(&self, place: u32) -> u32 {
        self.nodes[place as usize].newer
    }

    #[inline]
    fn link(&mut self, list: &mut List, place: u32) {
        let older = std::mem::replace(&mut list.newest, place);
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, older);
        if older == NONE {
            list.oldest = place;
        } else {
            self.nodes[older as usize].newer = place;
        }
    }

    #[inline]
    fn unlink(&mut self, list: &mut List, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
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
    use super::{Links, List};

    #[test]
    fn each_list_keeps_the_order_of_use_of_its_own_values() {
        let mut links = Links::new(4);
        let (mut even, mut odd) = (List::EMPTY, List::EMPTY);
        let places: Vec<u32> =
            (0..6).map(|i| links.add(if i % 2 == 0 { &mut even } else { &mut odd }, i)).collect();
        links.renew(&mut even, places[0]);
        assert_eq!(links.remove(&mut odd, places[3]), 3);
        links.add(&mut odd, 7);
        let values = |list| links.places(list).map(|place| links.get(place)).collect::<Vec<_>>();
        assert_eq!((values(even), values(odd), links.len()), (vec![2, 4, 0], vec![1, 5, 7], 6));
    }
}
