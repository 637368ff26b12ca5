//! The write buffer (the volatile cache of eMMC 4.5): written data by page group, in the order in which it leaves.
//!
//! Pure bookkeeping; `buffered.rs` moves the data. Written data is kept by sectors of map units, and leaves by *groups* of
//! consecutive units: as many as the largest page holds, or an erase block's with `block_lru`. A barrier makes everything
//! in the buffer the older generation, which leaves first; there are never more than two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use emmclab_base::Nanos;

use crate::geometry::{Geometry, Group, nanos};
use crate::ids::Lpn;
use crate::lru::Lru;
use crate::settings::{CachePolicy, Settings, WriteBack};

/// Written data that is not on the flash yet.
#[derive(Clone, Debug)]
pub(crate) struct WriteBuffer {
    /// Units of written data that there is room for.
    room: u32,
    /// Whether a write renews the position of its group.
    renew: bool,
    /// Whether data leaves in the order in which it came, sector by sector.
    keeps_order: bool,
    pub write_back: WriteBack,
    pub idle_after: Nanos,
    /// Base-2 logarithm of the units in a group.
    group_shift: u32,
    /// Written sectors of each unit, one bit each.
    dirty: Vec<u32>,
    /// Units with written data.
    units: u32,
    /// Groups with written data: older than the last barrier, and newer.
    generations: [Lru; 2],
    /// Until when units that have left still need their room: end of the program and how many.
    leaving: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Units in `leaving`.
    left: u32,
    /// When the newest written data came.
    pub since: Nanos,
    /// When the last write before the barrier is on the flash.
    pub barrier_end: Nanos,
    /// When the last write before the barrier before that is on the flash: the older generation comes after it.
    pub older_after: Nanos,
    /// End of the last program that a generation asked for.
    last_end: Nanos,
    /// When everything that has left is on the flash.
    pub busy_until: Nanos,
}

impl WriteBuffer {
    /// Map units of written data that there is room for.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// The write buffer of a device, or `None` where it has none.
    pub fn new(settings: &Settings, geometry: &Geometry) -> Option<Self> {
        let given = &settings.cache;
        if given.size_kb == 0 {
            return None;
        }
        let most = |of: fn(&Group) -> u32| geometry.groups.iter().map(of).max().unwrap_or(1);
        let group_shift = match given.policy {
            CachePolicy::Fifo | CachePolicy::Lru => most(Group::units_per_page).trailing_zeros(),
            CachePolicy::BlockLru => most(Group::units_per_block).next_power_of_two().trailing_zeros(),
        };
        let room = given.size_kb * 1024 / geometry.unit_bytes;
        let logical = geometry.logical_units as usize;
        let (groups, most_groups) = ((logical >> group_shift) + 1, room as usize);
        Some(Self {
            room,
            renew: given.policy != CachePolicy::Fifo,
            keeps_order: settings.keeps_write_order(),
            write_back: given.write_back,
            idle_after: nanos(given.idle_after_us),
            group_shift,
            dirty: vec![0; logical],
            units: 0,
            generations: [Lru::new(groups, most_groups), Lru::new(groups, most_groups)],
            leaving: BinaryHeap::with_capacity(most_groups),
            left: 0,
            since: Nanos::MIN,
            barrier_end: Nanos::MIN,
            older_after: Nanos::MIN,
            last_end: Nanos::MIN,
            busy_until: Nanos::MIN,
        })
    }

    /// Whether data leaves in the order in which it came.
    pub fn keeps_order(&self) -> bool {
        self.keeps_order
    }

    /// Whether everything is on the flash, or on its way there.
    pub fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Whether data from before the last barrier is here.
    pub fn holds_older(&self) -> bool {
        self.generations[0].len() > 0
    }

    /// Units with written data.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Whether the unit's group is of the generation before the last barrier.
    pub fn is_older(&self, unit: Lpn) -> bool {
        self.generations[0].holds(unit.0 >> self.group_shift)
    }

    /// Written sectors of a unit.
    #[inline]
    pub fn written(&self, unit: Lpn) -> u32 {
        self.dirty[unit.index()]
    }

