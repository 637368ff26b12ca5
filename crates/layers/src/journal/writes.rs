//! Plans writes. If the layer has its own log, journal blocks stay in memory until their commit, which writes them to this log as records.
//! Other blocks are written to their own addresses, with the flags that the mode requires.
//!
//! Decides when a flush of the device is necessary, and when a write is made durable at once (forced) instead.

use std::collections::BTreeMap;

use emmclab_base::{BlockNote, BlockRole, CommandFlags, Op, SectorSet};

use super::log::{JournalLog, RecordPlacement, read_sectors};
use super::{JournalLayer, JournalModeFeatures, log};
use crate::layer::HostRequest;
use crate::plan::{CommandPlan, PlanMemory};
use crate::records::SECTOR;

/// A block of a transaction, and its first sector in the journal.
type Block = (u64, BufferedBlock);

impl JournalLayer {
    /// Plans a write of a layer that has its own log. Only journal blocks are logged; runs of other blocks are written to their own
    /// addresses.
    pub(super) fn write_logged(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut CommandPlan) {
        let ready = self.log.as_ref().is_some_and(|log| log.superblock.is_some());
        let logged = |note: &BlockNote| {
            matches!(note.role, BlockRole::Descriptor | BlockRole::Logged | BlockRole::Revoke | BlockRole::Commit)
        };
        // A write that must be durable on completion is not buffered until the commit, unless it contains the commit block.
        let promises =
            request.modifiers.intersects(CommandFlags::PROMISES) && !notes.iter().any(|note| note.role == BlockRole::Commit);
        if !ready || promises || !notes.iter().any(logged) {
            self.write_past_log(request, 0, notes, plan);
            return self.void_emptied(notes, plan);
        }
        let mut at = 0;
        let mut rest = notes;
        while let Some(note) = rest.first() {
            if !logged(note) {
                let (others, after) = rest.split_at(rest.iter().take_while(|note| !logged(note)).count());
                let part = HostRequest {
                    sector: request.sector + u64::from(at),
                    sectors: others.iter().map(|note| note.sectors).sum(),
                    // The flush is executed with the commit block of the same request, so this part of the request does not need the flag.
                    modifiers: request.modifiers.difference(CommandFlags::PREFLUSH),
                    ..*request
                };
                self.write_past_log(&part, at, others, plan);
                at += part.sectors;
                rest = after;
                continue;
            }
            let block = request.sector + u64::from(at);
            self.counters.journal_sectors_logged += u64::from(note.sectors);
            let mut follows_copy = false;
            if let Some(log) = &mut self.log {
                follows_copy = note.home.is_some_and(|home| log.is_home_logged(home));
            }
            if note.role == BlockRole::Commit {
                self.commit(request, (block, note, at), plan);
            } else {
                let slot = self.commit_buffer.insert(block, note, follows_copy);
                plan.copy((PlanMemory::Payload, at), (PlanMemory::Held, slot), note.sectors);
            }
            at += note.sectors;
            rest = &rest[1..];
        }
        self.void_emptied(notes, plan);
    }

    /// Plans the write of a run of blocks to their own addresses. The run starts `offset` sectors into the request. A superblock of the
    /// journal is written durably, because records of the log may be dropped after this write.
    fn write_past_log(&mut self, request: &HostRequest, offset: u32, notes: &[BlockNote], plan: &mut CommandPlan) {
        let mut request = *request;
        if notes.iter().any(|note| note.role == BlockRole::JournalSuperblock) {
            request.modifiers.insert(CommandFlags::RELIABLE);
        }
        if let Some(log) = &mut self.log {
            // These blocks bypass the log, so their copies in the log are no longer the newest ones. Later changes must not be stored
            // relative to these copies.
            for home in notes.iter().filter(|note| note.role == BlockRole::Logged).filter_map(|note| note.home) {
                log.is_home_logged(home);
            }
        }
        self.write_in_place(&request, offset, notes, plan);
    }

