//! All mapping schemes except the page map: random devices and requests, compared with the reference model.

use emmclab_device::DeviceConfig;
use proptest::prelude::*;

use crate::common::model::{ON_DEMAND, Step, block_group, drive, geometry, names, on_demand};

/// All schemes of the settings except those that map pages.
fn block_mapped_schemes() -> Vec<String> {
    names("MappingSettings", "scheme").into_iter().filter(|name| name != "page" && !on_demand(name)).collect()
}

#[test]
fn no_scheme_is_forgotten() {
    let schemes = block_mapped_schemes();
    assert!(["block", "bast", "fast", "superblock"].iter().all(|known| schemes.iter().any(|name| name == known)));
}

/// Whether a setting of `[mapping]` belongs to a scheme, according to its description.
fn has_setting(scheme: &str, key: &str) -> bool {
    let schema = emmclab_device::json_schema();
    let about = &schema["$defs"]["MappingSettings"]["properties"][key]["description"];
    about.as_str().unwrap().split(": ").next().unwrap().contains(&format!("`{scheme}`"))
}

/// Random block-mapped devices with enough blocks. Settings with too few blocks are rejected, which another test checks.
fn block_mapped() -> impl Strategy<Value = DeviceConfig> {
    let scheme = prop::sample::select(block_mapped_schemes());
    let clustering = prop::sample::select(vec!["none", "planes", "dies", "chips", "channels"]);
    let shape = prop::array::uniform4(1u32..=2);
    let pages = (prop::sample::select(vec![4u32, 8]), 2u32..=9);
    let logs = (2u32..=4, 1u32..=3, 1u32..=3);
    let numbers = (0u32..=1, 0u32..=2, 0u32..=60, 0u32..=3);
    let flags = any::<[bool; 5]>();
    (scheme, clustering, shape, pages, logs, numbers, flags).prop_map(
        |(scheme, clustering, shape, pages, logs, numbers, flags)| {
            let [copy_back, cache_read, cache_program, transferred, dynamic] = flags;
            let (bus, cached, limit, depth) = numbers;
            let data = 3 * logs.1;
            let blocks = data + logs.0 + 2;
            let share = 100.0 * f64::from(blocks) / f64::from(data) - 99.99;
            let own = [
                ("log_blocks", logs.0),
                ("superblock_blocks", logs.1),
                ("superblock_log_blocks", logs.2),
                ("cached_maps", cached),
            ]
            .iter()
            .filter(|(key, _)| has_setting(&scheme, key))
            .map(|(key, value)| format!("{key} = {value}"))
            .collect::<Vec<_>>()
            .join("\n");
            let page_kb = if clustering == "channels" && shape.iter().product::<u32>() == 16 { 4 } else { pages.0 };
            let text = format!(
                "name = 'random'
                 {}{}
                 [capacity]
                 over_provisioning_pct = {share}
                 [timing]
                 parallelism = 'both'
                 copy_back = {copy_back}
                 cache_read = {cache_read}
                 cache_program = {}
                 command_ns = {}
                 bus_ns_per_byte = {}
                 write_complete = '{}'
                 [controller]
                 queue_depth = {depth}
                 [mapping]
                 scheme = '{scheme}'
                 clustering = '{clustering}'
                 {own}
                 [wear]
                 levelling = '{}'",
                geometry(shape),
                block_group(page_kb, blocks + u32::from(limit > 20), pages.1, limit),
                cache_program && !transferred,
                bus * 100,
                bus * 5,
                if transferred { "transferred" } else { "programmed" },
                if dynamic { "dynamic" } else { "none" },
            );
            DeviceConfig::from_toml(&text).unwrap()
        },
    )
}

/// Random devices with the map on the flash and memory for a few cached entries.
fn mapped_on_demand() -> impl Strategy<Value = DeviceConfig> {
    let shape = prop::array::uniform4(1u32..=2);
    let scheme = (prop::sample::select(ON_DEMAND), 0u32..=4, 1u32..=8);
    let numbers = (1u32..=40, prop::sample::select(vec![4u32, 8]), 2u32..=9, 0u32..=2, 0u32..=60);
    let words = (
        prop::sample::select(vec!["'dynamic'", "'static'", "'chunked'\nchunk_kb = 16"]),
        prop::sample::select(vec!["none", "dynamic", "static"]),
        prop::sample::select(vec!["blocking", "incremental"]),
        prop::sample::select(vec![40u32, 250]),
    );
    (shape, numbers, words, any::<bool>(), scheme).prop_map(|(shape, numbers, words, hybrid, scheme)| {
        let (entries, page_kb, pages, idle, limit) = numbers;
        let (allocation, levelling, mode, share) = words;
        let (scheme, gamma, compact_after) = scheme;
        let own = match scheme {
            "dftl" => format!("cached_entries = {entries}"),
            "leaftl" => format!("map_cache_kb = 4\ngamma = {gamma}\ncompact_after = {compact_after}"),
            _ => "map_cache_kb = 4".to_owned(),
        };
        let group = |page_kb| block_group(page_kb, 9, pages, limit);
        let text = format!(
            "name = 'random'
             {}{}{}
             [capacity]
             over_provisioning_pct = {share}
             [mapping]
             scheme = '{scheme}'
             {own}
             [allocation]
             policy = {allocation}
             [gc]
             mode = '{mode}'
             high_watermark = 3
             low_watermark = 1
             idle_after_us = {}
             [wear]
             levelling = '{levelling}'
             threshold = 3",
            geometry(shape),
            group(page_kb),
            if hybrid { group(16) } else { String::new() },
            idle * 500,
        );
        DeviceConfig::from_toml(&text).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(300), ..ProptestConfig::default() })]

    #[test]
    fn block_mapped_schemes_read_back_what_was_last_written(
        config in block_mapped(),
        steps in prop::collection::vec(any::<Step>(), 1..600),
    ) {
        drive(&config, &steps)?;
    }

    #[test]
    fn so_does_a_map_on_demand(
        config in mapped_on_demand(),
        steps in prop::collection::vec(any::<Step>(), 1..600),
    ) {
        drive(&config, &steps)?;
    }
}
