//! Checks of settings that have the right types; all errors are found at once.

use super::faults::{MOST_PAGES, PAGE_SIZES_KB, SettingFaults};
use super::{registries, validate_emmc, validate_mapping, validate_ufs, validate_zones};
use crate::ftl::{gc, maps_on_demand};
use emmclab_settings::{DeviceSettings, GcMode, PageScheduling, ParallelUnit, WearLevelling, WriteComplete};

/// Maximum number of physical units: an address must fit into 32 bits with one value left for "none".
const MAX_SLOTS: u64 = u32::MAX as u64 - 1;

/// Finds all impossible or contradictory values.
pub(super) fn faults(settings: &DeviceSettings) -> Vec<String> {
    let mut faults = SettingFaults::default();
    let collects = settings.gc.policy != gc::NONE;
    registries::faults(settings, &mut faults);
    geometry(settings, collects, &mut faults);
    timing(settings, &mut faults);
    policies(settings, collects, &mut faults);
    validate_emmc::faults(settings, collects, &mut faults);
    validate_ufs::faults(settings, &mut faults);
    validate_zones::faults(settings, &mut faults);
    if faults.is_empty() {
        // These checks compute the geometry, which requires that the settings are possible so far.
        validate_mapping::faults(settings, &mut faults);
        validate_ufs::preserved_space(settings, &mut faults);
        validate_zones::sizes(settings, &mut faults);
    }
    faults.into_list()
}

fn geometry(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    let geometry = &settings.geometry;
    faults.at_least_one("geometry.channels", geometry.channels);
    faults.at_least_one("geometry.chips_per_channel", geometry.chips_per_channel);
    faults.at_least_one("geometry.dies_per_chip", geometry.dies_per_chip);
    faults.at_least_one("geometry.planes_per_die", geometry.planes_per_die);
    let planes = [geometry.channels, geometry.chips_per_channel, geometry.dies_per_chip, geometry.planes_per_die]
        .iter()
        .try_fold(1u64, |product, count| product.checked_mul(u64::from(*count)))
        .unwrap_or(u64::MAX);
    if planes > u64::from(u16::MAX) {
        faults.add(format!("the geometry has {planes} planes; at most {} are possible", u16::MAX));
    }
    let unit_kb = settings.mapping.unit_kb;
    if !PAGE_SIZES_KB.contains(&unit_kb) {
        faults.add(format!("`mapping.unit_kb` is {unit_kb}; it must be 4, 8 or 16 KB"));
    }
    if geometry.block_groups.is_empty() {
        faults.add("`geometry.block_groups` is empty; a device needs at least one group of blocks");
    }
    if geometry.block_groups.len() > 8 {
        faults.add("`geometry.block_groups` has more than 8 groups");
    }
    let mut largest = 0u64;
    let mut blocks = 0u64;
    for (i, group) in geometry.block_groups.iter().enumerate() {
        let key = |name: &str| format!("geometry.block_groups.{i}.{name}");
        if !PAGE_SIZES_KB.contains(&group.page_kb) {
            faults.add(format!("`{}` is {}; it must be 4, 8 or 16", key("page_kb"), group.page_kb));
        } else if group.page_kb < unit_kb {
            faults.add(format!(
                "`{}` is {} but `mapping.unit_kb` is {unit_kb}; a map unit must fit into a page",
                key("page_kb"),
                group.page_kb
            ));
        } else {
            largest = largest.max(u64::from(group.pages_per_block) * u64::from(group.page_kb / unit_kb.max(4)));
        }
        faults.at_least_one(&key("blocks"), group.blocks);
        faults.at_least_one(&key("pages_per_block"), group.pages_per_block);
        if group.pages_per_block > MOST_PAGES {
            faults.add(format!("`{}` is {}; at most {MOST_PAGES}", key("pages_per_block"), group.pages_per_block));
        }
        // Collection packs the units of a victim into whole pages: with one page in a block, it would program as many pages as it frees.
        if collects && group.pages_per_block == 1 {
            faults.add(format!(
                "`{}` is 1; collection frees no page of such a block: give at least 2",
                key("pages_per_block")
            ));
        }
        blocks += u64::from(group.blocks);
        // One block for each stream, and one more than the low watermark.
        let map = u32::from(maps_on_demand(&settings.mapping.scheme));
        let needed = if collects { settings.gc.low_watermark.saturating_add(3 + map) } else { 1 + map };
        if group.spare_blocks.saturating_add(needed) > group.blocks && group.blocks > 0 {
            faults.add(format!(
                "`{}` is {} with {} spare blocks; a plane needs {needed} more than its spare blocks to write and collect",
                key("blocks"),
                group.blocks,
                group.spare_blocks
            ));
        }
        for (name, value) in [
            ("read_us", group.read_us),
            ("program_us", group.program_us),
            ("erase_us", group.erase_us),
            ("read_uj", group.read_uj),
            ("program_uj", group.program_uj),
            ("erase_uj", group.erase_uj),
        ] {
            faults.amount(&key(name), value);
        }
        if group.spare_blocks > 0 && group.erase_limit == 0 {
            faults.add(format!("`{}` is given but blocks never go bad: set erase_limit", key("spare_blocks")));
        }
    }
    let slots = largest
        .checked_next_power_of_two()
        .and_then(|stride| stride.checked_mul(blocks)?.checked_mul(planes))
        .unwrap_or(u64::MAX);
    if slots > MAX_SLOTS {
        faults.add(format!(
            "the device has room for {slots} units of {unit_kb} KB; at most {MAX_SLOTS} are possible: take a larger mapping.unit_kb"
        ));
    }
}