    /// Plans to invalidate all records if the journal's superblock marks the journal as empty, because a later journal may use the same
    /// transaction numbers.
    fn void_emptied(&mut self, notes: &[BlockNote], plan: &mut CommandPlan) {
        let empties =
            |note: &BlockNote| note.role == BlockRole::JournalSuperblock && note.transaction.is_some() && note.home.is_none();
        if let Some(log) = self.log.as_mut().filter(|log| !log.is_empty() && notes.iter().any(empties)) {
            plan.wait();
            write_void(log, plan);
        }
    }

    /// Drops the stored copies of journal blocks in a range that a request changes. If a block is changed only in part, its stored copy is
    /// first written to the block's own address.
    pub(super) fn forget_range(&mut self, request: &HostRequest, plan: &mut CommandPlan) {
        let (first, end) = (request.sector, request.end());
        let Some(log) = &mut self.log else { return };
        let in_part = |block: u64, sectors: u64| block < first || block + sectors > end;
        let mut spilled = Vec::new();
        for (block, stored) in log.meeting(first, end) {
            if in_part(block, stored.sectors.len() as u64) {
                let scratch = plan.scratch(stored.sectors.len() as u32);
                read_sectors(&stored.sectors, (PlanMemory::Scratch, scratch), plan);
                spilled.push((block, PlanMemory::Scratch, scratch, stored.sectors.len() as u32));
            }
        }
        for (block, held) in self.commit_buffer.overlapping(first, end) {
            if in_part(block, held.sectors.into()) {
                spilled.push((block, PlanMemory::Held, held.slot, held.sectors));
            }
        }
        for (block, memory, at, sectors) in spilled {
            // Waits for the previous writes, because a block in memory is newer than its copy in the log and must be written after it.
            plan.wait();
            plan.flag(CommandFlags::empty());
            plan.begin(0, Op::Write, block);
            plan.piece(memory, at, sectors);
            self.unflushed.write(request.id, PlainWriteKind::Asked);
            plan.wait();
            plan.flag(request.modifiers);
        }
        log.overwritten(first, end);
        self.commit_buffer.drop_range(request.id, first, end);
    }

    /// Plans the commit of a transaction: writes of its buffered blocks, and of the commit block at sector `at` of the request.
    fn commit(&mut self, request: &HostRequest, (block, note, at): (u64, &BlockNote, u32), plan: &mut CommandPlan) {
        let &BlockNote { sectors, transaction, changed, .. } = note;
        let is_own = |held: &BufferedBlock| match (held.transaction, transaction) {
            (Some(first), Some(other)) => first == other,
            _ => true,
        };
        let mut blocks: Vec<Block> = Vec::new();
        plan.flag(CommandFlags::empty());
        for (block, held) in self.commit_buffer.take(request.id) {
            if is_own(&held) {
                blocks.push((block, held));
            } else {
                // A block of an earlier transaction that was never committed is not part of this commit, and is written to its own address.
                plan.begin(0, Op::Write, block);
                plan.piece(held.memory, held.slot, held.sectors);
                self.unflushed.write(request.id, PlainWriteKind::Asked);
            }
        }
        let memory = PlanMemory::Payload;
        let commit = BufferedBlock { memory, slot: at, sectors, transaction, home: None, changed, follows_copy: false };
        blocks.push((block, commit));
        let Some(transaction) = transaction else { return self.commit_in_place(request, &blocks, plan) };
        // The commit block gets its own record, unless a transaction is stored with one write.
        let border = if self.features.one_write { 0 } else { blocks.len() - 1 };
        let Some(log) = &mut self.log else { return };
        let mut records = Vec::new();
        for part in [0..border, border..blocks.len()] {
            if part.is_empty() {
                continue;
            }
            let one_more = part.end < blocks.len();
            match log.place(transaction, &blocks[part.clone()], (self.features.delta, one_more)) {
                Some(placed) => records.push((placed, part)),
                None => return self.commit_in_place(request, &blocks, plan),
            }
        }
        let flush = self.needs_preflush(request);
        let last = records.len() - 1;
        for (i, (placed, part)) in records.into_iter().enumerate() {
            if i == last && flush {
                self.flush_first(request, plan);
            }
            plan.flag(self.flags_of_journal(request, i == last));
            write_record(&placed, &blocks[part], plan);
            self.counters.log_records += 1;
            self.counters.log_sectors += u64::from(placed.record.length) + 1;
            if i != last {
                plan.wait();
            }
        }
    }

