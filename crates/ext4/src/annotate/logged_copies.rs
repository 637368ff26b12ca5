//! The last logged copy of each home block: its transaction, and digests of its sectors as they are stored in the journal.

use emmclab_base::{SECTOR_BYTES, SectorSet};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::xxh3_64;

use crate::journal::JOURNAL_MAGIC;

const SECTOR: usize = SECTOR_BYTES as usize;
/// Maximum number of digests that are kept: 64 MiB, enough for the copies of 1,048,576 blocks of 4 KB.
const MOST_DIGESTS: usize = 1 << 23;

/// A copy, without its digests.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCopy {
    /// The block that was logged; for a copy whose home is not known yet, the value of [`early`].
    key: u64,
    /// The last transaction that logged the block; for a copy whose home is not known yet, a placeholder.
    pub transaction: u32,
    /// Whether the copy has zeros in place of the journal's magic number.
    escaped: bool,
    /// Whether the locations that the block refers to are known.
    pub locations_known: bool,
}

/// Copies by home block. A block of 4 KB needs 64 bytes for digests, 16 for the copy, 20 to 39 in the index, and 45 more for its
/// place if no neighbouring block is metadata. Beyond [`MOST_DIGESTS`], the oldest copy is dropped.
#[derive(Default)]
pub(super) struct LoggedCopies {
    index: FxHashMap<u64, u32>,
    slots: Vec<LoggedCopy>,
    digests: Vec<u64>,
    free: Vec<u32>,
    /// Number of sectors in a block.
    sectors: usize,
    /// The copy that is dropped next if there are too many.
    oldest: usize,
}

/// The key of a copy at a block of the journal whose home is not known yet.
pub(super) fn early(block: u32) -> u64 {
    1 << 63 | u64::from(block)
}

/// The effect on the copies when a block is logged.
pub(super) struct CopyUpdate {
    /// The sectors that differ from the previous copy; `None` if there was none.
    pub changed: Option<SectorSet>,
    /// A home block whose copy was dropped to make room.
    pub dropped: Option<u64>,
}

impl LoggedCopies {
    /// Forgets everything; blocks have this many sectors from now on.
    pub fn reset(&mut self, sectors: usize) {
        *self = Self { sectors, ..Self::default() };
    }

    pub fn get(&self, key: u64) -> Option<&LoggedCopy> {
        self.index.get(&key).map(|at| &self.slots[*at as usize])
    }

    /// Compares sectors of a block, from sector `within` on, with its copy. Returns the sectors that differ, the lowest bit for
    /// sector `within`, and the copy. `at_home` states that the bytes were written to the home block, and not to the journal.
    pub fn compare(&self, key: u64, within: usize, bytes: &[u8], at_home: bool) -> Option<(SectorSet, &LoggedCopy)> {
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

    /// Replaces the copy of a block, or adds one, when the whole block is logged.
    pub fn update(&mut self, key: u64, transaction: u32, escaped: bool, learned: bool, bytes: &[u8]) -> CopyUpdate {
        let (at, dropped) = match self.index.get(&key) {
            Some(at) => (*at as usize, None),
            None => match self.insert(key) {
                Some((at, dropped)) => {
                    self.write(at, bytes);
                    self.slots[at] = LoggedCopy { key, transaction, escaped, locations_known: learned };
                    return CopyUpdate { changed: None, dropped };
                }
                None => return CopyUpdate { changed: None, dropped: None },
            },
        };
        let changed = self.write(at, bytes);
        self.slots[at] = LoggedCopy { key, transaction, escaped, locations_known: learned };
        CopyUpdate { changed: Some(changed), dropped }
    }

    /// Called when the home of a copy becomes known.
    pub fn claim(&mut self, from: u64, home: u64, transaction: u32, escaped: bool) {
        self.remove(home);
        if let Some(at) = self.index.remove(&from) {
            self.index.insert(home, at);
            self.slots[at as usize] = LoggedCopy { key: home, transaction, escaped, locations_known: false };
        }
    }

    /// Notes that the locations to which a home block refers are known.
    pub fn set_locations_known(&mut self, home: u64) {
        if let Some(at) = self.index.get(&home) {
            self.slots[*at as usize].locations_known = true;
        }
    }

    pub fn remove(&mut self, key: u64) {
        if let Some(at) = self.index.remove(&key) {
            self.free.push(at);
        }
    }

    /// Stores the digests of a copy; returns the sectors whose digests changed.
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

    /// Allocates a slot for a copy; returns it with the home block whose copy was dropped for it, if any.
    fn insert(&mut self, key: u64) -> Option<(usize, Option<u64>)> {
        if self.sectors == 0 {
            return None;
        }
        let mut dropped = None;
        let at = if let Some(at) = self.free.pop() {
            at as usize
        } else if (self.slots.len() + 1) * self.sectors <= MOST_DIGESTS {
            self.slots.push(LoggedCopy { key, transaction: 0, escaped: false, locations_known: false });
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

/// Returns the digest of the first sector of a home block in the form that the journal would hold, and whether the journal would
/// escape it.
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
