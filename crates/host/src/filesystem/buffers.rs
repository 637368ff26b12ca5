//! Metadata blocks in memory: whether they have to be written in place, and with a journal, the last transaction that logged them.

use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_base::{BlockNote, BlockRole, Nanos, RequestFlags};
use rustc_hash::FxHashMap;

use crate::block::{BioId, BioRequest};
use crate::core::HostCore;
use crate::request::IoCause;
use crate::task::TaskId;

/// A metadata block.
#[derive(Clone, Copy, Debug)]
struct MetadataBuffer {
    role: BlockRole,
    /// Its read or its write in place, and its write to the journal, while they are in progress.
    home: BioId,
    copy: BioId,
    /// The last transaction that logged it; 0 for none.
    transaction: u32,
}

impl MetadataBuffer {
    fn new(role: BlockRole) -> Self {
        Self { role, home: BioId::NONE, copy: BioId::NONE, transaction: 0 }
    }
}

/// The metadata blocks that were read or written; they are never evicted.
#[derive(Debug)]
pub(super) struct MetadataBufferTable {
    mount: u16,
    /// Sectors per block.
    sectors: u32,
    blocks: FxHashMap<u64, MetadataBuffer>,
    /// Blocks that have to be written in place, and since when. With a journal, these are blocks whose last transaction is committed.
    dirty: BTreeMap<u64, Nanos>,
}

impl MetadataBufferTable {
    pub fn new(mount: u16, sectors: u32) -> Self {
        Self { mount, sectors, blocks: FxHashMap::default(), dirty: BTreeMap::new() }
    }

    fn sector(&self, block: u64) -> u64 {
        block * u64::from(self.sectors)
    }

    /// Reads a block unless it is in memory, and makes the task wait for its reads and writes in progress, during which it must not change.
    /// Returns whether there is nothing to wait for.
    pub fn make_ready(&mut self, core: &mut HostCore, task: TaskId, block: u64) -> bool {
        if let Some(buffer) = self.blocks.get(&block) {
            let home = core.await_bio(buffer.home, task);
            return !core.await_bio(buffer.copy, task) && !home;
        }
        let home =
            core.submit_for(BioRequest::read(self.mount, self.sector(block), self.sectors, core.cause(task)), task);
        self.blocks.insert(block, MetadataBuffer { home, ..MetadataBuffer::new(BlockRole::Metadata) });
        false
    }

    /// Adds a new block, or one whose contents are known without a read.
    pub fn add(&mut self, block: u64, role: BlockRole) {
        self.blocks.entry(block).or_insert(MetadataBuffer::new(role));
    }

    /// Removes a freed block; returns whether a transaction had logged it.
    pub fn forget(&mut self, block: u64) -> bool {
        self.dirty.remove(&block);
        self.blocks.remove(&block).is_some_and(|buffer| buffer.transaction != 0)
    }

    /// Marks a block as changed; it may be written in place at any time.
    pub fn change(&mut self, block: u64, role: BlockRole, now: Nanos) {
        self.blocks.entry(block).or_insert(MetadataBuffer::new(role)).role = role;
        self.dirty.entry(block).or_insert(now);
    }

    /// Records that a transaction changes the block; returns whether the block is new in that transaction.
    pub fn log(&mut self, block: u64, role: BlockRole, transaction: u32) -> bool {
        let buffer = self.blocks.entry(block).or_insert(MetadataBuffer::new(role));
        buffer.role = role;
        if buffer.transaction == transaction {
            return false;
        }
        buffer.transaction = transaction;
        self.dirty.remove(&block);
        true
    }

    /// Records the bio that writes the block to the journal.
    pub fn set_copy(&mut self, block: u64, bio: BioId) {
        if let Some(buffer) = self.blocks.get_mut(&block) {
            buffer.copy = bio;
        }
    }

    /// After the commit of a transaction, marks the block as to be written in place, unless a later transaction has logged it too.
    pub fn mark_committed(&mut self, block: u64, transaction: u32, now: Nanos) {
        if self.blocks.get(&block).is_some_and(|buffer| buffer.transaction == transaction) {
            self.dirty.insert(block, now);
        }
    }

    /// Whether the log must still keep the copy of the block from this transaction.
    pub fn is_needed(&self, core: &HostCore, block: u64, transaction: u32) -> bool {
        self.blocks.get(&block).is_some_and(|buffer| {
            buffer.transaction == transaction && (self.dirty.contains_key(&block) || core.queue.in_flight(buffer.home))
        })
    }

    /// When the oldest dirty block became dirty.
    pub fn oldest(&self) -> Option<Nanos> {
        self.dirty.values().min().copied()
    }

    /// Writes one dirty block in place.
    pub fn write_home(&mut self, core: &mut HostCore, block: u64, cause: IoCause, waiter: Option<TaskId>) {
        let sector = self.sector(block);
        let Some(buffer) = self.blocks.get_mut(&block) else { return };
        // A block has at most one write in progress.
        if core.queue.in_flight(buffer.home) || self.dirty.remove(&block).is_none() {
            if let Some(task) = waiter {
                core.await_bio(buffer.home, task);
            }
            return;
        }
        let mut write = BioRequest::write(self.mount, sector, self.sectors, buffer.role, cause);
        let transaction = (buffer.transaction != 0).then_some(buffer.transaction);
        write.note = Some(BlockNote { transaction, ..BlockNote::new(buffer.role, self.sectors) });
        if waiter.is_some() {
            write.flags |= RequestFlags::SYNC;
        }
        buffer.home = core.submit(write);
        if let Some(task) = waiter {
            core.await_bio(buffer.home, task);
        }
    }

    /// Writes the blocks in place that became dirty at `until` or earlier, in order of address.
    pub fn write_all(&mut self, core: &mut HostCore, until: Nanos, cause: IoCause, waiter: Option<TaskId>) {
        self.write_range(core, 0..u64::MAX, until, cause, waiter);
    }

    /// As `write_all`, for a range of blocks.
    pub fn write_range(
        &mut self,
        core: &mut HostCore,
        blocks: Range<u64>,
        until: Nanos,
        cause: IoCause,
        waiter: Option<TaskId>,
    ) {
        let old: Vec<u64> =
            self.dirty.range(blocks).filter(|(_, since)| **since <= until).map(|(block, _)| *block).collect();
        for block in old {
            self.write_home(core, block, cause, waiter);
        }
    }
}