    /// Plans the write of a transaction to its own addresses in the journal. The commit block is written when the other blocks are durable.
    fn commit_in_place(&mut self, request: &HostRequest, blocks: &[Block], plan: &mut CommandPlan) {
        self.counters.commits_in_place += 1;
        let needed = self.needs_preflush(request);
        let (Some(((block, commit), logged)), Some(log)) = (blocks.split_last(), &mut self.log) else {
            return;
        };
        for (block, held) in blocks {
            log.overwritten(*block, block + u64::from(held.sectors));
        }
        plan.flag(self.flags_of_journal(request, false));
        plan.pack(true);
        for (block, held) in logged {
            plan.begin(0, Op::Write, *block);
            plan.piece(held.memory, held.slot, held.sectors);
        }
        plan.pack(false);
        plan.wait();
        if needed || !self.features.durable_writes {
            self.flush_first(request, plan);
        }
        plan.flag(self.flags_of_journal(request, true));
        plan.payload(0, Op::Write, *block, commit.slot, commit.sectors);
    }

    fn flush_first(&mut self, request: &HostRequest, plan: &mut CommandPlan) {
        self.flushes(request.id);
        plan.wait();
        plan.flag(CommandFlags::empty());
        plan.bare(0, Op::Flush, 0, 0);
        plan.wait();
    }

    /// Returns the flags for a write of journal blocks. `commits` is true for the write that commits them.
    fn flags_of_journal(&self, request: &HostRequest, commits: bool) -> CommandFlags {
        match (self.features.durable_writes, commits) {
            (true, true) => CommandFlags::RELIABLE,
            (true, false) => CommandFlags::FORCED,
            (false, true) => request.modifiers.intersection(CommandFlags::DURABLE),
            (false, false) => CommandFlags::empty(),
        }
    }

    /// Whether the preflush of a request must be sent to the device.
    pub(super) fn needs_preflush(&mut self, request: &HostRequest) -> bool {
        if !request.modifiers.contains(CommandFlags::PREFLUSH) {
            return false;
        }
        self.counters.flushes += 1;
        self.forcing.flush_asked();
        let needed = self.features.barriers && (!self.features.durable_writes || !self.unflushed.is_clean());
        self.counters.flushes_saved += u64::from(!needed);
        needed
    }

    /// Whether the journal contains a durable copy of the block with the same bytes. The journal keeps this copy until it writes a new
    /// superblock.
    fn is_logged(&self, note: &BlockNote) -> bool {
        let (Some(transaction), Some(tail), Some(durable)) = (note.transaction, self.tail, self.durable) else {
            return false;
        };
        let same = note.changed.is_some_and(SectorSet::is_empty);
        note.role.at_home()
            && same
            && self.unflushed.is_journal_durable()
            && !log::before(transaction, tail)
            && !log::before(durable, transaction)
    }

