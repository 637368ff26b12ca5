//! What the volatile cache holds: written data by page group, in the order in which it leaves, and data that was read.
//!
//! Pure bookkeeping; `cached.rs` moves the data. Written data is kept by sectors of map units, and leaves by *groups* of
//! consecutive units: as many as the largest page holds, or an erase block's with `block_lru`. A barrier makes everything
//! in the cache the older generation, which leaves first; there are never more than two.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::recency::Recency;
use crate::config::{CachePolicy, Settings, WriteBack};
use crate::geometry::{Geometry, ns};

/// The volatile cache and the read cache.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// Units of written data that there is room for; 0 = none.
    pub room: u32,
    /// Whether a write renews the place of its group.
    renew: bool,
    pub write_back: WriteBack,
    pub idle_after: i64,
    /// Base-2 logarithm of the units in a group.
    group_shift: u32,
    /// Written sectors of each unit, one bit each.
    dirty: Vec<u32>,
    /// Units with written data.
    pub units: u32,
    /// Groups with written data: older than the last barrier, and newer.
    generations: [Recency; 2],
    /// Until when units that have left still need their room: end of the program and how many.
    leaving: BinaryHeap<Reverse<(i64, u32)>>,
    /// Units in `leaving`.
    left: u32,
    /// Units that were read or written back.
    pub clean: Option<Clean>,
    /// When the newest written data came.
    pub since: i64,
    /// When the last write before the barrier is on the flash.
    pub barrier_end: i64,
    /// End of the last program that a generation asked for.
    pub last_end: i64,
}

/// The read cache: units by their last use.
#[derive(Clone, Debug)]
pub(crate) struct Clean {
    recency: Recency,
    room: usize,
}

impl Clean {
    /// Whether a unit is there; it becomes the newest.
    pub fn hit(&mut self, unit: u32) -> bool {
        self.recency.touch(unit)
    }

    /// Takes a unit in.
    pub fn keep(&mut self, unit: u32) {
        if self.recency.touch(unit) {
            return;
        }
        if self.recency.len() == self.room {
            self.recency.pop();
        }
        self.recency.push(unit);
    }

    /// A unit changes or goes.
    pub fn forget(&mut self, unit: u32) {
        self.recency.remove(unit);
    }
}

impl Cache {
    /// The cache of a device, or `None` where it has none.
    pub fn new(settings: &Settings, geometry: &Geometry) -> Option<Self> {
        let given = &settings.cache;
        if given.size_kb == 0 && given.read_kb == 0 {
            return None;
        }
        let units = |kb: u32| kb * 1024 / geometry.unit_bytes;
        let most = |of: fn(&crate::Group) -> u32| geometry.groups.iter().map(of).max().unwrap_or(1);
        let group_shift = match given.policy {
            CachePolicy::Fifo | CachePolicy::Lru => most(crate::Group::slots_per_page).trailing_zeros(),
            CachePolicy::BlockLru => most(crate::Group::slots_per_block).next_power_of_two().trailing_zeros(),
        };
        let room = units(given.size_kb);
        let logical = if room > 0 { geometry.logical_units as usize } else { 0 };
        let groups = (logical >> group_shift) + 1;
        let most_groups = room as usize;
        Some(Self {
            room,
            renew: given.policy != CachePolicy::Fifo,
            write_back: given.write_back,
            idle_after: ns(given.idle_after_us),
            group_shift,
            dirty: vec![0; logical],
            units: 0,
            generations: [Recency::new(groups, most_groups), Recency::new(groups, most_groups)],
            leaving: BinaryHeap::with_capacity(most_groups),
            left: 0,
            clean: (given.read_kb > 0).then(|| Clean {
                recency: Recency::new(geometry.logical_units as usize, units(given.read_kb) as usize),
                room: units(given.read_kb) as usize,
            }),
            since: i64::MIN,
            barrier_end: i64::MIN,
            last_end: i64::MIN,
        })
    }

    /// Whether everything is on the flash, or on its way there.
    pub fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Whether data from before the last barrier is here.
    pub fn holds_older(&self) -> bool {
        self.generations[0].len() > 0
    }

    /// Whether the unit's group is of the generation before the last barrier.
    pub fn is_older(&self, unit: u32) -> bool {
        self.room > 0 && self.generations[0].holds(unit >> self.group_shift)
    }

    /// Written sectors of a unit.
    #[inline]
    pub fn written(&self, unit: u32) -> u32 {
        self.dirty.get(unit as usize).copied().unwrap_or(0)
    }

    /// Takes written sectors of a unit in; there must be room, and its group must not be of the older generation.
    /// Returns whether the unit was there.
    pub fn write(&mut self, unit: u32, sectors: u32) -> bool {
        let there = self.dirty[unit as usize] != 0;
        self.dirty[unit as usize] |= sectors;
        self.units += u32::from(!there);
        let group = unit >> self.group_shift;
        let newer = &mut self.generations[1];
        if !newer.holds(group) {
            newer.push(group);
        } else if self.renew {
            newer.touch(group);
        }
        there
    }

    /// The units that leave next: the range of their group, where there is one.
    pub fn next_to_leave(&self) -> Option<(u32, u32)> {
        let group = self.generations[0].oldest().or_else(|| self.generations[1].oldest())?;
        let first = group << self.group_shift;
        let end = (u64::from(first) + (1 << self.group_shift)).min(self.dirty.len() as u64);
        Some((first, end as u32))
    }

    /// The first run of units with written data in `from..to`.
    pub fn run(&self, from: u32, to: u32) -> Option<(u32, u32)> {
        let at = |unit: &u32| self.dirty[*unit as usize] != 0;
        let first = (from..to).find(at)?;
        let end = (first..to).find(|unit| !at(unit)).unwrap_or(to);
        Some((first, end))
    }

    /// A unit's data is gone: on its way to the flash, or discarded.
    pub fn drop_unit(&mut self, unit: u32) {
        if self.dirty[unit as usize] != 0 {
            self.dirty[unit as usize] = 0;
            self.units -= 1;
        }
    }

    /// Takes the groups of the units `from..to` out of the order where nothing of them is left.
    pub fn close_groups(&mut self, from: u32, to: u32) {
        for group in from >> self.group_shift..=to.saturating_sub(1).max(from) >> self.group_shift {
            let first = group << self.group_shift;
            let end = (u64::from(first) + (1 << self.group_shift)).min(self.dirty.len() as u64) as u32;
            if self.run(first, end).is_none() {
                self.generations[0].remove(group);
                self.generations[1].remove(group);
            }
        }
    }

    /// Everything here becomes the older generation, which must be empty.
    pub fn barrier(&mut self) {
        self.generations.swap(0, 1);
        self.barrier_end = self.barrier_end.max(self.last_end);
    }

    /// `units` need their room until `end`.
    pub fn leaves(&mut self, end: i64, units: u32) {
        self.leaving.push(Reverse((end, units)));
        self.left += units;
        self.last_end = self.last_end.max(end);
    }

    /// Gives up the room of what is on the flash at `at`.
    pub fn release(&mut self, at: i64) {
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
    pub fn next_release(&self) -> Option<i64> {
        self.leaving.peek().map(|Reverse((end, _))| *end)
    }

    /// Forgets all times, for a run that starts anew. The cache must be empty.
    pub fn rewind(&mut self) {
        self.leaving.clear();
        self.left = 0;
        self.since = i64::MIN;
        self.barrier_end = i64::MIN;
        self.last_end = i64::MIN;
    }
}
