//! Addresses for traces of caches and file servers, which name objects and have no addresses of a device.
//!
//! Objects, or parts of them, lie one after the other in the order in which they are used first. What is used again is found at the
//! same address, and neighbours within a part stay neighbours; distances between parts mean nothing.

use std::collections::HashMap;

use emmclab_base::{SECTOR_BYTES, Sector};

/// What the note of such a trace says of its addresses.
pub(super) const NOTE: &str = "the trace names objects and has no addresses: they are laid one behind the other in the order of first \
                               use, so that reuse is as recorded and distances are not";

/// The number of an object by its name, which most often is a number.
pub(super) fn object(name: &[u8]) -> u64 {
    // FNV-1a, where it is not.
    let hash = || {
        name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(hash)
}

/// Parts of one size.
pub(super) struct Parts {
    places: HashMap<(u64, u64), u64>,
    bytes: u64,
}

impl Parts {
    /// Parts of this many bytes.
    pub fn of(bytes: u64) -> Self {
        Self { places: HashMap::new(), bytes }
    }

    /// The address in bytes of this offset in an object.
    pub fn offset(&mut self, object: u64, offset: u64) -> u64 {
        let next = self.places.len() as u64;
        let part = *self.places.entry((object, offset / self.bytes)).or_insert(next);
        part.saturating_mul(self.bytes).saturating_add(offset % self.bytes)
    }
}

/// Objects that are used whole.
#[derive(Default)]
pub(super) struct Objects {
    /// First sector and room of each.
    places: HashMap<u64, (u64, u32)>,
    next: u64,
}

impl Objects {
    /// The first sector of an object that has this many sectors now. It moves where it has outgrown its room.
    pub fn sector(&mut self, object: u64, sectors: u32) -> Sector {
        const PAGE: u32 = 4096 / SECTOR_BYTES as u32;
        let next = self.next;
        let place = self.places.entry(object).or_insert((next, 0));
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
        let mut parts = Parts::of(1 << 20);
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
        let mut objects = Objects::default();
        assert_eq!(
            (objects.sector(5, 1), objects.sector(6, 9), objects.sector(5, 8)),
            (Sector(0), Sector(8), Sector(0))
        );
        assert_eq!((objects.sector(5, 9), objects.sector(7, 1)), (Sector(24), Sector(40)));
    }
}
