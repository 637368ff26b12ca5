//! Erase, trim, discard and their secure variants (JESD84-B51, 6.6.9 to 6.6.12).

use super::ext_csd::CardExtCsd;
use super::{CardPartition, CardStatus, EmmcCard, SECTOR};

/// Maximum number of ranges that secure trim step 1 can mark before step 2.
const MOST_MARKED: usize = 4096;

/// The operations of CMD38, selected by its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EraseOperation {
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
pub(super) struct EraseSequence {
    start: Option<u64>,
    end: Option<u64>,
    marked: Vec<(u64, u64)>,
}

impl EraseSequence {
    /// Ends the sequence because of another command; returns whether there was one.
    pub fn abort(&mut self) -> bool {
        self.end = None;
        self.start.take().is_some()
    }

    pub fn start(&mut self, sector: u64) -> CardStatus {
        (self.start, self.end) = (Some(sector), None);
        CardStatus::empty()
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
    pub(super) fn start_erase(&mut self, kind: EraseOperation) {
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
