//! The read cache: units that the host has read, in the order of their last use.

use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::LruSet;
use emmclab_settings::DeviceSettings;

/// Units whose data is both in the device's RAM and on the flash.
#[derive(Clone, Debug)]
pub(crate) struct ReadCache {
    units: LruSet,
    room: usize,
}

impl ReadCache {
    /// The read cache of a device, or `None` if it has none.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let room = (settings.cache.read_kb * 1024 / geometry.unit_bytes) as usize;
        let units = || LruSet::new(geometry.logical_units as usize, room);
        (settings.cache.read_kb > 0).then(|| Self { units: units(), room })
    }

    /// Whether a unit is in the cache; makes it the newest.
    pub fn hit(&mut self, unit: Lpn) -> bool {
        self.units.touch(unit.0)
    }

    /// Adds a unit.
    pub fn keep(&mut self, unit: Lpn) {
        if self.units.touch(unit.0) {
            return;
        }
        if self.units.len() == self.room {
            self.units.pop();
        }
        self.units.push(unit.0);
    }

    /// Removes all units.
    pub fn clear(&mut self) {
        self.units.clear();
    }

    /// Removes a unit, because its data changes or is discarded.
    pub fn forget(&mut self, unit: Lpn) {
        self.units.remove(unit.0);
    }
}
