//! Checks of the controller, cache, idle collection, SLC mode and wake-up, and of settings that only one of the interfaces has.

use emmclab_settings::{
    ALWAYS, BoosterFlush, BoosterResize, BusMode, CacheLie, CachePolicy, CellMode, ControllerSettings, DeviceSettings,
    FeatureSettings, InterfaceKind, InterfaceSettings, KernelEra, LinkGear, MOST_PACKED, MOST_STAGES, PageScheduling,
    PartialFlush, PowerSettings, SlcMode, SlcSettings, TimeQuantile, WHOLE, WriteBackMode,
};

use super::validate::SettingFaults;
use crate::ftl::HPB_PAGES;
use crate::geometry::Geometry;

/// Depth of the command queue of eMMC 5.1.
const MOST_QUEUED: u32 = 32;
/// Maximum RAM of a device: 1 GB in KB.
const MOST_KB: u32 = 1 << 20;

/// Checks the settings that both eMMC and UFS have.
pub(super) fn both_interfaces(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    controller(settings, faults);
    host(settings, faults);
    shared_pages(settings, faults);
    cache(settings, faults);
    idle_collection(settings, collects, faults);
    slc(settings, collects, faults);
    waking(settings, faults);
}

fn controller(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let controller = &settings.controller;
    if controller.queue_depth > MOST_QUEUED && !settings.interface.is_ufs() {
        faults.add(format!(
            "`controller.queue_depth` is {}; a command queue has at most {MOST_QUEUED} entries",
            controller.queue_depth
        ));
    }
    if controller.bus_mode != BusMode::Given && controller.host_us_per_kb > 0.0 {
        faults.add("`controller.host_us_per_kb` contradicts `controller.bus_mode`; set one of them to 0 or \"given\"");
    }
    faults.amount("controller.reliable_write_us", controller.reliable_write_us);
    faults.amount("controller.discard_us", controller.discard_us);
    distribution("controller.read_stalls", &controller.read_stalls, faults);
    distribution("controller.write_stalls", &controller.write_stalls, faults);
}

fn host(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let host = &settings.host;
    faults.amount("host.fetch_us", host.fetch_us);
    faults.amount("host.issue_us", host.issue_us);
    if host.issue_us > 0.0 && (settings.controller.queue_depth == 0 || settings.interface.is_ufs()) {
        faults.add(
            "`host.issue_us` is set but no command waits for a slot of an eMMC: set controller.queue_depth, or leave it out",
        );
    }
    if host.block_kb > 0 && !(4..=64).contains(&host.block_kb) || host.block_kb.count_ones() > 1 {
        faults.add(format!("`host.block_kb` is {}; it must be 0, 4, 8, 16, 32 or 64 KB", host.block_kb));
    }
    let features = &settings.features;
    let packs = host.packed_writes > 0 || host.packed_reads > 0;
    for (name, sent, accepted) in [
        ("packed_writes", host.packed_writes, features.packed_writes),
        ("packed_reads", host.packed_reads, features.packed_reads),
    ] {
        for (section, most) in [("host", sent), ("features", accepted)] {
            if most == 1 || most > MOST_PACKED {
                faults.add(format!("`{section}.{name}` is {most}; a packed command has 2 to {MOST_PACKED} entries, 0 is off"));
            }
        }
        if sent > accepted {
            faults.add(format!("`host.{name}` is {sent}, but the device accepts {accepted}: see `features.{name}`"));
        }
    }
    kernel(settings, faults);
    if packs && settings.controller.queue_depth != 1 {
        faults.add(format!(
            "packed commands need one command at a time: set controller.queue_depth = 1 (it is {})",
            settings.controller.queue_depth
        ));
    }
    if host.merge_max_kb > 0 && settings.controller.queue_depth == 0 {
        faults.add("`host.merge_max_kb` merges requests in the host's queue; set controller.queue_depth to 1 to 32");
    }
    if host.merge_max_kb > 0 && (host.merge_max_kb < 4 || host.merge_max_kb > MOST_KB) {
        faults.add(format!("`host.merge_max_kb` is {}; it must be 4 to {MOST_KB} KB", host.merge_max_kb));
    }
    if packs && (host.packed_max_kb < 8 || host.packed_max_kb > MOST_KB) {
        faults.add(format!("`host.packed_max_kb` is {}; it must be 8 to {MOST_KB} KB", host.packed_max_kb));
    }
}

