//! Maps names of processes and devices of several batches and traces to common indices.

use emmclab_trace::{NameId, NameTable};

/// The names of the profile, and for each name of the current trace its id in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameMap {
    names: NameTable,
    profile_ids: Vec<u32>,
    /// The table to which `ours` belongs.
    trace_names: NameTable,
}

impl NameMap {
    /// Updates [`NameMap::profile_ids`] for the ids of this table.
    pub fn follow(&mut self, theirs: &NameTable) {
        // The tables of a trace's batches have a common beginning, which may have millions of names and is not processed again.
        let known = if theirs.continues(&self.trace_names) { self.trace_names.len() } else { 0 };
        if known == theirs.len() {
            return;
        }
        self.trace_names = theirs.clone();
        for (id, name) in (known..).zip(theirs.from(known)) {
            if self.profile_ids.get(id).and_then(|ours| self.names.get(NameId(*ours))) != Some(name) {
                let ours = self.names.intern(name).0;
                match self.profile_ids.get_mut(id) {
                    Some(known) => *known = ours,
                    None => self.profile_ids.push(ours),
                }
            }
        }
    }

    /// The index of a name: 0 for no name, otherwise our id plus one.
    #[inline]
    pub fn index(&self, theirs: Option<NameId>) -> u32 {
        theirs.and_then(|id| self.profile_ids.get(id.0 as usize)).map_or(0, |ours| ours + 1)
    }

    /// Adds the names of another map. Returns the index in this map for each index of the other.
    pub fn merge(&mut self, other: &Self) -> Vec<u32> {
        std::iter::once(0).chain(other.names.iter().map(|name| self.names.intern(name).0 + 1)).collect()
    }

    /// The name of an index.
    pub fn name(&self, index: usize) -> Option<&str> {
        index.checked_sub(1).and_then(|id| self.names.get(NameId(id as u32)))
    }
}
