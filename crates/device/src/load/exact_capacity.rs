//! Devices with exactly the capacity that a real device reports.

use emmclab_base::Result;

use super::DeviceConfig;
use crate::geometry::Geometry;
use emmclab_settings::{DeviceSettings, SlcMode};

/// Decimal places of the over-provisioning in percent, which suffice to distinguish all capacities.
const DIGITS: usize = 9;

impl DeviceConfig {
    /// Returns this device with another capacity, rounded down to a map unit. The name stays the same.
    ///
    /// Blocks are scaled as by [`Self::with_capacity`]. The part of the last blocks that exceeds the capacity becomes over-provisioning.
    /// `slc_bytes` is the capacity of the blocks in SLC mode; `None` scales it, too. `preserves` states that `WriteBooster` does not reduce
    /// the capacity; `None` keeps the setting.
    /// Errors: [`emmclab_base::ErrorClass::Config`] if the capacity cannot be reached with any number of blocks.
    pub fn sized(&self, bytes: u64, slc_bytes: Option<u64>, preserves: Option<bool>) -> Result<Self> {
        // If `WriteBooster` does not reduce the capacity, it uses spare flash. The spare flash may be too small, so the device gets
        // additional flash for `WriteBooster`.
        let preserves = preserves.unwrap_or(self.settings.slc.preserve_user_space);
        let mut plain = self.clone();
        if self.settings.slc.preserve_user_space {
            plain.set_all(&[("slc.preserve_user_space", "false")])?;
        }
        let mut out = plain.with_capacity(bytes, &format!("{bytes}B"))?;
        out.set_all(&[("name", &format!("{:?}", self.name()))])?;
        if let Some(slc_bytes) = slc_bytes.filter(|_| out.settings.slc.mode != SlcMode::Off) {
            out.hold_in_slc(slc_bytes)?;
        }
        out.add_blocks_for(bytes)?;
        let unit = u64::from(out.settings.mapping.unit_kb) << 10;
        let units = bytes / unit;
        if Geometry::new(&out.settings).zones.is_some() || units == 0 {
            return Ok(out);
        }
        // The target is half a unit more than requested, so that rounding down yields the requested number of units.
        let share = f64::from(raw_units(&out.settings, preserves)) / (units as f64 + 0.5) - 1.0;
        let percent = format!("{:.DIGITS$}", (share * 100.0).max(0.0));
        let preserves = preserves.to_string();
        out.set_all(&[("capacity.over_provisioning_pct", &percent), ("slc.preserve_user_space", &preserves)])?;
        Ok(out)
    }

    /// Sets the number of blocks in SLC mode so that they can store `bytes`. The number of other blocks stays the same.
    fn hold_in_slc(&mut self, bytes: u64) -> Result<()> {
        let settings = &self.settings;
        let slc = &settings.slc;
        let Some(group) = settings.geometry.block_groups.get(slc.group as usize) else { return Ok(()) };
        let pages = group.pages_per_block / settings.pages_for_one_of_slc(group.cell_mode);
        let block = u64::from(pages) * u64::from(group.page_kb) * 1024;
        let needed = bytes.div_ceil((block * planes(settings)).max(1));
        let needed = u32::try_from(needed).unwrap_or(u32::MAX).max(crate::load::validate_interface::working_blocks(settings));
        let blocks = group.blocks.saturating_sub(slc.blocks).saturating_add(needed);
        let key = format!("geometry.block_groups.{}.blocks", slc.group);
        self.set_all(&[(&key, &blocks.to_string()), ("slc.blocks", &needed.to_string())])
    }

    /// Adds blocks to the first group until the capacity is at least `bytes`.
    fn add_blocks_for(&mut self, bytes: u64) -> Result<()> {
        loop {
            let missing = bytes.saturating_sub(Geometry::new(&self.settings).capacity().0);
            let unit = u64::from(self.settings.mapping.unit_kb) << 10;
            let Some(group) = self.settings.geometry.block_groups.first().filter(|_| missing >= unit) else {
                return Ok(());
            };
            let block = u64::from(group.pages_per_block) * u64::from(group.page_kb) * 1024;
            let more = missing.div_ceil((block * planes(&self.settings)).max(1));
            let blocks = u64::from(group.blocks).saturating_add(more).min(u32::MAX.into());
            self.set_all(&[("geometry.block_groups.0.blocks", &blocks.to_string())])?;
        }
    }
}

fn planes(settings: &DeviceSettings) -> u64 {
    let geometry = &settings.geometry;
    [geometry.channels, geometry.chips_per_channel, geometry.dies_per_chip, geometry.planes_per_die]
        .iter()
        .map(|count| u64::from(*count))
        .product()
}

/// Number of map units of the device without over-provisioning.
fn raw_units(settings: &DeviceSettings, preserves: bool) -> u32 {
    let mut settings = settings.clone();
    settings.slc.preserve_user_space = preserves;
    settings.capacity.over_provisioning_pct = 0.0;
    Geometry::new(&settings).logical_units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_capacity_that_is_asked_for_and_keeps_its_name() {
        for (preset, bytes) in [
            ("emmc51-cache", 15_269_888 * 512),
            ("emmc50-write-through", 15_269_888 * 512),
            ("emmc51-tlc", 61_079_552 * 512),
            ("ufs31", 127_866_503_168),
            ("ufs40", 511_101_108_224),
        ] {
            let device = DeviceConfig::preset(preset).unwrap().sized(bytes, None, None).unwrap();
            assert_eq!((device.name(), device.capacity().0), (preset, bytes / 4096 * 4096));
        }
    }

    #[test]
    fn blocks_in_slc_mode_hold_what_is_asked_for() {
        let device = DeviceConfig::preset("ufs31").unwrap().sized(128 << 30, Some(12 << 30), None).unwrap();
        let (settings, geometry) = (device.settings(), Geometry::new(device.settings()));
        let held = geometry.groups.last().unwrap();
        let bytes = u64::from(held.blocks) * u64::from(held.units_per_block()) * 4096 * u64::from(geometry.planes);
        assert_eq!(settings.slc.blocks, held.blocks);
        assert!((12 << 30..13 << 30).contains(&bytes), "{bytes}");
        assert_eq!(device.capacity().0, 128 << 30);
    }

    #[test]
    fn a_write_booster_that_takes_no_capacity_may_be_larger_than_the_spare_flash() {
        let device = DeviceConfig::preset("ufs31").unwrap();
        let device = device.sized(128 << 30, Some(12 << 30), Some(true)).unwrap();
        assert!(device.settings().slc.preserve_user_space);
        assert_eq!(device.capacity().0, 128 << 30);
    }
}
