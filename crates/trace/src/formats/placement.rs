//! Assigns addresses in traces of caches and file servers, which name objects and have no addresses of a device.
//!
//! Objects, or parts of them, are placed one after the other in the order of first use. A reused object keeps its address, and
//! neighbouring data within a part stays adjacent; distances between parts mean nothing.

use std::collections::HashMap;

use crate::{SECTOR_BYTES, Sector};

/// The text on addresses in the note of such a trace.
pub(super) const NOTE: &str = "the trace names objects and has no addresses: they are placed one after the other in the order of first \
                               use, so that reuse is as recorded and distances are not";

/// The number of an object, from its name: the name itself if it is a number, otherwise a hash of it.
pub(super) fn object(name: &[u8]) -> u64 {
    // FNV-1a.
    let hash = || {
        name.iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    };
    std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(hash)
}

/// Addresses of parts of objects; all parts have one size.
pub(super) struct PartAddresses {
    addresses: HashMap<(u64, u64), u64>,
    bytes: u64,
}

impl PartAddresses {
    /// For parts of this many bytes.
    pub fn of(bytes: u64) -> Self {
        Self { addresses: HashMap::new(), bytes }
    }

    /// The address of an offset in an object, both in bytes.
    pub fn offset(&mut self, object: u64, offset: u64) -> u64 {
        let next = self.addresses.len() as u64;
        let part = *self.addresses.entry((object, offset / self.bytes)).or_insert(next);
        part.saturating_mul(self.bytes).saturating_add(offset % self.bytes)
    }
}

/// Addresses of objects that are used as a whole.
#[derive(Default)]
pub(super) struct ObjectAddresses {
    /// First sector and reserved sectors of each object.
    addresses: HashMap<u64, (u64, u32)>,
    next: u64,
}

impl ObjectAddresses {
    /// The first sector of an object that has this many sectors now. An object that is larger than its reserved space moves.
    pub fn sector(&mut self, object: u64, sectors: u32) -> Sector {
        const PAGE: u32 = 4096 / SECTOR_BYTES as u32;
        let next = self.next;
        let place = self.addresses.entry(object).or_insert((next, 0));
        if place.1 < sectors {
            *place = (next, sectors.div_ceil(PAGE).saturating_mul(PAGE));
            self.next = next.saturating_add(u64::from(place.1));
        }
        Sector(place.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_is_found_at_the_same_address() {
        let mut parts = PartAddresses::of(1 << 20);
        assert_eq!(parts.offset(7, 4096), 4096);
        assert_eq!(parts.offset(9, 0), 1 << 20);
        assert_eq!(parts.offset(7, 8192), 8192);
        assert_eq!(parts.offset(7, 1 << 20), 2 << 20);
    }

    #[test]
    fn names_that_are_no_numbers_name_objects_too() {
        assert_eq!(object(b"77"), 77);
        assert!(object(b"a") != object(b"b") && object(b"a") == object(b"a"));
    }

    #[test]
    fn an_object_that_outgrows_its_room_moves() {
        let mut objects = ObjectAddresses::default();
        assert_eq!(
            (objects.sector(5, 1), objects.sector(6, 9), objects.sector(5, 8)),
            (Sector(0), Sector(8), Sector(0))
        );
        assert_eq!((objects.sector(5, 9), objects.sector(7, 1)), (Sector(24), Sector(40)));
    }
}
