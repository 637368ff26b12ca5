//! The interval map: the sectors of the original area that are logged in the reserved area, and their locations there.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IntervalEntry {
    /// First sector, relative to the range of the list.
    offset: u32,
    sectors: u32,
    place: u32,
}

/// A run of logged sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedExtent {
    /// First sector in the original area.
    pub sector: u64,
    pub sectors: u32,
    /// First sector in the reserved area, counted from its start.
    pub place: u32,
}

impl LoggedExtent {
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Returns the part of the run between two sectors. The range between them must overlap the run.
    fn clip(self, sector: u64, end: u64) -> Self {
        let first = self.sector.max(sector);
        Self { sector: first, sectors: (self.end().min(end) - first) as u32, place: self.place + (first - self.sector) as u32 }
    }
}

/// Base-2 logarithm of the number of sectors in the range of a list (1 MB).
const LIST_SHIFT: u32 = 11;

/// Runs without overlaps in the order of their sectors, in a table of short sorted lists, one for each MB.
///
/// A run is in the list of its first sector, and not longer than the range of a list. Therefore the run that covers a sector is in the
/// list of that sector, or is the last run of the previous list.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalMap {
    lists: Vec<Vec<IntervalEntry>>,
    shift: u32,
    runs: u64,
    pub most_runs: u64,
    /// Number of entries for which memory is allocated.
    room: u64,
    most_room: u64,
}

impl IntervalMap {
    /// An empty map of `sectors` sectors.
    pub fn new(sectors: u64) -> Self {
        Self::with_lists(sectors, LIST_SHIFT)
    }

    fn with_lists(sectors: u64, shift: u32) -> Self {
        let lists = (sectors >> shift) as usize + 1;
        Self { lists: vec![Vec::new(); lists], shift, ..Self::default() }
    }

    /// Peak memory so far, in bytes.
    pub fn most_bytes(&self) -> u64 {
        (self.lists.len() * size_of::<Vec<IntervalEntry>>()) as u64 + self.most_room * size_of::<IntervalEntry>() as u64
    }

    pub fn len(&self) -> u64 {
        self.runs
    }

    /// Whether no sector in `sector..end` is mapped to the reserved area.
    pub fn is_free(&self, sector: u64, end: u64) -> bool {
        self.find(sector, end).is_none()
    }

    /// Maps a run, which replaces overlapping runs. Returns the number of its sectors that were mapped before.
    #[inline]
    pub fn insert(&mut self, extent: LoggedExtent) -> u32 {
        let longest = 1 << self.shift;
        let mut replaced = 0;
        let mut at = extent.sector;
        while at + longest < extent.end() {
            replaced += self.insert_one(extent.clip(at, at + longest));
            at += longest;
        }
        replaced + self.insert_one(extent.clip(at, extent.end()))
    }

    #[inline]
    fn insert_one(&mut self, extent: LoggedExtent) -> u32 {
        let LoggedExtent { sector, sectors, place } = extent;
        let (list, index) = self.seek(sector);
        let home = (sector >> self.shift) as usize;
        let (offset, end) = ((sector - self.first(home)) as u32, extent.end());
        if let Some(entry) = self.lists[list].get_mut(index)
            && list == home
            && entry.offset == offset
            && entry.sectors == sectors
        {
            entry.place = place;
            return sectors;
        }
        let mut replaced = 0;
        if self.up_to(end, (list, index)).is_none() {
            self.put_at(home, index, IntervalEntry { offset, sectors, place });
        } else {
            replaced = self.remove(sector, end, |_| true);
            self.insert_sorted(extent);
        }
        self.most_runs = self.most_runs.max(self.runs);
        replaced
    }

    /// Removes the logged runs in `sector..end` for which `wanted` is true. Returns the number of removed sectors.
    pub fn remove(&mut self, sector: u64, end: u64, wanted: impl Fn(&LoggedExtent) -> bool) -> u32 {
        let mut removed = 0;
        let mut at = self.find(sector, end);
        while let Some((list, index)) = at {
            let run = self.run(list, index);
            if !wanted(&run) {
                at = self.up_to(end, (list, index + 1));
                continue;
            }
            let cut = run.clip(sector, end);
            removed += cut.sectors;
            self.take(list, index);
            if cut == run {
                at = self.up_to(end, (list, index));
                continue;
            }
            if run.sector < cut.sector {
                self.insert_sorted(run.clip(run.sector, cut.sector));
            }
            if cut.end() < run.end() {
                self.insert_sorted(run.clip(cut.end(), run.end()));
            }
            at = self.find(cut.end(), end);
        }
        self.most_runs = self.most_runs.max(self.runs);
        removed
    }

    /// The logged runs in `sector..end`, clipped to this range, in order.
    #[inline]
    pub fn between(&self, sector: u64, end: u64) -> impl Iterator<Item = LoggedExtent> {
        let mut at = self.find(sector, end);
        std::iter::from_fn(move || {
            let (list, index) = at?;
            at = self.up_to(end, (list, index + 1));
            Some(self.run(list, index).clip(sector, end))
        })
    }

    #[inline]
    fn first(&self, list: usize) -> u64 {
        (list as u64) << self.shift
    }

