//! Settings of one kind of device are rejected on the other, with value and hint.

use emmclab_device::DeviceConfig;
use emmclab_testing::UFS;

use super::ufs;
use crate::common::config;

/// Checks that settings are rejected with these parts of the message.
fn refuses(mut config: DeviceConfig, settings: &[(&str, &str)], parts: &[&str]) {
    let text = config.set_all(settings).unwrap_err().to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{settings:?}: {text}");
}

#[test]
fn an_emmc_refuses_the_settings_of_a_ufs() {
    for (key, value) in UFS.iter().copied().skip(1).take(2).chain([
        ("interface.queues", "4"),
        ("interface.command_us", "2"),
        ("interface.fua_us", "50"),
        ("slc.flush", "hibernate"),
        ("slc.flush_at_pct", "40"),
        ("slc.preserve_user_space", "true"),
        ("slc.dedicated_mb", "8"),
        ("slc.flush", "event"),
        ("slc.partial_flush", "fifo"),
        ("slc.keep_pct", "8"),
        ("slc.pinned_from_mb", "8"),
        ("slc.pinned_to_mb", "8"),
        ("slc.size_pct", "8"),
        ("slc.resize", "hint"),
        ("slc.life_limit_pct", "8"),
    ]) {
        refuses(config(&[]), &[(key, value)], &[&format!("`{key}` is "), "interface.kind"]);
    }
}

#[test]
fn a_ufs_refuses_the_settings_of_an_emmc() {
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("controller.bus_mode", "hs400")], "interface.gear"),
        (&[("controller.host_us_per_kb", "3")], "interface.gear"),
        (&[("controller.reliable_write_us", "30")], "interface.fua_us"),
        (&[("features.reliable_write", "true")], "FUA"),
        (&[("features.barrier", "true")], "SYNCHRONIZE CACHE"),
        (&[("features.packed_writes", "8")], "tags"),
        (&[("features.packed_reads", "8")], "tags"),
        (
            &[("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "50"), ("gc.idle_after_us", "9"), ("gc.hpi", "false")],
            "set it to true",
        ),
        (&[("cache.size_kb", "64"), ("cache.policy", "fifo")], "promises no order"),
        (&[("cache.size_kb", "64"), ("cache.lies", "barrier")], "flush, fua or tear"),
        (&[("host.kernel", "linux_4.9")], "linux_5.10"),
        (&[("host.kernel", "vendor_barrier")], "BROKEN_FUA"),
    ];
    for (settings, cure) in cases {
        let (key, _) = settings.last().unwrap();
        refuses(ufs(&[]), settings, &[&format!("`{key}` is "), cure]);
    }
}

#[test]
fn a_link_needs_lanes_a_gear_and_tags() {
    for (settings, part) in [
        (&[("interface.lanes", "3")][..], "1 or 2"),
        (&[("interface.lanes", "0")], "1 or 2"),
        (&[("interface.gear", "none")], "hs_g1 to hs_g5"),
        (&[("interface.gear", "hs_g6")], "hs_g5"),
        (&[("controller.queue_depth", "0")], "1 to 32"),
        (&[("controller.queue_depth", "64")], "interface.queues"),
        (&[("interface.queues", "8"), ("controller.queue_depth", "256")], "1 to 255"),
        (&[("interface.queues", "33")], "at most 32"),
        (&[("interface.fua_us", "-1")], "must be 0"),
    ] {
        refuses(ufs(&[]), settings, &[part]);
    }
    let shared = ufs(&[("interface.queues", "8"), ("controller.queue_depth", "64")]);
    assert_eq!(shared.settings().interface.link_bytes_per_s(), 583_040_000);
}

#[test]
fn settings_of_write_booster_that_contradict_each_other_are_refused_with_the_cure() {
    let base = [
        ("geometry.block_groups.0.blocks", "64"),
        ("slc.mode", "cache"),
        ("slc.blocks", "8"),
        ("slc.fold_after_us", "500"),
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "100"),
    ];
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("slc.keep_pct", "10")], "set slc.partial_flush"),
        (&[("slc.partial_flush", "fifo")], "`slc.keep_pct` is 0"),
        (&[("slc.partial_flush", "fifo"), ("slc.keep_pct", "101")], "`slc.keep_pct` is 101"),
        (&[("slc.partial_flush", "fifo"), ("slc.keep_pct", "10"), ("slc.fold_after_us", "0")], "slc.fold_after_us"),
        (&[("slc.partial_flush", "pinned"), ("slc.keep_pct", "10"), ("slc.pinned_to_mb", "1")], "preserve_user_space"),
        (&[("slc.partial_flush", "pinned"), ("slc.keep_pct", "10"), ("slc.preserve_user_space", "true")], "no data is pinned"),
        (&[("slc.pinned_to_mb", "1")], "slc.partial_flush"),
        (&[("slc.size_pct", "0")], "`slc.size_pct` is 0"),
        (&[("slc.size_pct", "50")], "preserve_user_space"),
        (&[("slc.resize", "hint")], "preserve_user_space"),
        (&[("slc.life_limit_pct", "50")], "slc.erase_limit"),
        (&[("slc.flush", "event"), ("slc.flush_at_pct", "40")], "contradicts"),
        (&[("slc.flush", "event"), ("slc.fold_after_us", "0")], "set it below 100"),
        (&[("slc.mode", "off"), ("slc.blocks", "0"), ("slc.fold_after_us", "0"), ("slc.life_limit_pct", "5")], "slc.mode"),
    ];
    for (settings, cure) in cases {
        refuses(ufs(&base), settings, &[cure]);
    }
}
