//! An eMMC card by JESD84-B51: it receives commands and data from the host, returns responses and data, and makes requests to a block
//! device.
//!
//! The card has no clock: the host reads data with [`Card::pull`] and writes data with [`Card::push`]. The card is busy while the block
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

use emmclab_base::{Modifiers, SECTOR_BYTES};

use crate::device::{Action, BlockDevice, BlockRequest, Completion, Extent, Failure};
use crate::sdhci::settings::CardSettings;
use erase::Erase;
use ext_csd::{Effect, ExtCsd};
use rpmb::Rpmb;
pub(super) use status::Response;
use status::{State, Status};
pub(super) use transfer::Pulled;
use transfer::Transfer;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Devices above this size use sector addresses, others byte addresses (JESD84-B51, 6.6.7).
const BYTE_ADDRESSED: u64 = (2 << 30) / SECTOR_BYTES;

/// The effect of CMD23: the length of the next transfer, and its flags.
#[derive(Clone, Copy)]
struct BlockCount {
    /// Number of blocks; `None` for an open-ended transfer, until CMD12.
    blocks: Option<u32>,
    modifiers: Modifiers,
}

/// The partition that commands access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    User,
    /// Boot partition 0 or 1.
    Boot(usize),
    Rpmb,
}

/// An eMMC card that stores its user area on a block device. The boot and RPMB partitions are in its own memory.
pub(super) struct Card {
    device: Arc<dyn BlockDevice>,
    sectors: u64,
    max_sectors: u32,
    cid: [u8; 16],
    csd: [u8; 16],
    ext_csd: ExtCsd,
    boot: [Vec<u8>; 2],
    rpmb: Rpmb,
    state: State,
    rca: u16,
    /// Error bits that no response has reported yet.
    errors: Status,
    count: Option<BlockCount>,
    transfer: Option<Transfer>,
    bus_pattern: Vec<u8>,
    erase: Erase,
    /// Requests to be taken by [`Self::take_requests`].
    requests: Vec<BlockRequest>,
    /// Tags of incomplete requests that change data. The card is busy while there are any.
    programming: BTreeSet<u64>,
    next_tag: u64,
}

impl Card {
    /// A card after power-up. The caller must have checked the settings.
    pub fn new(settings: &CardSettings, device: Arc<dyn BlockDevice>) -> Self {
        let limits = device.limits();
        Self {
            device,
            sectors: limits.sectors,
            max_sectors: limits.max_sectors.max(1),
            cid: identity::cid(settings),
            csd: identity::csd(limits.sectors),
            ext_csd: ExtCsd::new(settings, limits.sectors),
            boot: [vec![0; settings.boot_bytes as usize], vec![0; settings.boot_bytes as usize]],
            rpmb: Rpmb::new(settings.rpmb_bytes as usize),
            state: State::Idle,
            rca: 1,
            errors: Status::empty(),
            count: None,
            transfer: None,
            bus_pattern: Vec::new(),
            erase: Erase::default(),
            requests: Vec::new(),
            programming: BTreeSet::new(),
            next_tag: 0,
        }
    }

    /// Power-cycles the card. Requests that were passed to the device continue; the card no longer waits for them.
    pub fn power_cycle(&mut self) {
        self.go_idle();
        self.state = State::Idle;
        self.rpmb.power_cycle();
        self.ext_csd.power_cycle();
    }

    /// Executes CMD0: identification restarts, and modes are reset (JESD84-B51, 6.4.1).
    fn go_idle(&mut self) {
        self.state = State::Idle;
        self.rca = 1;
        self.errors = Status::empty();
        self.count = None;
        self.transfer = None;
        self.erase = Erase::default();
        self.requests.clear();
        self.programming.clear();
        self.ext_csd.reset();
    }

    /// Removes and returns the requests to the block device since the last call, in order.
    pub fn take_requests(&mut self) -> Vec<BlockRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Whether the card signals busy (holds DAT0 low).
    pub fn busy(&self) -> bool {
        !self.programming.is_empty()
    }