    /// Plans a write to its own address. The mode of the layer determines its flags, and whether a flush precedes it. Its data starts
    /// `offset` sectors into the payload.
    pub(super) fn write_in_place(&mut self, request: &HostRequest, offset: u32, notes: &[BlockNote], plan: &mut CommandPlan) {
        let has = |role: BlockRole| notes.iter().any(|note| note.role == role);
        let JournalModeFeatures { barriers, durable_writes, .. } = self.features;
        let mut flush = self.needs_preflush(request);
        let mut flags = request.modifiers.difference(CommandFlags::PREFLUSH);
        if !barriers {
            flags = flags.difference(CommandFlags::DURABLE);
        } else if durable_writes {
            if has(BlockRole::Commit) && !flags.durable() {
                flags.insert(CommandFlags::RELIABLE);
            }
            // A write of the journal superblock releases journal copies. First, their data must be durable at its home address.
            flush |= has(BlockRole::JournalSuperblock) && !self.unflushed.is_durable();
            if !flags.durable() {
                if !notes.is_empty() && notes.iter().all(|note| self.is_logged(note)) {
                    self.unflushed.write(request.id, PlainWriteKind::Left);
                    self.forcing.leave(request.sectors);
                    self.counters.home_blocks_left += 1;
                } else if self.forcing.prefers_force(request.sectors) && self.unflushed.is_clean() {
                    flags.insert(CommandFlags::FORCED);
                } else if notes.iter().any(|note| note.role.in_journal()) {
                    self.unflushed.write(request.id, PlainWriteKind::Journal);
                } else {
                    self.unflushed.write(request.id, PlainWriteKind::Asked);
                }
            }
            self.counters.forced_writes += u64::from(flags.contains(CommandFlags::FORCED));
        }
        if flush {
            flags.insert(CommandFlags::PREFLUSH);
            self.flushes(request.id);
        }
        plan.flag(flags);
        plan.payload(0, Op::Write, request.sector, offset, request.sectors);
    }

    /// Plans a write in the mode without a journal. Blocks of the journal are not written, except its superblock, because a mount reads it.
    pub(super) fn write_without_journal(&mut self, request: &HostRequest, notes: &[BlockNote], plan: &mut CommandPlan) {
        let dropped = |note: &BlockNote| note.role.in_journal() && note.role != BlockRole::JournalSuperblock;
        if !notes.iter().any(dropped) {
            return self.write_in_place(request, 0, notes, plan);
        }
        if self.needs_preflush(request) {
            plan.bare(0, Op::Flush, 0, 0);
            plan.wait();
        }
        plan.flag(request.modifiers.difference(CommandFlags::PREFLUSH));
        let mut offset = 0;
        for note in notes {
            if dropped(note) {
                self.counters.blocks_dropped += 1;
            } else {
                plan.payload(0, Op::Write, request.sector + u64::from(offset), offset, note.sectors);
            }
            offset += note.sectors;
        }
    }
}

fn write_record(RecordPlacement { record, sector }: &RecordPlacement, blocks: &[Block], plan: &mut CommandPlan) {
    let head = record.head();
    plan.begin(0, Op::Write, *sector);
    let Some((first, more)) = head.split_first_chunk::<SECTOR>() else { return };
    plan.record(first, record.length);
    plan.metadata(more);
    let mut written = (head.len() / SECTOR) as u32;
    for (entry, (_, held)) in record.entries.iter().zip(blocks) {
        for i in (0..held.sectors).filter(|i| entry.sectors.contains(*i)) {
            plan.piece(held.memory, held.slot + i, 1);
            written += 1;
        }
    }
    plan.metadata(&vec![0; (record.length + 1 - written) as usize * SECTOR]);
}

/// Plans the write of a record that invalidates all earlier records.
pub(super) fn write_void(log: &mut JournalLog, plan: &mut CommandPlan) {
    let placed = log.void();
    plan.flag(CommandFlags::RELIABLE);
    write_record(&placed, &[], plan);
    plan.flag(CommandFlags::empty());
}

/// A journal block in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferedBlock {
    /// Memory that contains the bytes of the block.
    pub memory: PlanMemory,
    /// First sector of the block in `memory`.
    pub slot: u32,
    pub sectors: u32,
    /// Transaction of the block, if known.
    pub transaction: Option<u32>,
    /// First sector of the home location of a logged block; `None` if this is not a logged block.
    pub home: Option<u64>,
    /// The changed sectors of the block; `None` if unknown.
    pub changed: Option<SectorSet>,
    /// Whether `changed` was determined by a comparison with the copy of the same home block in the log.
    pub follows_copy: bool,
}

