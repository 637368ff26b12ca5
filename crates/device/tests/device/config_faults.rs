//! No setting is ignored without an error, and all errors are reported at once.

use emmclab_base::ErrorClass;
use emmclab_device::{DeviceConfig, DeviceSettings, presets};

#[test]
fn every_preset_is_valid_keeps_its_name_and_reads_back_as_itself() {
    for preset in presets() {
        let config = DeviceConfig::preset(preset.name).unwrap();
        assert_eq!(config.name(), preset.name);
        assert!(!config.settings().about.is_empty());
        let again = DeviceConfig::from_toml(&config.to_toml().unwrap()).unwrap();
        assert_eq!(again.settings(), config.settings());
    }
}

#[test]
fn every_setting_is_explained_with_unit_origin_and_meaning() {
    let mut config = DeviceConfig::preset("iiswc15-hps").unwrap();
    config.set("timing.parallelism", "both").unwrap();
    let rows = config.explain();
    let row = |key: &str| rows.iter().find(|row| row.key == key).unwrap();
    assert_eq!(row("timing.parallelism").origin, "--set");
    assert_eq!(row("geometry.block_groups.1.program_us").unit, "us");
    assert_eq!(row("geometry.block_groups.1.program_us").origin, "preset iiswc15-hps");
    assert_eq!(row("gc.hpi").origin, "default");
    config.set_all(&[("gc.policy", "windowed_greedy"), ("capacity.over_provisioning_pct", "7")]).unwrap();
    let rows = config.explain();
    let window = rows.iter().find(|row| row.key == "gc.window").unwrap();
    assert_eq!((window.origin.as_str(), window.value.as_str()), ("default", "64"));
    assert!(window.doc.contains("`windowed_greedy`: Oldest blocks"), "{}", window.doc);
    for row in &rows {
        assert!(!row.doc.is_empty(), "{} has no meaning", row.key);
    }
}

