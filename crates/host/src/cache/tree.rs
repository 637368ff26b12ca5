//! The cached pages of a file, by index: chunks of 512 pages with bits for dirty pages and pages under write-back.

use crate::block::NONE;

const CHUNK: usize = 512;

#[derive(Debug)]
struct PageChunk {
    slots: [u32; CHUNK],
    bits: [[u64; CHUNK / 64]; 2],
}

/// The tags of a page.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageTag {
    Dirty,
    Writing,
}

/// The cached pages of a file.
#[derive(Debug, Default)]
pub(crate) struct PageTree {
    chunks: Vec<Option<Box<PageChunk>>>,
}

fn split(page: u32) -> (usize, usize) {
    (page as usize / CHUNK, page as usize % CHUNK)
}

impl PageTree {
    /// The slot of a page, if it is cached.
    #[inline]
    pub fn get(&self, page: u32) -> Option<u32> {
        let (chunk, at) = split(page);
        let slot = self.chunks.get(chunk)?.as_ref()?.slots[at];
        (slot != NONE).then_some(slot)
    }

    /// Inserts a page.
    pub fn set(&mut self, page: u32, slot: u32) {
        let (chunk, at) = split(page);
        if chunk >= self.chunks.len() {
            self.chunks.resize_with(chunk + 1, || None);
        }
        let new = || Box::new(PageChunk { slots: [NONE; CHUNK], bits: [[0; CHUNK / 64]; 2] });
        self.chunks[chunk].get_or_insert_with(new).slots[at] = slot;
    }

    /// Removes a page.
    pub fn remove(&mut self, page: u32) {
        let (chunk, at) = split(page);
        if let Some(Some(chunk)) = self.chunks.get_mut(chunk) {
            chunk.slots[at] = NONE;
            for bits in &mut chunk.bits {
                bits[at / 64] &= !(1 << (at % 64));
            }
        }
    }

    /// Sets or clears the tag of a page.
    pub fn tag(&mut self, page: u32, tag: PageTag, set: bool) {
        let (chunk, at) = split(page);
        if let Some(Some(chunk)) = self.chunks.get_mut(chunk) {
            let bit = 1 << (at % 64);
            let word = &mut chunk.bits[tag as usize][at / 64];
            *word = if set { *word | bit } else { *word & !bit };
        }
    }

    /// The first page with this tag, at or after `from`.
    pub fn next_tagged(&self, from: u32, tag: PageTag) -> Option<u32> {
        let (first, mut at) = split(from);
        for (number, chunk) in self.chunks.iter().enumerate().skip(first) {
            if let Some(chunk) = chunk {
                while at < CHUNK {
                    let bits = chunk.bits[tag as usize][at / 64] >> (at % 64);
                    if bits != 0 {
                        return Some((number * CHUNK + at) as u32 + bits.trailing_zeros());
                    }
                    at = (at / 64 + 1) * 64;
                }
            }
            at = 0;
        }
        None
    }

    /// The first cached page at or after `from`, with its slot.
    pub fn next(&self, from: u32) -> Option<(u32, u32)> {
        let (first, mut at) = split(from);
        for (number, chunk) in self.chunks.iter().enumerate().skip(first) {
            if let Some(chunk) = chunk
                && let Some(found) = (at..CHUNK).find(|at| chunk.slots[*at] != NONE)
            {
                return Some(((number * CHUNK + found) as u32, chunk.slots[found]));
            }
            at = 0;
        }
        None
    }
}
