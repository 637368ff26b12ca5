//! Checkpoints and recovery. A checkpoint consists of the changed pages of the map and a pack, which contains the number of the valid copy
//! of each page.
//!
//! The pack is written to both slots, one after the other, first to the slot whose pack is damaged or older. A power cut leaves at least
//! one pack intact, and two intact packs protect against damage of one. Pages overwrite the copies to which neither pack refers. A
//! checkpoint does not begin while a durable write or secure erase is in progress, because the record of such a request would have a lower
//! number than the checkpoint, although its changes are newer.

use std::io;

use emmclab_base::{CommandFlags, Op};
use rustc_hash::FxHashMap;

use super::records::{BYTES, CheckpointPack, LfsRecord, NOWHERE, page_bytes, page_entries};
use super::segments::OpenSegment;
use super::settings::BLOCK;
use super::{LfsLayer, RequestEffect};
use crate::layer::{RecoveryReader, ReservedArea};
use crate::plan::{CommandPlan, PlanMemory};
use crate::records::{AreaReader, SECTOR, has_valid_data_checksum};

/// Maximum number of changed map pages between two checkpoints, because a checkpoint is prepared in memory.
const MOST_PAGES: usize = 2048;

#[derive(Clone, Debug)]
pub(super) struct LfsCheckpointState {
    /// Number of the newest checkpoint.
    pub number: u64,
    /// For each map page, the index (0 or 1) of the valid copy plus one; 0 = the page was never written.
    pub copies: Vec<u8>,
    pub first_slot: u64,
    /// Number of blocks written to the logs since the newest checkpoint began.
    logged: u64,
    is_wanted: bool,
    /// Whether a checkpoint is due, but must wait for durable writes or secure erases in progress.
    pub waits: bool,
    /// Number of the newest map change in the checkpoint in progress.
    order: u64,
    pages: Vec<u32>,
}

impl LfsCheckpointState {
    /// The state before the first checkpoint, for a map of `pages` pages.
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

    /// Counts blocks written to a log.
    #[inline]
    pub fn add_logged(&mut self, blocks: u32) {
        self.logged += u64::from(blocks);
    }

    /// Encodes the number of the valid copy of each page in two bits, as a checkpoint stores it.
    fn table(&self) -> Vec<u8> {
        let bits = |four: &[u8]| four.iter().rev().fold(0, |bits, copy| (bits << 2) | copy);
        self.copies.chunks(4).map(bits).collect()
    }

    /// Restores the numbers of the valid copies from a pack. Returns false if an entry is invalid.
    pub fn restore(&mut self, table: &[u8]) -> bool {
        for (page, copy) in self.copies.iter_mut().enumerate() {
            *copy = (table[page / 4] >> (page % 4 * 2)) & 3;
        }
        self.copies.iter().all(|copy| *copy < 3)
    }
}