#[test]
fn all_faults_are_listed_at_once_with_the_nearest_key() {
    let error = DeviceConfig::from_toml(
        "nam = 'x'
         [geometry]
         channels = -1
         [timing]
         paralelism = 'both'
         write_complete = 'later'
         command_ns = 'fast'",
    )
    .unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Config);
    let text = error.to_string();
    for part in [
        "5 faults",
        "`nam`; did you mean `name`",
        "geometry.channels",
        "did you mean `timing.parallelism`",
        "programmed, transferred",
        "must be a number",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn unknown_keys_do_not_hide_impossible_values() {
    let mut config = DeviceConfig::preset("iiswc15-hps").unwrap();
    let settings = [("geometry.channels", "0"), ("gc.polic", "fifo"), ("foo", "1"), ("timing.command_ns", "-5")];
    let text = config.set_all(&settings).unwrap_err().to_string();
    for part in ["4 faults", "`geometry.channels` is 0", "`gc.policy`", "no setting `foo`", "`timing.command_ns` is -5"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn contradictions_and_impossible_values_are_refused() {
    const TYPES: &str = "geometry.block_groups.0.page_types";
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("capacity.over_provisioning_pct", "0")], "0 with garbage collection"),
        (&[("gc.policy", "gready")], "none, greedy"),
        (&[("geometry.channels", "0")], "at least one"),
        (&[("geometry.block_groups.0.blocks", "2")], "to write and collect"),
        (&[("geometry.block_groups.0.page_kb", "5")], "4, 8 or 16"),
        (&[("geometry.block_groups.0.pages_per_block", "65536"), ("geometry.block_groups.0.blocks", "4000000000")], "at most"),
        (&[("mapping.unit_kb", "8")], "must fit into a page"),
        (&[("geometry.block_groups.0.program_us", "nan")], "must be 0 to 100,000,000"),
        (&[("geometry.block_groups.0.program_us", "-1")], "must be 0 to 100,000,000"),
        (&[(TYPES, "[{read_us=9}]")], "`geometry.block_groups.0.page_types` has 1 entries, but a cell has 2 bits"),
        (&[(TYPES, "[{read_us=9}, {read_us=9}]")], "`geometry.block_groups.0.read_us` is 160, which contradicts"),
        (&[(TYPES, "[{program_us=-1}, {}]")], "`geometry.block_groups.0.page_types.0.program_us` is -1"),
        (&[("timing.same_offset", "true"), ("timing.parallelism", "none")], "multi-plane"),
        (&[("power.wake_us", "3000")], "never sleeps"),
        (
            &[("power.stages", "[{after_us=9}]"), ("power.sleep_after_us", "9")],
            "`power.sleep_after_us` contradicts `power.stages`",
        ),
        (&[("power.stages", "[{after_us=9}]"), ("power.wake_us", "9")], "remove it, or set it to 0"),
        (&[("power.stages", "[{wake_us=9}]")], "`power.stages.0.after_us` is 0; it must be above 0"),
        (&[("power.stages", "[{after_us=9}, {after_us=9, wake_us=1}]")], "must be above 9, that of the stage before"),
        (&[("power.stages", "[{after_us=9, wake_us=1, wake_quantiles=[{up_to_pct=100, us=1}]}]")], "set only one"),
        (
            &[("power.stages", "[{after_us=9, wake_quantiles=[{up_to_pct=90, us=1}]}]")],
            "`power.stages.0.wake_quantiles` must rise",
        ),
        (&[("power.stages", "[{after_us=9, wake_us=-1}]")], "`power.stages.0.wake_us`"),
        (&[("power.stages", "[{after_us=9, wait_us=1}]")], "did you mean `power.stages.0.wake_us`"),
        (&[("geometry.block_groups.0.retry_us", "9")], "no read is retried: set geometry.block_groups.0.retries"),
        (&[("geometry.block_groups.0.retries", "[{steps=1}]")], "`geometry.block_groups.0.retry_us` is 0, but"),
        (
            &[("geometry.block_groups.0.retries", "[{steps=1}, {steps=2}]"), ("geometry.block_groups.0.retry_us", "9")],
            "`geometry.block_groups.0.retries.1` has erases = 0, days = 0 after erases = 0, days = 0; the rows must ascend",
        ),
        (
            &[("geometry.block_groups.0.retries", "[{days=-1}]"), ("geometry.block_groups.0.retry_us", "9")],
            "`geometry.block_groups.0.retries.0.days` is -1; it must be 0 to 36,500",
        ),
        (
            &[("geometry.block_groups.0.refresh_days", "90"), ("gc.policy", "none")],
            "`geometry.block_groups.0.refresh_days` is 90, but only garbage collection",
        ),
        (
            &[("geometry.block_groups.0.read_disturb_limit", "9"), ("gc.policy", "none")],
            "`geometry.block_groups.0.read_disturb_limit` is 9, but only garbage collection",
        ),
        (&[("wear.data_age_days", "40000")], "`wear.data_age_days` is 40000; it must be 0 to 36,500"),
        (&[("controller.scheduling", "read_first"), ("controller.queue_depth", "1")], "queue_depth"),
        (&[("timing.suspend_us", "9")], "`timing.suspend_us` is 9, but no operation is suspended: set timing.suspend_limit"),
        (&[("timing.suspend_limit", "9"), ("timing.parallelism", "multi_plane")], "not modelled for multi-plane commands"),
        (
            &[("timing.suspend_limit", "9"), ("mapping.scheme", "dftl")],
            "`timing.suspend_limit` is 9, but suspension is not modelled for a mapping scheme",
        ),
        (&[("timing.suspend_limit", "9"), ("cache.size_kb", "64"), ("cache.lies", "tear")], "for a cache that lies"),
        (&[("gc.policy", "none"), ("wear.levelling", "static")], "static"),
        (&[("geometry.block_groups.0.spare_blocks", "3")], "never go bad"),
        (&[("mapping.scheme", "pages")], "bast, fast, superblock"),
        (&[("mapping.scheme", "fast"), ("mapping.log_blocks", "1")], "must be 2 to"),
        (&[("mapping.scheme", "bast"), ("mapping.log_blocks", "18")], "needs 276: 257 for data, 18 for logs"),
        (&[("mapping.scheme", "superblock"), ("mapping.superblock_blocks", "0")], "must be 1 to 1,024"),
        (&[("mapping.scheme", "block"), ("gc.policy", "fifo")], "merged and not collected"),
        (&[("mapping.scheme", "dftl"), ("mapping.cached_entries", "0")], "cached_entries"),
        (&[("mapping.scheme", "block"), ("mapping.cached_maps", "1")], "has no such setting"),
        (&[("mapping.scheme", "dftl"), ("controller.scheduling", "read_first")], "read_first"),
        (&[("mapping.clustering", "planes"), ("timing.parallelism", "interleave")], "multi-plane"),
        (&[("mapping.clustering", "channels"), ("geometry.channels", "3")], "power of two"),
        (&[("controller.queue_depth", "33")], "at most 32"),
        (&[("controller.bus_mode", "hs400"), ("controller.host_us_per_kb", "3")], "contradicts"),
        (&[("host.packed_writes", "8"), ("controller.queue_depth", "0")], "one command at a time"),
        (&[("host.packed_writes", "64"), ("controller.queue_depth", "1")], "2 to 63"),
        (&[("features.packed_writes", "1")], "2 to 63"),
        (
            &[("host.packed_writes", "8"), ("features.packed_writes", "4"), ("controller.queue_depth", "1")],
            "the device accepts 4",
        ),
        (&[("host.kernel", "linux_5.10"), ("host.packed_writes", "8"), ("controller.queue_depth", "1")], "packs no commands"),
        (
            &[("host.kernel", "linux_4.9"), ("host.packed_reads", "8"), ("controller.queue_depth", "1")],
            "no version of Linux packs reads",
        ),
        (&[("host.kernel", "linux_3.10"), ("controller.queue_depth", "32")], "does not support command queues"),
        (&[("host.kernel", "3.10")], "linux_3.10, linux_4.9"),
        (&[("host.merge_max_kb", "512"), ("controller.queue_depth", "0")], "queue_depth"),
        (&[("host.merge_max_kb", "2"), ("controller.queue_depth", "1")], "4 to"),
        (&[("host.packed_reads", "4"), ("controller.queue_depth", "1"), ("host.packed_max_kb", "4")], "8 to"),
        (&[("controller.share_packed_pages", "true")], "writes are not packed"),
        (&[("controller.share_packed_pages", "true"), ("mapping.scheme", "bast")], "pages that can contain any units"),
        (&[("controller.share_packed_pages", "true"), ("cache.size_kb", "512")], "writes back by address"),
        (&[("controller.share_packed_pages", "true"), ("slc.mode", "cache")], "chooses blocks for each request"),
        (&[("cache.size_kb", "2")], "must be 0, or 4 to"),
        (&[("cache.idle_after_us", "5")], "no write-back waits"),
        (&[("cache.size_kb", "512"), ("mapping.scheme", "dftl")], "needs the page map"),
        (&[("cache.size_kb", "512"), ("controller.scheduling", "read_first")], "read_first"),
        (&[("gc.hpi", "false")], "idle collection"),
        (&[("gc.idle_free_blocks", "1"), ("gc.idle_after_us", "5")], "must be above"),
        (&[("gc.urgent_free_blocks", "4000000")], "only"),
        (&[("gc.policy", "none"), ("gc.urgent_free_blocks", "2")], "none"),
        (&[("slc.blocks", "16")], "slc.mode"),
        (&[("slc.mode", "cache")], "`slc.blocks` is 0"),
        (&[("slc.mode", "cache"), ("slc.blocks", "100000")], "too few"),
        (&[("slc.mode", "cache"), ("slc.blocks", "16"), ("slc.group", "3")], "counted from 0"),
        (&[("slc.mode", "region"), ("slc.blocks", "16"), ("slc.fold_after_us", "3")], "slc.mode = \"cache\""),
        (&[("slc.mode", "cache"), ("slc.blocks", "16"), ("gc.policy", "none")], "none"),
        (&[("slc.mode", "region"), ("slc.blocks", "16"), ("geometry.block_groups.0.pages_per_block", "3")], "at least 4"),
        (&[("geometry.block_groups.0.pages_per_block", "1")], "cannot free a page"),
        (&[("power.sleep_after_us", "9"), ("power.wake_quantiles", "[{up_to_pct=50, us=1}]")], "end at"),
        (&[("power.wake_quantiles", "[{up_to_pct=100, us=1}]")], "never sleeps"),
        (&[("controller.write_stalls", "[{up_to_pct=50, us=1}]")], "`controller.write_stalls` must rise"),
        (&[("power.sleep_after_us", "9"), ("power.wake_quantiles", "[{up_to_pct=60, us=9}, {up_to_pct=100, us=8}]")], "rise"),
    ];
    for (settings, part) in cases {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        let before = config.settings().clone();
        let error = config.set_all(settings).unwrap_err();
        assert!(error.to_string().contains(part), "{settings:?}: {error}");
        assert_eq!(*config.settings(), before, "a refused setting must change nothing");
    }
}

