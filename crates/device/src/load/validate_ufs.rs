//! Checks of what only a UFS has, and of what a UFS does not have.

use super::faults::SettingFaults;
use crate::ftl::HPB_PAGES;
use crate::geometry::Geometry;
use emmclab_settings::{
    ALWAYS, BoosterFlush, BoosterResize, BusMode, CacheLie, CachePolicy, ControllerSettings, DeviceSettings,
    FeatureSettings, InterfaceSettings, KernelEra, LinkGear, PartialFlush, SlcMode, SlcSettings, WHOLE,
};

/// Tags of UFSHCI 2 and 3, and of the queues of UFSHCI 4 (`bQueueDepth` of the device descriptor).
const MOST_TAGS: u32 = 32;
const MOST_SHARED_TAGS: u32 = 255;
/// Queues of UFSHCI 4 (`MCQCAP` `MAXQ`).
const MOST_QUEUES: u32 = 32;

pub(super) fn faults(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let interface = &settings.interface;
    faults.amount("interface.command_us", interface.command_us);
    faults.amount("interface.fua_us", interface.fua_us);
    if interface.is_ufs() {
        link(settings, faults);
        booster(settings, faults);
        functions_of_emmc(settings, faults);
    } else {
        functions_of_ufs(interface, faults);
        booster_of_ufs(&settings.slc, faults);
        let hints = settings.mapping.options.get(HPB_PAGES.key).copied().unwrap_or(0);
        if hints > 0 {
            faults.add(format!(
                "`mapping.{}` is {hints}, but an eMMC has no HPB: set interface.kind = \"ufs\", or leave it out",
                HPB_PAGES.key
            ));
        }
    }
}

fn functions_of_ufs(interface: &InterfaceSettings, faults: &mut SettingFaults) {
    let InterfaceSettings { lanes, gear, queues, command_us, fua_us, .. } = *interface;
    let gear = if gear == LinkGear::None { String::new() } else { format!("{gear:?}") };
    for (key, value, given) in [
        ("lanes", lanes.to_string(), lanes > 0),
        ("gear", gear.clone(), !gear.is_empty()),
        ("queues", queues.to_string(), queues > 0),
        ("command_us", command_us.to_string(), command_us > 0.0),
        ("fua_us", fua_us.to_string(), fua_us > 0.0),
    ] {
        if given {
            faults.add(format!(
                "`interface.{key}` is {value}, which an eMMC does not have: set interface.kind = \"ufs\", or leave it out"
            ));
        }
    }
}

/// A value of an enumeration, as it is written in a settings file.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default()
}

/// The settings of `WriteBooster` that an SLC cache of an eMMC does not have: key, value, and whether it is set.
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

fn booster_of_ufs(slc: &SlcSettings, faults: &mut SettingFaults) {
    for (key, value, given) in of_booster(slc) {
        if given {
            faults.add(format!(
                "`slc.{key}` is {value}, but an eMMC has no WriteBooster: set interface.kind = \"ufs\", or leave it out"
            ));
        }
    }
}

fn booster(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let slc = &settings.slc;
    if slc.mode != SlcMode::Cache {
        for (key, value, given) in of_booster(slc) {
            if given {
                faults.add(format!("`slc.{key}` is {value}, which is about WriteBooster: set slc.mode = \"cache\""));
            }
        }
    }
    partial_flush(slc, faults);
    if !(1..=WHOLE).contains(&slc.size_pct) {
        faults.add(format!("`slc.size_pct` is {}; it must be 1 to {WHOLE}", slc.size_pct));
    }
    if slc.life_limit_pct > 0 && slc.erase_limit == 0 {
        faults.add(format!(
            "`slc.life_limit_pct` is {}, but its blocks never wear out: set slc.erase_limit",
            slc.life_limit_pct
        ));
    }
    let resized = slc.size_pct != WHOLE || slc.resize != BoosterResize::Off;
    for (key, given) in [
        ("partial_flush", slc.partial_flush != PartialFlush::None),
        ("size_pct", slc.size_pct != WHOLE),
        ("resize", slc.resize != BoosterResize::Off),
    ] {
        if given && !slc.flushes_in_gaps() {
            faults.add(format!(
                "`slc.{key}` is about a flush while there are no commands, but this buffer is flushed when it is full: set slc.fold_after_us, or slc.flush"
            ));
        }
    }
    // UFS 4.1 supports both only if the buffer uses nothing of the capacity (JESD220G, 13.4.18.6 and 13.4.18.7).
    if (resized || slc.partial_flush == PartialFlush::Pinned) && !slc.preserve_user_space {
        let key = if resized { "`slc.size_pct` or `slc.resize`" } else { "`slc.partial_flush` = \"pinned\"" };
        faults.add(format!(
            "{key} is given, but WriteBooster takes its space from the capacity: set slc.preserve_user_space = true"
        ));
    }
    if slc.flush_at_pct > ALWAYS {
        faults.add(format!("`slc.flush_at_pct` is {}; it must be 0 to {ALWAYS}", slc.flush_at_pct));
    }
    if slc.flush == BoosterFlush::Event {
        if slc.fold_after_us > 0.0 {
            faults.add(
                "`slc.fold_after_us` contradicts slc.flush = \"event\", which begins with the event: set one of them",
            );
        }
        if slc.flush_at_pct >= ALWAYS {
            faults.add(format!(
                "`slc.flush_at_pct` is {}, at which the event is always present: set it below {ALWAYS}",
                slc.flush_at_pct
            ));
        }
    }
    if slc.flush == BoosterFlush::Hibernate {
        if settings.power.sleep_after_us <= 0.0 {
            faults.add("`slc.flush` is \"hibernate\", but the device never hibernates: set power.sleep_after_us");
        }
        if slc.fold_after_us > 0.0 {
            faults.add("`slc.fold_after_us` contradicts slc.flush = \"hibernate\", which begins with power.sleep_after_us: set one of them");
        }
    }
}

