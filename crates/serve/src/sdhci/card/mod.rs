//! An eMMC card by JESD84-B51: commands and data of the host come in, responses, data and requests to a block device go out.
//!
//! The card has no clock: the host clocks data out of it with [`Card::pull`] and into it with [`Card::push`], and it is busy
//! while the block device works on requests that change something.

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

/// Devices above this size are addressed by sectors, others by bytes (JESD84-B51, 6.6.7).
const BYTE_ADDRESSED: u64 = (2 << 30) / SECTOR_BYTES;

/// CMD23: the length of the next transfer, and flags for it.
#[derive(Clone, Copy)]
struct BlockCount {
    /// `None`: until CMD12.
    blocks: Option<u32>,
    modifiers: Modifiers,
}

/// The partition that commands go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Area {
    User,
    /// Number 0 or 1.
    Boot(usize),
    Rpmb,
}

/// An eMMC card in front of a block device. Boot and RPMB partitions lie in its own memory.
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
    /// Status bits that no response has carried yet.
    errors: Status,
    count: Option<BlockCount>,
    transfer: Option<Transfer>,
    bus_pattern: Vec<u8>,
    erase: Erase,
    /// Requests that wait to be taken.
    requests: Vec<BlockRequest>,
    /// Tags of requests that change something and are not complete: the card is busy.
    programming: BTreeSet<u64>,
    next_tag: u64,
}

impl Card {
    /// A card without power; the settings are checked by the caller.
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

    /// Power is lost and comes back. Requests that were handed to the device go on; the card no longer waits for them.
    pub fn power_cycle(&mut self) {
        self.go_idle();
        self.state = State::Idle;
        self.rpmb.power_cycle();
        self.ext_csd.power_cycle();
    }

    /// CMD0: identification starts again; modes are as after power-up (JESD84-B51, 6.4.1).
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

    /// The requests to the block device since the last call, in order.
    pub fn take_requests(&mut self) -> Vec<BlockRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Whether the card holds DAT0 low.
    pub fn busy(&self) -> bool {
        !self.programming.is_empty()
    }

    /// Takes the completion of a request; one that the card no longer waits for is ignored.
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

    /// Programming has ended where nothing is left to be programmed.
    fn settle(&mut self) {
        if !self.busy() {
            self.state = match self.state {
                State::Programming => State::Transfer,
                // CMD7 of another card came meanwhile.
                State::Disconnected => State::StandBy,
                other => other,
            };
        }
    }

    /// The card programs until its requests are complete.
    fn program(&mut self) {
        self.state = State::Programming;
        self.settle();
    }

    /// The response R1 of a command that came in state `before`; it carries the errors since the last one.
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

    /// Sectors of the chosen partition.
    fn area_sectors(&self) -> u64 {
        match self.area() {
            Area::User => self.sectors,
            Area::Boot(number) => (self.boot[number].len() / SECTOR) as u64,
            // The address of an RPMB frame is in the frame.
            Area::Rpmb => u64::from(u32::MAX),
        }
    }

    /// The sector that the argument of a command names; `None`, with the error in the status, where there is none.
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

    /// Hands a request that changes something to the device; the card is busy until it is complete.
    fn request(&mut self, action: Action, sector: u64, sectors: u32, modifiers: Modifiers) {
        let tag = self.tag();
        self.programming.insert(tag);
        self.requests.push(BlockRequest { tag, action, sector, sectors, modifiers });
    }

    /// Discards the sectors from `start` up to `end` in requests that the device takes.
    fn discard(&mut self, start: u64, end: u64, secure: bool) {
        let mut at = start;
        while at < end {
            let sectors = (end - at).min(u64::from(self.max_sectors)) as u32;
            self.request(Action::Discard { secure }, at, sectors, Modifiers::empty());
            at += u64::from(sectors);
        }
    }

    /// Starts the work that a change of a mode asks for.
    fn start(&mut self, effect: Effect) {
        match effect {
            Effect::None => {}
            Effect::Flush => self.request(Action::Flush, 0, 0, Modifiers::empty()),
            Effect::Barrier => self.request(Action::Flush, 0, 0, Modifiers::BARRIER),
            Effect::Sanitize => self.sanitize(),
        }
    }

    /// SANITIZE (JESD84-B51, 6.6.11): what is not mapped is removed for good; mapped data stays.
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
