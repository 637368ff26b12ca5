//! A fast hash for integer keys, the same on every machine and in every run.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by integer keys. Its order of iteration is never used for output.
pub(crate) type IntMap<K, V> = HashMap<K, V, BuildHasherDefault<IntHasher>>;

/// Multiplies and rotates: addresses are no adversaries that need more.
#[derive(Default)]
pub(crate) struct IntHasher(u64);

impl Hasher for IntHasher {
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0xF135_7AEA_2E62_A9C5);
    }
}

/// Spreads a value over all 64 bits (the finaliser of `SplitMix64`); distinct values stay distinct.
#[inline]
pub(crate) fn spread(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
