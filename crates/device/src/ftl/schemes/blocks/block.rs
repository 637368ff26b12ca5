//! Block mapping: page `n` of a logical block is in page `n` of its block. An overwrite begins a replacement block. Valid pages before the
//! overwritten one are copied at once, those after it when the replacement is completed; so a sequential overwrite copies nothing (the
//! replacement blocks of NFTL: Ban, US patent 5,937,425).

use std::collections::VecDeque;

use super::io::BlockSchemeIo;
use super::{
    BlockMapLayout, BlockPlacement, BlockSchemeState, LOG_BLOCKS, Place, SchemeBlock, data_blocks, list, number,
    read_list, read_table,
};
use crate::events::{MergeKind, Observer};
use crate::ids::BlockId;
use emmclab_settings::{PolicyDescription, PolicyOptions};

/// A replacement block that is being written.
#[derive(Clone, Copy, Debug)]
struct ReplacementBlock {
    logical_block: u32,
    block: BlockId,
    /// Whether valid pages were copied into it before a page of the host.
    copied: bool,
}

/// The block of every logical block, and the replacement blocks.
#[derive(Clone)]
pub(crate) struct BlockScheme {
    data: Vec<BlockId>,
    /// Replacement blocks by plane, the oldest at the front.
    open: Vec<VecDeque<ReplacementBlock>>,
}

impl BlockScheme {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "block",
        about: "A logical block is stored in one physical block, each page at its own offset; an overwrite goes to a replacement block, which is completed later.",
        settings: &[LOG_BLOCKS],
    };

    pub fn new(_: &PolicyOptions, layout: BlockMapLayout) -> Self {
        let open = vec![VecDeque::with_capacity(layout.logs as usize); layout.planes as usize];
        Self { data: vec![BlockId::NONE; layout.blocks as usize], open }
    }

    fn complete<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, replacement: ReplacementBlock) -> Option<()> {
        let ReplacementBlock { logical_block, block, copied } = replacement;
        let kind = io.merge_blocks(logical_block, &mut self.data[logical_block as usize], block)?;
        io.count_merge(if copied { MergeKind::Full } else { kind });
        self.open[(logical_block % io.layout.planes) as usize]
            .retain(|replacement| replacement.logical_block != logical_block);
        Some(())
    }

    /// Copies the valid pages before page `to` into a replacement, from its first unwritten page on.
    fn copy<L: Observer>(io: &mut BlockSchemeIo<'_, L>, replacement: &mut ReplacementBlock, to: u32) {
        for offset in io.written_pages(replacement.block)..to {
            let logical = io.layout.page(replacement.logical_block, offset);
            if let Some(from) = io.place_of_page(logical) {
                io.copy_page((replacement.block, offset), from, logical);
                replacement.copied = true;
            }
        }
    }
}

impl BlockPlacement for BlockScheme {
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
        let layout = io.layout;
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let found = self.open[plane].iter().position(|open| open.logical_block == block);
            if let Some(found) = found {
                let replacement = &mut self.open[plane][found];
                if io.written_pages(replacement.block) <= offset {
                    Self::copy(io, replacement, offset);
                    return Some((replacement.block, offset));
                }
                let replacement = *replacement;
                self.complete(io, replacement)?;
                continue;
            }
            let data = io.data_block(&mut self.data[block as usize], block)?;
            if io.written_pages(data) <= offset {
                return Some((data, offset));
            }
            if self.open[plane].len() as u32 == layout.logs {
                let oldest = *self.open[plane].front()?;
                self.complete(io, oldest)?;
            }
            let fresh = io.claim(block)?;
            self.open[plane].push_back(ReplacementBlock { logical_block: block, block: fresh, copied: false });
        }
    }
}

impl BlockSchemeState for BlockScheme {
    fn ram_bytes(&self, layout: BlockMapLayout, _: u32) -> u64 {
        // A block number for each logical block and each replacement block.
        4 * (u64::from(layout.blocks) + u64::from(layout.logs) * u64::from(layout.planes))
    }

    fn words(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.data.iter().copied().map(number).collect();
        for open in &self.open {
            out.extend(list(open.iter().map(|open| open.logical_block)));
            out.extend(open.iter().flat_map(|open| [open.block.0, u32::from(open.copied)]));
        }
        out
    }

    fn restore(&mut self, _: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        let planes = self.open.len();
        for (plane, open) in self.open.iter_mut().enumerate() {
            for logical_block in read_list(words, self.data.len())? {
                let known = (logical_block as usize) < self.data.len() && logical_block as usize % planes == plane;
                let twice = open.iter().any(|open| open.logical_block == logical_block);
                (known && !twice).then_some(())?;
                let (block, copied) = (BlockId(words.next()?), words.next()? == 1);
                open.push_back(ReplacementBlock { logical_block, block, copied });
            }
        }
        Some(())
    }

    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock> {
        let open = self.open.iter().flatten().map(|open| {
            let from = layout.row(open.logical_block);
            SchemeBlock { block: open.block, stripe: open.logical_block, from, to: from + 1, in_place: true }
        });
        data_blocks(layout, &self.data).chain(open).collect()
    }
}
