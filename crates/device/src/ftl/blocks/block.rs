//! Block mapping: page `n` of a logical block lies in page `n` of its block. An overwrite begins a replacement block; pages before it
//! are copied at once, those behind it when the replacement is completed, so that a sequential overwrite copies nothing
//! (the replacement blocks of NFTL: Ban, US patent 5,937,425).

use std::collections::VecDeque;

use super::merge::Merge;
use super::{Held, Layout, Place, Placement, Scheme, data_blocks, list, read_list, read_table};
use crate::config::Settings;
use crate::device::Device;
use crate::event::Observer;
use crate::nand::NONE;

/// A block that is being written anew.
#[derive(Clone, Copy, Debug)]
struct Replacement {
    logical_block: u32,
    block: u32,
    /// Whether pages were copied into it before the host's.
    copied: bool,
}

/// The block of every logical block, and the replacements.
pub(crate) struct Block {
    data: Vec<u32>,
    /// By plane, the one begun first at the front.
    open: Vec<VecDeque<Replacement>>,
}

impl Block {
    pub fn new(_: &Settings, layout: Layout) -> Self {
        let open = vec![VecDeque::with_capacity(layout.logs as usize); layout.planes as usize];
        Self { data: vec![NONE; layout.blocks as usize], open }
    }

    fn complete<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        replacement: Replacement,
        ready: i64,
        observer: &mut O,
    ) -> Option<()> {
        let Replacement { logical_block, block, copied } = replacement;
        let pair = (&mut self.data[logical_block as usize], block);
        let kind = device.merge_blocks(layout, logical_block, pair, ready, observer)?;
        device.count_merge(if copied { Merge::Full } else { kind });
        self.open[(logical_block % layout.planes) as usize]
            .retain(|replacement| replacement.logical_block != logical_block);
        Some(())
    }

    /// Copies what is valid of the pages `from..to` into a replacement.
    fn copy<O: Observer>(
        device: &mut Device,
        layout: Layout,
        replacement: &mut Replacement,
        to: u32,
        ready: i64,
        observer: &mut O,
    ) {
        for offset in device.blocks[replacement.block as usize].written..to {
            let logical = layout.page(replacement.logical_block, offset);
            replacement.copied |= device.copy_logical((replacement.block, offset), logical, ready, observer);
        }
    }
}

impl Placement for Block {
    fn place<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        logical: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<Place> {
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let found = self.open[plane].iter().position(|open| open.logical_block == block);
            if let Some(found) = found {
                let replacement = &mut self.open[plane][found];
                if device.blocks[replacement.block as usize].written <= offset {
                    Self::copy(device, layout, replacement, offset, ready, observer);
                    return Some((replacement.block, offset));
                }
                let replacement = *replacement;
                self.complete(device, layout, replacement, ready, observer)?;
                continue;
            }
            let data = device.data_block(&mut self.data[block as usize], block)?;
            if device.blocks[data as usize].written <= offset {
                return Some((data, offset));
            }
            if self.open[plane].len() as u32 == layout.logs {
                let oldest = *self.open[plane].front()?;
                self.complete(device, layout, oldest, ready, observer)?;
            }
            let fresh = device.claim(block)?;
            self.open[plane].push_back(Replacement { logical_block: block, block: fresh, copied: false });
        }
    }
}

impl Scheme for Block {
    fn ram_bytes(&self, layout: Layout, _: u32) -> u64 {
        // A block number for each logical block and replacement.
        4 * (u64::from(layout.blocks) + u64::from(layout.logs) * u64::from(layout.planes))
    }

    fn words(&self) -> Vec<u32> {
        let mut out = self.data.clone();
        for open in &self.open {
            out.extend(list(open.iter().map(|open| open.logical_block)));
            out.extend(open.iter().flat_map(|open| [open.block, u32::from(open.copied)]));
        }
        out
    }

    fn restore(&mut self, _: Layout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        let planes = self.open.len();
        for (plane, open) in self.open.iter_mut().enumerate() {
            for logical_block in read_list(words, self.data.len())? {
                let known =
                    (logical_block as usize) < self.data.len() && logical_block as usize % planes == plane;
                let twice = open.iter().any(|open| open.logical_block == logical_block);
                (known && !twice).then_some(())?;
                let (block, copied) = (words.next()?, words.next()? == 1);
                open.push_back(Replacement { logical_block, block, copied });
            }
        }
        Some(())
    }

    fn holds(&self, layout: Layout) -> Vec<Held> {
        let open = self.open.iter().flatten().map(|open| {
            let from = layout.row(open.logical_block);
            Held { block: open.block, stripe: open.logical_block, from, to: from + 1, in_place: true }
        });
        data_blocks(layout, &self.data).chain(open).collect()
    }
}
