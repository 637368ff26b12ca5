//! The state of a device in use, as its registers report it to the host: wear, spares, and background work.

use emmclab_base::DeviceHealth;
use emmclab_settings::{CellMode, DeviceSettings, SlcMode};

use crate::device::Device;

impl Device {
    /// The health of the device; `settings` must be its own.
    pub fn health(&self, settings: &DeviceSettings) -> DeviceHealth {
        let groups = &self.geometry().groups;
        let given = &settings.geometry.block_groups;
        let in_slc_mode = |group: usize| match given.get(group) {
            Some(group) => group.cell_mode == CellMode::Slc,
            None => settings.slc.mode != SlcMode::Off,
        };
        let mut erases = vec![(0_u64, 0_u64); groups.len()];
        for block in self.blocks() {
            let (done, most) = &mut erases[usize::from(block.group)];
            *done += u64::from(block.erases);
            *most += u64::from(groups[usize::from(block.group)].erase_limit);
        }
        let used = |slc: bool| {
            let of_kind = erases.iter().enumerate().filter(|(group, _)| in_slc_mode(*group) == slc);
            let (done, most) = of_kind.fold((0, 0), |(done, most), (_, one)| (done + one.0, most + one.1));
            (most > 0).then(|| done as f64 / most as f64)
        };
        let spares: u64 = groups.iter().map(|group| u64::from(group.spare_blocks)).sum();
        let spares = spares * u64::from(self.geometry().planes);
        DeviceHealth {
            slc_life_used: used(true),
            life_used: used(false),
            spares_used: (spares > 0).then(|| self.counters().bad_blocks as f64 / spares as f64),
            background: self.background_work(settings),
        }
    }

    fn background_work(&self, settings: &DeviceSettings) -> u8 {
        let gc = &settings.gc;
        if gc.idle_after_us == 0.0 {
            return 0;
        }
        let idle = if gc.idle_free_blocks == 0 { gc.high_watermark } else { gc.idle_free_blocks };
        let levels = [(gc.urgent_free_blocks, 3), (gc.low_watermark, 2), (idle, 1)];
        let free = self.fewest_free_blocks();
        levels.into_iter().find(|(most, _)| free <= *most && *most > 0).map_or(0, |(_, level)| level)
    }
}
