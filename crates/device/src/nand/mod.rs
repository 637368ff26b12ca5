//! The flash: states and wear of its blocks, and the timelines of channels, ways and planes.
//!
//! This module contains no logical pages, no policy and no statistics except busy times. The FTL determines which page to program.

mod aging;
mod channel;
mod copies;
mod plane;
mod suspension;
mod timelines;

use emmclab_base::Nanos;
use emmclab_settings::DeviceSettings;

use crate::events::SuspendableOperation;
use crate::geometry::{Geometry, GroupGeometry};
use crate::ids::{BlockId, PlaneId};
use aging::BlockAging;
use plane::EraseBlock;
use timelines::FlashTimelines;

pub use aging::RetryCount;
pub(crate) use aging::{BlockRetries, mix};
pub(crate) use channel::BusTimeline;
pub(crate) use copies::{PageCopies, SourcePages};
pub use plane::BlockState;
pub(crate) use suspension::DelayedEnds;
pub(crate) use timelines::PageOperationTimes;

/// Busy time of channels, dies and planes, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlashBusyTimes {
    /// Busy time of each channel.
    pub channels: Vec<u64>,
    /// Busy time of each die.
    pub dies: Vec<u64>,
    /// Busy time of each plane.
    pub planes: Vec<u64>,
}

/// State of a block for the layers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockView {
    /// Number of programmed pages, which is also the index of the next page to program.
    pub written: u32,
    /// Number of erases so far.
    pub erases: u32,
    pub plane: PlaneId,
    pub group: u8,
    pub state: BlockState,
}

/// The result of programming the next page of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageProgramResult {
    pub page: u32,
    /// Whether the page was the last of its block.
    pub full: bool,
    pub op: PageOperationTimes,
}

/// The result of erasing a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EraseResult {
    /// Time at which the way was free and the erase had been requested. The erase begins later if the multi-plane group was busy.
    pub ready: Nanos,
    pub op: PageOperationTimes,
    /// Number of erases of the block, including this one.
    pub erases: u32,
    /// Whether the block became bad.
    pub bad: bool,
}

/// The flash of a device.
#[derive(Clone, Debug)]
pub(crate) struct Nand {
    groups: Vec<GroupGeometry>,
    blocks: Vec<EraseBlock>,
    /// Ages and reads of the data; `None` if nothing depends on them.
    aging: Option<Box<BlockAging>>,
    pub timelines: FlashTimelines,
}

