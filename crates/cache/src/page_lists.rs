//! Pages in several lists, each from the newest to the oldest; every operation takes constant time.

use crate::page_hash::{Key, KeyMap};

/// In place of a node: the end of a list.
const END: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct PageNode {
    page: Key,
    list: u8,
    newer: u32,
    older: u32,
}

#[derive(Clone, Copy, Debug)]
struct PageListEnds {
    newest: u32,
    oldest: u32,
    len: usize,
}

/// `N` lists; a page is in at most one of them.
#[derive(Clone, Debug)]
pub(crate) struct PageLists<const N: usize> {
    node_indices: KeyMap<u32>,
    nodes: Vec<PageNode>,
    free: Vec<u32>,
    ends: [PageListEnds; N],
}

impl<const N: usize> Default for PageLists<N> {
    fn default() -> Self {
        Self {
            node_indices: KeyMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            ends: [PageListEnds { newest: END, oldest: END, len: 0 }; N],
        }
    }
}

impl<const N: usize> PageLists<N> {
    pub fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }

    /// Returns the list that holds a page; `None` if none does.
    pub fn list_of(&self, page: Key) -> Option<usize> {
        self.node_indices.get(&page).map(|place| usize::from(self.nodes[*place as usize].list))
    }

    /// Makes a page the newest of a list and removes it from its previous list.
    pub fn put(&mut self, list: usize, page: Key) {
        let place = match self.node_indices.get(&page) {
            Some(place) => {
                let place = *place;
                self.unlink(place);
                place
            }
            None => self.add(page),
        };
        self.link(list, place);
    }

    /// Removes the oldest page of a list.
    pub fn drop_oldest(&mut self, list: usize) {
        let place = self.ends[list].oldest;
        if place != END {
            self.unlink(place);
            self.node_indices.remove(&self.nodes[place as usize].page);
            self.free.push(place);
        }
    }

    /// Moves the oldest page of a list to another one, as its newest.
    pub fn move_oldest(&mut self, from: usize, to: usize) {
        let place = self.ends[from].oldest;
        if place != END {
            self.unlink(place);
            self.link(to, place);
        }
    }

    fn add(&mut self, page: Key) -> u32 {
        let node = PageNode { page, list: 0, newer: END, older: END };
        let place = if let Some(place) = self.free.pop() {
            self.nodes[place as usize] = node;
            place
        } else {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        };
        self.node_indices.insert(page, place);
        place
    }

    fn link(&mut self, list: usize, place: u32) {
        let newest = self.ends[list].newest;
        let node = &mut self.nodes[place as usize];
        (node.list, node.newer, node.older) = (list as u8, END, newest);
        match newest {
            END => self.ends[list].oldest = place,
            newest => self.nodes[newest as usize].newer = place,
        }
        self.ends[list].newest = place;
        self.ends[list].len += 1;
    }

    fn unlink(&mut self, place: u32) {
        let PageNode { list, newer, older, .. } = self.nodes[place as usize];
        let list = usize::from(list);
        match newer {
            END => self.ends[list].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            END => self.ends[list].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.ends[list].len -= 1;
    }
}
