//! Random page-mapped devices.

use std::fmt::Write;

use emmclab_device::DeviceConfig;
use emmclab_device::gc::{NONE, POLICIES};
use proptest::prelude::*;

fn collects(policy: &str) -> bool {
    policy != NONE
}

/// All choices or, if `plain`, only the first one, with which requests use the fast paths.
fn choice(plain: bool, choices: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(if plain { &choices[..1] } else { choices })
}

/// All allocation policies, the default first.
fn allocation_policies() -> Vec<String> {
    let schema = emmclab_device::json_schema();
    let words = schema["$defs"]["AllocationSettings"]["properties"]["policy"]["oneOf"].as_array().unwrap();
    words.iter().map(|word| word["const"].as_str().unwrap().to_owned()).collect()
}

/// A random device with at most this number of channels, chips, dies and planes each.
pub fn devices(most: u32, plain: bool) -> impl Strategy<Value = DeviceConfig> {
    let shape = (1..=most, 1..=most, 1..=most, 1..=most);
    let groups = prop::collection::vec((prop::sample::select(vec![4u32, 8, 16]), 6u32..=9, 2u32..=9), 1..=3);
    let policy = prop::sample::select(POLICIES.iter().map(|policy| policy.kind.name).chain([NONE]).collect::<Vec<_>>());
    let words = (
        prop::sample::select(vec!["none", "interleave", "multi_plane", "both"]),
        prop::sample::select(vec!["programmed", "transferred"]),
        choice(plain, &["fifo", "read_first"]),
        prop::sample::select(if plain { vec!["dynamic".to_owned()] } else { allocation_policies() }),
        prop::sample::select(vec!["none", "dynamic", "static"]),
        choice(plain, &["blocking", "incremental"]),
    );
    let numbers = (
        prop::sample::select(vec![4u32, 8]),
        0u32..=1,
        0..=u32::from(!plain),
        prop_oneof![5u32..=60, Just(super::model::ROOMY_PCT as u32)],
        0u32..=30,
        0u32..=2,
    );
    let cache = (
        prop::sample::select(if plain { vec![0] } else { vec![0u32, 0, 16, 40, 200] }),
        prop::sample::select(if plain { vec![0] } else { vec![0u32, 0, 16, 64] }),
        prop::sample::select(vec!["fifo", "lru", "block_lru"]),
        prop::sample::select(vec!["eager", "idle", "when_full"]),
        any::<bool>(),
        0u32..=2,
        choice(plain, &["off", "off", "region", "cache"]),
        0u32..=1,
    );
    (shape, groups, policy, words, numbers, any::<[bool; 4]>(), cache).prop_map(
        |(shape, groups, policy, words, numbers, flags, cache)| {
            let (cache_kb, read_kb, replace, write_back, hpi, urgent, slc, fold) = cache;
            let slc = if collects(policy) { slc } else { "off" };
            let (parallelism, complete, scheduling, allocation, levelling, mode) = words;
            let (unit_kb, bus, idle, share, limit, hot) = numbers;
            let [same_offset, copy_back, cache_read, cache_program] = flags;
            let collects = collects(policy);
            let mut text = format!(
                "name = 'random'
                 [geometry]
                 channels = {}
                 chips_per_channel = {}
                 dies_per_chip = {}
                 planes_per_die = {}
                 [capacity]
                 over_provisioning_pct = {share}
                 [timing]
                 parallelism = '{parallelism}'
                 same_offset = {}
                 copy_back = {copy_back}
                 cache_read = {cache_read}
                 cache_program = {}
                 command_ns = {}
                 bus_ns_per_byte = {}
                 write_complete = '{complete}'
                 [controller]
                 scheduling = '{scheduling}'
                 [mapping]
                 unit_kb = {unit_kb}
                 [allocation]
                 policy = '{allocation}'
                 hot_max_kb = {}
                 [gc]
                 policy = '{policy}'
                 mode = '{mode}'
                 high_watermark = 3
                 low_watermark = 1
                 {}
                 idle_after_us = {}
                 hpi = {}
                 hpi_us = {}
                 urgent_free_blocks = {}
                 [wear]
                 levelling = '{}'
                 threshold = 3\n",
                shape.0,
                shape.1,
                shape.2,
                shape.3,
                same_offset && (parallelism == "multi_plane" || parallelism == "both"),
                cache_program && complete == "programmed",
                bus * 100,
                bus * 5,
                hot * 4,
                match policy {
                    "d_choices" => "choices = 3",
                    "windowed_greedy" => "window = 2",
                    _ => "",
                },
                if collects { idle * 500 } else { 0 },
                hpi || !collects || idle == 0,
                if collects && idle > 0 && hpi { 50 } else { 0 },
                if collects { urgent } else { 0 },
                if collects || levelling != "static" { levelling } else { "none" },
            );
            if scheduling == "fifo" {
                let _ = write!(
                    text,
                    "[cache]
                     size_kb = {cache_kb}
                     policy = '{replace}'
                     read_kb = {read_kb}
                     write_back = '{write_back}'
                     idle_after_us = {}\n",
                    if cache_kb > 0 && write_back == "idle" { 400 } else { 0 },
                );
            }
            if slc != "off" {
                let _ = write!(
                    text,
                    "[slc]
                     mode = '{slc}'
                     blocks = 5
                     fold_after_us = {}\n",
                    if slc == "cache" { fold * 300 } else { 0 },
                );
            }
            for (index, (page_kb, blocks, pages)) in groups.into_iter().enumerate() {
                let blocks = if slc != "off" && index == 0 { blocks + 5 } else { blocks };
                // Blocks in SLC mode have half of the pages, and collection needs two pages.
                let pages = if slc == "off" { pages } else { pages + 2 };
                let limit = if limit > 20 { limit } else { 0 };
                let _ = write!(
                    text,
                    "[[geometry.block_groups]]
                     page_kb = {}
                     blocks = {blocks}
                     pages_per_block = {pages}
                     read_us = 100
                     program_us = 1000
                     erase_us = 3000
                     erase_limit = {limit}
                     spare_blocks = {}\n",
                    page_kb.max(unit_kb),
                    u32::from(limit > 0),
                );
            }
            DeviceConfig::from_toml(&text).unwrap()
        },
    )
}