/// Finds functions that the selected kernel does not have.
fn kernel(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let (host, depth) = (&settings.host, settings.controller.queue_depth);
    let Some(rules) = host.kernel.rules() else { return };
    if host.packed_writes > 0 && !rules.packs {
        faults.add(format!(
            "`host.packed_writes` is {}, but the kernel of `host.kernel` packs no commands: set it to linux_4.9, or given",
            host.packed_writes
        ));
    }
    if host.packed_reads > 0 {
        faults.add(format!(
            "`host.packed_reads` is {}, but no version of Linux packs reads: set host.kernel = \"given\"",
            host.packed_reads
        ));
    }
    if depth > 1 && settings.interface.kind == InterfaceKind::Sd {
        faults.add(format!(
            "`controller.queue_depth` is {depth}, but of all kernels only that of Raspberry Pi OS (6.6 and later) supports the command queue of an SD card: set it to 1, or host.kernel = \"given\""
        ));
    } else if depth > 1 && !rules.queues && !settings.interface.is_ufs() {
        faults.add(format!(
            "`controller.queue_depth` is {depth}, but the kernel of `host.kernel` does not support command queues (Linux 4.16 and later do): set it to 1"
        ));
    }
}

/// Finds settings that cannot be combined with `controller.share_packed_pages`.
fn shared_pages(settings: &DeviceSettings, faults: &mut SettingFaults) {
    if !settings.controller.share_packed_pages {
        return;
    }
    if settings.host.packed_writes == 0 {
        faults.add("`controller.share_packed_pages` is set but writes are not packed: set host.packed_writes");
    }
    if settings.mapping.scheme != "page" {
        faults.add("`controller.share_packed_pages` needs pages that can contain any units: set mapping.scheme = \"page\"");
    }
    if settings.cache.size_kb > 0 {
        faults.add("`controller.share_packed_pages` contradicts cache.size_kb, which writes back by address");
    }
    if settings.slc.mode != SlcMode::Off {
        faults.add("`controller.share_packed_pages` contradicts slc.mode, which chooses blocks for each request");
    }
}

fn cache(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let cache = &settings.cache;
    let page_kb = settings.geometry.block_groups.iter().map(|group| group.page_kb).max().unwrap_or(4);
    for (key, kb) in [("cache.size_kb", cache.size_kb), ("cache.read_kb", cache.read_kb)] {
        if kb > 0 && (kb < page_kb || kb > MOST_KB) {
            faults.add(format!("`{key}` is {kb}; it must be 0, or {page_kb} to {MOST_KB} KB"));
        }
    }
    if cache.read_pages && cache.read_kb == 0 {
        faults.add("`cache.read_pages` is set but there is no read cache: set cache.read_kb");
    }
    faults.amount("cache.idle_after_us", cache.idle_after_us);
    if cache.idle_after_us > 0.0 && (cache.size_kb == 0 || cache.write_back != WriteBackMode::Idle) {
        faults.add(
            "`cache.idle_after_us` is set but no write-back waits for idle time: set cache.size_kb and cache.write_back = \"idle\"",
        );
    }
    faults.amount("cache.flush_us", cache.flush_us);
    if matches!(cache.lies, CacheLie::Flush | CacheLie::EarlyFlush | CacheLie::Reorder | CacheLie::Fua | CacheLie::Barrier)
        && cache.size_kb == 0
    {
        faults.add("`cache.lies` is about data in a cache: set cache.size_kb");
    }
    if cache.lies == CacheLie::PairedPages && settings.geometry.block_groups.iter().all(|group| group.cell_mode == CellMode::Slc)
    {
        faults.add("`cache.lies` = \"paired_pages\" damages data that shares cells: set geometry.block_groups.0.cell_mode to mlc, tlc or qlc");
    }
    if (cache.size_kb > 0 || cache.read_kb > 0) && settings.controller.scheduling == PageScheduling::ReadFirst {
        faults.add("`cache` contradicts controller.scheduling = \"read_first\", which keeps writes in a separate queue");
    }
    if (cache.size_kb > 0 || cache.read_kb > 0) && settings.mapping.scheme != "page" {
        faults.add("`cache` needs the page map: set mapping.scheme = \"page\"");
    }
}

