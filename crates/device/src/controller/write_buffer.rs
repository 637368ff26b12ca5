//! The write buffer (the volatile cache of eMMC 4.5): written data in groups of units, in the order in which it leaves the buffer.
//!
//! This module keeps only the state; `buffered_io.rs` moves the data. The buffer records written sectors of map units. Data leaves in
//! *groups* of consecutive units, as many as fit into the largest page, or into an erase block with `block_lru`. A barrier turns all data
//! in the buffer into the older generation, which leaves first. There are never more than two generations.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_settings::{CacheLie, CachePolicy, DeviceSettings, WriteBackMode};

use crate::ftl::write::all_sectors;
use crate::geometry::{Geometry, GroupGeometry, nanos};
use crate::ids::Lpn;
use crate::lru::LruSet;

/// The write buffer of a device: written data that is not yet on its way to the flash.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    /// Capacity of the buffer in map units.
    pub room: u32,
    /// Whether a write makes its group the most recently used.
    renew: bool,
    /// Whether data leaves the buffer in the order in which it was written, sector by sector.
    pub keeps_order: bool,
    /// Whether the newest data leaves the buffer first.
    pub newest_first: bool,
    pub write_back: WriteBackMode,
    pub idle_after: Nanos,
    /// Base-2 logarithm of the number of units in a group.
    group_shift: u32,
    /// Number of map units of the device.
    logical: u32,
    /// Number of map units with written data in the buffer.
    pub units: u32,
    /// Data that is older than the last barrier, and newer data. Each group is in at most one of these two generations.
    generations: [BarrierEpoch; 2],
    /// Map units that have left the buffer but still occupy space, in order of time: (end of the program, number of units).
    leaving: VecDeque<(Nanos, u32)>,
    /// Total number of map units in `leaving`.
    left: u32,
    /// Time at which the newest data was written to the buffer.
    pub since: Nanos,
    /// Time at which the last write before the last barrier is on the flash.
    pub barrier_end: Nanos,
    /// Time at which all writes before the second newest barrier are on the flash. Data between the two newest barriers is written back
    /// after this time.
    pub older_after: Nanos,
    /// Time at which the last program of data from the buffer ends.
    last_end: Nanos,
    /// Time at which all data that has left the buffer is on the flash.
    pub busy_until: Nanos,
}