impl LfsLayer {
    /// Whether a checkpoint is due.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let checkpoints = &self.checkpoints;
        checkpoints.is_wanted
            || checkpoints.logged >= self.shape.checkpoint
            || self.table.changed() >= MOST_PAGES
            || self.segments.empty() > 0 && self.segments.free() < self.shape.low + self.work.requested_segments
    }

    /// Begins a checkpoint, unless a durable write or secure erase is in progress.
    pub(super) fn begin_checkpoint(&mut self, plan: &mut CommandPlan) -> bool {
        self.checkpoints.waits =
            self.flights.all.iter().any(|flight| matches!(flight.effect, RequestEffect::Recorded | RequestEffect::Erased));
        if self.checkpoints.waits {
            self.checkpoints.is_wanted = true;
            return false;
        }
        self.plan_checkpoint(plan);
        true
    }

    pub(super) fn plan_checkpoint(&mut self, plan: &mut CommandPlan) {
        let Self { checkpoints, table, shape, segments, sync, pending, counters, .. } = self;
        (checkpoints.is_wanted, checkpoints.logged) = (false, 0);
        checkpoints.number += 1;
        checkpoints.order = pending.begin_checkpoint();
        segments.in_checkpoint.append(&mut segments.empty);
        table.take_changed(&mut checkpoints.pages);
        plan.flag(CommandFlags::META);
        let mut behind = None;
        for page in checkpoints.pages.iter().copied() {
            let copy = u8::from(checkpoints.copies[page as usize] == 1);
            checkpoints.copies[page as usize] = copy + 1;
            // Adjacent pages are written with one command.
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
        self.segments.awaiting_readers.append(&mut self.segments.in_checkpoint);
    }

    /// Restores the map from the disk. If there is no pack, the layer has never promised that data is durable, and the map stays empty.
    pub(super) fn read_back(&mut self, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let Some((pack, slot, table)) = self.newest_pack(disks)? else { return Ok(()) };
        self.checkpoints.first_slot = 1 - slot;
        if pack.shape != [self.shape.segment, self.shape.segments, self.shape.blocks] {
            return Err(io::Error::other("the log was created with other settings or for another device"));
        }
        self.checkpoints.number = pack.number;
        if !self.checkpoints.restore(&table) {
            return Err(io::Error::other("the newest checkpoint refers to no valid copy of the map"));
        }
        self.read_map(pack.number, disks)?;
        let mut tail = RecoveredTail { record: pack.record, write: pack.write, ..RecoveredTail::default() };
        self.read_records(&pack, &mut tail, disks)?;
        // Sorted by block, so that recovery from the same disk contents always produces the same plan.
        let mut newest: Vec<_> = tail.newest.iter().map(|(block, (_, place))| (*block, *place)).collect();
        newest.sort_unstable();
        for (block, place) in newest {
            if place == NOWHERE {
                self.table.discard(block);
            } else {
                self.table.relocate(block, place);
            }
        }
        self.write = tail.write;
        self.sync.life = pack.life;
        self.sync.number = tail.record;
        for block in 0..self.shape.blocks {
            if let Some(place) = self.table.place(block) {
                self.segments.set_owner(place, block);
                self.segments.add_live(place);
            }
        }
        self.take_up_segments(&tail.chain, disks)
    }

    /// Returns the newest intact checkpoint pack, its slot, and the bytes after its first sector, which state the valid copy of each map
    /// page.
    fn newest_pack(&self, disks: &mut dyn RecoveryReader) -> io::Result<Option<(CheckpointPack, u64, Vec<u8>)>> {
        let mut newest: Option<(CheckpointPack, u64, Vec<u8>)> = None;
        let mut bytes = vec![0; self.shape.pack.sectors as usize * SECTOR];
        for slot in 0..2 {
            disks.read_at(0, self.shape.pack.pack(slot), &mut bytes)?;
            let Some(pack) = CheckpointPack::parse(&bytes) else { continue };
            if newest.as_ref().is_none_or(|(known, ..)| pack.number > known.number) {
                newest = Some((pack, slot, bytes[SECTOR..].to_vec()));
            }
        }
        Ok(newest)
    }

    fn read_map(&mut self, number: u64, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let mut bytes = [0; BYTES];
        let places = self.segments.places();
        for page in 0..self.shape.blocks.div_ceil(crate::lfs::records::ENTRIES) {
            let Some(copy) = self.checkpoints.copies[page as usize].checked_sub(1) else { continue };
            disks.read_at(0, self.shape.pack.page(copy, page), &mut bytes)?;
            let entries = page_entries(&bytes, page, number);
            if !entries.is_some_and(|entries| self.table.restore(page, entries, places)) {
                return Err(io::Error::other(format!("page {page} of the map is damaged")));
            }
        }
        Ok(())
    }

    /// Reads the log of records. The checkpoint pack contains the location of the first record to read.
    fn read_records(&self, pack: &CheckpointPack, tail: &mut RecoveredTail, disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let (mut segment, mut offset, mut next) = (pack.segment, pack.offset, pack.next);
        loop {
            if segment >= self.shape.segments || tail.chain.contains(&segment) {
                return Ok(());
            }
            let named = self.read_segment(pack, (segment, offset), tail, disks)?;
            // The first segment may have been full when the checkpoint was written. The records after the checkpoint are then only in the
            // next segment.
            let is_first = tail.chain.is_empty();
            if named.is_none() && !is_first {
                return Ok(());
            }
            tail.chain.push(segment);
            next = named.unwrap_or(next);
            (segment, offset) = (next, 0);
        }
    }

    /// Reads the records of a segment. Returns the next segment of the log according to the last record.
    fn read_segment(
        &self, pack: &CheckpointPack, (segment, mut offset): (u32, u32), tail: &mut RecoveredTail, disks: &mut dyn RecoveryReader,
    ) -> io::Result<Option<u32>> {
        let start = segment * self.shape.segment;
        let sectors = u64::from(self.shape.segment) * BLOCK;
        let sector = self.shape.sector(start);
        // Number of blocks at the start of the segment that may have been written.
        let end = disks.write_pointer(0, sector)?;
        let end = end.map_or(self.shape.segment, |end| (end.saturating_sub(sector) / BLOCK) as u32);
        let mut window = AreaReader::new(disks, ReservedArea { disk: 0, sector, sectors });
        let mut named = None;
        while offset < end {
            let all = sectors as u32;
            let first = offset * BLOCK as u32;
            let head = window.at(first, BLOCK as u32, all)?;
            let record = LfsRecord::parse(head).filter(|record| {
                record.life == pack.life
                    && record.number >= pack.record
                    && record.place == start + offset
                    && record.data < self.shape.segment - offset
            });
            let Some(record) = record else {
                offset += 1;
                continue;
            };
            let length = (1 + record.data) * BLOCK as u32;
            let bytes = window.at(first, length, all)?;
            if !has_valid_data_checksum(&bytes[..SECTOR], &bytes[SECTOR..]) {
                offset += 1;
                continue;
            }
            named = Some(record.next);
            tail.record = tail.record.max(record.number + 1);
            for run in record.runs_of(&bytes[..BYTES]) {
                tail.write = tail.write.max(run.write);
                self.replay(&run, &mut tail.newest);
            }
            offset += 1 + record.data;
        }
        Ok(named)
    }

    /// Applies a run of mapped blocks from a log record. A block is left unchanged if a run with a newer write of this block was already
    /// read.
    fn replay(&self, run: &crate::lfs::records::LogRun, newest: &mut Newest) {
        let end = run.block.checked_add(run.blocks).filter(|end| *end <= self.shape.blocks);
        let places = if run.place == NOWHERE { Some(0) } else { run.place.checked_add(run.blocks) };
        let (Some(end), Some(_)) = (end, places.filter(|end| *end <= self.segments.places())) else { return };
        for (block, step) in (run.block..end).zip(0..) {
            let place = if run.place == NOWHERE { NOWHERE } else { run.place + step };
            let known = newest.entry(block).or_insert((0, NOWHERE));
            if run.write >= known.0 {
                *known = (run.write, place);
            }
        }
    }

    /// Returns the number of used blocks of a zone. If a power cut left the last block partly written, it is padded.
    fn filled_end(&mut self, start: u64, disks: &mut dyn RecoveryReader) -> io::Result<u32> {
        let unit = u64::from(self.shape.align) * BLOCK;
        let written = disks.write_pointer(0, start)?.unwrap_or(start).saturating_sub(start);
        let filled = written.next_multiple_of(unit);
        if filled > written {
            self.first_fills.push((start + written, filled - written));
        }
        Ok((filled / BLOCK) as u32)
    }

    /// Determines the state of each segment after recovery: open, closed, or to be reset.
    fn take_up_segments(&mut self, chain: &[u32], disks: &mut dyn RecoveryReader) -> io::Result<()> {
        let mut opened = Vec::new();
        if self.shape.is_zoned {
            let mut heads = 1..self.shape.logs;
            for segment in 0..self.shape.segments {
                let start = self.shape.sector(segment * self.shape.segment);
                if disks.write_pointer(0, start)?.is_none() {
                    break;
                }
                let taken = self.filled_end(start, disks)?;
                if taken == 0 || taken == self.shape.segment {
                    continue;
                }
                let is_last = chain.last() == Some(&segment);
                if is_last {
                    self.sync.head = OpenSegment { segment, allocated: taken };
                    opened.push(segment);
                } else if !self.segments.is_live(segment) && !chain.contains(&segment) {
                    self.first_resets.push(segment);
                } else if let Some(log) = heads.next().or_else(|| (self.logs[0] == OpenSegment::NONE).then_some(0)) {
                    self.logs[log] = OpenSegment { segment, allocated: taken };
                    opened.push(segment);
                } else {
                    // The power cut left more partly written zones than the layer has logs, so this zone is padded to its end.
                    let from = start + u64::from(taken) * BLOCK;
                    let end = start + u64::from(self.shape.segment) * BLOCK;
                    self.first_fills.push((from, end - from));
                }
            }
        }
        self.segments.recover(chain, &opened);
        Ok(())
    }

    /// Plans the work before the first request: segments for the log of records, and a checkpoint that marks a new start of the layer.
    pub(super) fn begin_life(&mut self, plan: &mut CommandPlan) {
        let mut resets = std::mem::take(&mut self.first_resets);
        resets.retain(|segment| self.segments.take_unknown(*segment));
        let wanted = if self.sync.head == OpenSegment::NONE { 2 } else { 1 };
        let most = resets.len() + wanted as usize;
        self.segments.take_dirty(wanted + resets.len() as u32, most, &mut resets);
        for segment in resets.iter().copied() {
            let sector = self.shape.sector(segment * self.shape.segment);
            plan.bare(0, Op::Discard, sector, self.shape.segment * BLOCK as u32);
        }
        let fills = std::mem::take(&mut self.first_fills);
        let scratch = plan.scratch(fills.iter().map(|(_, sectors)| FILL.min(*sectors)).max().unwrap_or(0) as u32);
        for (mut sector, mut sectors) in fills {
            let segment = ((sector - self.shape.log_sector) / (u64::from(self.shape.segment) * BLOCK)) as u32;
            // A segment that will be reset needs no padding.
            while sectors > 0 && !resets.contains(&segment) {
                let now = FILL.min(sectors);
                plan.begin(0, Op::Write, sector);
                plan.piece(PlanMemory::Scratch, scratch, now as u32);
                (sector, sectors) = (sector + now, sectors - now);
            }
        }
        self.counters.resets += resets.len() as u64;
        self.segments.was_reset(&resets);
        if self.sync.head == OpenSegment::NONE {
            self.sync.head = self.segments.open().unwrap_or(OpenSegment::NONE);
        }
        self.sync.next = self.segments.reserve().unwrap_or(u32::MAX);
        self.sync.life += 1;
        plan.wait();
        self.plan_checkpoint(plan);
        self.checkpoint_done();
    }
}

// Recovery uses the newest intact checkpoint pack, its map, and the records after it.
//
// Records are stored one after another from the location in the checkpoint pack on. Each record contains the number of the segment in which
// the records continue. A record that never became durable may be missing between others. For each block, the write with the highest number
// is valid, regardless of the record that contains it. Recovery does not search for data without a record.
//
// If the disk reports write pointers, a partly written segment with live blocks continues as an open segment, so that power cuts do not
// increase the number of active zones. Other segments are closed without further writes.

/// Maximum number of sectors that are padded with one write.
const FILL: u64 = 1024;

/// The newest write of each block in the records: its write number and its location.
type Newest = FxHashMap<u32, (u64, u32)>;

/// Changes that the records after the checkpoint contain.
#[derive(Default)]
struct RecoveredTail {
    newest: Newest,
    /// Segments of the log of records, in the order of the log.
    chain: Vec<u32>,
    /// Highest record number.
    record: u64,
    /// Highest write number.
    write: u64,
}
