//! Checks of zones, and of settings that have no effect on a zoned device.

use super::faults::SettingFaults;
use crate::geometry::Geometry;
use emmclab_settings::{CacheLie, CachePolicy, DeviceSettings, PageScheduling, SlcMode, WearLevelling, ZoneSettings};

pub(super) fn faults(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let ZoneSettings { blocks, max_open, max_active, conventional, write_buffers } = settings.zones;
    if !settings.zones.is_zoned() {
        for (key, value) in [
            ("max_open", max_open),
            ("max_active", max_active),
            ("conventional", conventional),
            ("write_buffers", write_buffers),
        ] {
            if value > 0 {
                faults.add(format!("`zones.{key}` is {value}, but the device has no zones: set zones.blocks"));
            }
        }
        return;
    }
    if !settings.interface.is_ufs() {
        faults.add(format!(
            "`zones.blocks` is {blocks}, but an eMMC has no zones: set interface.kind = \"ufs\", or leave it out"
        ));
    }
    if max_active > 0 && (max_open == 0 || max_open > max_active) {
        faults.add(format!("`zones.max_open` is {max_open}, but open zones count as active, and `zones.max_active` is {max_active}: set it to 1 to {max_active}"));
    }
    if write_buffers > 0 && settings.cache.size_kb == 0 {
        faults.add(format!("`zones.write_buffers` is {write_buffers}, but the device has no RAM for written data: set cache.size_kb, or leave it out"));
    }
    if write_buffers > 0 && settings.cache.policy == CachePolicy::BlockLru {
        faults.add("`cache.policy` = \"block_lru\" mixes the data of zones, but each of the `zones.write_buffers` is for one zone: set it to \"lru\"");
    }
    let scheme = settings.mapping.scheme.as_str();
    if scheme != "page" {
        faults.add(format!("`mapping.scheme` is \"{scheme}\", but zones have their own map: set it to \"page\", which the conventional zones use"));
    }
    if settings.slc.mode != SlcMode::Region {
        faults.add("`slc.mode` must be \"region\" with zones: blocks in SLC mode hold the conventional zones, and data that a flush writes before it fills a page");
    }
    if settings.geometry.block_groups.len() > 1 {
        faults.add("`geometry.block_groups` has several groups, but zones need one kind of block");
    }
    if settings.controller.scheduling == PageScheduling::ReadFirst {
        faults.add("`controller.scheduling` = \"read_first\" changes the order of writes, which zones must keep: set it to \"fifo\"");
    }
    if settings.cache.lies == CacheLie::LateTrim {
        faults.add("`cache.lies` = \"late_trim\" repeats discards, but zones are reset instead: take another lie");
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.add("`wear.levelling` = \"static\" moves data, but the data of zones stays where the host wrote it: set it to \"dynamic\"");
    }
}

/// Checks that the blocks can hold the zones. The other settings must be possible.
pub(super) fn sizes(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let geometry = Geometry::new(settings);
    let (Some(zones), [group, slc]) = (geometry.zones, geometry.groups.as_slice()) else { return };
    let blocks = settings.zones.blocks;
    if zones.count == 0 {
        faults.add(format!(
            "`zones.blocks` is {blocks}, but {} blocks of a plane are left for zones: take fewer",
            group.blocks - group.spare_blocks
        ));
        return;
    }
    let open = if settings.zones.max_open == 0 { zones.count } else { settings.zones.max_open.min(zones.count) };
    let conventional = u64::from(settings.zones.conventional)
        * u64::from(blocks)
        * u64::from(group.units_per_block())
        * u64::from(geometry.planes);
    let needed = conventional + u64::from(open) * u64::from(group.units_per_page() - 1);
    let share = 1.0 + settings.capacity.over_provisioning_pct / 100.0;
    let units = u64::from(slc.blocks) * u64::from(slc.units_per_block()) * u64::from(geometry.planes);
    let usable = (units as f64 / share).floor() as u64;
    if needed > usable {
        let kb = |units: u64| units * u64::from(geometry.unit_bytes / 1024);
        faults.add(format!(
            "`slc.blocks` is {}: they hold {} KB, but the conventional zones and the last pages of open ones need {}: take more, or fewer of `zones.conventional`",
            settings.slc.blocks, kb(usable), kb(needed)
        ));
    }
}
