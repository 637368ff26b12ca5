//! An eMMC card (JESD84-B51): it receives commands and data from the host, returns responses and data, and sends requests to a block device.
//!
//! The card has no clock: the host reads data with [`EmmcCard::start_clocking`] and writes data with [`EmmcCard::push`]. The card
//! is busy while the block device executes requests that change data.

mod commands;
mod ext_csd;
mod rpmb;
mod settings;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeSet;
use std::sync::Arc;

use bitflags::bitflags;
use emmclab_base::{CommandFlags, SECTOR_BYTES};
use ext_csd::{CardExtCsd, SwitchEffect};
use rpmb::RpmbPartition;
use transfer::CardTransfer;

use crate::device::{AllocationExtent, BlockAction, BlockDevice, RequestFailure, ServedCompletion, ServedRequest};

pub use settings::CardSettings;
pub(super) use transfer::ClockedData;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Maximum number of sectors of a device with byte addresses (2 GiB); larger devices use sector addresses (JESD84-B51, 6.6.7).
const BYTE_ADDRESSED: u64 = (2 << 30) / SECTOR_BYTES;

/// The effect of CMD23: the length of the next transfer, and its flags.
#[derive(Clone, Copy)]
struct PresetBlockCount {
    /// Number of blocks; `None` for an open-ended transfer, which CMD12 ends.
    blocks: Option<u32>,
    modifiers: CommandFlags,
}

/// The partition that commands access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CardPartition {
    User,
    /// Boot partition 0 or 1.
    Boot(usize),
    Rpmb,
}

/// An eMMC card that stores its user area on a block device. The boot and RPMB partitions are in its own memory.
pub(super) struct EmmcCard {
    device: Arc<dyn BlockDevice>,
    sectors: u64,
    max_sectors: u32,
    cid: [u8; 16],
    csd: [u8; 16],
    ext_csd: CardExtCsd,
    boot: [Vec<u8>; 2],
    rpmb: RpmbPartition,
    state: CardState,
    rca: u16,
    /// Error bits that were not yet reported in a response to the host.
    errors: CardStatus,
    count: Option<PresetBlockCount>,
    transfer: Option<CardTransfer>,
    bus_pattern: Vec<u8>,
    erase: EraseSequence,
    /// Requests that [`Self::take_requests`] returns next.
    requests: Vec<ServedRequest>,
    /// Tags of incomplete requests that change data. The card is busy while there are any.
    programming: BTreeSet<u64>,
    next_tag: u64,
}

impl EmmcCard {
    /// Creates a card after power-up. The caller must check the settings first.
    pub fn new(settings: &CardSettings, device: Arc<dyn BlockDevice>) -> Self {
        let limits = device.limits();
        Self {
            device,
            sectors: limits.sectors,
            max_sectors: limits.max_sectors.max(1),
            cid: settings::cid(settings),
            csd: settings::csd(limits.sectors),
            ext_csd: CardExtCsd::new(settings, limits.sectors),
            boot: [vec![0; settings.boot_bytes as usize], vec![0; settings.boot_bytes as usize]],
            rpmb: RpmbPartition::new(settings.rpmb_bytes as usize),
            state: CardState::Idle,
            rca: 1,
            errors: CardStatus::empty(),
            count: None,
            transfer: None,
            bus_pattern: Vec::new(),
            erase: EraseSequence::default(),
            requests: Vec::new(),
            programming: BTreeSet::new(),
            next_tag: 0,
        }
    }

    /// Power-cycles the card. Requests that were passed to the device continue; the card no longer waits for them.
    pub fn power_cycle(&mut self) {
        self.go_idle();
        self.state = CardState::Idle;
        self.rpmb.power_cycle();
        self.ext_csd.power_cycle();
    }

    /// Executes CMD0: identification restarts, and modes are reset (JESD84-B51, 6.4.1).
    fn go_idle(&mut self) {
        self.state = CardState::Idle;
        self.rca = 1;
        self.errors = CardStatus::empty();
        self.count = None;
        self.transfer = None;
        self.erase = EraseSequence::default();
        self.requests.clear();
        self.programming.clear();
        self.ext_csd.reset();
    }

    /// Removes and returns the requests to the block device since the last call, in order.
    pub fn take_requests(&mut self) -> Vec<ServedRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Whether the card signals busy (holds DAT0 low).
    pub fn busy(&self) -> bool {
        !self.programming.is_empty()
    }

    /// Processes the completion of a request to the block device. Ignores it if the card does not wait for the request.
    pub fn complete(&mut self, completion: ServedCompletion) {
        if self.programming.remove(&completion.tag) {
            if let Err(failure) = completion.outcome {
                self.errors |= match failure {
                    RequestFailure::Invalid => CardStatus::ADDRESS_OUT_OF_RANGE,
                    RequestFailure::ReadOnly => CardStatus::WP_VIOLATION,
                    RequestFailure::NoSpace | RequestFailure::Io => CardStatus::ERROR,
                };
            }
            self.finish_transfer();
        } else if let Some(CardTransfer::Read(read)) = &mut self.transfer {
            self.errors |= read.complete(completion);
        }
    }

