//! Erase, trim, discard and their secure variants (JESD84-B51, 6.6.9 to 6.6.12).

use super::ext_csd::ExtCsd;
use super::{Area, Card, SECTOR, Status};

/// Maximum number of ranges that secure trim step 1 can mark before step 2.
const MOST_MARKED: usize = 4096;

/// The operations of CMD38, selected by its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Erases whole erase groups.
    Erase { secure: bool },
    /// Trims or discards sectors (TRIM and DISCARD).
    Trim,
    /// Secure trim step 1: marks the sectors.
    SecureTrimMark,
    /// Secure trim step 2: removes the marked sectors.
    SecureTrimRun,
}

impl Kind {
    /// The operation for an argument; `None` if the card does not support it.
    pub fn of(argument: u32, ext_csd: &ExtCsd) -> Option<Self> {
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
pub(super) struct Erase {
    start: Option<u64>,
    end: Option<u64>,
    marked: Vec<(u64, u64)>,
}

impl Erase {
    /// Ends the sequence because of another command; returns whether there was one.
    pub fn abort(&mut self) -> bool {
        self.end = None;
        self.start.take().is_some()
    }

    pub fn start(&mut self, sector: u64) -> Status {
        (self.start, self.end) = (Some(sector), None);
        Status::empty()
    }

    pub fn end(&mut self, sector: u64) -> Status {
        match self.start {
            None => Status::ERASE_SEQ_ERROR,
            Some(start) if sector < start => {
                self.abort();
                Status::ERASE_PARAM
            }
            Some(_) => {
                self.end = Some(sector);
                Status::empty()
            }
        }
    }
}

impl Card {
    /// Executes CMD38 on the range of CMD35 and CMD36.
    pub(super) fn start_erase(&mut self, kind: Kind) {
        let (Some(start), Some(last)) = (self.erase.start.take(), self.erase.end.take()) else {
            self.erase.abort();
            self.errors |= Status::ERASE_SEQ_ERROR;
            return;
        };
        let mut range = (start, last + 1);
        match kind {
            Kind::Erase { .. } => {
                let group = self.ext_csd.erase_group();
                range = (start / group * group, (last / group + 1) * group);
                range.1 = range.1.min(self.area_sectors());
                self.remove(range, kind == Kind::Erase { secure: true });
            }
            Kind::Trim => self.remove(range, false),
            Kind::SecureTrimMark if self.erase.marked.len() < MOST_MARKED => self.erase.marked.push(range),
            Kind::SecureTrimMark => self.errors |= Status::ERROR,
            Kind::SecureTrimRun => {
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
            Area::User => self.discard(start, end, secure),
            Area::Boot(number) if self.ext_csd.boot_protected(number) => self.errors |= Status::WP_VIOLATION,
            Area::Boot(number) => {
                let bytes = start as usize * SECTOR..(end as usize * SECTOR).min(self.boot[number].len());
                if let Some(part) = self.boot[number].get_mut(bytes) {
                    part.fill(0);
                }
            }
            Area::Rpmb => {}
        }
    }
}