    #[inline]
    fn run(&self, list: usize, index: usize) -> LoggedExtent {
        let IntervalEntry { offset, sectors, place } = self.lists[list][index];
        LoggedExtent { sector: self.first(list) + u64::from(offset), sectors, place }
    }

    /// List and index of the first run that ends after `sector`, if it begins before `end`.
    #[inline]
    fn find(&self, sector: u64, end: u64) -> Option<(usize, usize)> {
        self.up_to(end, self.seek(sector))
    }

    /// Position of the first run that ends after `sector`. It is in the list of the sector or in the list before it. If there is no such
    /// run, the position is the end of the list of the sector.
    #[inline]
    fn seek(&self, sector: u64) -> (usize, usize) {
        let list = ((sector >> self.shift) as usize).min(self.lists.len() - 1);
        if let Some(before) = list.checked_sub(1)
            && let Some(index) = self.lists[before].len().checked_sub(1)
            && self.run(before, index).end() > sector
        {
            return (before, index);
        }
        let offset = (sector - self.first(list)) as u32;
        (list, self.lists[list].partition_point(|entry| entry.offset + entry.sectors <= offset))
    }

    /// Returns a position (list and index) unchanged if there is a run at it. If the position is the end of a list, returns the position of
    /// the next run. Returns `None` if the run begins at or after `end`.
    #[inline]
    fn up_to(&self, end: u64, (mut list, mut index): (usize, usize)) -> Option<(usize, usize)> {
        while index == self.lists[list].len() {
            (list, index) = (list + 1, 0);
            if self.first(list) >= end || list == self.lists.len() {
                return None;
            }
        }
        (self.run(list, index).sector < end).then_some((list, index))
    }

    /// Adds a run that does not overlap others.
    fn insert_sorted(&mut self, run: LoggedExtent) {
        let list = (run.sector >> self.shift) as usize;
        let offset = (run.sector - self.first(list)) as u32;
        let index = self.lists[list].partition_point(|entry| entry.offset < offset);
        self.put_at(list, index, IntervalEntry { offset, sectors: run.sectors, place: run.place });
    }

    #[inline]
    fn put_at(&mut self, list: usize, index: usize, entry: IntervalEntry) {
        let list = &mut self.lists[list];
        let room = list.capacity();
        list.insert(index, entry);
        self.room += (list.capacity() - room) as u64;
        self.most_room = self.most_room.max(self.room);
        self.runs += 1;
    }

    fn take(&mut self, list: usize, index: usize) {
        let list = &mut self.lists[list];
        list.remove(index);
        self.runs -= 1;
        if list.is_empty() {
            // Logged addresses change over time, so an empty list would rarely be used again. Its memory is freed.
            self.room -= list.capacity() as u64;
            *list = Vec::new();
        }
    }

    /// Changes the location of a run that was copied. Parts of the run that were logged again after the copy do not change.
    pub fn relocate(&mut self, extent: &LoggedExtent, to: u32, moved: &mut Vec<LoggedExtent>) {
        // Fast path: the run is unchanged.
        if let Some((list, index)) = self.find(extent.sector, extent.end())
            && self.run(list, index) == *extent
        {
            self.lists[list][index].place = to;
            return;
        }
        moved.clear();
        moved.extend(
            self.between(extent.sector, extent.end())
                .filter(|run| u64::from(run.place) == u64::from(extent.place) + (run.sector - extent.sector)),
        );
        for run in moved.iter() {
            self.insert(LoggedExtent { place: to + (run.sector - extent.sector) as u32, ..*run });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map_of_single_sectors(
            shift in 6_u32..9,
            steps in proptest::collection::vec((0_u64..200, 1_u32..90, 0_u8..3), 1..200)
        ) {
            let mut map = IntervalMap::with_lists(300, shift);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut place = 0;
            for (sector, sectors, what) in steps {
                let range = sector..sector + u64::from(sectors);
                let logged = model.range(range.clone()).count() as u32;
                prop_assert_eq!(map.is_free(range.start, range.end), logged == 0);
                if what == 0 {
                    // Removes only runs whose place divided by 128 is even.
                    let even = |place: u32| (place / 128).is_multiple_of(2);
                    let gone = map.remove(range.start, range.end, |run| even(run.place));
                    let before = model.len();
                    model.retain(|at, place| !(range.contains(at) && even(*place)));
                    prop_assert_eq!(gone as usize, before - model.len());
                } else {
                    prop_assert_eq!(map.insert(LoggedExtent { sector, sectors, place }), logged);
                    for (i, at) in range.clone().enumerate() {
                        model.insert(at, place + i as u32);
                    }
                    place += 128;
                }
                let flat: Vec<_> = map.between(20, 150).flat_map(|run| {
                    (0..run.sectors).map(move |i| (run.sector + u64::from(i), run.place + i))
                }).collect();
                let wanted: Vec<_> = model.range(20..150).map(|(at, place)| (*at, *place)).collect();
                prop_assert_eq!(flat, wanted);
                prop_assert_eq!(map.len(), map.between(0, 300).count() as u64);
                let room: usize = map.lists.iter().map(Vec::capacity).sum();
                prop_assert_eq!(map.room, room as u64);
            }
        }
    }
}
