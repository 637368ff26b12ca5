//! Keys in the order of their last use, with every step in constant time: write buffer, read cache, mapping cache.

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u32,
    /// Towards the newest.
    newer: u32,
    /// Towards the oldest.
    older: u32,
}

/// A set of keys from 0 on, ordered from the oldest to the newest.
#[derive(Clone, Debug)]
pub(crate) struct Lru {
    /// Index in `nodes` of each key, plus 1; 0 = not in the set.
    indices: Vec<u32>,
    nodes: Vec<Node>,
    /// Nodes given up.
    spare: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// An empty set of keys below `keys`, with room for `most` of them at a time.
    pub fn new(keys: usize, most: usize) -> Self {
        Self {
            indices: vec![0; keys],
            nodes: Vec::with_capacity(most),
            spare: Vec::with_capacity(most),
            oldest: NONE,
            newest: NONE,
        }
    }

    pub fn len(&self) -> usize {
        self.nodes.len() - self.spare.len()
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then(|| self.nodes[self.oldest as usize].key)
    }

    pub fn newest(&self) -> Option<u32> {
        (self.newest != NONE).then(|| self.nodes[self.newest as usize].key)
    }

    pub fn holds(&self, key: u32) -> bool {
        self.indices[key as usize] != 0
    }

    /// Place of a key while it is in the set, below the most keys that there were at a time.
    #[inline]
    pub fn place(&self, key: u32) -> Option<usize> {
        self.indices[key as usize].checked_sub(1).map(|place| place as usize)
    }

    /// Adds a key as the newest; it must not be there.
    pub fn push(&mut self, key: u32) {
        self.put(key, false);
    }

    /// Place of a key, which comes in as the newest where it is not there, and becomes it where `renew`.
    #[inline]
    pub fn put(&mut self, key: u32, renew: bool) -> usize {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return self.add(key) };
        if renew {
            self.renew(place);
        }
        place as usize
    }

    fn add(&mut self, key: u32) -> usize {
        let node = Node { key, newer: NONE, older: NONE };
        let place = if let Some(place) = self.spare.pop() {
            self.nodes[place as usize] = node;
            place
        } else {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        };
        self.indices[key as usize] = place + 1;
        self.link(place);
        place as usize
    }

    /// Takes a key out; false where it is not there.
    pub fn remove(&mut self, key: u32) -> bool {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return false };
        self.unlink(place);
        self.indices[key as usize] = 0;
        self.spare.push(place);
        true
    }

    /// Makes a node that is in no order the newest.
    fn link(&mut self, place: u32) {
        let older = std::mem::replace(&mut self.newest, place);
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, older);
        if older == NONE {
            self.oldest = place;
        } else {
            self.nodes[older as usize].newer = place;
        }
    }

    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        if older == NONE {
            self.oldest = newer;
        } else {
            self.nodes[older as usize].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            self.nodes[newer as usize].older = older;
        }
    }

    /// The keys from the oldest to the newest.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let next = |node: u32| (node != NONE).then_some(node);
        std::iter::successors(next(self.oldest), move |node| next(self.nodes[*node as usize].newer))
            .map(|node| self.nodes[node as usize].key)
    }

    /// Takes out every key.
    pub fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// Makes a key the newest if it is there; it keeps its place.
    pub fn touch(&mut self, key: u32) -> bool {
        let Some(place) = self.indices[key as usize].checked_sub(1) else { return false };
        self.renew(place);
        true
    }

    /// Makes a node the newest.
    #[inline]
    fn renew(&mut self, place: u32) {
        if self.newest != place {
            self.unlink(place);
            self.link(place);
        }
    }

    /// Takes out the oldest key.
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
        fn it_is_a_list_in_order_of_use(steps in prop::collection::vec((0u8..4, 0u32..12), 1..200)) {
            let mut set = Lru::new(12, 4);
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
