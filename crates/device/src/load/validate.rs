//! Checks of settings with correct types. All errors are reported at once.

use emmclab_settings::{
    BlockGroup, CacheLie, CachePolicy, DeviceSettings, GcMode, GcSettings, PageScheduling, PageType, ParallelUnit,
    PlaneClustering, RetryPoint, SlcMode, WearLevelling, WriteComplete, ZoneSettings,
};

use super::schema::policy_faults;
use super::validate_interface::{both_interfaces, one_interface, preserved_space};
use crate::ftl::{gc, logs, maps_blocks, maps_on_demand, rows};
use crate::geometry::{Geometry, MAX_UNITS};

/// Maximum number of physical map units. An address must fit into 32 bits, with one value left for "none".
const MAX_SLOTS: u64 = u32::MAX as u64 - 1;

/// Finds all impossible or contradictory values.
pub(super) fn faults(settings: &DeviceSettings) -> Vec<String> {
    let mut faults = SettingFaults::default();
    let collects = settings.gc.policy != gc::NONE;
    policy_faults(settings, &mut faults);
    geometry(settings, collects, &mut faults);
    timing(settings, &mut faults);
    policies(settings, collects, &mut faults);
    both_interfaces(settings, collects, &mut faults);
    one_interface(settings, &mut faults);
    zones(settings, &mut faults);
    if faults.0.is_empty() {
        // These checks compute the geometry, so they run only if all previous checks have passed.
        mapping(settings, &mut faults);
        preserved_space(settings, &mut faults);
        zone_sizes(settings, &mut faults);
    }
    faults.0
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
        // Garbage collection packs the valid units of a block into whole pages. With one page per block, it programs as many pages as it
        // frees.
        if collects && group.pages_per_block == 1 {
            faults.add(format!(
                "`{}` is 1; garbage collection cannot free a page in such a block: set at least 2",
                key("pages_per_block")
            ));
        }
        blocks += u64::from(group.blocks);
        // A plane needs one block for each write stream (`map`: the stream of the mapping table), and one block above the low watermark of
        // garbage collection.
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
            ("retry_us", group.retry_us),
            ("retry_uj", group.retry_uj),
        ] {
            faults.amount(&key(name), value);
        }
        retries(&key("retries"), group, faults);
        page_types(group, &key(""), faults);
        faults.amount(&key("refresh_days"), group.refresh_days);
        let refreshes = collects && !maps_blocks(&settings.mapping.scheme) && !settings.zones.is_zoned();
        let limits = [("read_disturb_limit", f64::from(group.read_disturb_limit)), ("refresh_days", group.refresh_days)];
        for (key, limit) in
            limits.into_iter().filter(|(_, limit)| *limit > 0.0 && !refreshes).map(|(name, limit)| (key(name), limit))
        {
            faults.add(format!("`{key}` is {limit}, but only garbage collection of a device without zones refreshes data: set gc.policy and mapping.scheme = \"page\", or remove it"));
        }
        if group.spare_blocks > 0 && group.erase_limit == 0 {
            faults.add(format!("`{}` is set but blocks never go bad: set erase_limit", key("spare_blocks")));
        }
    }
    let slots = largest
        .checked_next_power_of_two()
        .and_then(|stride| stride.checked_mul(blocks)?.checked_mul(planes))
        .unwrap_or(u64::MAX);
    if slots > MAX_SLOTS {
        faults.add(format!(
            "the device has room for {slots} units of {unit_kb} KB; at most {MAX_SLOTS} are possible: use a larger mapping.unit_kb"
        ));
    }
}

/// Checks the table of read retries of a block group.
fn retries(key: &str, group: &BlockGroup, faults: &mut SettingFaults) {
    if group.retries.is_empty() == (group.retry_us > 0.0) {
        let time = key.replace("retries", "retry_us");
        faults.add(if group.retries.is_empty() {
            format!("`{time}` is {}, but no read is retried: set {key}", group.retry_us)
        } else {
            format!("`{time}` is 0, but `{key}` has {} rows: set the time of a retry", group.retries.len())
        });
    }
    let mut before: Option<RetryPoint> = None;
    for (i, point) in group.retries.iter().enumerate() {
        faults.amount(&format!("{key}.{i}.days"), point.days);
        faults.amount(&format!("{key}.{i}.steps"), point.steps);
        if let Some(before) = before.filter(|before| (before.erases, before.days) >= (point.erases, point.days)) {
            faults.add(format!(
                "`{key}.{i}` has erases = {}, days = {} after erases = {}, days = {}; the rows must ascend by erases, then by days",
                point.erases, point.days, before.erases, before.days
            ));
        }
        before = Some(*point);
    }
}

