//! Translates byte ranges into requests to the device, none longer than the device accepts.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use emmclab_base::CommandFlags;
use fuser::{ReplyEmpty, ReplyWrite};

use super::pending::{FuseReply, PendingFuseReplies};
use crate::SECTOR;
use crate::device::{BlockAction, BlockDevice, BlockDeviceLimits, RequestFailure, ServedRequest};

/// Maximum number of parts of a long discard in flight at once, which limits memory.
const PARTS: u64 = 1024;

/// A range of sectors, and the flags of the requests for it.
#[derive(Clone, Copy)]
pub(super) struct FuseSectorRange {
    pub(super) sector: u64,
    pub(super) sectors: u64,
    pub(super) modifiers: CommandFlags,
}

impl FuseSectorRange {
    /// The sectors that contain these bytes, and the offset of the bytes in the first sector.
    pub(super) fn covering(offset: u64, bytes: u64, modifiers: CommandFlags) -> (Self, usize) {
        let (sector, skip) = (offset / SECTOR as u64, offset as usize % SECTOR);
        let sectors = (offset + bytes).div_ceil(SECTOR as u64) - sector;
        (Self { sector, sectors, modifiers }, skip)
    }

    /// The sectors of these bytes; `None` if they are not aligned to sectors.
    pub(super) fn aligned(offset: u64, bytes: u64) -> Option<Self> {
        let (range, _) = Self::covering(offset, bytes, CommandFlags::empty());
        (offset.is_multiple_of(SECTOR as u64) && bytes.is_multiple_of(SECTOR as u64)).then_some(range)
    }

    fn end(self) -> u64 {
        self.sector + self.sectors
    }

    /// Splits the range into ranges of at most this many sectors, in order.
    fn split(self, most: u64) -> impl Iterator<Item = Self> {
        (self.sector..self.end()).step_by(most as usize).map(move |sector| Self {
            sector,
            sectors: most.min(self.end() - sector),
            ..self
        })
    }
}

/// Sends requests to the device.
pub(super) struct FuseRequestSender {
    device: Arc<dyn BlockDevice>,
    limits: BlockDeviceLimits,
    pending: Arc<PendingFuseReplies>,
    /// Held during the read-modify-write of an unaligned write.
    edges: Mutex<()>,
}

impl FuseRequestSender {
    pub(super) fn new(device: Arc<dyn BlockDevice>, pending: Arc<PendingFuseReplies>) -> Self {
        Self { limits: device.limits(), device, pending, edges: Mutex::default() }
    }

    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// Maximum number of sectors of a part.
    fn part_sectors(&self) -> u32 {
        self.limits.max_sectors.max(1)
    }

    /// Sends the range in parts; the reply is sent when all parts are complete.
    fn submit(&self, answer: FuseReply, range: FuseSectorRange, mut action: impl FnMut(u32) -> BlockAction) {
        let part = |range: FuseSectorRange| {
            let sectors = range.sectors as u32;
            let (sector, modifiers) = (range.sector, range.modifiers);
            ServedRequest { tag: 0, action: action(sectors), sector, sectors, modifiers }
        };
        let parts = range.split(u64::from(self.part_sectors())).map(part).collect();
        self.pending.submit(&*self.device, answer, parts, self.part_sectors());
    }

    /// Sends the range and waits until it is complete; returns the data that was read.
    fn perform(
        &self,
        range: FuseSectorRange,
        action: impl FnMut(u32) -> BlockAction,
    ) -> Result<Vec<u8>, RequestFailure> {
        let (sender, receiver) = channel();
        self.submit(FuseReply::Waiter(sender), range, action);
        receiver.recv().unwrap_or(Err(RequestFailure::Io))
    }

    pub(super) fn read(&self, answer: FuseReply, range: FuseSectorRange) {
        self.submit(answer, range, |_| BlockAction::Read);
    }

    pub(super) fn write(&self, answer: FuseReply, range: FuseSectorRange, mut data: &[u8]) {
        self.submit(answer, range, |sectors| {
            let (part, rest) = data.split_at(sectors as usize * SECTOR);
            data = rest;
            BlockAction::Write(part.to_vec())
        });
    }

    pub(super) fn flush(&self, answer: FuseReply) {
        let modifiers = CommandFlags::empty();
        let flush = ServedRequest { tag: 0, action: BlockAction::Flush, sector: 0, sectors: 0, modifiers };
        self.pending.submit(&*self.device, answer, vec![flush], 0);
    }

    /// Writes bytes that are not aligned to sectors, in a separate thread, by a read-modify-write of the sectors around them. The kernel
    /// splits long writes like this if the writer's memory is not aligned to pages.
    pub(super) fn write_unaligned(
        self: &Arc<Self>,
        reply: ReplyWrite,
        range: FuseSectorRange,
        skip: usize,
        data: &[u8],
    ) {
        let (this, new) = (Arc::clone(self), data.to_vec());
        std::thread::spawn(move || {
            let _edges = this.edges.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = this.perform(range, |_| BlockAction::Read).and_then(|mut sectors| {
                sectors.get_mut(skip..skip + new.len()).ok_or(RequestFailure::Io)?.copy_from_slice(&new);
                let mut rest = &sectors[..];
                this.perform(range, |count| {
                    let (part, behind) = rest.split_at(count as usize * SECTOR);
                    rest = behind;
                    BlockAction::Write(part.to_vec())
                })
            });
            FuseReply::Write { reply, bytes: new.len() as u32 }.send(outcome);
        });
    }

    /// Discards or zeroes a range. A range of more than [`PARTS`] parts is processed in a separate thread.
    pub(super) fn range(self: &Arc<Self>, reply: ReplyEmpty, range: FuseSectorRange, action: BlockAction) {
        let batch = PARTS * u64::from(self.part_sectors());
        if range.sectors <= batch {
            return self.submit(FuseReply::Done(reply), range, |_| action.clone());
        }
        let this = Arc::clone(self);
        std::thread::spawn(move || {
            let outcome = range.split(batch).try_for_each(|range| this.perform(range, |_| action.clone()).map(drop));
            FuseReply::Done(reply).send(outcome.map(|()| Vec::new()));
        });
    }
}