impl WriteBuffer {
    /// Creates the write buffer of a device; `None` if the device has none.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let cache = &settings.cache;
        if cache.size_kb == 0 {
            return None;
        }
        let most = |of: fn(&GroupGeometry) -> u32| geometry.groups.iter().map(of).max().unwrap_or(1);
        let group_shift = match cache.policy {
            CachePolicy::Fifo | CachePolicy::Lru => most(GroupGeometry::units_per_page).trailing_zeros(),
            CachePolicy::BlockLru => most(GroupGeometry::units_per_block).next_power_of_two().trailing_zeros(),
        };
        let room = cache.size_kb * 1024 / geometry.unit_bytes;
        let logical = geometry.logical_units as usize;
        let (groups, most_groups) = ((logical >> group_shift) + 1, room as usize);
        Some(Self {
            room,
            renew: cache.policy != CachePolicy::Fifo,
            // If each zone has its own write buffer, the order of writes is kept only within a zone.
            keeps_order: settings.keeps_write_order() && settings.zones.write_buffers == 0,
            newest_first: cache.lies == CacheLie::Reorder,
            write_back: cache.write_back,
            idle_after: nanos(cache.idle_after_us),
            group_shift,
            logical: geometry.logical_units,
            units: 0,
            generations: [(); 2].map(|()| BarrierEpoch::new(groups, most_groups, group_shift)),
            leaving: VecDeque::with_capacity(most_groups),
            left: 0,
            since: Nanos::MIN,
            barrier_end: Nanos::MIN,
            older_after: Nanos::MIN,
            last_end: Nanos::MIN,
            busy_until: Nanos::MIN,
        })
    }

    /// Whether the buffer contains no written data, because all of it is on the flash or on its way there.
    pub fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Whether the buffer contains data from before the last barrier.
    #[inline]
    pub fn holds_older(&self) -> bool {
        self.generations[0].order.len() > 0
    }

    /// Whether the group of the map unit contains data from before the last write barrier.
    pub fn is_older(&self, unit: Lpn) -> bool {
        self.holds_older() && self.generations[0].order.holds(unit.0 >> self.group_shift)
    }

    /// Returns bit masks of the written sectors of each unit in a group, and an index into these masks: all masks before the index are 0.
    /// `None` for an empty group.
    #[inline]
    fn sectors_of(&self, group: u32) -> Option<(&[u32], usize)> {
        let [older, newer] = &self.generations;
        let newer = newer.sectors_of(group);
        if newer.is_none() && self.holds_older() { older.sectors_of(group) } else { newer }
    }

    #[inline]
    fn position(&self, unit: u32) -> usize {
        (unit & ((1 << self.group_shift) - 1)) as usize
    }

    #[inline]
    pub fn written_sectors(&self, unit: Lpn) -> u32 {
        self.sectors_of(unit.0 >> self.group_shift).map_or(0, |(sectors, _)| sectors[self.position(unit.0)])
    }

    /// Whether sectors of a unit may be added now, without breaking the order in which buffered data must leave.
    #[inline]
    pub fn accepts(&self, unit: Lpn, sectors: u32) -> bool {
        if self.keeps_order { self.comes_last(unit, sectors) } else { !self.is_older(unit) }
    }

    /// Whether sectors of a unit, if added now, would leave the buffer after all other data.
    fn comes_last(&self, unit: Lpn, sectors: u32) -> bool {
        let group = unit.0 >> self.group_shift;
        let order = &self.generations[1].order;
        if !order.holds(group) {
            return true;
        }
        // The sectors of a group leave the write buffer in ascending order.
        let (_, end) = self.units_of(group);
        let is_last = |unit: Lpn| self.run(unit.plus(1), end).is_none();
        let is_above = self.written_sectors(unit).checked_shr(sectors.trailing_zeros()).unwrap_or(0) == 0;
        order.newest() == Some(group) && is_last(unit) && is_above
    }

    /// Adds written sectors of a unit. `accepts` must have returned true, and there must be enough space. Returns whether the unit already
    /// had sectors that were written after the last barrier.
    #[inline]
    pub fn write(&mut self, unit: Lpn, sectors: u32) -> bool {
        let (group, position) = (unit.0 >> self.group_shift, self.position(unit.0));
        let there = self.generations[1].add(group, position, sectors, self.renew);
        self.units += u32::from(!there);
        there
    }

    /// The group that leaves the buffer next, as a range of units; `None` if the buffer is empty.
    pub fn next_to_leave(&self) -> Option<(Lpn, Lpn)> {
        let [older, newer] = &self.generations;
        let next = |generation: &BarrierEpoch| {
            if self.newest_first { generation.order.newest() } else { generation.order.oldest() }
        };
        let group = next(older).or_else(|| next(newer))?;
        Some(self.units_of(group))
    }

    fn units_of(&self, group: u32) -> (Lpn, Lpn) {
        let first = group << self.group_shift;
        let end = (u64::from(first) + (1 << self.group_shift)).min(u64::from(self.logical));
        (Lpn(first), Lpn(end as u32))
    }

    /// The end of the group of a unit, or `end` if that is earlier.
    #[inline]
    fn group_end(&self, unit: u32, end: u32) -> u32 {
        let last = unit | ((1 << self.group_shift) - 1);
        if last < end { last + 1 } else { end }
    }

    /// The first run of units with written data in `from..to`.
    pub fn run(&self, from: Lpn, to: Lpn) -> Option<(Lpn, Lpn)> {
        let (mut first, mut at) = (None, from.0);
        while at < to.0 {
            let end = self.group_end(at, to.0);
            match self.sectors_of(at >> self.group_shift) {
                None => {
                    if let Some(first) = first {
                        return Some((Lpn(first), Lpn(at)));
                    }
                }
                Some((sectors, lowest)) => {
                    let position = self.position(at);
                    let begin = position.max(lowest);
                    if let Some(first) = first.filter(|_| begin > position) {
                        return Some((Lpn(first), Lpn(at)));
                    }
                    let from = at + (begin - position) as u32;
                    for (unit, sectors) in (from..end).zip(&sectors[begin..]) {
                        if *sectors != 0 {
                            first.get_or_insert(unit);
                        } else if let Some(first) = first {
                            return Some((Lpn(first), Lpn(unit)));
                        }
                    }
                }
            }
            at = end;
        }
        first.map(|first| (Lpn(first), to))
    }

    /// Number of units with written data in `from..to`.
    pub fn units_between(&self, from: Lpn, to: Lpn) -> u32 {
        let (mut units, mut at) = (0, from);
        while at < to
            && let Some((first, end)) = self.run(at, to)
        {
            units += end.0 - first.0;
            at = end;
        }
        units
    }

    /// Returns the first written (`written`) or unwritten sector in `at..limit`; `limit` if there is none. A unit has `1 << shift` sectors.
    pub fn find_sector(&self, mut at: u64, limit: u64, written: bool, shift: u32) -> u64 {
        let flipped = if written { 0 } else { all_sectors(1 << shift) };
        while at < limit {
            let unit = (at >> shift) as u32;
            let Some((sectors, _)) = self.sectors_of(unit >> self.group_shift) else {
                if !written {
                    return at;
                }
                at = (u64::from(unit | ((1 << self.group_shift) - 1)) + 1) << shift;
                continue;
            };
            for sectors in &sectors[self.position(unit)..] {
                let matches = (sectors ^ flipped) >> (at & ((1 << shift) - 1));
                if matches != 0 {
                    return limit.min(at + u64::from(matches.trailing_zeros()));
                }
                at = ((at >> shift) + 1) << shift;
            }
        }
        limit
    }

    /// Removes the data of the units `from..to` from the buffer, when it is written to the flash or discarded.
    pub fn forget(&mut self, from: Lpn, to: Lpn) {
        if self.is_empty() {
            return;
        }
        let holds_older = self.holds_older();
        let mut at = from.0;
        while at < to.0 {
            let (group, end) = (at >> self.group_shift, self.group_end(at, to.0));
            let first = self.position(at);
            let positions = (first, first + (end - at) as usize);
            self.units -= self.generations[1].forget(group, positions);
            if holds_older {
                self.units -= self.generations[0].forget(group, positions);
            }
            at = end;
        }
    }

    /// Moves all data in the buffer to the older generation, which must be empty.
    pub fn barrier(&mut self) {
        self.generations.swap(0, 1);
        self.older_after = self.barrier_end;
        self.barrier_end = self.barrier_end.max(self.last_end);
    }

    /// Records that `units` map units are leaving the buffer, and that they occupy their space until `end`.
    pub fn leaves(&mut self, end: Nanos, units: u32) {
        if self.leaving.back().is_none_or(|(last, _)| *last <= end) {
            self.leaving.push_back((end, units));
        } else {
            let later = self.leaving.iter().rev().take_while(|(other, _)| *other > end).count();
            self.leaving.insert(self.leaving.len() - later, (end, units));
        }
        self.left += units;
        self.last_end = self.last_end.max(end);
    }

    /// Notes that the latest program of data from the buffer ends at `end`. The space of the data becomes free as planned, because a die
    /// keeps the data of a delayed program.
    pub fn postpone(&mut self, end: Nanos) {
        self.last_end = self.last_end.max(end);
        self.busy_until = self.busy_until.max(end);
    }

    /// Frees the buffer space of units that are on the flash at time `at`. It is called for each unit that a write adds to the buffer, even
    /// if there is enough space.
    #[inline]
    pub fn release(&mut self, at: Nanos) {
        while let Some((end, units)) = self.leaving.front().copied()
            && end <= at
        {
            self.leaving.pop_front();
            self.left -= units;
        }
    }

    /// Whether `units` more units fit into the buffer after all data that is being programmed has left it.
    #[inline]
    pub fn will_fit(&self, units: u32) -> bool {
        self.units + units <= self.room
    }

    /// Returns the earliest time, but not before `at`, at which one more unit fits in the buffer. Frees the space of the units that left
    /// the buffer before that time.
    #[inline]
    pub fn fits_from(&mut self, at: Nanos) -> Nanos {
        let mut at = at;
        while self.units + self.left >= self.room
            && let Some((end, _)) = self.leaving.front()
        {
            at = at.max(*end);
            self.release(at);
        }
        at
    }

    /// Resets all times, for a run that restarts. The buffer must be empty.
    pub fn rewind(&mut self) {
        self.leaving.clear();
        self.left = 0;
        self.since = Nanos::MIN;
        self.barrier_end = Nanos::MIN;
        self.older_after = Nanos::MIN;
        self.last_end = Nanos::MIN;
        self.busy_until = Nanos::MIN;
    }
}