fn timing(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let timing = &settings.timing;
    let controller = &settings.controller;
    let power = &settings.power;
    for (key, value) in [
        ("timing.command_ns", timing.command_ns),
        ("timing.bus_ns_per_byte", timing.bus_ns_per_byte),
        ("timing.bus_write_extra_ns_per_byte", timing.bus_write_extra_ns_per_byte),
        ("timing.bus_uj_per_kb", timing.bus_uj_per_kb),
        ("controller.read_overhead_us", controller.read_overhead_us),
        ("controller.write_overhead_us", controller.write_overhead_us),
        ("controller.host_us_per_kb", controller.host_us_per_kb),
        ("power.sleep_after_us", power.sleep_after_us),
        ("power.wake_us", power.wake_us),
        ("power.idle_mw", power.idle_mw),
        ("power.sleep_mw", power.sleep_mw),
        ("gc.idle_after_us", settings.gc.idle_after_us),
    ] {
        faults.amount(key, value);
    }
    if timing.same_offset && !matches!(timing.parallelism, ParallelUnit::MultiPlane | ParallelUnit::Both) {
        faults.add(
            "`timing.same_offset` is a rule of multi-plane commands; set timing.parallelism to multi_plane or both",
        );
    }
    let endless = !settings.interface.is_ufs();
    if controller.scheduling == PageScheduling::ReadFirst && controller.queue_depth > 0 && endless {
        faults.add("`controller.scheduling` = \"read_first\" needs a device that sees all waiting requests: set controller.queue_depth = 0 (no limit)");
    }
    if timing.cache_program && timing.write_complete == WriteComplete::Transferred {
        faults.add(
            "`timing.cache_program` contradicts write_complete = \"transferred\", which completes a write before its program",
        );
    }
    if power.wake_us > 0.0 && power.sleep_after_us <= 0.0 {
        faults.add("`power.wake_us` is given but the device never sleeps: set power.sleep_after_us");
    }
}

fn policies(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    let share = settings.capacity.over_provisioning_pct;
    faults.amount("capacity.over_provisioning_pct", share);
    let gc = &settings.gc;
    if collects && share <= 0.0 {
        faults.add(
            "`capacity.over_provisioning_pct` is 0 with collection: a full device could never write again; give it a share or set gc.policy = \"none\"",
        );
    }
    if collects {
        faults.at_least_one("gc.low_watermark", gc.low_watermark);
        if gc.mode == GcMode::Incremental {
            faults.at_least_one("gc.pages_per_step", gc.pages_per_step);
        }
        if (gc.mode == GcMode::Incremental || gc.idle_after_us > 0.0) && gc.high_watermark <= gc.low_watermark {
            faults.add(format!(
                "`gc.high_watermark` is {} but must be above `gc.low_watermark` ({}) for incremental or idle collection",
                gc.high_watermark, gc.low_watermark
            ));
        }
    } else {
        if gc.idle_after_us > 0.0 {
            faults.add("`gc.idle_after_us` is given with gc.policy = \"none\"");
        }
        if settings.wear.levelling == WearLevelling::Static {
            faults.add("`wear.levelling` = \"static\" moves data by collection, but gc.policy = \"none\"");
        }
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.at_least_one("wear.threshold", settings.wear.threshold);
    }
}