fn partial_flush(slc: &SlcSettings, faults: &mut SettingFaults) {
    let (from, to) = (slc.pinned_from_mb, slc.pinned_to_mb);
    if slc.partial_flush == PartialFlush::None {
        if slc.keep_pct > 0 {
            faults.add(format!(
                "`slc.keep_pct` is {}, but a full flush keeps no data: set slc.partial_flush",
                slc.keep_pct
            ));
        }
    } else if !(1..=ALWAYS).contains(&slc.keep_pct) {
        faults.add(format!("`slc.keep_pct` is {}; a partial flush keeps 1 to {ALWAYS} of the buffer", slc.keep_pct));
    }
    if slc.partial_flush == PartialFlush::Pinned {
        if from >= to {
            faults.add(format!("`slc.pinned_from_mb` is {from} and `slc.pinned_to_mb` {to}: no data is pinned"));
        }
    } else if from > 0 || to > 0 {
        faults.add(format!(
            "`slc.pinned_from_mb` is {from} and `slc.pinned_to_mb` {to}, but nothing is pinned: set slc.partial_flush = \"pinned\""
        ));
    }
}

/// Checks that enough flash is left for the data of the whole capacity if `WriteBooster` is located in the spare flash. The other settings
/// must be possible.
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
            "`slc.preserve_user_space` is true, but the spare flash is too little for `slc.blocks` = {blocks}: take fewer, or a larger capacity.over_provisioning_pct"
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
        faults.add(format!(
            "`controller.queue_depth` is {depth}; the tags of this UFS are 1 to {most}: set one of these{cure}"
        ));
    }
}

/// Finds settings of the eMMC standard that the UFS standard does not have.
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
            "its link is set by interface.gear and interface.lanes: set it to \"given\"",
        ),
        (
            "controller.host_us_per_kb",
            host_us_per_kb.to_string(),
            host_us_per_kb > 0.0,
            "its link is set by interface.gear and interface.lanes: set it to 0",
        ),
        (
            "controller.reliable_write_us",
            reliable_write_us.to_string(),
            reliable_write_us > 0.0,
            "the time of its FUA is interface.fua_us: set it to 0",
        ),
        ("features.reliable_write", reliable_write.to_string(), reliable_write, "it has FUA: set it to false"),
        ("features.barrier", barrier.to_string(), barrier, "it has SYNCHRONIZE CACHE: set it to false"),
        ("features.packed_writes", packed_writes.to_string(), packed_writes > 0, "its commands have tags: set it to 0"),
        ("features.packed_reads", packed_reads.to_string(), packed_reads > 0, "its commands have tags: set it to 0"),
        ("gc.hpi", gc.hpi.to_string(), !gc.hpi, "any command interrupts its background operations: set it to true"),
        (
            "gc.hpi_us",
            gc.hpi_us.to_string(),
            gc.hpi_us > 0.0,
            "any command interrupts its background operations: set it to 0",
        ),
        (
            "cache.policy",
            "\"fifo\"".to_owned(),
            cache.policy == CachePolicy::Fifo && cache.size_kb > 0,
            "its cache promises no order: set it to \"lru\"",
        ),
        (
            "cache.lies",
            "\"barrier\"".to_owned(),
            cache.lies == CacheLie::Barrier,
            "it has no order to lie about: take flush, fua or tear, or another lie",
        ),
        (
            "host.kernel",
            format!("{kernel:?}"),
            of_mmc,
            "that is the MMC driver: take linux_5.10, or linux_no_fua for its BROKEN_FUA quirk",
        ),
    ];
    for (key, value, given, cure) in cases {
        if given {
            faults.add(format!("`{key}` is {value}, which a UFS does not have: {cure}"));
        }
    }
}
