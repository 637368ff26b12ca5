//! Data transfers between host and card: reads and writes of blocks (JESD84-B51, 6.6.7 and 6.6.8).

use std::collections::VecDeque;

use emmclab_base::CommandFlags;

use super::{CardPartition, CardState, CardStatus, EmmcCard, PresetBlockCount, SECTOR};
use crate::device::{BlockAction, RequestFailure, ServedCompletion, ServedRequest};

/// A data transfer in progress.
pub(super) enum CardTransfer {
    /// A single block whose data is already available.
    Fixed(Vec<u8>),
    /// CMD19: the pattern of a bus test.
    BusPattern,
    Read(CardRead),
    Write(CardWrite),
}

/// A read of one or more blocks in progress (CMD17 and CMD18).
pub(super) struct CardRead {
    area: CardPartition,
    next: u64,
    /// Number of blocks that the host may still read; `None` for an open-ended read, which CMD12 ends.
    left: Option<u32>,
    single: bool,
    modifiers: CommandFlags,
    /// Parts of the blocks that the host reads, in order. The tags of parts from the device are consecutive.
    parts: VecDeque<CardReadPart>,
    /// Number of parts whose data has not arrived from the device yet.
    missing: usize,
    failed: bool,
}

/// Data of a read request to the device; `None` until it arrives.
struct CardReadPart {
    tag: u64,
    data: Option<Vec<u8>>,
}

/// A write of one or more blocks in progress (CMD24 and CMD25).
pub(super) struct CardWrite {
    area: CardPartition,
    next: u64,
    left: Option<u32>,
    modifiers: CommandFlags,
    /// Data from the host that has not been passed to the device yet.
    data: Vec<u8>,
}

/// The result of clocking the data lines.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sdhci) enum ClockedData {
    /// No start bit: the data is not available yet.
    Waiting,
    /// The requested data.
    Data(Vec<u8>),
    /// The card sends no data because the transfer has failed.
    Failed,
}

impl CardRead {
    /// Stores the data of a completed request; returns the error bits for the card status.
    pub fn complete(&mut self, completion: ServedCompletion) -> CardStatus {
        let first = self.parts.front().map_or(0, |part| part.tag);
        let place = completion.tag.checked_sub(first).map(|place| place as usize);
        let part = place.and_then(|place| self.parts.get_mut(place)).filter(|part| part.data.is_none());
        let Some(part) = part else { return CardStatus::empty() };
        match completion.outcome {
            Ok(data) => {
                part.data = Some(data);
                self.missing -= 1;
                CardStatus::empty()
            }
            Err(failure) => {
                self.failed = true;
                match failure {
                    RequestFailure::Invalid => CardStatus::ADDRESS_OUT_OF_RANGE,
                    RequestFailure::Io => CardStatus::DEVICE_ECC_FAILED,
                    RequestFailure::NoSpace | RequestFailure::ReadOnly => CardStatus::ERROR,
                }
            }
        }
    }
}

impl EmmcCard {
    pub(super) fn start_read(&mut self, argument: u32, count: PresetBlockCount) {
        let Some(next) = self.locate_blocks(argument, count) else { return };
        let modifiers = count.modifiers.intersection(CommandFlags::META);
        let (area, left) = (self.area(), count.blocks);
        let read =
            CardRead { area, next, left, single: left == Some(1), modifiers, parts: VecDeque::new(), missing: 0, failed: false };
        self.transfer = Some(CardTransfer::Read(read));
        self.state = CardState::SendingData;
    }

    pub(super) fn start_write(&mut self, argument: u32, count: PresetBlockCount) {
        let Some(next) = self.locate_blocks(argument, count) else { return };
        let area = self.area();
        if matches!(area, CardPartition::Boot(number) if self.ext_csd.boot_protected(number)) {
            self.errors |= CardStatus::WP_VIOLATION;
            return;
        }
        let mut modifiers = count.modifiers;
        // With its cache disabled, a card completes a write when it is programmed (JESD84-B51, 6.6.31).
        if self.ext_csd.cache_on() == Some(false) {
            modifiers |= CommandFlags::FORCED;
        }
        self.transfer = Some(CardTransfer::Write(CardWrite { area, next, left: count.blocks, modifiers, data: Vec::new() }));
        self.state = CardState::ReceivingData;
    }

    /// Returns the first sector of a transfer. If the length is known, all blocks must be on the card; otherwise only the first block.
    fn locate_blocks(&mut self, argument: u32, count: PresetBlockCount) -> Option<u64> {
        let sector = self.locate(argument)?;
        if sector + u64::from(count.blocks.unwrap_or(1)) > self.area_sectors() {
            self.errors |= CardStatus::ADDRESS_OUT_OF_RANGE;
            return None;
        }
        Some(sector)
    }