/// Checks the page types of a block group, whose keys begin with `at`.
fn page_types(group: &BlockGroup, at: &str, faults: &mut SettingFaults) {
    let (types, bits) = (&group.page_types, group.cell_mode.bits());
    if !types.is_empty() && types.len() != bits as usize {
        faults.add(format!(
            "`{at}page_types` has {} entries, but a cell has {bits} bits: set one entry for each, or `{at}cell_mode`",
            types.len()
        ));
    }
    for (i, page) in types.iter().enumerate() {
        faults.amount(&format!("{at}page_types.{i}.read_us"), page.read_us);
        faults.amount(&format!("{at}page_types.{i}.program_us"), page.program_us);
    }
    let means = [PageType::mean(types, |page| page.read_us), PageType::mean(types, |page| page.program_us)];
    for ((name, value), mean) in [("read_us", group.read_us), ("program_us", group.program_us)].into_iter().zip(means) {
        // The means of a checked device are written to its file. A file may round them.
        if value > 0.0 && mean.is_some_and(|mean| (value - mean).abs() > 0.01) {
            faults.add(format!("`{at}{name}` is {value}, which contradicts `{at}page_types`: leave it out, or set it to 0"));
        }
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
        ("timing.suspend_us", timing.suspend_us),
        ("timing.resume_us", timing.resume_us),
        ("timing.suspend_uj", timing.suspend_uj),
        ("controller.read_overhead_us", controller.read_overhead_us),
        ("controller.write_overhead_us", controller.write_overhead_us),
        ("controller.host_us_per_kb", controller.host_us_per_kb),
        ("power.sleep_after_us", power.sleep_after_us),
        ("power.wake_us", power.wake_us),
        ("power.idle_mw", power.idle_mw),
        ("power.sleep_mw", power.sleep_mw),
        ("gc.idle_after_us", settings.gc.idle_after_us),
        ("wear.data_age_days", settings.wear.data_age_days),
    ] {
        faults.amount(key, value);
    }
    if timing.same_offset && !matches!(timing.parallelism, ParallelUnit::MultiPlane | ParallelUnit::Both) {
        faults.add("`timing.same_offset` is a rule of multi-plane commands; set timing.parallelism to multi_plane or both");
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
    suspension(settings, faults);
    if power.wake_us > 0.0 && power.sleeps_after_us() <= 0.0 {
        faults.add("`power.wake_us` is set but the device never sleeps: set power.sleep_after_us");
    }
}

/// Checks the suspension of programs and erases, which only some devices have.
fn suspension(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let timing = &settings.timing;
    let limit = timing.suspend_limit;
    if limit == 0 {
        for (key, value) in
            [("suspend_us", timing.suspend_us), ("resume_us", timing.resume_us), ("suspend_uj", timing.suspend_uj)]
        {
            if value > 0.0 {
                faults.add(format!("`timing.{key}` is {value}, but no operation is suspended: set timing.suspend_limit"));
            }
        }
        return;
    }
    let grouped = timing.same_offset || timing.parallelism == ParallelUnit::MultiPlane;
    for (refused, why) in [
        (
            grouped,
            "multi-plane commands, which work on several planes: set timing.parallelism = \"both\", and same_offset = false",
        ),
        (
            settings.mapping.scheme != "page",
            "a mapping scheme whose operations wait for each other: set mapping.scheme = \"page\"",
        ),
        (settings.zones.is_zoned(), "zones, which are written in order: remove zones.blocks"),
        (settings.cache.lies != CacheLie::None, "a cache that lies about times of programs: set cache.lies = \"none\""),
    ] {
        if refused {
            faults.add(format!("`timing.suspend_limit` is {limit}, but suspension is not modelled for {why}"));
        }
    }
}

fn policies(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    let share = settings.capacity.over_provisioning_pct;
    faults.amount("capacity.over_provisioning_pct", share);
    let gc = &settings.gc;
    if collects && share <= 0.0 {
        faults.add(
            "`capacity.over_provisioning_pct` is 0 with garbage collection, which needs spare flash: set a larger share, or set gc.policy = \"none\"",
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
            faults.add("`gc.idle_after_us` is set, but has no effect with gc.policy = \"none\"");
        }
        if settings.wear.levelling == WearLevelling::Static {
            faults.add("`wear.levelling` = \"static\" moves data by collection, but gc.policy = \"none\"");
        }
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.at_least_one("wear.threshold", settings.wear.threshold);
    }
}

fn zones(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let ZoneSettings { blocks, max_open, max_active, conventional, write_buffers } = settings.zones;
    if !settings.zones.is_zoned() {
        for (key, value) in
            [("max_open", max_open), ("max_active", max_active), ("conventional", conventional), ("write_buffers", write_buffers)]
        {
            if value > 0 {
                faults.add(format!("`zones.{key}` is {value}, but the device has no zones: set zones.blocks"));
            }
        }
        return;
    }
    if !settings.interface.is_ufs() {
        let device = settings.interface.kind.device();
        faults.add(format!("`zones.blocks` is {blocks}, but {device} has no zones: set interface.kind = \"ufs\", or remove it"));
    }
    if max_active > 0 && (max_open == 0 || max_open > max_active) {
        faults.add(format!("`zones.max_open` is {max_open}, but open zones count as active, and `zones.max_active` is {max_active}: set it to 1 to {max_active}"));
    }
    if write_buffers > 0 && settings.cache.size_kb == 0 {
        faults.add(format!("`zones.write_buffers` is {write_buffers}, but the device has no RAM for written data: set cache.size_kb, or remove it"));
    }
    if write_buffers > 0 && settings.cache.policy == CachePolicy::BlockLru {
        faults.add("`cache.policy` = \"block_lru\" mixes the data of zones, but each of the `zones.write_buffers` is for one zone: set it to \"lru\"");
    }
    let scheme = settings.mapping.scheme.as_str();
    if scheme != "page" {
        faults.add(format!(
            "`mapping.scheme` is \"{scheme}\", but zones have their own map: set it to \"page\", which the conventional zones use"
        ));
    }
    if settings.slc.mode != SlcMode::Region {
        faults.add("`slc.mode` must be \"region\" with zones: blocks in SLC mode hold the conventional zones, and data that a flush writes before it fills a page");
    }
    if settings.geometry.block_groups.len() > 1 {
        faults.add("`geometry.block_groups` has several groups, but zones need one kind of block");
    }
    if settings.controller.scheduling == PageScheduling::ReadFirst {
        faults.add(
            "`controller.scheduling` = \"read_first\" changes the order of writes, which zones must keep: set it to \"fifo\"",
        );
    }
    if settings.cache.lies == CacheLie::LateTrim {
        faults.add("`cache.lies` = \"late_trim\" repeats discards, but zones are reset instead: use another value");
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.add("`wear.levelling` = \"static\" moves data, but the data of zones is never moved: set it to \"dynamic\"");
    }
}

/// Checks that the blocks have room for the zones. All other settings must have passed their checks.
fn zone_sizes(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let geometry = Geometry::new(settings);
    let (Some(zones), [group, slc]) = (geometry.zones, geometry.groups.as_slice()) else { return };
    let blocks = settings.zones.blocks;
    if zones.count == 0 {
        faults.add(format!(
            "`zones.blocks` is {blocks}, but {} blocks of a plane are left for zones: use fewer",
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
            "`slc.blocks` is {}: they have {} KB, but the conventional zones and the last pages of open zones need {}: use more, or fewer `zones.conventional`",
            settings.slc.blocks, kb(usable), kb(needed)
        ));
    }
}

/// Possible sizes of a page and of a map unit.
const PAGE_SIZES_KB: [u32; 3] = [4, 8, 16];
/// Maximum number of pages in a block.
const MOST_PAGES: u32 = 1 << 16;

/// Returns the maximum of a setting that may have a fraction, by its key. The usual maximum is 100,000,000, which is 100 s for times in us.
/// Percentages, and keys that contain `per_`, have lower maxima. A larger value probably has a wrong unit.
pub(super) fn most(key: &str) -> u32 {
    match key.rsplit('.').next().unwrap_or(key) {
        "up_to_pct" => 100,
        "over_provisioning_pct" | "steps" => 1_000,
        leaf if leaf.ends_with("days") => 36_500,
        leaf if leaf.contains("per_") => 100_000,
        _ => 100_000_000,
    }
}

/// Range of a setting that is a whole number, by its key; empty if every non-negative number is possible.
pub(super) fn whole_numbers(key: &str) -> String {
    match key.rsplit('.').next().unwrap_or(key) {
        "page_kb" | "unit_kb" => PAGE_SIZES_KB.map(|kb| kb.to_string()).join(", "),
        "pages_per_block" => range(1, u64::from(MOST_PAGES)),
        "channels" | "chips_per_channel" | "dies_per_chip" | "planes_per_die" => "1 or more".to_owned(),
        _ => String::new(),
    }
}

/// A range as text: `0 to 4,294,967,295`.
pub(super) fn range(least: u64, most: u64) -> String {
    format!("{} to {}", grouped(least), grouped(most))
}

/// A number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Problems of the settings so far.
#[derive(Default)]
pub(super) struct SettingFaults(Vec<String>);

impl SettingFaults {
    pub(super) fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    pub(super) fn at_least_one(&mut self, key: &str, value: u32) {
        if value == 0 {
            self.add(format!("`{key}` is 0; there must be at least one"));
        }
    }

    pub(super) fn amount(&mut self, key: &str, value: f64) {
        let most = most(key);
        if !value.is_finite() || value < 0.0 || value > f64::from(most) {
            self.add(format!("`{key}` is {value}; it must be {}", range(0, u64::from(most))));
        }
    }
}

/// Number of blocks of a plane that a merge needs in addition to data and log blocks.
const MERGE_BLOCKS: u64 = 1;

/// Checks the mapping scheme. All other settings must have passed their checks.
fn mapping(settings: &DeviceSettings, faults: &mut SettingFaults) {
    clustering(settings, faults);
    let scheme = settings.mapping.scheme.as_str();
    if scheme != "page" && settings.controller.scheduling == PageScheduling::ReadFirst {
        faults.add("`controller.scheduling` = \"read_first\" works only with mapping.scheme = \"page\"");
    }
    if maps_blocks(scheme) {
        block_map_policies(settings, faults);
        block_map_sizes(settings, faults);
    }
}

fn clustering(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let (level, geometry) = (settings.mapping.clustering, &settings.geometry);
    let parallelism = settings.timing.parallelism;
    let planes = matches!(parallelism, ParallelUnit::MultiPlane | ParallelUnit::Both);
    let dies = matches!(parallelism, ParallelUnit::Interleave | ParallelUnit::Both);
    if level >= PlaneClustering::Planes && geometry.planes_per_die > 1 && !planes {
        faults.add(
            "`mapping.clustering` combines planes of a die, which needs multi-plane commands: set timing.parallelism to multi_plane or both",
        );
    }
    if level >= PlaneClustering::Dies && geometry.dies_per_chip > 1 && !dies {
        faults.add(
            "`mapping.clustering` combines dies of a chip, which needs interleaving: set timing.parallelism to interleave or both",
        );
    }
    for (i, group) in geometry.block_groups.iter().enumerate() {
        let cluster = [
            (PlaneClustering::Planes, geometry.planes_per_die),
            (PlaneClustering::Dies, geometry.dies_per_chip),
            (PlaneClustering::Chips, geometry.chips_per_channel),
            (PlaneClustering::Channels, geometry.channels),
        ]
        .iter()
        .filter(|(from, _)| level >= *from)
        .map(|(_, count)| u64::from(*count))
        .product::<u64>();
        let units = cluster * u64::from(group.page_kb / settings.mapping.unit_kb);
        if !cluster.is_power_of_two() || units > MAX_UNITS as u64 {
            faults.add(format!(
                "`mapping.clustering` makes {cluster} pages of group {i} one clustered page of {units} map units; planes must be a power of two and units at most {MAX_UNITS}: combine fewer planes or use a larger mapping.unit_kb"
            ));
        }
    }
}

/// Finds settings that only a page map uses; they have no effect in a mapping scheme that merges logical blocks.
fn block_map_policies(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let word = "because mapping.scheme maps blocks, which are merged and not collected";
    let (gc, usual) = (&settings.gc, GcSettings::default());
    if gc.policy != usual.policy || gc.mode != GcMode::Blocking || gc.idle_after_us > 0.0 {
        faults.add(format!("`gc.policy`, `gc.mode` and `gc.idle_after_us` must keep their defaults {word}"));
    }
    if settings.allocation.policy != "dynamic" || settings.allocation.hot_max_kb > 0 {
        faults.add(format!("`allocation.policy` and `allocation.hot_max_kb` must keep their defaults {word}"));
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.add(format!("`wear.levelling` = \"static\" moves no block {word}"));
    }
    if settings.geometry.block_groups.len() > 1 {
        faults.add("`geometry.block_groups` has several groups, but a scheme that maps blocks needs one kind of block");
    }
}

fn block_map_sizes(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let geometry = Geometry::new(settings);
    let [group] = geometry.groups.as_slice() else { return };
    let data = u64::from(rows(&geometry));
    let needed = data + u64::from(logs(settings)) + MERGE_BLOCKS;
    let usable = u64::from(group.blocks - group.spare_blocks);
    if needed > usable {
        faults.add(format!(
            "a plane has {usable} blocks but needs {needed}: {data} for data, {} for logs (`mapping.log_blocks`) and {MERGE_BLOCKS} to merge; use a larger capacity.over_provisioning_pct or fewer log blocks",
            logs(settings)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_for_people() {
        assert_eq!(range(0, u64::from(u32::MAX)), "0 to 4,294,967,295");
        assert_eq!(range(2, 100), "2 to 100");
    }
}