#[test]
fn a_setting_of_another_policy_is_refused_by_the_name_of_its_owner() {
    for (settings, owner) in [
        ([("gc.policy", "greedy"), ("gc.window", "8")], "gc.policy = windowed_greedy"),
        ([("gc.policy", "fifo"), ("gc.seed", "8")], "gc.policy = d_choices"),
        ([("mapping.scheme", "page"), ("mapping.log_blocks", "8")], "block, bast, fast, superblock"),
        ([("mapping.scheme", "page"), ("mapping.cached_entries", "8")], "mapping.scheme = dftl"),
    ] {
        let error = DeviceConfig::preset("small-1gb").unwrap().set_all(&settings).unwrap_err().to_string();
        assert!(error.contains(owner) && error.contains("no such setting"), "{settings:?}: {error}");
    }
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    for (value, part) in [("0", "must be 1 to "), ("'x'", "whole number"), ("1.5", "whole number")] {
        let error = config.set_all(&[("gc.policy", "windowed_greedy"), ("gc.window", value)]).unwrap_err();
        assert!(error.to_string().contains(part), "{value}: {error}");
    }
    assert!(config.set("gc.windo", "5").unwrap_err().to_string().contains("did you mean `gc.window`"));
}

#[test]
fn another_policy_leaves_the_settings_of_the_former_one_behind() {
    let mut config = DeviceConfig::preset("galaxys2").unwrap();
    let before = config.settings().mapping.options.clone();
    assert!(before.contains_key("superblock_blocks"), "{before:?}");
    config.set("mapping.scheme", "fast").unwrap();
    let options = &config.settings().mapping.options;
    assert_eq!(options.keys().collect::<Vec<_>>(), ["cached_maps", "log_blocks"]);
    assert_eq!(options["log_blocks"], before["log_blocks"]);
    // A setting that is set in the same call is not removed.
    let both = [("mapping.scheme", "page"), ("mapping.log_blocks", "8")];
    let error = DeviceConfig::preset("galaxys2").unwrap().set_all(&both).unwrap_err();
    assert!(error.to_string().contains("no such setting"), "{error}");
    config.set_all(&[("mapping.scheme", "page"), ("gc.policy", "windowed_greedy"), ("gc.window", "8")]).unwrap();
    config.set("gc.policy", "fifo").unwrap();
    assert!(config.settings().gc.options.is_empty() && config.settings().mapping.options.is_empty());
}

