//! Names of processes and devices over several batches and traces.

use emmclab_trace::{NameId, Names};

/// A table of names of the profile, and the index in it of each name of the current trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameMap {
    names: Names,
    ours: Vec<u32>,
    /// The table that `ours` holds for.
    followed: Names,
}

impl NameMap {
    /// Makes [`NameMap::ours`] hold for ids of this table.
    pub fn follow(&mut self, theirs: &Names) {
        // The tables of the batches of a trace share what they have in common, of which there may be millions.
        let known = if theirs.continues(&self.followed) { self.followed.len() } else { 0 };
        if known == theirs.len() {
            return;
        }
        self.followed = theirs.clone();
        for (id, name) in (known..).zip(theirs.from(known)) {
            if self.ours.get(id).and_then(|ours| self.names.get(NameId(*ours))) != Some(name) {
                let ours = self.names.intern(name).0;
                match self.ours.get_mut(id) {
                    Some(known) => *known = ours,
                    None => self.ours.push(ours),
                }
            }
        }
    }

    /// 0 for no name, else one more than our id of this name.
    #[inline]
    pub fn index(&self, theirs: Option<NameId>) -> u32 {
        theirs.and_then(|id| self.ours.get(id.0 as usize)).map_or(0, |ours| ours + 1)
    }

    /// For each index of the other map the index in this one, which takes up its names.
    pub fn merge(&mut self, other: &Self) -> Vec<u32> {
        std::iter::once(0).chain(other.names.iter().map(|name| self.names.intern(name).0 + 1)).collect()
    }

    /// The name behind an index.
    pub fn name(&self, index: usize) -> Option<&str> {
        index.checked_sub(1).and_then(|id| self.names.get(NameId(id as u32)))
    }
}
