//! Interned names of processes and devices.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow_array::StringArray;

use crate::NameId;

/// Number of names in a part of the table; clones share complete parts.
const PART: usize = 1 << 10;

/// A growing table of distinct names. Ids are assigned in the order of first appearance and never change.
///
/// A clone shares the names, so that each batch of a trace can keep the table as it was when the batch was made. Cloning copies a pointer
/// for every [`PART`] names, and fewer than [`PART`] other names. A clone builds its own index at its first lookup.
#[derive(Debug, Default)]
pub struct NameTable {
    full: Vec<Arc<[Arc<str>]>>,
    /// The names after the last complete part.
    last: Vec<Arc<str>>,
    ids: OnceLock<HashMap<Arc<str>, u32>>,
}

impl Clone for NameTable {
    fn clone(&self) -> Self {
        Self { full: self.full.clone(), last: self.last.clone(), ids: OnceLock::new() }
    }
}

impl NameTable {
    /// The id of `name`, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let id = self.len() as u32;
        let name: Arc<str> = name.into();
        self.last.push(name.clone());
        if self.last.len() == PART {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        if let Some(ids) = self.ids.get_mut() {
            ids.insert(name, id);
        }
        NameId(id)
    }

    /// The id of `name`; `None` if it is not in the table.
    pub fn id(&self, name: &str) -> Option<NameId> {
        let index = || self.parts().flatten().cloned().zip(0..).collect();
        self.ids.get_or_init(index).get(name).copied().map(NameId)
    }

    /// The name with this id; `None` if there is none.
    pub fn get(&self, id: NameId) -> Option<&str> {
        let (part, place) = (id.0 as usize / PART, id.0 as usize % PART);
        let part = match self.full.get(part) {
            Some(full) => full,
            None if part == self.full.len() => self.last.as_slice(),
            None => return None,
        };
        part.get(place).map(AsRef::as_ref)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.full.len() * PART + self.last.len()
    }

    /// Whether the table has no names.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_empty()
    }

    /// The names in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.from(0)
    }

    /// The names in order of id, from the id `first` on.
    pub fn from(&self, first: usize) -> impl Iterator<Item = &str> {
        let (part, place) = (first / PART, first % PART);
        self.parts().skip(part).flatten().skip(place).map(AsRef::as_ref)
    }

    /// Whether this table contains all names of `earlier` with the same ids because one is a clone of the other. False if equal
    /// names were interned separately.
    pub fn continues(&self, earlier: &Self) -> bool {
        let tail = self.full.get(earlier.full.len()).map_or(self.last.as_slice(), AsRef::as_ref);
        self.full.len() >= earlier.full.len()
            && tail.len() >= earlier.last.len()
            && self.full.iter().zip(&earlier.full).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs))
            && tail.iter().zip(&earlier.last).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs))
    }

    fn parts(&self) -> impl Iterator<Item = &[Arc<str>]> {
        self.full.iter().map(AsRef::as_ref).chain(std::iter::once(self.last.as_slice()))
    }

    pub(crate) fn to_arrow(&self) -> StringArray {
        // Arrow needs the number of names in advance, so they are collected first.
        StringArray::from_iter_values(self.iter().collect::<Vec<_>>())
    }
}

/// A growing table of names with shared snapshots for batches.
#[derive(Debug, Default)]
pub struct GrowingNameTable {
    names: NameTable,
    shared: Arc<NameTable>,
}

impl GrowingNameTable {
    /// Adds a name; see [`NameTable::intern`].
    pub fn intern(&mut self, name: &str) -> NameId {
        self.names.intern(name)
    }

    /// The current table.
    pub fn names(&self) -> &NameTable {
        &self.names
    }

    /// The table, to add names.
    pub fn names_mut(&mut self) -> &mut NameTable {
        &mut self.names
    }

    /// The current table, to share with a batch.
    pub fn shared(&mut self) -> &Arc<NameTable> {
        // Tables only grow, so equal lengths mean equal tables.
        if self.shared.len() != self.names.len() {
            self.shared = Arc::new(self.names.clone());
        }
        &self.shared
    }
}

/// A text in an array of `N` bytes, truncated or padded with zeros.
#[inline]
pub fn fixed<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let length = text.len().min(N);
    out[..length].copy_from_slice(&text[..length]);
    out
}

/// The text without the padding of [`fixed`], up to its first zero byte.
#[inline]
pub fn unfilled(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == 0).map_or(text, |end| &text[..end])
}

/// The kernel's name of a device: `major,minor`.
pub fn device_label(major: u64, minor: u64) -> String {
    format!("{major},{minor}")
}

/// The kernel's name of a device, from its device number (major << 20 | minor).
pub fn dev_t_label(device: u32) -> String {
    device_label(u64::from(device >> 20), u64::from(device & 0xf_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: std::ops::Range<usize>) -> NameTable {
        let mut table = NameTable::default();
        for name in names {
            table.intern(&name.to_string());
        }
        table
    }

    #[test]
    fn ids_are_places_in_order_of_appearance_however_many_names_there_are() {
        let mut names = table(0..3 * PART + 5);
        assert_eq!(names.len(), 3 * PART + 5);
        for place in [0, 1, PART - 1, PART, 3 * PART - 1, 3 * PART, 3 * PART + 4] {
            let id = NameId(place as u32);
            assert_eq!(names.get(id), Some(place.to_string().as_str()));
            assert_eq!((names.id(&place.to_string()), names.intern(&place.to_string())), (Some(id), id));
            let rest: Vec<_> = names.from(place).map(|name| name.parse::<usize>().unwrap()).collect();
            assert_eq!(rest, (place..names.len()).collect::<Vec<_>>());
        }
        assert_eq!((names.get(NameId(names.len() as u32)), names.id("none")), (None, None));
        assert_eq!(names.get(NameId(u32::MAX)), None);
        assert_eq!(names.to_arrow().iter().count(), names.len());
    }

    #[test]
    fn a_clone_keeps_the_table_as_it_was_and_grows_by_itself() {
        for length in [0, 3, PART - 1, PART, 2 * PART + 1] {
            let mut names = table(0..length);
            let mut before = names.clone();
            let new = names.intern("new");
            assert_eq!((before.len(), before.id("new"), before.get(new)), (length, None, None));
            assert_eq!((before.intern("other"), before.get(new)), (new, Some("other")));
            assert_eq!(names.get(new), Some("new"));
        }
    }

    #[test]
    fn a_table_continues_its_earlier_states_only() {
        let mut names = table(0..0);
        let mut states = Vec::new();
        for name in 0..2 * PART + 7 {
            if name % 100 == 0 {
                states.push(names.clone());
            }
            names.intern(&name.to_string());
        }
        assert!(states.iter().all(|state| names.continues(state) && names.continues(&names.clone())));
        assert!(!states[20].continues(&names));
        let mut other = states[3].clone();
        other.intern("another");
        assert!(other.continues(&states[3]) && !names.continues(&other));
    }
}
