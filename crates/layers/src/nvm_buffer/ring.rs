//! The ring of records: the place of the next one, and which ones are kept.

use std::collections::VecDeque;

/// First sector of the ring; before it are two headers of the buffer, each in its own 4 KB.
pub(super) const FIRST: u32 = 16;

/// A record that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingEntry {
    pub sequence: u64,
    /// First sector, and the sector after the last one.
    pub place: u32,
    pub end: u32,
}

/// Records in the order of their sequence numbers. Places are sectors from the start of the buffer.
#[derive(Clone, Debug)]
pub(super) struct RecordRing {
    entries: VecDeque<RingEntry>,
    /// Place of the next record, if it fits before the end of the ring.
    head: u32,
    end: u32,
    next: u64,
}

/// A range of the oldest records, as places.
#[derive(Clone, Copy, Debug)]
pub(super) struct OldestRecords {
    /// First place, and end of the last record. If the range wraps around, the end is not greater than the first place.
    range: Option<(u32, u32)>,
}

impl OldestRecords {
    /// Whether a place is in the range.
    pub fn contains(self, place: u32) -> bool {
        self.range.is_some_and(
            |(first, end)| {
                if first < end { (first..end).contains(&place) } else { place >= first || place < end }
            },
        )
    }
}

impl RecordRing {
    /// Creates a ring that ends at a sector and keeps these records, in this order; `next` is the next sequence number.
    pub fn new(end: u32, entries: VecDeque<RingEntry>, next: u64) -> Self {
        let head = entries.back().map_or(FIRST, |entry| entry.end);
        Self { entries, head, end, next }
    }

    /// Sequence number of the next record.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Sequence number of the oldest record, or of the next one if none is kept.
    pub fn oldest_sequence(&self) -> u64 {
        self.entries.front().map_or(self.next, |entry| entry.sequence)
    }

    /// Whether no record is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sectors from the oldest record to the newest, gaps included.
    pub fn used(&self) -> u32 {
        self.entries.front().map_or(0, |oldest| self.distance(oldest.place))
    }

    /// Sectors from a place to the place of the next record.
    fn distance(&self, place: u32) -> u32 {
        if place < self.head { self.head - place } else { self.end - FIRST - (place - self.head) }
    }

    /// Allocates a record of this many sectors; `None` if there is no room.
    pub fn add(&mut self, sectors: u32) -> Option<RingEntry> {
        let fits = |from: u32, to: u32| to.checked_sub(from).is_some_and(|room| room >= sectors);
        let place = match self.entries.front().map(|oldest| oldest.place) {
            None if fits(self.head, self.end) => self.head,
            None if fits(FIRST, self.end) => FIRST,
            Some(tail) if tail < self.head && fits(self.head, self.end) => self.head,
            Some(tail) if tail < self.head && fits(FIRST, tail) => FIRST,
            Some(tail) if tail >= self.head && fits(self.head, tail) => self.head,
            _ => return None,
        };
        let entry = RingEntry { sequence: self.next, place, end: place + sectors };
        self.head = entry.end;
        self.next += 1;
        self.entries.push_back(entry);
        Some(entry)
    }

    /// Returns the range of the records before a sequence number.
    pub fn before(&self, sequence: u64) -> OldestRecords {
        let count = self.entries.partition_point(|entry| entry.sequence < sequence);
        let last = count.checked_sub(1).and_then(|last| self.entries.get(last));
        OldestRecords { range: self.entries.front().zip(last).map(|(first, last)| (first.place, last.end)) }
    }

    /// Returns the sequence number before which all records must be released so that at most this many sectors are in use.
    pub fn down_to(&self, sectors: u32) -> u64 {
        let stays = |entry: &&RingEntry| self.distance(entry.place) <= sectors;
        self.entries.iter().find(stays).map_or(self.next, |entry| entry.sequence)
    }

    /// Releases the records before a sequence number.
    pub fn release(&mut self, sequence: u64) {
        let count = self.entries.partition_point(|entry| entry.sequence < sequence);
        self.entries.drain(..count);
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<RingEntry>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_never_overlap_and_fit_again_once_all_are_released(
            size in 40_u32..200,
            steps in prop::collection::vec((any::<bool>(), 1_u32..12), 1..300),
        ) {
            let end = FIRST + size;
            let mut ring = RecordRing::new(end, VecDeque::new(), 1);
            let mut model: VecDeque<RingEntry> = VecDeque::new();
            for (adds, number) in steps {
                if adds {
                    if let Some(entry) = ring.add(number) {
                        prop_assert!(entry.place >= FIRST && entry.end <= end);
                        let apart = |other: &RingEntry| entry.end <= other.place || other.end <= entry.place;
                        prop_assert!(model.iter().all(apart), "{:?} in {:?}", entry, model);
                        model.push_back(entry);
                    } else {
                        // At most a third of the ring is lost at its end and in gaps that are too short.
                        let used: u32 = model.iter().map(|entry| entry.end - entry.place).sum();
                        prop_assert!(used + 3 * 12 > size, "{} of {}", used, size);
                    }
                } else {
                    let until = ring.oldest_sequence() + u64::from(number);
                    let oldest = ring.before(until);
                    for entry in &model {
                        prop_assert_eq!(oldest.contains(entry.place), entry.sequence < until);
                        prop_assert_eq!(oldest.contains(entry.end - 1), entry.sequence < until);
                    }
                    ring.release(until);
                    model.retain(|entry| entry.sequence >= until);
                }
                prop_assert_eq!(ring.is_empty(), model.is_empty());
                prop_assert!(ring.used() <= size);
                let level = size / 2;
                let mut left = ring.clone();
                left.release(ring.down_to(level));
                prop_assert!(left.used() <= level);
            }
            ring.release(u64::MAX);
            prop_assert!(ring.add(size / 2).is_some());
        }
    }
}
