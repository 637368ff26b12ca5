//! The read cache: units that the host read, by their last use.

use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::Lru;
use emmclab_settings::Settings;

/// Units whose data is in the device's RAM as it is on the flash.
#[derive(Clone, Debug)]
pub(crate) struct ReadCache {
    units: Lru,
    room: usize,
}

impl ReadCache {
    /// The read cache of a device, or `None` if it has none.
    pub fn new(settings: &Settings, geometry: &Geometry) -> Option<Self> {
        let room = (settings.cache.read_kb * 1024 / geometry.unit_bytes) as usize;
        let units = || Lru::new(geometry.logical_units as usize, room);
        (settings.cache.read_kb > 0).then(|| Self { units: units(), room })
    }

    /// Whether a unit is there; it becomes the newest.
    pub fn hit(&mut self, unit: Lpn) -> bool {
        self.units.touch(unit.0)
    }

    /// Takes a unit in.
    pub fn keep(&mut self, unit: Lpn) {
        if self.units.touch(unit.0) {
            return;
        }
        if self.units.len() == self.room {
            self.units.pop();
        }
        self.units.push(unit.0);
    }

    /// Everything is gone.
    pub fn clear(&mut self) {
        self.units.clear();
    }

    /// A unit changes or goes.
    pub fn forget(&mut self, unit: Lpn) {
        self.units.remove(unit.0);
    }
}
