//! The interval map: which sectors of the original area are in the reserved area, and where.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    sectors: u32,
    place: u32,
}

/// A run of logged sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// First sector in the original area.
    pub sector: u64,
    pub sectors: u32,
    /// First sector in the reserved area, counted from its start.
    pub place: u32,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// The part between two sectors, which must meet it.
    fn clip(self, sector: u64, end: u64) -> Self {
        let first = self.sector.max(sector);
        Self {
            sector: first,
            sectors: (self.end().min(end) - first) as u32,
            place: self.place + (first - self.sector) as u32,
        }
    }
}

/// Runs that never overlap, in order of their sectors.
#[derive(Clone, Debug, Default)]
pub(super) struct IntervalMap {
    entries: BTreeMap<u64, Entry>,
    peak: usize,
}

impl IntervalMap {
    /// Bytes that an entry takes, measured: 16 of key and value, in tree nodes that are half full at least.
    pub const ENTRY_BYTES: u64 = 28;

    /// Most runs so far.
    pub fn peak(&self) -> u64 {
        self.peak as u64
    }

    /// Runs now.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether nothing between two sectors is logged.
    pub fn is_free(&self, sector: u64, end: u64) -> bool {
        self.entries
            .range(..end)
            .next_back()
            .is_none_or(|(&first, entry)| first + u64::from(entry.sectors) <= sector)
    }

    /// Maps a run, in place of what it overlaps; gives the sectors that were logged before.
    #[inline]
    pub fn insert(&mut self, extent: Extent) -> u32 {
        let Extent { sector, sectors, place } = extent;
        let entry = Entry { sectors, place };
        let end = extent.end();
        let mut replaced = 0;
        if let Some((&first, last)) = self.entries.range_mut(..end).next_back()
            && first + u64::from(last.sectors) > sector
        {
            if first == sector && last.sectors == sectors {
                *last = entry;
                return sectors;
            }
            replaced = self.remove(sector, end, |_| true);
        }
        self.entries.insert(sector, entry);
        self.peak = self.peak.max(self.entries.len());
        replaced
    }

    /// Forgets what is logged between two sectors and `wanted`; gives how many sectors that were.
    pub fn remove(&mut self, sector: u64, end: u64, wanted: impl Fn(&Extent) -> bool) -> u32 {
        let mut removed = 0;
        let mut before = end;
        while let Some(found) = self.last_before(before).filter(|found| found.end() > sector) {
            before = found.sector;
            if !wanted(&found) {
                continue;
            }
            let cut = found.clip(sector, end);
            removed += cut.sectors;
            self.entries.remove(&found.sector);
            if found.sector < cut.sector {
                let head = Entry { sectors: (cut.sector - found.sector) as u32, place: found.place };
                self.entries.insert(found.sector, head);
            }
            if cut.end() < found.end() {
                let tail = found.clip(cut.end(), found.end());
                self.entries.insert(tail.sector, Entry { sectors: tail.sectors, place: tail.place });
            }
        }
        self.peak = self.peak.max(self.entries.len());
        removed
    }

    fn last_before(&self, end: u64) -> Option<Extent> {
        let (&sector, entry) = self.entries.range(..end).next_back()?;
        Some(Extent { sector, sectors: entry.sectors, place: entry.place })
    }

    /// The logged runs between two sectors, cut to them, in order.
    #[inline]
    pub fn between(&self, sector: u64, end: u64) -> impl Iterator<Item = Extent> {
        let first =
            self.last_before(sector).filter(|first| first.end() > sector).map_or(sector, |run| run.sector);
        self.entries.range(first..end).map(move |(&first, entry)| {
            Extent { sector: first, sectors: entry.sectors, place: entry.place }.clip(sector, end)
        })
    }

    /// Moves a run that was copied to another place, as far as it still is where it was copied from.
    pub fn relocate(&mut self, extent: &Extent, to: u32, moved: &mut Vec<Extent>) {
        moved.clear();
        moved
            .extend(self.between(extent.sector, extent.end()).filter(|run| {
                u64::from(run.place) == u64::from(extent.place) + (run.sector - extent.sector)
            }));
        for run in moved.iter() {
            self.insert(Extent { place: to + (run.sector - extent.sector) as u32, ..*run });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_of_single_sectors(
            steps in proptest::collection::vec((0_u64..200, 1_u32..40, 0_u8..3), 1..200)
        ) {
            let mut map = IntervalMap::default();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut place = 0;
            for (sector, sectors, what) in steps {
                let range = sector..sector + u64::from(sectors);
                let logged = model.range(range.clone()).count() as u32;
                prop_assert_eq!(map.is_free(range.start, range.end), logged == 0);
                if what == 0 {
                    // Only what lies at even places.
                    let even = |place: u32| (place / 64).is_multiple_of(2);
                    let gone = map.remove(range.start, range.end, |run| even(run.place));
                    let before = model.len();
                    model.retain(|at, place| !(range.contains(at) && even(*place)));
                    prop_assert_eq!(gone as usize, before - model.len());
                } else {
                    prop_assert_eq!(map.insert(Extent { sector, sectors, place }), logged);
                    for (i, at) in range.clone().enumerate() {
                        model.insert(at, place + i as u32);
                    }
                    place += 64;
                }
                let flat: Vec<_> = map.between(20, 150).flat_map(|run| {
                    (0..run.sectors).map(move |i| (run.sector + u64::from(i), run.place + i))
                }).collect();
                let wanted: Vec<_> = model.range(20..150).map(|(at, place)| (*at, *place)).collect();
                prop_assert_eq!(flat, wanted);
            }
        }
    }
}
