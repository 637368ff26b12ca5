//! A disk whose blocks are changed in memory by the replay.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::io;

use emmclab_base::Result;
use rustc_hash::FxHashMap;

use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;

/// Blocks that were changed, by their number.
pub(crate) type Edits = FxHashMap<u64, Vec<u8>>;

/// A disk together with its changed blocks.
pub(super) struct DiskEditor<'a> {
    disk: &'a dyn DiskReader,
    block_size: usize,
    edits: RefCell<Edits>,
}

impl<'a> DiskEditor<'a> {
    pub fn new(disk: &'a dyn DiskReader, block_size: usize) -> Self {
        Self { disk, block_size, edits: RefCell::default() }
    }

    /// Writes bytes to one block or to consecutive blocks, in memory.
    pub fn write(&self, structure: DiskStructure, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let size = self.block_size as u64;
            let (block, within) = (at / size, (at % size) as usize);
            let length = rest.len().min(self.block_size - within);
            let mut edits = self.edits.borrow_mut();
            let whole = match edits.entry(block) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(empty) => {
                    let mut whole = vec![0; self.block_size];
                    structure.read(self.disk, block * size, &mut whole)?;
                    empty.insert(whole)
                }
            };
            whole[within..within + length].copy_from_slice(&rest[..length]);
            at += length as u64;
            rest = &rest[length..];
        }
        Ok(())
    }

    pub fn into_edits(self) -> Edits {
        self.edits.into_inner()
    }
}

impl DiskReader for DiskEditor<'_> {
    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(offset, buffer)?;
        lay_over(&self.edits.borrow(), self.block_size as u64, offset, buffer);
        Ok(())
    }
}

/// Copies changed blocks over the data that was read from `offset` on.
pub(crate) fn lay_over(edits: &Edits, size: u64, offset: u64, buffer: &mut [u8]) {
    if edits.is_empty() || buffer.is_empty() {
        return;
    }
    let end = offset + buffer.len() as u64;
    for block in offset / size..end.div_ceil(size) {
        let Some(bytes) = edits.get(&block) else { continue };
        let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
        buffer[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - block * size) as usize..(to - block * size) as usize]);
    }
}