    /// Leaves the programming state if no request that changes data is in progress.
    fn finish_transfer(&mut self) {
        if !self.busy() {
            self.state = match self.state {
                CardState::Programming => CardState::Transfer,
                // CMD7 for another card was received while this card was programming.
                CardState::Disconnected => CardState::StandBy,
                other => other,
            };
        }
    }

    /// Enters the programming state until the requests to the block device are complete.
    fn program(&mut self) {
        self.state = CardState::Programming;
        self.finish_transfer();
    }

    /// Returns the response R1 to a command that was received in state `before`, with the errors since the last R1.
    fn r1(&mut self, before: CardState, busy: bool) -> CardResponse {
        let mut status = std::mem::take(&mut self.errors);
        status.set(CardStatus::READY_FOR_DATA, !busy);
        CardResponse::Short(status.bits() | (before as u32) << 9)
    }

    fn area(&self) -> CardPartition {
        match self.ext_csd.partition() {
            0 => CardPartition::User,
            3 => CardPartition::Rpmb,
            boot => CardPartition::Boot(usize::from(boot) - 1),
        }
    }

    /// Size of the selected partition in sectors.
    fn area_sectors(&self) -> u64 {
        match self.area() {
            CardPartition::User => self.sectors,
            CardPartition::Boot(number) => (self.boot[number].len() / SECTOR) as u64,
            // For the RPMB partition, any argument is valid, because RPMB frames contain their own address.
            CardPartition::Rpmb => u64::from(u32::MAX),
        }
    }

    /// Returns the sector that the argument of a command addresses. If the argument is invalid, returns `None` and sets the error in the
    /// status.
    fn locate(&mut self, argument: u32) -> Option<u64> {
        let mut sector = u64::from(argument);
        if self.sectors <= BYTE_ADDRESSED {
            if !sector.is_multiple_of(SECTOR_BYTES) {
                self.errors |= CardStatus::ADDRESS_MISALIGN;
                return None;
            }
            sector /= SECTOR_BYTES;
        }
        if sector >= self.area_sectors() {
            self.errors |= CardStatus::ADDRESS_OUT_OF_RANGE;
            return None;
        }
        Some(sector)
    }

    /// Passes a request that changes data to the device; the card is busy until it is complete.
    fn request(&mut self, action: BlockAction, sector: u64, sectors: u32, modifiers: CommandFlags) {
        self.next_tag += 1;
        let tag = self.next_tag;
        self.programming.insert(tag);
        self.requests.push(ServedRequest { tag, action, sector, sectors, modifiers });
    }

    /// Discards the sectors from `start` up to `end` (exclusive), in requests of at most the length that the device accepts.
    fn discard(&mut self, start: u64, end: u64, secure: bool) {
        let mut at = start;
        while at < end {
            let sectors = (end - at).min(u64::from(self.max_sectors)) as u32;
            self.request(BlockAction::Discard { secure }, at, sectors, CommandFlags::empty());
            at += u64::from(sectors);
        }
    }

    /// Starts the operation that must follow a change of a mode by CMD6.
    fn start(&mut self, effect: SwitchEffect) {
        match effect {
            SwitchEffect::None => {}
            SwitchEffect::Flush => self.request(BlockAction::Flush, 0, 0, CommandFlags::empty()),
            SwitchEffect::Barrier => self.request(BlockAction::Flush, 0, 0, CommandFlags::BARRIER),
            SwitchEffect::Sanitize => self.sanitize(),
        }
    }

    /// Executes SANITIZE (JESD84-B51, 6.6.11): securely removes the data of sectors that are not allocated.
    fn sanitize(&mut self) {
        const MOST: usize = 256;
        let mut at = 0;
        let mut extents: Vec<AllocationExtent> = Vec::new();
        while at < self.sectors {
            extents.clear();
            self.device.extents(at, self.sectors - at, MOST, &mut extents);
            if extents.iter().all(|extent| extent.sectors == 0) {
                break;
            }
            for extent in &extents {
                let end = at.saturating_add(extent.sectors).min(self.sectors);
                if !extent.allocated {
                    self.discard(at, end, true);
                }
                at = end;
            }
        }
    }
}

bitflags! {
    /// The device status that R1 contains (JESD84-B51, 6.13), without the card state.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CardStatus: u32 {
        const ADDRESS_OUT_OF_RANGE = 1 << 31;
        const ADDRESS_MISALIGN = 1 << 30;
        const BLOCK_LEN_ERROR = 1 << 29;
        const ERASE_SEQ_ERROR = 1 << 28;
        const ERASE_PARAM = 1 << 27;
        const WP_VIOLATION = 1 << 26;
        const ILLEGAL_COMMAND = 1 << 22;
        const DEVICE_ECC_FAILED = 1 << 21;
        const ERROR = 1 << 19;
        const ERASE_RESET = 1 << 13;
        const READY_FOR_DATA = 1 << 8;
        const SWITCH_ERROR = 1 << 7;
    }
}

