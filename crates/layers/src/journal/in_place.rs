//! Writes to the addresses that the file system chose, with the flags that they need there.

use emmclab_base::{BlockNote, BlockRole, CommandFlags, Op, SectorSet};

use crate::plan::CommandPlan;
use crate::request::HostRequest;

use super::unflushed::PlainWriteKind;
use super::{JournalLayer, JournalModeFeatures, log};

impl JournalLayer {
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

    /// Whether the journal holds the same bytes as a block at home, durably, and keeps them until the layer sees a new superblock
    /// of the journal.
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

    /// Plans a write to its own address, with the flags that this mode needs; its data starts `offset` sectors into the payload.
    pub(super) fn write_in_place(
        &mut self,
        request: &HostRequest,
        offset: u32,
        notes: &[BlockNote],
        plan: &mut CommandPlan,
    ) {
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
            // Data whose journal copy is about to be released must be durable at home.
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
            self.counters.forced += u64::from(flags.contains(CommandFlags::FORCED));
        }
        if flush {
            flags.insert(CommandFlags::PREFLUSH);
            self.flushes(request.id);
        }
        plan.flag(flags);
        plan.payload(0, Op::Write, request.sector, offset, request.sectors);
    }

    /// Plans a write in the mode without a journal: blocks of the journal are dropped, except its superblock, which a mount reads.
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