#[test]
fn text_behind_a_value_is_not_left_out() {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    for value in ["32 # blocks", "32\ncache.lies = \"flush\"", "32 64"] {
        let error = config.set("geometry.block_groups.0.blocks", value).unwrap_err();
        assert!(error.to_string().contains("blocks"), "{error}");
    }
    config.set("geometry.block_groups.0.blocks", "32").unwrap();
}

#[test]
fn unknown_keys_presets_and_broken_toml_name_the_cure() {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    assert!(config.set("gc.polic", "fifo").unwrap_err().to_string().contains("`gc.policy`"));
    assert!(config.set("geometry.block_groups.7.blocks", "1").unwrap_err().hint_text().unwrap().contains("1 entries"));
    let error = DeviceConfig::preset("iiswc15-hsp").err().unwrap();
    assert!(error.hint_text().unwrap().contains("iiswc15-hps"));
    let error = DeviceConfig::from_toml("name = 'x'\n[geometry\n").err().unwrap();
    assert_eq!(error.line(), Some(2));
}

#[test]
fn the_card_of_implication_1_is_a_third_as_fast_as_the_phone_in_every_part() {
    let [phone, card] = ["nexus5", "sdcard"].map(|name| DeviceConfig::preset(name).unwrap().settings().clone());
    let times = |settings: &DeviceSettings| {
        let controller = &settings.controller;
        let groups = settings.geometry.block_groups.iter();
        let flash = groups.flat_map(|group| [group.read_us, group.program_us, group.erase_us]);
        let host = [controller.read_overhead_us, controller.write_overhead_us, controller.host_us_per_kb];
        flash.chain(host).collect::<Vec<_>>()
    };
    let (phone, card) = (times(&phone), times(&card));
    assert_eq!(phone.len(), card.len());
    for (phone, card) in phone.iter().zip(&card) {
        assert!((card - 3.0 * phone).abs() < 0.05, "{card} is not three times {phone}");
    }
}