/// States of a card, by their number in the status (JESD84-B51, 6.13, `CURRENT_STATE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardState {
    Idle = 0,
    Ready = 1,
    Identification = 2,
    StandBy = 3,
    Transfer = 4,
    SendingData = 5,
    ReceivingData = 6,
    Programming = 7,
    Disconnected = 8,
    BusTest = 9,
    Sleep = 10,
    Inactive = 15,
}

/// The response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardResponse {
    /// No response: the host's command times out.
    None,
    /// 32 bits of content: R1, R1b, R3, R4 and R5.
    Short(u32),
    /// A register of 128 bits, most significant byte first: R2.
    Long([u8; 16]),
}

/// Maximum number of ranges that secure trim step 1 can mark before step 2.
const MOST_MARKED: usize = 4096;

/// The operations of CMD38, selected by its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EraseOperation {
    /// Erases whole erase groups.
    Erase { secure: bool },
    /// Trims or discards sectors (TRIM and DISCARD).
    Trim,
    /// Secure trim step 1: marks the sectors.
    SecureTrimMark,
    /// Secure trim step 2: removes the marked sectors.
    SecureTrimRun,
}

impl EraseOperation {
    /// The operation for an argument; `None` if the card does not support it.
    pub fn of(argument: u32, ext_csd: &CardExtCsd) -> Option<Self> {
        let (trim, secure) = (ext_csd.has_trim(), ext_csd.has_secure_erase());
        match argument {
            0 => Some(Self::Erase { secure: false }),
            0x8000_0000 if secure => Some(Self::Erase { secure: true }),
            1 if trim => Some(Self::Trim),
            3 => Some(Self::Trim),
            0x8000_0001 if secure && trim => Some(Self::SecureTrimMark),
            0x8000_8000 if secure && trim => Some(Self::SecureTrimRun),
            _ => None,
        }
    }
}

/// The state of the sequence CMD35, CMD36, CMD38.
#[derive(Default)]
struct EraseSequence {
    start: Option<u64>,
    end: Option<u64>,
    marked: Vec<(u64, u64)>,
}

impl EraseSequence {
    /// Ends the sequence because of another command; returns whether a sequence had begun.
    pub fn abort(&mut self) -> bool {
        self.end = None;
        self.start.take().is_some()
    }

    pub fn end(&mut self, sector: u64) -> CardStatus {
        match self.start {
            None => CardStatus::ERASE_SEQ_ERROR,
            Some(start) if sector < start => {
                self.abort();
                CardStatus::ERASE_PARAM
            }
            Some(_) => {
                self.end = Some(sector);
                CardStatus::empty()
            }
        }
    }
}

impl EmmcCard {
    /// Executes CMD38 on the range of CMD35 and CMD36.
    fn start_erase(&mut self, kind: EraseOperation) {
        let (Some(start), Some(last)) = (self.erase.start.take(), self.erase.end.take()) else {
            self.erase.abort();
            self.errors |= CardStatus::ERASE_SEQ_ERROR;
            return;
        };
        let mut range = (start, last + 1);
        match kind {
            EraseOperation::Erase { .. } => {
                let group = self.ext_csd.erase_group();
                range = (start / group * group, (last / group + 1) * group);
                range.1 = range.1.min(self.area_sectors());
                self.remove(range, kind == EraseOperation::Erase { secure: true });
            }
            EraseOperation::Trim => self.remove(range, false),
            EraseOperation::SecureTrimMark if self.erase.marked.len() < MOST_MARKED => {
                self.erase.marked.push(range);
            }
            EraseOperation::SecureTrimMark => self.errors |= CardStatus::ERROR,
            EraseOperation::SecureTrimRun => {
                for range in std::mem::take(&mut self.erase.marked) {
                    self.remove(range, true);
                }
            }
        }
        self.program();
    }

    /// Discards the sectors from `start` up to `end` (exclusive).
    fn remove(&mut self, (start, end): (u64, u64), secure: bool) {
        match self.area() {
            CardPartition::User => self.discard(start, end, secure),
            CardPartition::Boot(number) if self.ext_csd.boot_protected(number) => {
                self.errors |= CardStatus::WP_VIOLATION;
            }
            CardPartition::Boot(number) => {
                let bytes = start as usize * SECTOR..(end as usize * SECTOR).min(self.boot[number].len());
                if let Some(part) = self.boot[number].get_mut(bytes) {
                    part.fill(0);
                }
            }
            CardPartition::Rpmb => {}
        }
    }
}
