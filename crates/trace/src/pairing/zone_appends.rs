//! The zone appends that the driver has not completed yet.

use std::collections::VecDeque;

use crate::NameId;

/// Maximum number of open appends; a queue of a driver is shorter.
const MOST_OPEN: usize = 1 << 12;

/// An append, with the values that all its events except the completion state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ZoneAppend {
    device: NameId,
    /// The start of the zone.
    sector: u64,
    sectors: u32,
}

/// The zone appends in flight.
#[derive(Debug, Default)]
pub(super) struct OpenZoneAppends(VecDeque<ZoneAppend>);

impl OpenZoneAppends {
    /// Adds an append that is issued.
    pub fn issue(&mut self, device: NameId, sector: u64, sectors: u32) {
        if self.0.len() == MOST_OPEN {
            self.0.pop_front();
        }
        self.0.push_back(ZoneAppend { device, sector, sectors });
    }

    /// Removes an append that the driver returned.
    pub fn requeue(&mut self, device: NameId, sector: u64, sectors: u32) {
        let given_back = ZoneAppend { device, sector, sectors };
        if let Some(at) = self.0.iter().rposition(|open| *open == given_back) {
            self.0.remove(at);
        }
    }

    /// Ends the append that was written at this sector; returns the start of its zone. The append is the oldest one of this
    /// length whose zone has the nearest start at or before the sector.
    pub fn complete(&mut self, device: NameId, written: u64, sectors: u32) -> Option<u64> {
        let fits = |open: &ZoneAppend| open.device == device && open.sectors == sectors && open.sector <= written;
        let nearest = self.0.iter().filter(|open| fits(open)).map(|open| open.sector).max()?;
        let at = self.0.iter().position(|open| fits(open) && open.sector == nearest)?;
        self.0.remove(at).map(|open| open.sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_found_by_the_zone_that_it_was_written_in() {
        let (one, other) = (NameId(1), NameId(2));
        let mut appends = OpenZoneAppends::default();
        appends.issue(one, 0, 8);
        appends.issue(one, 524_288, 8);
        appends.issue(one, 0, 8);
        assert_eq!(appends.complete(other, 64, 8), None);
        assert_eq!(appends.complete(one, 524_400, 8), Some(524_288));
        assert_eq!([appends.complete(one, 64, 8), appends.complete(one, 72, 8)], [Some(0); 2]);
        assert_eq!(appends.complete(one, 80, 8), None);
        appends.issue(one, 0, 8);
        appends.requeue(one, 0, 8);
        assert_eq!(appends.complete(one, 64, 8), None);
    }
}