#[test]
fn a_preset_takes_another_capacity_in_proportion() {
    for (preset, gb) in [("iiswc15-hps", 128), ("nexus5", 64), ("emmc51-tlc", 128), ("small-1gb", 2)] {
        let before = DeviceConfig::preset(preset).unwrap();
        let after = before.with_capacity(gb << 30, "X").unwrap();
        let (capacity, wanted) = (after.capacity().0, gb << 30);
        assert!((wanted..wanted + wanted / 50).contains(&capacity), "{preset}: {capacity}");
        let ratio = |config: &DeviceConfig| {
            let groups = &config.settings().geometry.block_groups;
            groups.iter().map(|group| f64::from(group.blocks) / f64::from(groups[0].blocks)).collect::<Vec<_>>()
        };
        for (one, other) in ratio(&before).iter().zip(ratio(&after)) {
            assert!((one / other - 1.0).abs() < 0.01, "{preset}");
        }
        assert_eq!(after.name(), format!("{preset}-X"));
        let row = after.explain().into_iter().find(|row| row.key == "geometry.block_groups.0.blocks").unwrap();
        assert_eq!(row.origin, "--capacity X");
    }
}

#[test]
fn an_impossible_capacity_is_refused_with_what_the_device_has() {
    for bytes in [0, 1 << 12, 1 << 60, u64::MAX] {
        let error = DeviceConfig::preset("small-1gb").unwrap().with_capacity(bytes, "X").unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config, "{bytes}");
        assert!(error.hint_text().unwrap().contains("small-1gb"), "{bytes}");
    }
}

#[test]
fn explain_lists_what_a_setting_allows() {
    let rows = DeviceConfig::preset("small-1gb").unwrap().explain();
    let allowed = |key: &str| rows.iter().find(|row| row.key == key).unwrap().allowed.clone();
    assert!(allowed("gc.policy").contains("greedy, "));
    assert!(allowed("geometry.block_groups.0.cell_mode").contains("tlc"));
    assert!(allowed("timing.parallelism").contains("interleave"));
    assert_eq!(allowed("geometry.block_groups.0.read_us"), "0 to 100,000,000");
    assert_eq!(allowed("capacity.over_provisioning_pct"), "0 to 1,000");
    assert_eq!(allowed("geometry.block_groups.0.page_kb"), "4, 8, 16");
    assert_eq!(allowed("geometry.channels"), "1 or more");
}

#[test]
fn a_near_key_is_named_in_full() {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    let error = config.set("gc.polcy", "fifo").unwrap_err();
    assert!(error.to_string().contains("did you mean `gc.policy`?"), "{error}");
}

#[test]
fn a_device_with_an_slc_cache_takes_every_capacity_above_it() {
    let whole = DeviceConfig::preset("emmc51-cache").unwrap();
    for mb in [256_u64, 1 << 10, 3 << 10, 4 << 10, 8 << 10, 12 << 10, 32 << 10, 60 << 10] {
        let scaled = whole.with_capacity(mb << 20, "X").unwrap();
        let reached = scaled.capacity().0;
        assert!(reached >= mb << 20 && reached < (mb << 20) + (256 << 20), "{mb} MB: {reached}");
    }
}

#[test]
fn a_small_device_has_smaller_blocks_and_its_share_in_slc_mode() {
    let small = DeviceConfig::preset("emmc51-cache").unwrap().with_capacity(256 << 20, "256MB").unwrap();
    let (capacity, wanted) = (small.capacity().0, 256 << 20);
    assert!((wanted..wanted + wanted / 2).contains(&capacity), "{capacity}");
    let settings = small.settings();
    let group = &settings.geometry.block_groups[0];
    assert_eq!((settings.slc.blocks, group.blocks, group.pages_per_block), (5, 115, 48));
}
