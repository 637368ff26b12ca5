//! Interned names of processes and devices.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::StringArray;
use emmclab_base::NameId;

/// A growing table of distinct names. Ids are handed out in order of first appearance and never change.
#[derive(Clone, Debug, Default)]
pub struct Names {
    list: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
}

impl Names {
    /// The id of `name`, which is added if it is new.
    pub fn intern(&mut self, name: &str) -> NameId {
        if let Some(id) = self.id(name) {
            return id;
        }
        let id = self.list.len() as u32;
        let name: Arc<str> = name.into();
        self.list.push(name.clone());
        self.ids.insert(name, id);
        NameId(id)
    }

    /// The id of `name`, where it is in the table.
    pub fn id(&self, name: &str) -> Option<NameId> {
        self.ids.get(name).copied().map(NameId)
    }

    /// The name with this id.
    pub fn get(&self, id: NameId) -> Option<&str> {
        self.list.get(id.0 as usize).map(AsRef::as_ref)
    }

    /// How many names there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True where nothing has been interned.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The names in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(AsRef::as_ref)
    }

    pub(crate) fn to_arrow(&self) -> StringArray {
        StringArray::from_iter_values(self.iter())
    }
}

/// A text in a fixed place, cut or filled with zeros.
#[inline]
pub fn fixed<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let length = text.len().min(N);
    out[..length].copy_from_slice(&text[..length]);
    out
}

/// The text up to its filling.
#[inline]
pub fn unfilled(text: &[u8]) -> &[u8] {
    text.iter().position(|byte| *byte == 0).map_or(text, |end| &text[..end])
}

/// The kernel's name of a device: `major,minor`.
pub fn device_label(major: u64, minor: u64) -> String {
    format!("{major},{minor}")
}

/// The same by its `dev_t` (major << 20 | minor).
pub fn dev_t_label(device: u32) -> String {
    device_label(u64::from(device >> 20), u64::from(device & 0xf_ffff))
}