    /// Whether sectors of a unit may come in before anything leaves: behind all that has to leave before them.
    pub fn accepts(&self, unit: Lpn, sectors: u32) -> bool {
        let group = unit.0 >> self.group_shift;
        if !self.keeps_order {
            return !self.generations[0].holds(group);
        }
        if !self.generations[1].holds(group) {
            return true;
        }
        // The sectors of a group leave from the lowest on.
        let (_, end) = self.units_of(group);
        let is_last = |unit: Lpn| self.run(unit.plus(1), end).is_none();
        let is_above = self.dirty[unit.index()].checked_shr(sectors.trailing_zeros()).unwrap_or(0) == 0;
        self.generations[1].newest() == Some(group) && is_last(unit) && is_above
    }

    /// Takes written sectors of a unit in, which the buffer accepts and has room for.
    /// Returns whether the unit was there.
    pub fn write(&mut self, unit: Lpn, sectors: u32) -> bool {
        let there = self.dirty[unit.index()] != 0;
        self.dirty[unit.index()] |= sectors;
        self.units += u32::from(!there);
        let group = unit.0 >> self.group_shift;
        let newer = &mut self.generations[1];
        if !newer.holds(group) {
            newer.push(group);
        } else if self.renew {
            newer.touch(group);
        }
        there
    }

    /// The units that leave next: the range of their group, where there is one.
    pub fn next_to_leave(&self) -> Option<(Lpn, Lpn)> {
        let group = self.generations[0].oldest().or_else(|| self.generations[1].oldest())?;
        Some(self.units_of(group))
    }

    /// Units `from..to` of a group.
    fn units_of(&self, group: u32) -> (Lpn, Lpn) {
        let first = group << self.group_shift;
        let end = (u64::from(first) + (1 << self.group_shift)).min(self.dirty.len() as u64);
        (Lpn(first), Lpn(end as u32))
    }

    /// The first run of units with written data in `from..to`.
    pub fn run(&self, from: Lpn, to: Lpn) -> Option<(Lpn, Lpn)> {
        let dirty = |unit: &u32| self.dirty[*unit as usize] != 0;
        let first = (from.0..to.0).find(dirty)?;
        let end = (first..to.0).find(|unit| !dirty(unit)).unwrap_or(to.0);
        Some((Lpn(first), Lpn(end)))
    }

    /// A unit's data is gone: on its way to the flash, or discarded.
    pub fn drop_unit(&mut self, unit: Lpn) {
        if self.dirty[unit.index()] != 0 {
            self.dirty[unit.index()] = 0;
            self.units -= 1;
        }
    }

    /// Takes the groups of the units `from..to` out of the order where nothing of them is left.
    pub fn close_groups(&mut self, from: Lpn, to: Lpn) {
        for group in from.0 >> self.group_shift..=to.0.saturating_sub(1).max(from.0) >> self.group_shift {
            let (first, end) = self.units_of(group);
            if self.run(first, end).is_none() {
                self.generations[0].remove(group);
                self.generations[1].remove(group);
            }
        }
    }

    /// Everything here becomes the older generation, which must be empty.
    pub fn barrier(&mut self) {
        self.generations.swap(0, 1);
        self.older_after = self.barrier_end;
        self.barrier_end = self.barrier_end.max(self.last_end);
    }

    /// `units` need their room until `end`.
    pub fn leaves(&mut self, end: Nanos, units: u32) {
        self.leaving.push(Reverse((end, units)));
        self.left += units;
        self.last_end = self.last_end.max(end);
    }

    /// Gives up the room of what is on the flash at `at`.
    pub fn release(&mut self, at: Nanos) {
        while let Some(Reverse((end, units))) = self.leaving.peek().copied() {
            if end > at {
                break;
            }
            self.leaving.pop();
            self.left -= units;
        }
    }

    /// Whether `units` more fit once all that has left is on the flash.
    pub fn will_fit(&self, units: u32) -> bool {
        self.units + units <= self.room
    }

    /// Whether `units` more fit now.
    pub fn fits(&self, units: u32) -> bool {
        self.units + self.left + units <= self.room
    }

    /// When the next units that have left are on the flash.
    pub fn next_release(&self) -> Option<Nanos> {
        self.leaving.peek().map(|Reverse((end, _))| *end)
    }

    /// Everything here is gone with the power.
    pub fn lose(&mut self) {
        while let Some((from, to)) = self.next_to_leave() {
            (from.0..to.0).for_each(|unit| self.drop_unit(Lpn(unit)));
            self.close_groups(from, to);
        }
    }

    /// Forgets all times, for a run that starts anew. The buffer must be empty.
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
