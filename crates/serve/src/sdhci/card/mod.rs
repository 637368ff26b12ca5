//! An eMMC card by JESD84-B51: it receives commands and data from the host, returns responses and data, and makes requests to a block
//! device.
//!
//! The card has no clock: the host reads data with [`EmmcCard::start_clocking`] and writes data with [`EmmcCard::push`]. The card is busy while the block
//! device executes requests that change data.

mod commands;
mod erase;
mod ext_csd;
mod identity;
mod rpmb;
mod status;
#[cfg(test)]
mod tests;
mod transfer;

use std::collections::BTreeSet;
use std::sync::Arc;

use emmclab_base::{CommandFlags, SECTOR_BYTES};

use crate::device::{AllocationExtent, BlockAction, BlockDevice, RequestFailure, ServedCompletion, ServedRequest};
use crate::sdhci::settings::CardSettings;
use erase::EraseSequence;
use ext_csd::{CardExtCsd, SwitchEffect};
use rpmb::RpmbPartition;
pub(super) use status::CardResponse;
use status::{CardState, CardStatus};
use transfer::CardTransfer;
pub(super) use transfer::ClockedData;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Devices above this size use sector addresses, others byte addresses (JESD84-B51, 6.6.7).
const BYTE_ADDRESSED: u64 = (2 << 30) / SECTOR_BYTES;

/// The effect of CMD23: the length of the next transfer, and its flags.
#[derive(Clone, Copy)]
struct PresetBlockCount {
    /// Number of blocks; `None` for an open-ended transfer, until CMD12.
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
    /// Error bits that no response has reported yet.
    errors: CardStatus,
    count: Option<PresetBlockCount>,
    transfer: Option<CardTransfer>,
    bus_pattern: Vec<u8>,
    erase: EraseSequence,
    /// Requests to be taken by [`Self::take_requests`].
    requests: Vec<ServedRequest>,
    /// Tags of incomplete requests that change data. The card is busy while there are any.
    programming: BTreeSet<u64>,
    next_tag: u64,
}

impl EmmcCard {
    /// A card after power-up. The caller must have checked the settings.
    pub fn new(settings: &CardSettings, device: Arc<dyn BlockDevice>) -> Self {
        let limits = device.limits();
        Self {
            device,
            sectors: limits.sectors,
            max_sectors: limits.max_sectors.max(1),
            cid: identity::cid(settings),
            csd: identity::csd(limits.sectors),
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

    /// Processes the completion of a request; ignores it if the card no longer waits for the request.
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

    /// Ends the programming state if no request is left.
    fn finish_transfer(&mut self) {
        if !self.busy() {
            self.state = match self.state {
                CardState::Programming => CardState::Transfer,
                // CMD7 for another card was received while programming.
                CardState::Disconnected => CardState::StandBy,
                other => other,
            };
        }
    }

    /// Enters the programming state until the requests are complete.
    fn program(&mut self) {
        self.state = CardState::Programming;
        self.finish_transfer();
    }

    /// The response R1 to a command that was received in state `before`. It reports the errors since the last R1.
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

    /// Sectors of the selected partition.
    fn area_sectors(&self) -> u64 {
        match self.area() {
            CardPartition::User => self.sectors,
            CardPartition::Boot(number) => (self.boot[number].len() / SECTOR) as u64,
            // Any argument is allowed, since RPMB frames contain their address.
            CardPartition::Rpmb => u64::from(u32::MAX),
        }
    }

    /// The sector that the argument of a command addresses; `None` if there is none, with the error set in the status.
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

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Passes a request that changes data to the device; the card is busy until it is complete.
    fn request(&mut self, action: BlockAction, sector: u64, sectors: u32, modifiers: CommandFlags) {
        let tag = self.tag();
        self.programming.insert(tag);
        self.requests.push(ServedRequest { tag, action, sector, sectors, modifiers });
    }

    /// Discards the sectors from `start` up to `end` (exclusive), in requests that are no longer than the device accepts.
    fn discard(&mut self, start: u64, end: u64, secure: bool) {
        let mut at = start;
        while at < end {
            let sectors = (end - at).min(u64::from(self.max_sectors)) as u32;
            self.request(BlockAction::Discard { secure }, at, sectors, CommandFlags::empty());
            at += u64::from(sectors);
        }
    }

    /// Starts the operation that a change of a mode requests.
    fn start(&mut self, effect: SwitchEffect) {
        match effect {
            SwitchEffect::None => {}
            SwitchEffect::Flush => self.request(BlockAction::Flush, 0, 0, CommandFlags::empty()),
            SwitchEffect::Barrier => self.request(BlockAction::Flush, 0, 0, CommandFlags::BARRIER),
            SwitchEffect::Sanitize => self.sanitize(),
        }
    }

    /// Executes SANITIZE (JESD84-B51, 6.6.11): securely removes what is not allocated; allocated data stays.
    fn sanitize(&mut self) {
        const MOST: usize = 256;
        let mut at = 0;
        let mut found: Vec<AllocationExtent> = Vec::new();
        while at < self.sectors {
            found.clear();
            self.device.extents(at, self.sectors - at, MOST, &mut found);
            if found.iter().all(|extent| extent.sectors == 0) {
                break;
            }
            for extent in &found {
                let end = at.saturating_add(extent.sectors).min(self.sectors);
                if !extent.allocated {
                    self.discard(at, end, true);
                }
                at = end;
            }
        }
    }
}