fn idle_collection(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    let gc = &settings.gc;
    faults.amount("gc.hpi_us", gc.hpi_us);
    if !collects {
        if gc.urgent_free_blocks > 0 {
            faults.add("`gc.urgent_free_blocks` is set, but has no effect with gc.policy = \"none\"");
        }
        return;
    }
    let idle = gc.idle_after_us > 0.0;
    if !idle && (gc.idle_free_blocks > 0 || !gc.hpi || gc.hpi_us > 0.0) {
        faults.add("`gc.idle_free_blocks`, `gc.hpi` and `gc.hpi_us` apply only to idle collection: set gc.idle_after_us");
    }
    if !gc.hpi && gc.hpi_us > 0.0 {
        faults.add("`gc.hpi_us` is set, but has no effect with gc.hpi = false");
    }
    if gc.idle_free_blocks > 0 && gc.idle_free_blocks <= gc.low_watermark {
        faults.add(format!(
            "`gc.idle_free_blocks` is {} but must be above `gc.low_watermark` ({})",
            gc.idle_free_blocks, gc.low_watermark
        ));
    }
    if gc.urgent_free_blocks > 0 && gc.urgent_free_blocks < gc.low_watermark {
        faults.add(format!(
            "`gc.urgent_free_blocks` is {}, below `gc.low_watermark` ({}), at which writes already wait",
            gc.urgent_free_blocks, gc.low_watermark
        ));
    }
    for (key, free) in [("gc.idle_free_blocks", gc.idle_free_blocks), ("gc.urgent_free_blocks", gc.urgent_free_blocks)] {
        let least = settings.geometry.block_groups.iter().map(|group| group.blocks).min().unwrap_or(0);
        if free >= least && free > 0 {
            faults.add(format!("`{key}` is {free} but a block group has only {least} blocks in a plane"));
        }
    }
}

/// Number of blocks of a plane that writing and garbage collection need: the number of free blocks at which collection begins, plus the
/// blocks that are being written or collected.
pub(super) fn working_blocks(settings: &DeviceSettings) -> u32 {
    settings.gc.low_watermark.saturating_add(3)
}

fn slc(settings: &DeviceSettings, collects: bool, faults: &mut SettingFaults) {
    let slc = &settings.slc;
    if slc.mode == SlcMode::Off {
        if slc.blocks > 0 {
            faults.add("`slc.blocks` is set but `slc.mode` is \"off\": set it to region or cache");
        }
        return;
    }
    for (key, value) in [
        ("slc.read_us", slc.read_us),
        ("slc.program_us", slc.program_us),
        ("slc.erase_us", slc.erase_us),
        ("slc.fold_after_us", slc.fold_after_us),
    ] {
        faults.amount(key, value);
    }
    if !collects {
        faults.add("`slc.mode` moves data by collection, but gc.policy = \"none\"");
    }
    if settings.mapping.scheme != "page" {
        faults.add("`slc.mode` moves single pages between blocks of two kinds, which block-mapped schemes and cached maps do not support: set mapping.scheme = \"page\"");
    }
    let needed = working_blocks(settings);
    if slc.blocks < needed {
        faults.add(format!(
            "`slc.blocks` is {}; a plane needs {needed} of them to write and collect; set slc.mode = \"off\" for none",
            slc.blocks
        ));
    }
    let Some(from) = settings.geometry.block_groups.get(slc.group as usize) else {
        let count = settings.geometry.block_groups.len();
        faults.add(format!("`slc.group` is {}, but there are {count} block groups, counted from 0", slc.group));
        return;
    };
    if settings.geometry.block_groups.len() >= 8 {
        faults.add("`slc.mode` creates another block group, but there are 8 already");
    }
    let left = from.blocks.saturating_sub(slc.blocks);
    if left < needed.saturating_add(from.spare_blocks) {
        faults.add(format!(
            "`slc.blocks` is {} of the {} blocks of group {}; too few are left to write and collect",
            slc.blocks, from.blocks, slc.group
        ));
    }
    let share = settings.pages_for_one_of_slc(from.cell_mode);
    if from.pages_per_block < 2 * share {
        faults.add(format!(
            "`slc.mode` divides pages_per_block, which is {}, by {share}; it must be at least {}, because collection frees no page of a block with one page",
            from.pages_per_block,
            2 * share
        ));
    }
    match slc.mode {
        SlcMode::Cache => faults.at_least_one("slc.max_kb", slc.max_kb),
        SlcMode::Region | SlcMode::Off => {
            if slc.fold_after_us > 0.0 {
                faults.add("`slc.fold_after_us` applies only to slc.mode = \"cache\"");
            }
        }
    }
}

