//! The last logged copy of each home block: digests of its sectors as they lie in the journal, and the transaction.

use emmclab_base::{SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::journal::JOURNAL_MAGIC;

const SECTOR: usize = SECTOR_BYTES as usize;
/// Digests that are kept at most: 64 MiB, enough for the copies of 1,048,576 blocks of 4 KB.
const MOST_DIGESTS: usize = 1 << 23;

/// A copy, without its digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// The block that was logged; of a copy whose home is not known yet, [`early`].
    key: u64,
    /// The transaction that logged it last; of a copy whose home is not known yet, a stamp.
    pub transaction: u32,
    /// Zeros stand in it for the journal's magic number.
    escaped: bool,
    /// Whether what it leads to is known.
    pub learned: bool,
}

/// Copies by home block. Memory for a block of 4 KB: 64 bytes of digests, 16 of the copy, and 20 to 39 in the index; 45 more for its
/// place, where no neighbour is metadata. Beyond [`MOST_DIGESTS`] the oldest copy goes.
#[derive(Default)]
pub(super) struct Copies {
    index: FxHashMap<u64, u32>,
    slots: Vec<Copy>,
    digests: Vec<u64>,
    free: Vec<u32>,
    /// Sectors of a block.
    sectors: usize,
    /// The copy that goes next where there are too many.
    oldest: usize,
}

/// The key of a copy at a block of the journal whose home is not known yet.
pub(super) fn early(block: u32) -> u64 {
    1 << 63 | u64::from(block)
}

/// The effect of a logged block on the copies.
pub(super) struct Updated {
    /// The sectors that differ from the copy before; `None` if there was none.
    pub changed: Option<SectorSet>,
    /// A home block whose copy had to go.
    pub dropped: Option<u64>,
}

impl Copies {
    /// Forgets all, for blocks of this many sectors.
    pub fn reset(&mut self, sectors: usize) {
        *self = Self { sectors, ..Self::default() };
    }

    pub fn get(&self, key: u64) -> Option<&Copy> {
        self.index.get(&key).map(|at| &self.slots[*at as usize])
    }

    /// Which of the sectors from `within` on, whose bytes are given, differ from the copy; the lowest bit is that of `within`.
    /// The bytes are those of a home block where `at_home` says so.
    pub fn compare(
        &self,
        key: u64,
        within: usize,
        bytes: &[u8],
        at_home: bool,
    ) -> Option<(SectorSet, &Copy)> {
        let at = *self.index.get(&key)? as usize;
        let copy = &self.slots[at];
        let known = self.digests.get(at * self.sectors + within..(at + 1) * self.sectors)?;
        let mut changed = 0;
        for (place, (sector, digest)) in bytes.chunks_exact(SECTOR).zip(known).enumerate() {
            let differs = if at_home && within + place == 0 {
                escaped_digest(sector) != (*digest, copy.escaped)
            } else {
                xxh3_64(sector) != *digest
            };
            changed |= u128::from(differs) << place;
        }
        Some((SectorSet(changed), copy))
    }

    /// A block is logged, whole.
    pub fn update(
        &mut self,
        key: u64,
        transaction: u32,
        escaped: bool,
        learned: bool,
        bytes: &[u8],
    ) -> Updated {
        let (at, dropped) = match self.index.get(&key) {
            Some(at) => (*at as usize, None),
            None => match self.insert(key) {
                Some((at, dropped)) => {
                    self.write(at, bytes);
                    self.slots[at] = Copy { key, transaction, escaped, learned };
                    return Updated { changed: None, dropped };
                }
                None => return Updated { changed: None, dropped: None },
            },
        };
        let changed = self.write(at, bytes);
        self.slots[at] = Copy { key, transaction, escaped, learned };
        Updated { changed: Some(changed), dropped }
    }

    /// The home of a copy became known.
    pub fn claim(&mut self, from: u64, home: u64, transaction: u32, escaped: bool) {
        self.remove(home);
        if let Some(at) = self.index.remove(&from) {
            self.index.insert(home, at);
            self.slots[at as usize] = Copy { key: home, transaction, escaped, learned: false };
        }
    }

    /// Marks the targets of a home block as known.
    pub fn set_learned(&mut self, home: u64) {
        if let Some(at) = self.index.get(&home) {
            self.slots[*at as usize].learned = true;
        }
    }

    pub fn remove(&mut self, key: u64) {
        if let Some(at) = self.index.remove(&key) {
            self.free.push(at);
        }
    }

    /// Compares digests with those of a copy and puts them there.
    fn write(&mut self, at: usize, bytes: &[u8]) -> SectorSet {
        let mut changed = 0;
        let known = &mut self.digests[at * self.sectors..(at + 1) * self.sectors];
        for (place, (sector, known)) in bytes.chunks_exact(SECTOR).zip(known).enumerate() {
            let digest = xxh3_64(sector);
            changed |= u128::from(digest != *known) << place;
            *known = digest;
        }
        SectorSet(changed)
    }

    /// Room for another copy, and the home block that had it before.
    fn insert(&mut self, key: u64) -> Option<(usize, Option<u64>)> {
        if self.sectors == 0 {
            return None;
        }
        let mut dropped = None;
        let at = if let Some(at) = self.free.pop() {
            at as usize
        } else if (self.slots.len() + 1) * self.sectors <= MOST_DIGESTS {
            self.slots.push(Copy { key, transaction: 0, escaped: false, learned: false });
            self.digests.resize(self.slots.len() * self.sectors, 0);
            self.slots.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % self.slots.len();
            let before = self.slots[at].key;
            self.index.remove(&before);
            dropped = Some(before);
            at
        };
        self.index.insert(key, at as u32);
        Some((at, dropped))
    }
}

/// The digest of the first sector of a home block as the journal would hold it, and whether it would be escaped.
fn escaped_digest(sector: &[u8]) -> (u64, bool) {
    match sector.first_chunk::<SECTOR>() {
        Some(whole) if whole[..4] == JOURNAL_MAGIC.to_be_bytes() => {
            let mut escaped = *whole;
            escaped[..4].fill(0);
            (xxh3_64(&escaped), true)
        }
        _ => (xxh3_64(sector), false),
    }
}
