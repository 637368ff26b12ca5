//! Sectors of a host request, and the part of a unit that they cover.

use crate::ids::Lpn;

/// Sectors `first..end` of a host request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSectors {
    pub first: u64,
    pub end: u64,
}

impl RequestSectors {
    /// `sectors` sectors from `first` on.
    #[inline]
    pub fn new(first: u64, sectors: u32) -> Self {
        Self { first, end: first + u64::from(sectors) }
    }

    /// Sectors of `unit` that the span covers, one bit each.
    #[inline]
    pub fn covered(self, unit: Lpn, unit_sectors: u32) -> u32 {
        let base = u64::from(unit.0) * u64::from(unit_sectors);
        if self.first <= base && self.end >= base + u64::from(unit_sectors) {
            return all_sectors(unit_sectors);
        }
        let from = self.first.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        let to = self.end.saturating_sub(base).min(u64::from(unit_sectors)) as u32;
        below(to) & !below(from)
    }

    /// The units that the span touches: the first one and their number.
    #[inline]
    pub fn units(self, unit_shift: u32) -> (Lpn, u32) {
        let first = self.first >> unit_shift;
        let end = (self.end + (1 << unit_shift) - 1) >> unit_shift;
        (Lpn(first as u32), (end - first) as u32)
    }

    /// Whether the span begins and ends at unit boundaries.
    #[inline]
    pub fn is_whole(self, unit_sectors: u32) -> bool {
        (self.first | self.end) & u64::from(unit_sectors - 1) == 0
    }

    /// Whether the span leaves part of the first or last of these units uncovered.
    #[inline]
    pub fn is_partial(self, first: Lpn, units: u32, unit_shift: u32) -> bool {
        self.first > u64::from(first.0) << unit_shift || self.end < u64::from(first.0 + units) << unit_shift
    }

    /// Bytes of the span in the units `from..to`, which it touches.
    #[inline]
    pub fn bytes_between(self, from: Lpn, to: Lpn, unit_shift: u32) -> u32 {
        let begin = self.first.max(u64::from(from.0) << unit_shift);
        let end = self.end.min(u64::from(to.0) << unit_shift);
        (end - begin) as u32 * 512
    }
}

/// All sectors of a unit, one bit each.
#[inline]
pub(crate) fn all_sectors(unit_sectors: u32) -> u32 {
    below(unit_sectors)
}

#[inline]
fn below(n: u32) -> u32 {
    if n >= 32 { u32::MAX } else { (1 << n) - 1 }
}