/// The groups of units that contain data written between two barriers.
#[derive(Clone, Debug)]
struct BarrierEpoch {
    /// The groups, in the order in which they leave the buffer.
    pub order: LruSet,
    /// The written sectors of the buffered units, as one bit mask for each unit. The position of a group of units is its index in `order`.
    /// The memory depends on the data in the buffer, not on the capacity of the device.
    written: Vec<u32>,
    /// Summary of each group, at its index in `order`. After random writes most units of a group are empty, and the summary shortens the
    /// search for the others.
    group_units: Vec<BufferedUnits>,
    /// Base-2 logarithm of the number of units in a group.
    shift: u32,
}

/// Summary of the units of a group that contain written data.
#[derive(Clone, Copy, Debug, Default)]
struct BufferedUnits {
    /// Number of units with written data.
    units: u32,
    /// Position in the group below which no unit contains written data.
    lowest: u32,
}

impl BarrierEpoch {
    pub fn new(groups: usize, most: usize, shift: u32) -> Self {
        Self { order: LruSet::new(groups, most), written: Vec::new(), group_units: Vec::new(), shift }
    }

    /// Returns bit masks of the written sectors of each unit of a group, and a position below which all are 0; `None` if there is no such
    /// group.
    #[inline]
    pub fn sectors_of(&self, group: u32) -> Option<(&[u32], usize)> {
        let place = self.order.place(group)?;
        let from = place << self.shift;
        Some((&self.written[from..from + (1 << self.shift)], self.group_units[place].lowest as usize))
    }