/// The journal blocks in memory, by their first sector in the journal.
#[derive(Debug, Default)]
pub(super) struct CommitBuffer {
    blocks: BTreeMap<u64, BufferedBlock>,
    /// Free memory slots, by length in sectors.
    free: BTreeMap<u32, Vec<u32>>,
    /// Memory slots that become free when a request is complete: (request, sectors, slot).
    freed_on_completion: Vec<(u64, u32, u32)>,
    /// Number of sectors of memory allocated so far, including free slots.
    sectors: u32,
}

impl CommitBuffer {
    /// Stores a new block in memory. `block` is its first sector on the disk. Returns its first sector in memory.
    pub fn insert(&mut self, block: u64, note: &BlockNote, follows_copy: bool) -> u32 {
        let free = self.free.entry(note.sectors).or_default();
        let slot = free.pop().unwrap_or_else(|| {
            self.sectors += note.sectors;
            self.sectors - note.sectors
        });
        let &BlockNote { sectors, home, transaction, changed, .. } = note;
        let memory = PlanMemory::Held;
        self.blocks.insert(block, BufferedBlock { memory, slot, sectors, transaction, home, changed, follows_copy });
        slot
    }

    /// Removes and returns all blocks. Their memory becomes free when request `id` is complete.
    pub fn take(&mut self, id: u64) -> BTreeMap<u64, BufferedBlock> {
        let blocks = std::mem::take(&mut self.blocks);
        self.freed_on_completion.extend(blocks.values().map(|held| (id, held.sectors, held.slot)));
        blocks
    }

    /// Called when request `id` is complete. Frees the memory slots that were in use until then.
    pub fn completed(&mut self, id: u64) {
        let Self { free, freed_on_completion: leaving, .. } = self;
        leaving.retain(|(request, sectors, slot)| {
            if *request == id {
                free.entry(*sectors).or_default().push(*slot);
            }
            *request != id
        });
    }

    /// Returns the blocks that overlap a range of sectors.
    pub fn overlapping(&self, sector: u64, end: u64) -> impl Iterator<Item = (u64, &BufferedBlock)> {
        // No block is longer than 128 sectors, which is the number of bits in `u128`.
        let from = sector.saturating_sub(u64::from(u128::BITS) - 1);
        let blocks = self.blocks.range(from..end.max(from)).map(|(block, held)| (*block, held));
        blocks.filter(move |(block, held)| block + u64::from(held.sectors) > sector)
    }

    /// Drops the blocks that overlap an overwritten range. Their memory becomes free when request `id` is complete.
    pub fn drop_range(&mut self, id: u64, sector: u64, end: u64) {
        let gone: Vec<u64> = self.overlapping(sector, end).map(|(block, _)| block).collect();
        for block in gone {
            if let Some(held) = self.blocks.remove(&block) {
                self.freed_on_completion.push((id, held.sectors, held.slot));
            }
        }
    }
}

/// Whether a plain (not forced) write may stay in the cache of the device after the next flush request, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlainWriteKind {
    /// The next flush must make the write durable.
    Asked,
    /// The write belongs to the journal, and the next flush must make it durable. Until this flush, nothing in the journal counts as
    /// durable.
    Journal,
    /// The write may stay in the cache, because the journal contains a durable copy of its data. The write must become durable before the
    /// journal releases this copy.
    Left,
}

/// Plain writes that no flush has made durable yet. They are numbered from 1 in the order in which they are planned.
#[derive(Debug, Default)]
pub(super) struct UnflushedWrites {
    planned: u64,
    /// Writes in flight, each with the number of its request, its own number and its kind.
    open: Vec<(u64, u64, PlainWriteKind)>,
    /// Number of the last complete write of each kind.
    complete: [u64; 3],
    /// Flushes in flight: (number of the request, last write that the flush makes durable).
    flushes: Vec<(u64, u64)>,
    /// All writes up to this number are durable.
    durable: u64,
}

impl UnflushedWrites {
    /// Adds a plain write of request `id`.
    pub fn write(&mut self, id: u64, kind: PlainWriteKind) {
        self.planned += 1;
        self.open.push((id, self.planned, kind));
    }