    /// Processes the completion of a request; ignores it if the card no longer waits for the request.
    pub fn complete(&mut self, completion: Completion) {
        if self.programming.remove(&completion.tag) {
            if let Err(failure) = completion.outcome {
                self.errors |= match failure {
                    Failure::Invalid => Status::ADDRESS_OUT_OF_RANGE,
                    Failure::ReadOnly => Status::WP_VIOLATION,
                    Failure::NoSpace | Failure::Io => Status::ERROR,
                };
            }
            self.settle();
        } else if let Some(Transfer::Read(read)) = &mut self.transfer {
            self.errors |= read.complete(completion);
        }
    }

    /// Ends the programming state if no request is left.
    fn settle(&mut self) {
        if !self.busy() {
            self.state = match self.state {
                State::Programming => State::Transfer,
                // CMD7 for another card was received while programming.
                State::Disconnected => State::StandBy,
                other => other,
            };
        }
    }

    /// Enters the programming state until the requests are complete.
    fn program(&mut self) {
        self.state = State::Programming;
        self.settle();
    }

    /// The response R1 to a command that was received in state `before`. It reports the errors since the last R1.
    fn r1(&mut self, before: State, busy: bool) -> Response {
        let mut status = std::mem::take(&mut self.errors);
        status.set(Status::READY_FOR_DATA, !busy);
        Response::Short(status.bits() | (before as u32) << 9)
    }

    fn area(&self) -> Area {
        match self.ext_csd.partition() {
            0 => Area::User,
            3 => Area::Rpmb,
            boot => Area::Boot(usize::from(boot) - 1),
        }
    }

    /// Sectors of the selected partition.
    fn area_sectors(&self) -> u64 {
        match self.area() {
            Area::User => self.sectors,
            Area::Boot(number) => (self.boot[number].len() / SECTOR) as u64,
            // Any argument is allowed, since RPMB frames contain their address.
            Area::Rpmb => u64::from(u32::MAX),
        }
    }

    /// The sector that the argument of a command addresses; `None` if there is none, with the error set in the status.
    fn locate(&mut self, argument: u32) -> Option<u64> {
        let mut sector = u64::from(argument);
        if self.sectors <= BYTE_ADDRESSED {
            if !sector.is_multiple_of(SECTOR_BYTES) {
                self.errors |= Status::ADDRESS_MISALIGN;
                return None;
            }
            sector /= SECTOR_BYTES;
        }
        if sector >= self.area_sectors() {
            self.errors |= Status::ADDRESS_OUT_OF_RANGE;
            return None;
        }
        Some(sector)
    }

    fn tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Passes a request that changes data to the device; the card is busy until it is complete.
    fn request(&mut self, action: Action, sector: u64, sectors: u32, modifiers: Modifiers) {
        let tag = self.tag();
        self.programming.insert(tag);
        self.requests.push(BlockRequest { tag, action, sector, sectors, modifiers });
    }

    /// Discards the sectors from `start` up to `end` (exclusive), in requests that are no longer than the device accepts.
    fn discard(&mut self, start: u64, end: u64, secure: bool) {
        let mut at = start;
        while at < end {
            let sectors = (end - at).min(u64::from(self.max_sectors)) as u32;
            self.request(Action::Discard { secure }, at, sectors, Modifiers::empty());
            at += u64::from(sectors);
        }
    }

    /// Starts the operation that a change of a mode requests.
    fn start(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Flush => self.request(Action::Flush, 0, 0, Modifiers::empty()),
            Effect::Barrier => self.request(Action::Flush, 0, 0, Modifiers::BARRIER),
            Effect::Sanitize => self.sanitize(),
        }
    }

    /// Executes SANITIZE (JESD84-B51, 6.6.11): securely removes what is not allocated; allocated data stays.
    fn sanitize(&mut self) {
        const MOST: usize = 256;
        let mut at = 0;
        let mut found: Vec<Extent> = Vec::new();
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