fn waking(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let power = &settings.power;
    for (key, value) in [("power.active_mw", power.active_mw), ("power.waking_mw", power.waking_mw)] {
        faults.amount(key, value);
    }
    stages(power, faults);
    let points = &power.wake_quantiles;
    if points.is_empty() {
        return;
    }
    if power.sleeps_after_us() <= 0.0 {
        faults.add("`power.wake_quantiles` is set but the device never sleeps: set power.sleep_after_us");
    }
    exit_time("power.", power.wake_us, points, faults);
}

/// Checks the table of the stages of sleep.
fn stages(power: &PowerSettings, faults: &mut SettingFaults) {
    if power.stages.is_empty() {
        return;
    }
    if power.stages.len() > MOST_STAGES {
        faults.add(format!("`power.stages` has {} stages; the maximum is {MOST_STAGES}", power.stages.len()));
    }
    let short = [
        ("sleep_after_us", power.sleep_after_us > 0.0),
        ("wake_us", power.wake_us > 0.0),
        ("wake_quantiles", !power.wake_quantiles.is_empty()),
    ];
    for (key, _) in short.iter().filter(|(_, is_set)| *is_set) {
        faults.add(format!(
            "`power.{key}` contradicts `power.stages`: it is the short form of a table with one stage; remove it, or set it to {}",
            if *key == "wake_quantiles" { "[]" } else { "0" }
        ));
    }
    let mut before = 0.0;
    for (i, stage) in power.stages.iter().enumerate() {
        let at = format!("power.stages.{i}.");
        for (key, value) in [("after_us", stage.after_us), ("wake_us", stage.wake_us), ("sleep_mw", stage.sleep_mw)] {
            faults.amount(&format!("{at}{key}"), value);
        }
        if stage.after_us <= before {
            let than = if i == 0 { "0".to_owned() } else { format!("{before}, that of the stage before") };
            faults.add(format!("`{at}after_us` is {}; it must be above {than}", stage.after_us));
        }
        before = stage.after_us;
        exit_time(&at, stage.wake_us, &stage.wake_quantiles, faults);
    }
}

/// Checks that the exit time of a stage is either fixed or a distribution. `at` is the start of the keys.
fn exit_time(at: &str, wake_us: f64, points: &[TimeQuantile], faults: &mut SettingFaults) {
    if wake_us > 0.0 && !points.is_empty() {
        faults.add(format!("`{at}wake_us` contradicts `{at}wake_quantiles`; set only one of them"));
    }
    distribution(&format!("{at}wake_quantiles"), points, faults);
}

/// Checks that `points` form a distribution of times. An empty list means that the setting has no distribution.
fn distribution(key: &str, points: &[TimeQuantile], faults: &mut SettingFaults) {
    if points.is_empty() {
        return;
    }
    if points.len() > 1000 {
        faults.add(format!("`{key}` has {} points; the maximum is 1000", points.len()));
    }
    for (i, point) in points.iter().enumerate() {
        faults.amount(&format!("{key}.{i}.up_to_pct"), point.up_to_pct);
        faults.amount(&format!("{key}.{i}.us"), point.us);
    }
    let rising = points.windows(2).all(|pair| pair[0].up_to_pct < pair[1].up_to_pct && pair[0].us <= pair[1].us);
    let ends = points.last().is_some_and(|last| (last.up_to_pct - 100.0).abs() < 1e-9);
    if !rising || !ends {
        faults.add(format!("`{key}` must rise in both columns and end at up_to_pct = 100"));
    }
}

/// Maximum number of tags of UFSHCI 2 and 3.
const MOST_TAGS: u32 = 32;
/// Maximum number of tags that the queues of UFSHCI 4 share (`bQueueDepth` of the device descriptor).
const MOST_SHARED_TAGS: u32 = 255;
/// Maximum number of queues of UFSHCI 4 (`MCQCAP` `MAXQ`).
const MOST_QUEUES: u32 = 32;