    /// Starts sending `blocks` blocks to the host. [`Self::take_clocked`] returns the blocks as soon as their data is available.
    pub fn start_clocking(&mut self, blocks: u32, block_bytes: usize) {
        let (sectors, max) = (self.area_sectors(), self.max_sectors);
        let mut next_tag = self.next_tag;
        match &mut self.transfer {
            Some(CardTransfer::Fixed(data)) if blocks == 1 && block_bytes <= data.len() => {
                data.truncate(block_bytes);
            }
            Some(CardTransfer::Read(read)) if block_bytes == SECTOR && !read.failed => {
                let end = read.next + u64::from(blocks);
                if end > sectors {
                    self.errors |= CardStatus::ADDRESS_OUT_OF_RANGE;
                    read.failed = true;
                } else if read.left.is_some_and(|left| blocks > left) {
                    read.failed = true;
                }
                if read.failed {
                    return;
                }
                read.left = read.left.map(|left| left - blocks);
                let bytes = read.next as usize * SECTOR..end as usize * SECTOR;
                match read.area {
                    CardPartition::Boot(number) => {
                        let data = self.boot[number].get(bytes).map(<[u8]>::to_vec);
                        read.parts.push_back(CardReadPart { tag: 0, data });
                    }
                    CardPartition::Rpmb => {
                        let data = Some(self.rpmb.read(blocks as usize));
                        read.parts.push_back(CardReadPart { tag: 0, data });
                    }
                    CardPartition::User => {
                        while read.next < end {
                            next_tag += 1;
                            let (tag, sector) = (next_tag, read.next);
                            let sectors = (end - sector).min(u64::from(max)) as u32;
                            let modifiers = read.modifiers;
                            let action = BlockAction::Read;
                            self.requests.push(ServedRequest { tag, action, sector, sectors, modifiers });
                            read.parts.push_back(CardReadPart { tag, data: None });
                            read.missing += 1;
                            read.next += u64::from(sectors);
                        }
                    }
                }
                read.next = end;
            }
            Some(CardTransfer::Read(read)) => read.failed = true,
            Some(CardTransfer::Fixed(_)) => self.end_read(),
            // A card without a transfer in progress sends no data.
            _ => {}
        }
        self.next_tag = next_tag;
    }

    /// The result of the last [`Self::start_clocking`].
    pub fn take_clocked(&mut self) -> ClockedData {
        match &mut self.transfer {
            Some(CardTransfer::Fixed(data)) => {
                let data = std::mem::take(data);
                self.end_read();
                ClockedData::Data(data)
            }
            Some(CardTransfer::Read(read)) if read.failed => {
                if read.single {
                    self.end_read();
                }
                ClockedData::Failed
            }
            Some(CardTransfer::Read(read)) => {
                if read.missing > 0 {
                    return ClockedData::Waiting;
                }
                let mut data = Vec::new();
                for part in read.parts.drain(..) {
                    match part.data {
                        Some(part) if data.is_empty() => data = part,
                        part => data.extend_from_slice(&part.unwrap_or_default()),
                    }
                }
                if read.left == Some(0) {
                    self.end_read();
                }
                ClockedData::Data(data)
            }
            _ => ClockedData::Failed,
        }
    }

    fn end_read(&mut self) {
        self.transfer = None;
        self.state = CardState::Transfer;
    }

    /// Receives the bytes of one or more blocks from the host. Returns false if the card does not accept them; then no CRC status follows.
    pub fn push(&mut self, data: &[u8]) -> bool {
        let (sectors, max) = (self.area_sectors(), u64::from(self.max_sectors));
        match &mut self.transfer {
            Some(CardTransfer::BusPattern) if data.len() <= 8 => {
                self.bus_pattern = data.to_vec();
                self.transfer = None;
                true
            }
            Some(CardTransfer::Write(write)) if data.len().is_multiple_of(SECTOR) => {
                let blocks = (data.len() / SECTOR) as u32;
                let held = (write.data.len() / SECTOR) as u64;
                if write.next + held + u64::from(blocks) > sectors {
                    self.errors |= CardStatus::ADDRESS_OUT_OF_RANGE;
                    return false;
                }
                if write.left.is_some_and(|left| blocks > left) {
                    return false;
                }
                write.left = write.left.map(|left| left - blocks);
                write.data.extend_from_slice(data);
                let (ended, full) = (write.left == Some(0), held + u64::from(blocks) >= max);
                if ended {
                    self.end_write();
                } else if full && write.area == CardPartition::User {
                    self.write_out();
                }
                true
            }
            _ => false,
        }
    }

    /// Passes the received data to the device, in requests of at most the length that the device accepts.
    fn write_out(&mut self) {
        let Some(CardTransfer::Write(write)) = &mut self.transfer else { return };
        let (area, modifiers, first) = (write.area, write.modifiers, write.next);
        let data = std::mem::take(&mut write.data);
        write.next += (data.len() / SECTOR) as u64;
        match area {
            CardPartition::User => {
                let most = self.max_sectors as usize * SECTOR;
                if (1..=most).contains(&data.len()) {
                    let sectors = (data.len() / SECTOR) as u32;
                    self.request(BlockAction::Write(data), first, sectors, modifiers);
                    return;
                }
                for (sector, part) in (first..).step_by(self.max_sectors as usize).zip(data.chunks(most)) {
                    let sectors = (part.len() / SECTOR) as u32;
                    self.request(BlockAction::Write(part.to_vec()), sector, sectors, modifiers);
                }
            }
            CardPartition::Boot(number) => {
                let from = first as usize * SECTOR;
                if let Some(to) = self.boot[number].get_mut(from..from + data.len()) {
                    to.copy_from_slice(&data);
                }
            }
            CardPartition::Rpmb => self.rpmb.write(&data, modifiers.contains(CommandFlags::RELIABLE)),
        }
    }

    /// Ends the write transfer, after its last block or when CMD12 arrives.
    pub(super) fn end_write(&mut self) {
        self.write_out();
        self.transfer = None;
        self.program();
    }
}