    /// Records that the plan of request `id` starts with a flush of the device. The flush covers only writes that are complete when it
    /// arrives: all writes before the oldest write in flight.
    pub fn flush(&mut self, id: u64) {
        let covers = self.open.iter().map(|(_, write, _)| write - 1).min().unwrap_or(self.planned);
        self.flushes.push((id, covers));
    }

    /// Called when request `id` is complete.
    pub fn completed(&mut self, id: u64) {
        let Self { open, complete, flushes, durable, .. } = self;
        open.retain(|(request, write, kind)| {
            if *request == id {
                let last = &mut complete[*kind as usize];
                *last = (*last).max(*write);
            }
            *request != id
        });
        flushes.retain(|(request, covers)| {
            if *request == id {
                *durable = (*durable).max(*covers);
            }
            *request != id
        });
    }

    /// Whether a flush that arrives now has no data to make durable, except home blocks that are also in the journal.
    pub fn is_clean(&self) -> bool {
        self.complete[..PlainWriteKind::Left as usize].iter().all(|write| *write <= self.durable)
    }

    /// Whether all blocks that were written to the journal are durable; false while such a write is in flight.
    pub fn is_journal_durable(&self) -> bool {
        self.complete[PlainWriteKind::Journal as usize] <= self.durable
            && !self.open.iter().any(|(.., kind)| *kind == PlainWriteKind::Journal)
    }

    /// Whether all complete writes are durable, including home blocks that are also in the journal.
    pub fn is_durable(&self) -> bool {
        self.complete.iter().all(|write| *write <= self.durable)
    }
}

// Chooses how a write that must be durable by the next flush becomes durable: by a forced write at once, or by that flush. The policy
// chooses the way with fewer program operations of the flash.
//
// A forced write needs its own program operations, and the next write waits for them. A flush programs all data in the cache, on all planes
// of the device in parallel. When the first write arrives, the number of further writes before the next flush is unknown. The write is
// forced if, in each of the last [`REMEMBERED`] intervals between flushes, forced writes needed at most as many programs as a flush.

/// Number of past intervals between flushes from which the next one is predicted.
const REMEMBERED: usize = 8;

/// Number of sectors that the flash programs at a time, and number of sectors that the cache can hold.
#[derive(Clone, Copy, Debug)]
struct FlashSizes {
    program_sectors: u64,
    cache_sectors: u64,
}

/// The writes between two flushes that the second flush must make durable.
#[derive(Clone, Copy, Debug, Default)]
struct FlushInterval {
    /// Number of program operations that the writes of the interval need if each of them is forced to the flash.
    programs: u64,
    sectors: u64,
}

impl FlushInterval {
    fn add(&mut self, sectors: u64, flash: FlashSizes) {
        self.programs += sectors.div_ceil(flash.program_sectors);
        self.sectors += sectors;
    }

    /// Returns how many more program operations forced writes need than a flush; negative if they need fewer. The flush also programs the
    /// `left` sectors, which could otherwise stay in the cache.
    fn excess(self, left: u64, flash: FlashSizes) -> i64 {
        // Data beyond the cache size is programmed before the flush, so it is not counted.
        let flushed = (self.sectors + left).min(flash.cache_sectors);
        self.programs.cast_signed() - flushed.div_ceil(flash.program_sectors).cast_signed()
    }
}

/// Chooses between forced writes and a flush, by the predicted number of program operations.
#[derive(Debug)]
pub(super) struct ForcedWritePolicy {
    flash: FlashSizes,
    last: [FlushInterval; REMEMBERED],
    /// Index of the oldest interval in `last`.
    oldest: usize,
    current: FlushInterval,
    /// Number of sectors that were left in the cache since the last flush. The next flush programs them as well.
    writes_until_flush: u64,
}

impl ForcedWritePolicy {
    /// Creates the policy for a device that programs `program_sectors` at a time and has a cache of `cache_sectors`.
    pub fn new(program_sectors: u32, cache_sectors: u64) -> Self {
        Self {
            flash: FlashSizes { program_sectors: program_sectors.max(1).into(), cache_sectors },
            last: [FlushInterval::default(); REMEMBERED],
            oldest: 0,
            current: FlushInterval::default(),
            writes_until_flush: 0,
        }
    }