/// Checks the settings that only a UFS has, and those that a UFS does not have.
pub(super) fn one_interface(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let interface = &settings.interface;
    let (kind, device) = (interface.kind, interface.kind.device());
    faults.amount("interface.command_us", interface.command_us);
    faults.amount("interface.fua_us", interface.fua_us);
    let (mode, depth) = (settings.controller.bus_mode, settings.controller.queue_depth);
    if mode != BusMode::Given && mode.sd_clock_mhz().is_some() != (kind == InterfaceKind::Sd) && !interface.is_ufs() {
        let modes = if kind == InterfaceKind::Sd { "sdr25, sdr50, ddr50 or sdr104" } else { "hs52, ddr52, hs200 or hs400" };
        faults.add(format!("`controller.bus_mode` is {}, which {device} does not have: set it to {modes}", word(mode)));
    }
    if kind == InterfaceKind::Sd && depth == 0 {
        faults.add(
            "`controller.queue_depth` is 0, but an SD card has no endless queue: set it to 1, or to 32 for the queue of class A2",
        );
    }
    if interface.is_ufs() {
        link(settings, faults);
        booster(settings, faults);
    } else {
        functions_of_ufs(interface, device, faults);
        for (key, value, is_set) in of_booster(&settings.slc) {
            if is_set {
                faults.add(format!(
                    "`slc.{key}` is {value}, but {device} has no WriteBooster: set interface.kind = \"ufs\", or remove it"
                ));
            }
        }
        let hints = settings.mapping.options.get(HPB_PAGES.key).copied().unwrap_or(0);
        if hints > 0 {
            faults.add(format!(
                "`mapping.{}` is {hints}, but {device} has no HPB: set interface.kind = \"ufs\", or remove it",
                HPB_PAGES.key
            ));
        }
    }
    if kind != InterfaceKind::Emmc {
        functions_of_emmc(settings, faults);
    }
}

fn functions_of_ufs(interface: &InterfaceSettings, device: &str, faults: &mut SettingFaults) {
    let InterfaceSettings { lanes, gear, queues, command_us, fua_us, .. } = *interface;
    let gear = if gear == LinkGear::None { String::new() } else { format!("{gear:?}") };
    for (key, value, is_set) in [
        ("lanes", lanes.to_string(), lanes > 0),
        ("gear", gear.clone(), !gear.is_empty()),
        ("queues", queues.to_string(), queues > 0),
        ("command_us", command_us.to_string(), command_us > 0.0),
        ("fua_us", fua_us.to_string(), fua_us > 0.0),
    ] {
        if is_set {
            faults.add(format!(
                "`interface.{key}` is {value}, which {device} does not have: set interface.kind = \"ufs\", or remove it"
            ));
        }
    }
}

/// A value of an enumeration, as it is written in a settings file.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}

