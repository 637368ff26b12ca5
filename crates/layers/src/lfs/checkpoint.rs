//! Checkpoints: the pages of the map that changed, followed by a pack, which names the valid copy of each page.
//!
//! The pack is written to both slots, one after the other, first to the slot whose pack is damaged or older. A power cut leaves at
//! least one of them intact, and afterwards damage to one of them does no harm. Pages overwrite the copies that neither slot names.
//! A checkpoint begins only while no request in progress is its own record: such a record would have a lower number than the
//! checkpoint but contain newer changes.

use emmclab_base::{CommandFlags, Op};

use super::LfsLayer;
use super::record::{CheckpointPack, SECTOR, page_bytes};
use crate::plan::CommandPlan;

/// Maximum number of changed pages of the map between two checkpoints: a checkpoint is prepared in memory.
const MOST_PAGES: usize = 2048;

/// State of the checkpoints.
#[derive(Clone, Debug)]
pub(super) struct LfsCheckpointState {
    /// Number of the newest checkpoint.
    pub number: u64,
    /// By page of the map: 0 = never written, otherwise 1 + the valid copy.
    pub copies: Vec<u8>,
    /// The slot that is written first.
    pub first_slot: u64,
    /// Blocks logged since the newest checkpoint began.
    logged: u64,
    is_wanted: bool,
    /// A checkpoint is due, and waits for requests that are their own records.
    waits: bool,
    /// Number of the newest change that the checkpoint in progress contains.
    order: u64,
    pages: Vec<u32>,
}

impl LfsCheckpointState {
    /// The state before the first checkpoint, for a map of this many pages.
    pub fn new(pages: u32) -> Self {
        Self {
            number: 0,
            first_slot: 0,
            copies: vec![0; pages as usize],
            logged: 0,
            is_wanted: false,
            waits: false,
            order: 0,
            pages: Vec::new(),
        }
    }

    /// Requests a checkpoint as soon as possible.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Counts blocks that were written to a log.
    #[inline]
    pub fn add_logged(&mut self, blocks: u32) {
        self.logged += u64::from(blocks);
    }

    /// Whether a checkpoint waits for requests that are their own records; no more of these may begin.
    pub fn is_due(&self) -> bool {
        self.waits
    }

    /// The valid copies in the form stored in a pack: two bits for each page.
    fn table(&self) -> Vec<u8> {
        let bits = |four: &[u8]| four.iter().rev().fold(0, |bits, copy| (bits << 2) | copy);
        self.copies.chunks(4).map(bits).collect()
    }

    /// Restores the valid copies from a pack; false if an entry is invalid.
    pub fn restore(&mut self, table: &[u8]) -> bool {
        for (page, copy) in self.copies.iter_mut().enumerate() {
            *copy = (table[page / 4] >> (page % 4 * 2)) & 3;
        }
        self.copies.iter().all(|copy| *copy < 3)
    }
}

impl LfsLayer {
    /// Whether a checkpoint should begin.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let checkpoints = &self.checkpoints;
        checkpoints.is_wanted
            || checkpoints.logged >= self.shape.checkpoint
            || self.table.changed() >= MOST_PAGES
            || self.segments.empty() > 0 && self.segments.free() < self.shape.low + self.work.requested_segments()
    }

    /// Begins a checkpoint, unless a request in progress is its own record.
    pub(super) fn begin_checkpoint(&mut self, plan: &mut CommandPlan) -> bool {
        self.checkpoints.waits = self.flights.records_itself();
        if self.checkpoints.waits {
            self.checkpoints.is_wanted = true;
            return false;
        }
        self.plan_checkpoint(plan);
        true
    }

    /// Plans a checkpoint of the current map.
    pub(super) fn plan_checkpoint(&mut self, plan: &mut CommandPlan) {
        let Self { checkpoints, table, shape, segments, sync, pending, counters, .. } = self;
        (checkpoints.is_wanted, checkpoints.logged) = (false, 0);
        checkpoints.number += 1;
        checkpoints.order = pending.begin_checkpoint();
        segments.begin_checkpoint();
        table.take_changed(&mut checkpoints.pages);
        plan.flag(CommandFlags::META);
        let mut behind = None;
        for page in checkpoints.pages.iter().copied() {
            let copy = u8::from(checkpoints.copies[page as usize] == 1);
            checkpoints.copies[page as usize] = copy + 1;
            // Adjacent pages are one write.
            if behind != Some((copy, page)) {
                plan.begin(0, Op::Write, shape.pack.page(copy, page));
            }
            plan.metadata(&page_bytes(page, checkpoints.number, table.page(page)));
            behind = Some((copy, page + 1));
        }
        let pack = CheckpointPack {
            number: checkpoints.number,
            life: sync.life,
            write: self.write,
            record: sync.number,
            segment: if sync.head.segment == u32::MAX { sync.next } else { sync.head.segment },
            offset: sync.head.allocated,
            next: sync.next,
            shape: [shape.segment, shape.segments, shape.blocks],
        };
        let mut rest = checkpoints.table();
        rest.resize((shape.pack.sectors as usize - 1) * SECTOR, 0);
        for (slot, is_first) in [(checkpoints.first_slot, true), (1 - checkpoints.first_slot, false)] {
            plan.wait();
            let flags = CommandFlags::META | if is_first { CommandFlags::PREFLUSH } else { CommandFlags::empty() };
            plan.flag(if shape.durable_writes { flags | CommandFlags::RELIABLE } else { flags });
            plan.begin(0, Op::Write, shape.pack.pack(slot));
            plan.record(&pack.head(), shape.pack.sectors - 1);
            plan.metadata(&rest);
            if !shape.durable_writes {
                plan.flag(CommandFlags::empty());
                plan.wait();
                plan.bare(0, Op::Flush, 0, 0);
            }
        }
        let packs = 2 * u64::from(shape.pack.sectors).div_ceil(8);
        counters.checkpoint_blocks += checkpoints.pages.len() as u64 + packs;
        counters.checkpoints += 1;
    }

    /// Called when the checkpoint is durable.
    pub(super) fn checkpoint_done(&mut self) {
        self.pending.checkpointed(self.checkpoints.order);
        self.segments.checkpoint_durable();
    }
}