impl Nand {
    /// A new flash, in which every block is erased and every timeline is free.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        let mut blocks = Vec::with_capacity(geometry.blocks() as usize);
        for plane in 0..geometry.planes {
            for (index, group) in (0u8..).zip(&geometry.groups) {
                let block = EraseBlock { written: 0, erases: 0, plane: plane as u16, group: index, state: BlockState::Free };
                blocks.extend(std::iter::repeat_n(block, group.blocks as usize));
            }
        }
        let aging = BlockAging::new(settings, geometry);
        Self { groups: geometry.groups.clone(), blocks, aging, timelines: FlashTimelines::new(settings, geometry) }
    }

    #[inline(always)]
    pub fn block(&self, block: BlockId) -> BlockView {
        let EraseBlock { written, erases, plane, group, state } = self.blocks[block.index()];
        BlockView { written, erases, plane: PlaneId(u32::from(plane)), group, state }
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    #[inline]
    pub fn next_page(&self, block: BlockId) -> u32 {
        self.blocks[block.index()].written
    }

    #[inline]
    pub fn group(&self, block: BlockId) -> u8 {
        self.blocks[block.index()].group
    }

    #[inline]
    pub fn state(&self, block: BlockId) -> BlockState {
        self.blocks[block.index()].state
    }

    /// Opens an erased block for programs, which begin at `at`.
    pub fn open(&mut self, block: BlockId, at: Nanos) {
        let entry = &mut self.blocks[block.index()];
        (entry.state, entry.written) = (BlockState::Open, 0);
        if let Some(aging) = &mut self.aging {
            aging.open(block, &self.groups[usize::from(entry.group)], at);
        }
    }

    /// The read retries of the pages of a block at `at`.
    #[inline]
    pub fn retries(&self, block: BlockId, at: Nanos) -> BlockRetries {
        let Some(aging) = &self.aging else { return BlockRetries::NONE };
        let EraseBlock { group, erases, .. } = self.blocks[block.index()];
        aging.retries(&self.groups[usize::from(group)], (block, erases), at)
    }

    /// Marks a block whose data will be moved away.
    pub fn begin_collecting(&mut self, block: BlockId) {
        self.blocks[block.index()].state = BlockState::Collecting;
    }

    /// Programs a page of an open block; `bytes` cross the bus. Skipped pages before it stay empty. Programming the last page makes the
    /// block full.
    #[inline(always)]
    pub fn program(&mut self, block: BlockId, page: u32, ready: Nanos, bytes: u32) -> PageOperationTimes {
        let entry = &mut self.blocks[block.index()];
        let group = &self.groups[usize::from(entry.group)];
        entry.written = page + 1;
        if entry.written == group.pages_per_block {
            entry.state = BlockState::Full;
        }
        let plane = PlaneId(u32::from(entry.plane));
        self.timelines.program(plane, page, group.times(page).program, ready, bytes)
    }

    /// Programs the next page of an open block. `bytes` is the amount of data that is transferred over the bus for it.
    #[inline(always)]
    pub fn program_next(&mut self, block: BlockId, ready: Nanos, bytes: u32) -> PageProgramResult {
        let entry = &mut self.blocks[block.index()];
        let group = &self.groups[usize::from(entry.group)];
        let page = entry.written;
        entry.written = page + 1;
        let full = entry.written == group.pages_per_block;
        if full {
            entry.state = BlockState::Full;
        }
        let plane = PlaneId(u32::from(entry.plane));
        let op = self.timelines.program(plane, page, group.times(page).program, ready, bytes);
        self.timelines.note_program(plane, (block, page), ready, &op);
        PageProgramResult { page, full, op }
    }

    /// Reads a page of a block, with retries that take the time `retries`; `bytes` cross the bus. A read `for_host` may suspend others.
    #[inline]
    pub fn read(
        &mut self, (block, page): (BlockId, u32), ready: Nanos, bytes: u32, retries: Nanos, for_host: bool,
    ) -> PageOperationTimes {
        let EraseBlock { plane, group, .. } = self.blocks[block.index()];
        let group = &self.groups[usize::from(group)];
        if let Some(aging) = &mut self.aging {
            aging.count_read(block, group.read_disturb_limit);
        }
        let array = group.times(page).read + retries;
        let plane = PlaneId(u32::from(plane));
        if self.timelines.suspends() {
            return self.timelines.read_and_note((plane, Some((block, page)), for_host), array, ready, bytes);
        }
        self.timelines.read(plane, page, array, ready, bytes)
    }

    /// The blocks with data that was read so often that it needs a refresh.
    #[inline]
    pub fn disturbed(&self) -> &[BlockId] {
        self.aging.as_ref().map_or(&[], |aging| &aging.disturbed)
    }

    /// The blocks with data that needs a refresh because of its age, with the times from which it does, in this order.
    pub fn due(&self) -> impl Iterator<Item = (Nanos, BlockId)> {
        self.aging.iter().flat_map(|aging| aging.due.iter().copied())
    }

    /// Reads a page of a plane and a block group whose block is not simulated; `bytes` cross the bus. `page` determines only the type of
    /// the page. A multi-plane command reads such pages as if all were the first of their blocks.
    #[inline]
    pub fn read_somewhere(
        &mut self, (plane, group, page): (PlaneId, u8, u32), ready: Nanos, bytes: u32, for_host: bool,
    ) -> PageOperationTimes {
        let array = self.groups[usize::from(group)].times(page).read;
        if self.timelines.suspends() {
            return self.timelines.read_and_note((plane, None, for_host), array, ready, bytes);
        }
        self.timelines.read(plane, 0, array, ready, bytes)
    }

    /// Begins moves of pages from block `from` to block `to`, from page `page` on. Each move begins when the flash is free, but not before
    /// `ready`.
    pub fn copies(&mut self, from: BlockId, (to, page): (BlockId, u32), ready: Nanos) -> PageCopies<'_> {
        let EraseBlock { plane, group, .. } = self.blocks[from.index()];
        let entry = &mut self.blocks[to.index()];
        let planes = (PlaneId(u32::from(plane)), PlaneId(u32::from(entry.plane)));
        let groups = (&self.groups[usize::from(group)], &self.groups[usize::from(entry.group)]);
        PageCopies::new(&mut self.timelines, planes, groups, (entry, from, to, page), ready)
    }

    /// Erases a block. The block becomes free, or bad if it has reached its erase limit. Until the end of the erase, the time of its way
    /// (chip, die or plane) counts as garbage collection.
    pub fn erase(&mut self, block: BlockId, ready: Nanos) -> EraseResult {
        let entry = &mut self.blocks[block.index()];
        let (plane, group) = (PlaneId(u32::from(entry.plane)), &self.groups[usize::from(entry.group)]);
        entry.erases += 1;
        entry.written = 0;
        let (erases, bad) = (entry.erases, group.erase_limit > 0 && entry.erases >= group.erase_limit);
        entry.state = if bad { BlockState::Bad } else { BlockState::Free };
        if let Some(aging) = &mut self.aging {
            aging.erase(block, group);
        }
        let free = self.timelines.plane_free(plane).max(ready);
        let op = self.timelines.erase(plane, group, free);
        self.timelines.note_gc(plane, free, op.end);
        if self.timelines.suspends() {
            self.timelines.note(Some(SuspendableOperation::Erase), (plane, None), ready, (op.end - op.array, op.end));
        }
        EraseResult { ready: free, op, erases, bad }
    }

    /// Whether an operation may begin before the previous one on its plane has ended (cache commands).
    pub fn overlaps(&self) -> bool {
        self.timelines.interface.cache_read || self.timelines.interface.cache_program
    }

    /// Replaces the times of operations that begin from now on. The layout of the blocks stays the same.
    pub fn reconfigure(&mut self, settings: &DeviceSettings, geometry: &Geometry) {
        self.groups.clone_from(&geometry.groups);
        self.timelines.reconfigure(settings, geometry);
    }

    /// Restarts the clock for a new run; the data is kept.
    pub fn rewind(&mut self) {
        self.timelines.rewind();
        if let Some(aging) = &mut self.aging {
            aging.rewind();
            for (block, entry) in (0..).map(BlockId).zip(&self.blocks).filter(|(_, entry)| entry.written > 0) {
                aging.watch(block, &self.groups[usize::from(entry.group)]);
            }
        }
    }

    pub fn set_erases(&mut self, block: BlockId, erases: u32) {
        self.blocks[block.index()].erases = erases;
    }

    /// Restores a block from an image.
    pub fn restore(&mut self, block: BlockId, written: u32, erases: u32, state: BlockState) {
        let entry = &mut self.blocks[block.index()];
        (entry.written, entry.erases, entry.state) = (written, erases, state);
        if let Some(aging) = self.aging.as_mut().filter(|_| written > 0) {
            aging.watch(block, &self.groups[usize::from(entry.group)]);
        }
    }
}