/// The settings of `WriteBooster` that the SLC cache of an eMMC does not have: (key, value, whether it is set).
fn of_booster(slc: &SlcSettings) -> [(&'static str, String, bool); 11] {
    [
        ("flush", word(slc.flush), slc.flush != BoosterFlush::Idle),
        ("flush_at_pct", slc.flush_at_pct.to_string(), slc.flush_at_pct != ALWAYS),
        ("preserve_user_space", "true".to_owned(), slc.preserve_user_space),
        ("dedicated_mb", slc.dedicated_mb.to_string(), slc.dedicated_mb > 0),
        ("partial_flush", word(slc.partial_flush), slc.partial_flush != PartialFlush::None),
        ("keep_pct", slc.keep_pct.to_string(), slc.keep_pct > 0),
        ("pinned_from_mb", slc.pinned_from_mb.to_string(), slc.pinned_from_mb > 0),
        ("pinned_to_mb", slc.pinned_to_mb.to_string(), slc.pinned_to_mb > 0),
        ("size_pct", slc.size_pct.to_string(), slc.size_pct != WHOLE),
        ("resize", word(slc.resize), slc.resize != BoosterResize::Off),
        ("life_limit_pct", slc.life_limit_pct.to_string(), slc.life_limit_pct > 0),
    ]
}

fn booster(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let slc = &settings.slc;
    if slc.mode != SlcMode::Cache {
        for (key, value, is_set) in of_booster(slc) {
            if is_set {
                faults.add(format!("`slc.{key}` is {value}, which applies only to WriteBooster: set slc.mode = \"cache\""));
            }
        }
    }
    partial_flush(slc, faults);
    if !(1..=WHOLE).contains(&slc.size_pct) {
        faults.add(format!("`slc.size_pct` is {}; it must be 1 to {WHOLE}", slc.size_pct));
    }
    if slc.life_limit_pct > 0 && slc.erase_limit == 0 {
        faults.add(format!("`slc.life_limit_pct` is {}, but the blocks never wear out: set slc.erase_limit", slc.life_limit_pct));
    }
    let resized = slc.size_pct != WHOLE || slc.resize != BoosterResize::Off;
    for (key, is_set) in [
        ("partial_flush", slc.partial_flush != PartialFlush::None),
        ("size_pct", slc.size_pct != WHOLE),
        ("resize", slc.resize != BoosterResize::Off),
    ] {
        if is_set && !slc.flushes_in_gaps() {
            faults.add(format!(
                "`slc.{key}` applies to flushes in times without commands, but this buffer is flushed only when it is full: set slc.fold_after_us, or slc.flush"
            ));
        }
    }
    // UFS 4.1 supports resizing and pinning only if the buffer does not reduce the capacity (JESD220G, 13.4.18.6 and 13.4.18.7).
    if (resized || slc.partial_flush == PartialFlush::Pinned) && !slc.preserve_user_space {
        let key = if resized { "`slc.size_pct` or `slc.resize`" } else { "`slc.partial_flush` = \"pinned\"" };
        faults.add(format!("{key} is set, but WriteBooster reduces the capacity: set slc.preserve_user_space = true"));
    }
    if slc.flush_at_pct > ALWAYS {
        faults.add(format!("`slc.flush_at_pct` is {}; it must be 0 to {ALWAYS}", slc.flush_at_pct));
    }
    if slc.flush == BoosterFlush::Event {
        if slc.fold_after_us > 0.0 {
            faults
                .add("`slc.fold_after_us` contradicts slc.flush = \"event\", which begins with the event: set only one of them");
        }
        if slc.flush_at_pct >= ALWAYS {
            faults.add(format!(
                "`slc.flush_at_pct` is {}, with which the event is always raised: set it below {ALWAYS}",
                slc.flush_at_pct
            ));
        }
    }
    if slc.flush == BoosterFlush::Hibernate {
        if settings.power.sleeps_after_us() <= 0.0 {
            faults.add("`slc.flush` is \"hibernate\", but the device never hibernates: set power.sleep_after_us or power.stages");
        }
        if slc.fold_after_us > 0.0 {
            faults.add("`slc.fold_after_us` contradicts slc.flush = \"hibernate\", which begins with the first stage of sleep: set only one of them");
        }
    }
}

fn partial_flush(slc: &SlcSettings, faults: &mut SettingFaults) {
    let (from, to) = (slc.pinned_from_mb, slc.pinned_to_mb);
    if slc.partial_flush == PartialFlush::None {
        if slc.keep_pct > 0 {
            faults.add(format!("`slc.keep_pct` is {}, but a full flush keeps no data: set slc.partial_flush", slc.keep_pct));
        }
    } else if !(1..=ALWAYS).contains(&slc.keep_pct) {
        faults.add(format!("`slc.keep_pct` is {}; a partial flush keeps 1 to {ALWAYS} % of the buffer", slc.keep_pct));
    }
    if slc.partial_flush == PartialFlush::Pinned {
        if from >= to {
            faults.add(format!("`slc.pinned_from_mb` is {from} and `slc.pinned_to_mb` {to}: no data is pinned"));
        }
    } else if from > 0 || to > 0 {
        faults.add(format!(
            "`slc.pinned_from_mb` is {from} and `slc.pinned_to_mb` {to}, but no data is pinned: set slc.partial_flush = \"pinned\""
        ));
    }
}

/// Checks the capacity if `WriteBooster` uses spare flash: the blocks outside of SLC mode must have room for the data of the whole device.
/// All other settings must have passed their checks.
pub(super) fn preserved_space(settings: &DeviceSettings, faults: &mut SettingFaults) {
    if !settings.slc.preserve_user_space {
        return;
    }
    let geometry = Geometry::new(settings);
    let per_plane = settings.gc.low_watermark + 3;
    let usable = geometry.by_size.iter().map(|index| {
        let group = &geometry.groups[usize::from(*index)];
        let blocks = group.blocks.saturating_sub(per_plane + group.spare_blocks);
        u64::from(blocks) * u64::from(group.units_per_block())
    });
    if usable.sum::<u64>() * u64::from(geometry.planes) < u64::from(geometry.logical_units) {
        let blocks = settings.slc.blocks;
        faults.add(format!(
            "`slc.preserve_user_space` is true, but the spare flash is too small for `slc.blocks` = {blocks}: use fewer, or a larger capacity.over_provisioning_pct"
        ));
    }
}

fn link(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let InterfaceSettings { lanes, gear, queues, .. } = settings.interface;
    if !(1..=2).contains(&lanes) {
        faults.add(format!("`interface.lanes` is {lanes}; the link of a UFS has 1 or 2 in each direction"));
    }
    if gear == LinkGear::None {
        faults.add("`interface.gear` is \"none\", but a UFS has a link: set it to hs_g1 to hs_g5");
    }
    if queues > MOST_QUEUES {
        faults.add(format!("`interface.queues` is {queues}; UFSHCI 4 has at most {MOST_QUEUES}"));
    }
    let (depth, most) = (settings.controller.queue_depth, if queues > 0 { MOST_SHARED_TAGS } else { MOST_TAGS });
    if !(1..=most).contains(&depth) {
        let cure = if queues == 0 { ", or interface.queues for the queues of UFSHCI 4" } else { "" };
        faults.add(format!("`controller.queue_depth` is {depth}; the tags of this UFS are 1 to {most}: set one of these{cure}"));
    }
}

/// Finds settings of the eMMC standard that the standard of a UFS or SD card does not have.
fn functions_of_emmc(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let ControllerSettings { bus_mode, host_us_per_kb, reliable_write_us, .. } = settings.controller;
    let FeatureSettings { reliable_write, barrier, packed_writes, packed_reads } = settings.features;
    let (gc, cache, kernel) = (&settings.gc, &settings.cache, settings.host.kernel);
    let of_mmc = matches!(kernel, KernelEra::Linux310 | KernelEra::Linux49 | KernelEra::VendorBarrier);
    let cases = [
        (
            "controller.bus_mode",
            format!("{bus_mode:?}"),
            bus_mode != BusMode::Given,
            "its link is set by interface.gear and interface.lanes: ",
            "set it to \"given\"",
        ),
        (
            "controller.host_us_per_kb",
            host_us_per_kb.to_string(),
            host_us_per_kb > 0.0,
            "its link is set by interface.gear and interface.lanes: ",
            "set it to 0",
        ),
        (
            "controller.reliable_write_us",
            reliable_write_us.to_string(),
            reliable_write_us > 0.0,
            "the time of its FUA is interface.fua_us: ",
            "set it to 0",
        ),
        ("features.reliable_write", reliable_write.to_string(), reliable_write, "it has FUA: ", "set it to false"),
        ("features.barrier", barrier.to_string(), barrier, "it has SYNCHRONIZE CACHE: ", "set it to false"),
        ("features.packed_writes", packed_writes.to_string(), packed_writes > 0, "its commands have tags: ", "set it to 0"),
        ("features.packed_reads", packed_reads.to_string(), packed_reads > 0, "its commands have tags: ", "set it to 0"),
        ("gc.hpi", gc.hpi.to_string(), !gc.hpi, "any command interrupts its background operations: ", "set it to true"),
        (
            "gc.hpi_us",
            gc.hpi_us.to_string(),
            gc.hpi_us > 0.0,
            "any command interrupts its background operations: ",
            "set it to 0",
        ),
        (
            "cache.policy",
            "\"fifo\"".to_owned(),
            cache.policy == CachePolicy::Fifo && cache.size_kb > 0,
            "",
            "its cache promises no order: set it to \"lru\"",
        ),
        (
            "cache.lies",
            "\"barrier\"".to_owned(),
            cache.lies == CacheLie::Barrier,
            "",
            "it promises no order: use flush, fua or tear, or another value",
        ),
        (
            "host.kernel",
            format!("{kernel:?}"),
            of_mmc,
            "that is the MMC driver: ",
            "use linux_5.10, or linux_no_fua for its BROKEN_FUA quirk",
        ),
    ];
    let of_sd = ["controller.bus_mode", "controller.host_us_per_kb", "gc.hpi", "gc.hpi_us", "host.kernel"];
    let kind = settings.interface.kind;
    for (key, value, is_set, reason_of_ufs, cure) in cases {
        let (has, reason) = if kind == InterfaceKind::Sd { (of_sd.contains(&key), "") } else { (false, reason_of_ufs) };
        if is_set && !has {
            faults.add(format!("`{key}` is {value}, which {} does not have: {reason}{cure}", kind.device()));
        }
    }
}
