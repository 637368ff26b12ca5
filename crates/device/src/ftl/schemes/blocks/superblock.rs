//! Superblocks: adjacent logical blocks share data and log blocks and a page map (Kang, Jo, Kim and Lee, "A superblock-based flash
//! translation layer for NAND flash memory", EMSOFT 2006).
//!
//! Within a superblock, a page may be in any block. Pages of the host and moved pages are written to different blocks. A superblock that
//! has used all of its log blocks collects its block with the fewest valid pages. If all log blocks of the plane are used, the least
//! recently written superblock frees its log blocks. Merges are counted as switch (a block without valid pages is erased), partial (a block
//! is collected for its own superblock) or full (for another superblock).

use super::io::BlockSchemeIo;
use super::{
    BlockMapLayout, BlockPlacement, BlockSchemeState, CACHED_MAPS, LOG_BLOCKS, Place, SchemeBlock, list, number, read_list,
};
use crate::events::{MergeKind, Observer};
use crate::ids::BlockId;
use crate::lru::LruSet;
use emmclab_settings::{PolicyDescription, PolicyOptions, PolicySetting};

const BLOCKS: PolicySetting =
    PolicySetting { key: "superblock_blocks", about: "Logical blocks in a superblock.", default: 4, range: (1, 1024) };
const MOST_LOG_BLOCKS: PolicySetting = PolicySetting {
    key: "superblock_log_blocks",
    about: "Maximum number of log blocks of a superblock.",
    default: 4,
    range: (1, 1024),
};

#[derive(Clone, Debug)]
struct SuperblockMembers {
    blocks: Vec<BlockId>,
    /// The block to which pages of the host are currently written.
    host: BlockId,
    moved: BlockId,
}

#[derive(Clone)]
pub(crate) struct SuperblockScheme {
    groups: Vec<SuperblockMembers>,
    /// Number of logical blocks in a superblock.
    size: u32,
    most_logs: u32,
    /// For each plane, the superblocks that have log blocks, in the order of their last write, numbered within the plane.
    used: Vec<LruSet>,
    planes: u32,
    /// Number of log blocks in use, for each plane.
    logs: Vec<u32>,
}

impl SuperblockScheme {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "superblock",
        about: "Hybrid: neighbouring logical blocks share data and log blocks with a page map among them (Kang et al., EMSOFT 2006).",
        settings: &[LOG_BLOCKS, BLOCKS, MOST_LOG_BLOCKS, CACHED_MAPS],
    };

    pub fn new(options: &PolicyOptions, layout: BlockMapLayout) -> Self {
        let size = BLOCKS.count(options);
        let planes = layout.planes as usize;
        Self {
            groups: vec![
                SuperblockMembers { blocks: Vec::new(), host: BlockId::NONE, moved: BlockId::NONE };
                (layout.rows.div_ceil(size) * layout.planes) as usize
            ],
            size,
            most_logs: MOST_LOG_BLOCKS.count(options),
            used: vec![LruSet::new(layout.rows.div_ceil(size) as usize, layout.logs as usize); planes],
            planes: layout.planes,
            logs: vec![0; planes],
        }
    }

    /// Number of logical blocks of a superblock. The last superblock of a plane may be smaller than the others.
    fn logical_blocks_of(&self, layout: BlockMapLayout, number: u32) -> u32 {
        self.size.min(layout.rows - number / layout.planes * self.size)
    }

    /// Number of log blocks of a superblock: its physical blocks minus its logical blocks.
    fn logs_of(&self, layout: BlockMapLayout, number: u32) -> u32 {
        let own = self.logical_blocks_of(layout, number);
        (self.groups[number as usize].blocks.len() as u32).saturating_sub(own)
    }

    /// Adds a free block to a superblock and returns the block.
    fn add<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, number: u32) -> Option<BlockId> {
        let block = io.claim(number)?;
        let before = self.logs_of(io.layout, number);
        self.groups[number as usize].blocks.push(block);
        let plane = (number % io.layout.planes) as usize;
        if self.logs_of(io.layout, number) > before {
            self.logs[plane] += 1;
            if before == 0 {
                self.used[plane].push(number / self.planes);
            }
        }
        Some(block)
    }

    /// Removes a block without valid data from a superblock, and erases it.
    fn remove<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, number: u32, block: BlockId) {
        let before = self.logs_of(io.layout, number);
        let group = &mut self.groups[number as usize];
        group.blocks.retain(|held| *held != block);
        for open in [&mut group.host, &mut group.moved] {
            if *open == block {
                *open = BlockId::NONE;
            }
        }
        let plane = (number % io.layout.planes) as usize;
        let after = self.logs_of(io.layout, number);
        if after < before {
            self.logs[plane] -= 1;
            if after == 0 {
                self.used[plane].remove(number / self.planes);
            }
        }
        io.release(block);
    }

    /// Moves all valid data out of the block of a superblock that has the fewest valid pages, and erases this block.
    fn collect<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, number: u32, merge: MergeKind) -> Option<()> {
        let group = &self.groups[number as usize];
        // A full merge may collect the block that is still being filled with host data, too.
        let useful = |block: BlockId| {
            let given_up = merge == MergeKind::Full && block == group.host;
            !io.has_room(block) || io.valid(block) == 0 || given_up
        };
        let candidates = group.blocks.iter().copied().filter(|block| useful(*block));
        let (pages, victim) = candidates.map(|block| (io.valid_pages(block), block)).min()?;
        if pages == io.layout.pages {
            return None;
        }
        let valid = io.merge_begins(victim);
        let (mut from, end) = io.places(victim);
        while let Some((place, logical)) = io.next_page_in(from, end) {
            let mut target = self.groups[number as usize].moved;
            if target == BlockId::NONE || !io.has_room(target) {
                target = self.add(io, number)?;
                self.groups[number as usize].moved = target;
            }
            let page = io.written_pages(target);
            io.copy_page((target, page), place, logical);
            from = place.plus(1);
        }
        io.count_merge(if valid == 0 { MergeKind::Switch } else { merge });
        io.merge_ends(victim, valid);
        self.remove(io, number, victim);
        Some(())
    }
}