    /// Counts a write that the next flush must make durable. Returns whether forcing writes to the flash needs at most as many program
    /// operations as a flush. This assumes that no flush is needed for another reason.
    pub fn prefers_force(&mut self, sectors: u32) -> bool {
        self.current.add(sectors.into(), self.flash);
        let intervals = self.last.iter().chain([&self.current]);
        intervals.map(|interval| interval.excess(self.writes_until_flush, self.flash)).all(|excess| excess <= 0)
    }

    /// Counts a write that may stay in the cache.
    pub fn leave(&mut self, sectors: u32) {
        self.writes_until_flush += u64::from(sectors);
    }

    /// Called when the file system flushes. Ends the current interval between two flushes.
    pub fn flush_asked(&mut self) {
        if self.current.sectors > 0 {
            self.last[self.oldest] = std::mem::take(&mut self.current);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Called when the device is flushed and its cache is empty.
    pub fn flushed(&mut self) {
        self.writes_until_flush = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_counts_for_what_was_complete_when_it_came() {
        let mut unflushed = UnflushedWrites::default();
        unflushed.write(1, PlainWriteKind::Asked);
        assert!(unflushed.is_clean(), "a flush does not cover writes in flight");
        unflushed.completed(1);
        assert!(!unflushed.is_clean());
        unflushed.write(2, PlainWriteKind::Asked);
        unflushed.flush(3);
        unflushed.completed(2);
        assert!(!unflushed.is_clean(), "the flush is not complete");
        unflushed.completed(3);
        assert!(!unflushed.is_clean(), "write 2 was in flight when the flush arrived");
        unflushed.flush(4);
        unflushed.completed(4);
        assert!(unflushed.is_clean());
    }

    #[test]
    fn blocks_that_the_journal_holds_ask_for_no_flush() {
        let mut unflushed = UnflushedWrites::default();
        unflushed.write(1, PlainWriteKind::Left);
        unflushed.completed(1);
        assert!(unflushed.is_clean() && !unflushed.is_durable());
        unflushed.flush(2);
        unflushed.completed(2);
        assert!(unflushed.is_durable());
    }

    /// Returns for each of these writes whether the policy writes it durably at once (forces it). After the writes, the file system
    /// requests a flush.
    fn forced(forcing: &mut ForcedWritePolicy, writes: &[u32]) -> Vec<bool> {
        let forced = writes.iter().map(|sectors| forcing.prefers_force(*sectors)).collect();
        forcing.flush_asked();
        forced
    }

    #[test]
    fn one_write_from_flush_to_flush_is_forced() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        for _ in 0..3 {
            assert_eq!(forced(&mut forcing, &[8]), [true]);
        }
    }

    #[test]
    fn several_small_writes_go_into_one_program_of_a_flush() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        // When the first write arrives, it is unknown that other writes will follow.
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true, false, false]);
        assert!(forced(&mut forcing, &[]).is_empty());
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(forced(&mut forcing, &[8]), [false], "other writes may follow");
        }
        assert_eq!(forced(&mut forcing, &[8]), [false]);
        assert_eq!(forced(&mut forcing, &[8]), [true], "the interval with three writes is forgotten");
    }

    #[test]
    fn writes_as_long_as_a_program_are_forced_as_far_as_the_cache_holds_them() {
        let mut forcing = ForcedWritePolicy::new(64, 128);
        assert_eq!(forced(&mut forcing, &[64, 64, 64]), [true, true, false]);
    }

    #[test]
    fn home_blocks_in_the_cache_make_a_flush_dear() {
        let mut forcing = ForcedWritePolicy::new(64, 512);
        forced(&mut forcing, &[8, 8, 8]);
        forcing.leave(160);
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [true; 3]);
        forcing.flushed();
        assert_eq!(forced(&mut forcing, &[8, 8, 8]), [false; 3]);
    }
}
