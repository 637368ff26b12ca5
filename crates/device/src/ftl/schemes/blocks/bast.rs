//! BAST: every data block that is overwritten has its own log block (Kim, Kim, Noh, Min and Cho, "A space-efficient flash translation layer
//! for `CompactFlash` systems", IEEE Trans. Consumer Electronics 48(2), 2002).
//!
//! Pages are written to the log block in the order of arrival. A log block is merged with its data block when it is full, or when it is the
//! least recently used and another log block is needed.

use std::collections::VecDeque;

use super::io::BlockSchemeIo;
use super::{
    BlockMapLayout, BlockPlacement, BlockSchemeState, CACHED_MAPS, LOG_BLOCKS, Place, SchemeBlock, data_blocks, list, number,
    read_list, read_table,
};
use crate::events::Observer;
use crate::ids::BlockId;
use emmclab_settings::{PolicyDescription, PolicyOptions};

/// Data block and log block of every logical block.
#[derive(Clone)]
pub(crate) struct BastScheme {
    data: Vec<BlockId>,
    log: Vec<BlockId>,
    /// For each plane, the logical blocks that have a log block, with the most recently used at the back.
    used: Vec<VecDeque<u32>>,
}

impl BastScheme {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "bast",
        about: "Hybrid: a log block for each data block that is overwritten (Kim et al., IEEE Trans. Consumer Electronics 2002).",
        settings: &[LOG_BLOCKS, CACHED_MAPS],
    };

    pub fn new(_: &PolicyOptions, layout: BlockMapLayout) -> Self {
        let blocks = layout.blocks as usize;
        let used = vec![VecDeque::with_capacity(layout.logs as usize); layout.planes as usize];
        Self { data: vec![BlockId::NONE; blocks], log: vec![BlockId::NONE; blocks], used }
    }

    fn merge<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, block: u32) -> Option<()> {
        let kind = io.merge_blocks(block, &mut self.data[block as usize], self.log[block as usize])?;
        io.count_merge(kind);
        self.log[block as usize] = BlockId::NONE;
        self.used[(block % io.layout.planes) as usize].retain(|used| *used != block);
        Some(())
    }
}

impl BlockPlacement for BastScheme {
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
        let layout = io.layout;
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let log = self.log[block as usize];
            if log != BlockId::NONE {
                let written = io.written_pages(log);
                if written < layout.pages {
                    if self.used[plane].back() != Some(&block) {
                        self.used[plane].retain(|used| *used != block);
                        self.used[plane].push_back(block);
                    }
                    return Some((log, written));
                }
                self.merge(io, block)?;
                continue;
            }
            let data = io.data_block(&mut self.data[block as usize], block)?;
            if io.written_pages(data) <= offset {
                return Some((data, offset));
            }
            if self.used[plane].len() as u32 == layout.logs {
                let oldest = *self.used[plane].front()?;
                self.merge(io, oldest)?;
            }
            self.log[block as usize] = io.claim(block)?;
            self.used[plane].push_back(block);
        }
    }
}

impl BlockSchemeState for BastScheme {
    fn ram_bytes(&self, layout: BlockMapLayout, maps: u32) -> u64 {
        // RAM contains a block number for each logical block and log block, and a page number for each page of the mapped log blocks.
        let planes = u64::from(layout.planes);
        let mapped = if maps == 0 { layout.logs } else { maps.min(layout.logs) };
        let pages = u64::from(mapped) * u64::from(layout.pages);
        4 * (u64::from(layout.blocks) + planes * (u64::from(layout.logs) + pages))
    }

    fn words(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.data.iter().chain(&self.log).copied().map(number).collect();
        for used in &self.used {
            out.extend(list(used.iter().copied()));
        }
        out
    }

    fn restore(&mut self, _: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        read_table(words, &mut self.log)?;
        let planes = self.used.len();
        let mut logs = self.log.iter().filter(|log| **log != BlockId::NONE).count();
        for (plane, used) in self.used.iter_mut().enumerate() {
            *used = read_list(words, self.log.len())?.into();
            let known = |block: &u32| {
                *block as usize % planes == plane && self.log.get(*block as usize).is_some_and(|log| *log != BlockId::NONE)
            };
            logs = logs.checked_sub(used.len())?;
            used.iter().all(known).then_some(())?;
        }
        (logs == 0).then_some(())
    }

    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock> {
        let logs = data_blocks(layout, &self.log).map(|held| SchemeBlock { in_place: false, ..held });
        data_blocks(layout, &self.data).chain(logs).collect()
    }
}
