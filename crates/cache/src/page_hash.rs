//! Hashes page numbers to 64 bits, for sampling and for hash tables.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::misses::GROUPS;

/// A page by its hashed number; distinct pages have distinct keys.
pub(crate) type Key = u64;
/// A map by key.
pub(crate) type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<KeyHasher>>;
/// A set of keys.
pub(crate) type KeySet = HashSet<Key, BuildHasherDefault<KeyHasher>>;

/// Hashes a page number to 64 bits (`SplitMix64`, a bijection). Without the addition, page 0 would have hash 0 and be in every
/// sample.
#[inline]
pub fn hash_page(page: u64) -> u64 {
    let page = page.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (page ^ (page >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the key of a page; `space` keeps the pages of different devices apart.
#[inline]
pub(crate) fn key_of(space: u32, page: u64) -> Key {
    hash_page(page ^ u64::from(space).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// Whether a page is in a sample of one page in `2^shift`. Samples are nested. Other bits of the key index the hash tables.
#[inline]
pub(crate) fn is_sampled(key: Key, shift: u32) -> bool {
    (key >> 32) & ((1 << shift) - 1) == 0
}

/// The group of a page; its bits are not those of samples of up to one page in `2^24`.
#[inline]
pub(crate) fn group_of(key: Key) -> usize {
    (key >> 56) as usize % GROUPS
}

/// A hasher that uses a key as its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_page_is_in_every_sample_and_samples_have_their_share() {
        let pages = 1 << 20;
        for shift in [1, 4, 6] {
            let sampled = (0..pages).filter(|page| is_sampled(key_of(0, *page), shift)).count() as f64;
            let expected = f64::from(pages as u32) / f64::from(1 << shift);
            assert!((sampled / expected - 1.0).abs() < 0.03, "{sampled} of {pages} at {shift}");
        }
        assert!((1..32).any(|shift| !is_sampled(key_of(0, 0), shift)));
    }
}
