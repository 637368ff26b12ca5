//! Page numbers spread over 64 bits, which samples and finds them.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A page by its spread number; distinct pages have distinct keys.
pub(crate) type Key = u64;
/// A map by key.
pub(crate) type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<Spread>>;
/// A set of keys.
pub(crate) type KeySet = HashSet<Key, BuildHasherDefault<Spread>>;

/// Spreads a page number over all 64 bits (the finaliser of `SplitMix64`, a bijection).
#[inline]
pub(crate) fn spread(page: u64) -> Key {
    let mixed = (page ^ (page >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Keeps a device's pages apart from those of another device.
#[inline]
pub(crate) fn key_of(space: u32, page: u64) -> Key {
    spread(page ^ u64::from(space).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Whether a sample of one page in `2^shift` holds this one. Samples nest. The bits are not those that tables index by.
#[inline]
pub(crate) fn is_sampled(key: Key, shift: u32) -> bool {
    (key >> 32) & ((1 << shift) - 1) == 0
}

/// Takes keys as their own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[inline]
    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
