//! The groups of the write buffer that are all older, or all newer, than a barrier.

use crate::lru::LruSet;

/// Groups with written data, all older or all newer than a barrier.
#[derive(Clone, Debug)]
pub(super) struct BarrierEpoch {
    /// The groups, in the order in which they leave.
    pub order: LruSet,
    /// Written sectors of each unit of a group, one bit each, at the index of the group in `order`. The memory depends on the data in the
    /// buffer, not on the capacity of the device.
    written: Vec<u32>,
    /// Summary of each group, at its index in `order`: with random writes, groups are large and almost empty.
    group_units: Vec<BufferedUnits>,
    /// Base-2 logarithm of the units in a group.
    shift: u32,
}

/// Summary of the units of a group.
#[derive(Clone, Copy, Debug, Default)]
struct BufferedUnits {
    /// Units with written data.
    units: u32,
    /// A lower bound: no unit before this one has written data.
    lowest: u32,
}

impl BarrierEpoch {
    pub fn new(groups: usize, most: usize, shift: u32) -> Self {
        Self { order: LruSet::new(groups, most), written: Vec::new(), group_units: Vec::new(), shift }
    }

    /// Written sectors of each unit of a group, and a position before which there are none; `None` if the group is not in this generation.
    #[inline]
    pub fn sectors_of(&self, group: u32) -> Option<(&[u32], usize)> {
        let place = self.order.place(group)?;
        let from = place << self.shift;
        Some((&self.written[from..from + (1 << self.shift)], self.group_units[place].lowest as usize))
    }

    /// Adds written sectors of a unit. If its group is not in this generation, it is added as the newest. Returns whether the unit had
    /// written sectors before.
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

    /// Removes the units `from..to` of a group, and the group if it is empty then; returns the number of units that had written data.
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