    /// Adds written sectors of a unit. If the unit's group is not in this generation, the group is added as the newest. Returns whether the
    /// unit had written sectors before.
    #[inline]
    pub fn add(&mut self, group: u32, position: usize, sectors: u32, renew: bool) -> bool {
        let place = self.order.put(group, renew);
        let at = (place << self.shift) + position;
        if at >= self.written.len() {
            self.grow(place);
        }
        let held = &mut self.group_units[place];
        let there = self.written[at] != 0;
        if !there {
            held.lowest = if held.units == 0 { position as u32 } else { held.lowest.min(position as u32) };
            held.units += 1;
        }
        self.written[at] |= sectors;
        there
    }

    #[cold]
    fn grow(&mut self, place: usize) {
        self.written.resize((place + 1) << self.shift, 0);
        self.group_units.resize(place + 1, BufferedUnits::default());
    }

    /// Removes the units `from..to` of a group, and the group if it becomes empty. Returns the number of removed units with written data.
    pub fn forget(&mut self, group: u32, (from, to): (usize, usize)) -> u32 {
        let Some(place) = self.order.place(group) else { return 0 };
        let first = place << self.shift;
        let mut written = 0;
        for sectors in &mut self.written[first + from..first + to] {
            written += u32::from(*sectors != 0);
            *sectors = 0;
        }
        let held = &mut self.group_units[place];
        held.units -= written;
        if from <= held.lowest as usize {
            held.lowest = held.lowest.max(to as u32);
        }
        if held.units == 0 {
            self.order.remove(group);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::DeviceConfig;

    /// Base-2 logarithm of the number of sectors in a unit.
    const SHIFT: u32 = 3;
    const UNITS: u32 = 24;

    fn buffer() -> WriteBuffer {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        let groups = "geometry.block_groups.0.page_kb";
        config.set_all(&[(groups, "16"), ("cache.size_kb", "64"), ("cache.policy", "lru")]).unwrap();
        let settings = config.settings();
        WriteBuffer::new(settings, &Geometry::new(settings)).unwrap()
    }

    proptest! {
        #[test]
        fn it_holds_what_a_plain_map_of_sectors_holds(
            steps in prop::collection::vec((0..8u8, 0..UNITS, 1..10u32, 1..256u32), 1..80),
        ) {
            let (mut buffer, mut plain) = (buffer(), BTreeMap::<u32, u32>::new());
            for (step, unit, count, sectors) in steps {
                let (from, to) = (Lpn(unit), Lpn((unit + count).min(UNITS)));
                match step {
                    0 => {
                        buffer.forget(from, to);
                        plain.retain(|unit, _| !(from.0..to.0).contains(unit));
                    }
                    1 if !buffer.holds_older() => buffer.barrier(),
                    _ if buffer.accepts(from, sectors) => {
                        prop_assert_eq!(buffer.write(from, sectors), plain.contains_key(&unit));
                        *plain.entry(unit).or_default() |= sectors;
                    }
                    _ => {}
                }
                prop_assert_eq!(buffer.units as usize, plain.len());
                prop_assert_eq!(buffer.is_empty(), buffer.next_to_leave().is_none());
                let written = |unit: u32| plain.get(&unit).copied().unwrap_or(0);
                prop_assert!((0..UNITS).all(|unit| buffer.written_sectors(Lpn(unit)) == written(unit)));
                let first = (from.0..to.0).find(|unit| written(*unit) != 0);
                let end = |first| (first..to.0).find(|unit| written(*unit) == 0).unwrap_or(to.0);
                prop_assert_eq!(buffer.run(from, to), first.map(|first| (Lpn(first), Lpn(end(first)))));
                let (at, limit) = (u64::from(sectors % (UNITS << SHIFT)), u64::from(to.0 << SHIFT));
                let is_written = |sector: u64| written((sector >> SHIFT) as u32) >> (sector % (1 << SHIFT)) & 1 == 1;
                for wanted in [true, false] {
                    let expected = (at..limit).find(|sector| is_written(*sector) == wanted).unwrap_or(limit);
                    prop_assert_eq!(buffer.find_sector(at, limit, wanted, SHIFT), expected);
                }
            }
        }

        #[test]
        fn room_is_given_up_in_order_of_time(
            left in prop::collection::vec((0..100i64, 1..4u32), 0..8),
            at in 0..100i64,
        ) {
            let mut buffer = buffer();
            let mut plain = left.clone();
            for (end, units) in left {
                buffer.leaves(Nanos(end), units);
            }
            let mut now = Nanos(at);
            for unit in 0..buffer.room {
                plain.sort_unstable();
                let mut wanted = now;
                while unit + plain.iter().map(|(_, units)| units).sum::<u32>() >= buffer.room && !plain.is_empty() {
                    wanted = wanted.max(Nanos(plain.remove(0).0));
                }
                now = buffer.fits_from(now);
                prop_assert_eq!(now, wanted);
                buffer.write(Lpn(unit), 1);
            }
        }
    }
}
