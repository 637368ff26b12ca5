//! FAST: log blocks are not assigned to data blocks (Lee, Park, Chung, Lee, Park and Song, "A log buffer-based flash translation layer
//! using fully-associative sector translation", ACM TECS 6(3), 2007).
//!
//! One log block of a plane is sequential: it begins with the first page of a logical block and continues while the pages are consecutive.
//! The other log blocks accept any page. To empty the oldest of them, every logical block that has pages in it is merged.

use std::collections::VecDeque;

use super::io::BlockSchemeIo;
use super::{
    BlockMapLayout, BlockPlacement, BlockSchemeState, CACHED_MAPS, LOG_BLOCKS, Place, SchemeBlock, data_blocks, list, number,
    read_list, read_table,
};
use crate::events::Observer;
use crate::ids::BlockId;
use emmclab_settings::{PolicyDescription, PolicyOptions, PolicySetting};

/// Setting for the number of log blocks. The minimum is two, because one log block is sequential.
const SHARED_LOG_BLOCKS: PolicySetting = PolicySetting { range: (2, 1 << 16), ..LOG_BLOCKS };

#[derive(Clone, Debug)]
struct PlaneLogBlocks {
    /// The sequential log block: (its logical block, its physical block).
    sequential: Option<(u32, BlockId)>,
    /// The log blocks that accept any page; the oldest is at the front.
    random: VecDeque<BlockId>,
}

/// State of the FAST scheme: data blocks, and the log blocks of each plane.
#[derive(Clone)]
pub(crate) struct FastScheme {
    data: Vec<BlockId>,
    logs: Vec<PlaneLogBlocks>,
}

impl FastScheme {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "fast",
        about: "Hybrid: log blocks shared by all data blocks, one of them sequential (Lee et al., ACM TECS 2007).",
        settings: &[SHARED_LOG_BLOCKS, CACHED_MAPS],
    };

    pub fn new(_: &PolicyOptions, layout: BlockMapLayout) -> Self {
        let logs = PlaneLogBlocks { sequential: None, random: VecDeque::with_capacity(layout.logs as usize) };
        Self { data: vec![BlockId::NONE; layout.blocks as usize], logs: vec![logs; layout.planes as usize] }
    }

    /// Merges all data of a logical block. This includes the sequential log block if it belongs to the logical block.
    fn merge<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, block: u32) -> Option<()> {
        let logs = &mut self.logs[(block % io.layout.planes) as usize];
        let own = logs.sequential.take_if(|(of, _)| *of == block).map_or(BlockId::NONE, |(_, log)| log);
        let kind = io.merge_blocks(block, &mut self.data[block as usize], own)?;
        io.count_merge(kind);
        Some(())
    }

    /// Merges every logical block that has pages in the oldest random log block, and erases that log block.
    fn empty_oldest<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, plane: usize) -> Option<()> {
        let log = *self.logs[plane].random.front()?;
        let (mut from, end) = io.places(log);
        while let Some((place, page)) = io.next_page_in(from, end) {
            let (block, _) = io.layout.split(page);
            self.merge(io, block)?;
            from = place.plus(1);
        }
        self.logs[plane].random.pop_front();
        io.release(log);
        Some(())
    }
}

impl BlockPlacement for FastScheme {
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
        let layout = io.layout;
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let data = io.data_block(&mut self.data[block as usize], block)?;
            if io.written_pages(data) <= offset {
                return Some((data, offset));
            }
            if let Some((of, log)) = self.logs[plane].sequential
                && of == block
                && offset > 0
                && io.written_pages(log) == offset
            {
                return Some((log, offset));
            }
            if offset == 0 {
                if let Some((of, _)) = self.logs[plane].sequential {
                    self.merge(io, of)?;
                    // The merge may just have replaced the data block `block`, so it is looked up again.
                    if of == block {
                        continue;
                    }
                }
                let log = io.claim(block)?;
                self.logs[plane].sequential = Some((block, log));
                return Some((log, 0));
            }
            if let Some(log) = self.logs[plane].random.back() {
                let written = io.written_pages(*log);
                if written < layout.pages {
                    return Some((*log, written));
                }
            }
            if self.logs[plane].random.len() as u32 + 1 >= layout.logs {
                self.empty_oldest(io, plane)?;
                continue;
            }
            let log = io.claim(block)?;
            self.logs[plane].random.push_back(log);
        }
    }
}

impl BlockSchemeState for FastScheme {
    fn ram_bytes(&self, layout: BlockMapLayout, _: u32) -> u64 {
        // RAM contains a block number for each logical block and log block, and a logical page number for each page of the log blocks. All
        // logical blocks share the log blocks, so these page numbers always stay in memory.
        let logs = u64::from(layout.logs) * u64::from(layout.planes);
        4 * (u64::from(layout.blocks) + logs + logs * u64::from(layout.pages))
    }

    fn words(&self) -> Vec<u32> {
        let mut out: Vec<u32> = self.data.iter().copied().map(number).collect();
        for logs in &self.logs {
            let (block, log) = logs.sequential.unwrap_or((u32::MAX, BlockId::NONE));
            out.extend([block, log.0]);
            out.extend(list(logs.random.iter().copied().map(number)));
        }
        out
    }

    fn restore(&mut self, _: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        let planes = self.logs.len();
        for (plane, logs) in self.logs.iter_mut().enumerate() {
            let (block, log) = (words.next()?, BlockId(words.next()?));
            if log != BlockId::NONE {
                let known = (block as usize) < self.data.len() && block as usize % planes == plane;
                logs.sequential = Some(known.then_some((block, log))?);
            }
            logs.random = read_list(words, 1 << 20)?.into_iter().map(BlockId).collect();
        }
        Some(())
    }

    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock> {
        let mut out: Vec<SchemeBlock> = data_blocks(layout, &self.data).collect();
        for (plane, logs) in self.logs.iter().enumerate() {
            let stripe = plane as u32;
            if let Some((of, block)) = logs.sequential {
                let from = layout.row(of);
                out.push(SchemeBlock { block, stripe, from, to: from + 1, in_place: true });
            }
            out.extend(logs.random.iter().map(|block| {
                let (block, to) = (*block, layout.rows);
                SchemeBlock { block, stripe, from: 0, to, in_place: false }
            }));
        }
        out
    }
}
