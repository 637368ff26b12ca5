//! Prefetching: table entries of the commands that come next are brought into the cache together.

use std::hint::black_box;

use crate::device::Device;

/// Commands that [`Device::fetch`] takes at most.
pub const FETCHED: usize = 64;

/// Entries of the map with one mark in [`Device::backed`]: half a page of memory.
pub(crate) const MARKED: usize = 512;

impl Device {
    /// Brings into the cache what the tables hold of the units at these sectors, for at most [`FETCHED`] commands that come
    /// next: a loop that does nothing else waits for many lines of memory at once. Nothing else changes.
    #[inline]
    pub fn fetch(&mut self, sectors: &[u64]) {
        let mut slots = [0u32; FETCHED];
        for (slot, sector) in slots.iter_mut().zip(sectors) {
            let unit = (sector >> self.geometry.unit_shift) as usize;
            if self.backed.get(unit / MARKED) == Some(&false) {
                self.back(unit / MARKED);
            }
            *slot = self.map.get(unit).copied().unwrap_or(0);
        }
        let mut all = 0;
        for slot in slots {
            // Whether there is one cannot be foreseen: the first slot is there for all that have none.
            let slot = slot.saturating_sub(1);
            all ^= self.reverse.around(slot);
            all ^= u64::from(self.blocks[self.geometry.block_of(slot) as usize].valid);
        }
        black_box(all);
    }

    /// Has the system put memory behind entries of the map, and what a long request from there on may reach. Memory that is
    /// read before it is written costs two page faults, and for the second one every other processor is interrupted.
    #[cold]
    fn back(&mut self, mark: usize) {
        self.backed[mark] = true;
        for entry in [mark * MARKED, (mark + 1) * MARKED] {
            if let Some(entry) = self.map.get_mut(entry) {
                *entry |= black_box(0);
            }
        }
    }
}