impl BlockPlacement for SuperblockScheme {
    fn place<L: Observer>(&mut self, io: &mut BlockSchemeIo<'_, L>, logical: u32) -> Option<Place> {
        let layout = io.layout;
        let (block, _) = layout.split(logical);
        let number = layout.row(block) / self.size * layout.planes + block % layout.planes;
        let plane = (number % layout.planes) as usize;
        loop {
            let host = self.groups[number as usize].host;
            if host != BlockId::NONE {
                let written = io.written_pages(host);
                if written < layout.pages {
                    self.used[plane].touch(number / self.planes);
                    return Some((host, written));
                }
                self.groups[number as usize].host = BlockId::NONE;
            }
            if self.groups[number as usize].blocks.iter().any(|block| io.valid(*block) == 0 && !io.has_room(*block)) {
                self.collect(io, number, MergeKind::Switch)?;
            }
            let moved = self.groups[number as usize].moved;
            if moved != BlockId::NONE && io.valid(moved) == 0 {
                // The block for moved pages contains no valid pages, so host data may be written to it.
                self.groups[number as usize].host = moved;
                self.groups[number as usize].moved = BlockId::NONE;
                continue;
            }
            let own = self.logical_blocks_of(layout, number);
            let logs = self.logs_of(layout, number);
            if (self.groups[number as usize].blocks.len() as u32) < own || logs < self.most_logs && self.logs[plane] < layout.logs
            {
                self.groups[number as usize].host = self.add(io, number)?;
                continue;
            }
            let oldest = self.used[plane].oldest().map(|row| row * self.planes + plane as u32);
            match oldest.filter(|oldest| *oldest != number && logs < self.most_logs) {
                Some(oldest) => {
                    while self.logs_of(layout, oldest) > 0 {
                        self.collect(io, oldest, MergeKind::Full)?;
                    }
                }
                None => self.collect(io, number, MergeKind::Partial)?,
            }
        }
    }
}

impl BlockSchemeState for SuperblockScheme {
    fn ram_bytes(&self, layout: BlockMapLayout, maps: u32) -> u64 {
        // RAM contains a block number for each block of a superblock, and some page maps. The others are in the spare areas of the flash.
        let planes = u64::from(layout.planes);
        let all = layout.rows.div_ceil(self.size);
        let mapped = if maps == 0 { all } else { maps.min(all) };
        let pages = u64::from(mapped) * u64::from(self.size) * u64::from(layout.pages);
        4 * (u64::from(layout.blocks) + planes * (u64::from(layout.logs) + pages))
    }

    fn map_of(&self, row: u32) -> u32 {
        row / self.size
    }

    fn words(&self) -> Vec<u32> {
        let mut out = Vec::new();
        for group in &self.groups {
            out.extend([group.host.0, group.moved.0]);
            out.extend(list(group.blocks.iter().copied().map(number)));
        }
        for (plane, used) in (0..).zip(&self.used) {
            out.extend(list(used.iter().map(|row| row * self.planes + plane).collect::<Vec<_>>().into_iter()));
        }
        out
    }

    fn restore(&mut self, layout: BlockMapLayout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        for group in &mut self.groups {
            (group.host, group.moved) = (BlockId(words.next()?), BlockId(words.next()?));
            let blocks = read_list(words, (self.size + self.most_logs) as usize + 1)?;
            group.blocks = blocks.into_iter().map(BlockId).collect();
            let known = |block: BlockId| block == BlockId::NONE || group.blocks.contains(&block);
            (known(group.host) && known(group.moved)).then_some(())?;
        }
        let planes = self.used.len();
        for (plane, used) in self.used.iter_mut().enumerate() {
            for number in read_list(words, self.groups.len())? {
                let known = (number as usize) < self.groups.len() && number as usize % planes == plane;
                let row = number / self.planes;
                (known && !used.holds(row)).then_some(())?;
                used.push(row);
            }
        }
        for plane in 0..planes {
            let of_plane = (plane..self.groups.len()).step_by(planes).map(|number| number as u32);
            let with_logs: Vec<u32> = of_plane.filter(|number| self.logs_of(layout, *number) > 0).collect();
            let of_row = |row: u32| row * self.planes + plane as u32;
            let mut used: Vec<u32> = self.used[plane].iter().map(of_row).collect();
            used.sort_unstable();
            (used == with_logs).then_some(())?;
            self.logs[plane] = used.iter().map(|number| self.logs_of(layout, *number)).sum();
        }
        Some(())
    }

    fn holds(&self, layout: BlockMapLayout) -> Vec<SchemeBlock> {
        let mut out = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let from = number as u32 / layout.planes * self.size;
            let to = from + self.size;
            out.extend(group.blocks.iter().map(|block| {
                let (block, stripe) = (*block, number as u32);
                SchemeBlock { block, stripe, from, to, in_place: false }
            }));
        }
        out
    }
}
