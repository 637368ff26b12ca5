//! Known properties of each mapping scheme: the costs of sequential and random writes.

use crate::common::{Completions, command, config, responses_us, run};
use emmclab_base::Nanos;
use emmclab_base::Op::{Discard, Read, Write};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{Device, DeviceCommand, DeviceConfig, DeviceCounters, Lpn, NullObserver, OperationCause};

const BLOCK_MAPPED: &[&str] = &["block", "bast", "fast", "superblock"];

/// A device with one plane of 64 blocks of 16 pages of 4 KB, with 40 logical blocks.
fn device(scheme: &str, settings: &[(&str, &str)]) -> DeviceConfig {
    let base = [
        ("gc.policy", "greedy"),
        ("mapping.scheme", scheme),
        ("capacity.over_provisioning_pct", "60"),
        ("geometry.block_groups.0.blocks", "64"),
        ("geometry.block_groups.0.pages_per_block", "16"),
    ];
    config(&[&base, settings].concat())
}

/// Fills the device sequentially, and then writes these pages. Returns the counters of the second part.
fn overwrite(config: &DeviceConfig, pages: impl Iterator<Item = u64>) -> DeviceCounters {
    let mut device = Device::new(config);
    let logical = u64::from(device.geometry().logical_units);
    let write = |device: &mut Device, page: u64| {
        let arrival = Nanos(device.idle_from().0.max(0));
        let command = DeviceCommand::new(arrival, Write, page * 8, 8);
        device.submit(&command, &mut NullObserver).unwrap();
        assert_eq!(device.stop(), None);
    };
    (0..logical).for_each(|page| write(&mut device, page));
    device.rewind();
    pages.for_each(|page| write(&mut device, page % logical));
    device.counters().clone()
}

fn random(count: u64) -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    })
}

#[test]
fn a_sequential_overwrite_is_switched_and_copies_nothing() {
    for &scheme in BLOCK_MAPPED {
        let counters = overwrite(&device(scheme, &[]), 0..640);
        assert_eq!(counters.page_programs[OperationCause::Gc as usize], 0, "{scheme}");
        assert_eq!((counters.partial_merges, counters.full_merges), (0, 0), "{scheme}");
        assert!(counters.switch_merges >= 30, "{scheme}: {} switch merges", counters.switch_merges);
    }
}

#[test]
fn random_overwrites_are_ruinous_where_a_log_block_has_one_owner() {
    let waf = |scheme| overwrite(&device(scheme, &[]), random(5000)).waf();
    let (page, block, bast, fast, superblock) = (waf("page"), waf("block"), waf("bast"), waf("fast"), waf("superblock"));
    println!("page {page:.2} superblock {superblock:.2} fast {fast:.2} bast {bast:.2} block {block:.2}");
    // Nearly every log or replacement block is merged after one or two pages, which writes a whole block.
    assert!(block > 10.0 && bast > 8.0, "block {block}, bast {bast}");
    assert!(fast < bast && superblock < bast && page < superblock);
}

#[test]
fn the_kinds_of_merges_are_told_apart() {
    // Logical block 0 is completely written twice, then overwritten from its beginning but not to its end, then at scattered pages.
    let small = |scheme: &str| device(scheme, &[("mapping.log_blocks", "2")]);
    let merges = |scheme: &str, pages: &[u64]| {
        let counters = overwrite(&small(scheme), pages.iter().copied());
        (counters.switch_merges, counters.partial_merges, counters.full_merges)
    };
    let whole: Vec<u64> = (0..16).collect();
    let begun: Vec<u64> = (0..5).collect();
    let scattered = vec![3, 1, 7];
    // Writes to two other logical blocks force a merge of the log block of the first one.
    let push: Vec<u64> = vec![16, 32];
    assert_eq!(merges("bast", &[whole.clone(), push.clone()].concat()), (1, 0, 0));
    assert_eq!(merges("bast", &[begun.clone(), push.clone()].concat()), (0, 1, 0));
    assert_eq!(merges("bast", &[scattered, push].concat()), (0, 0, 1));
    // FAST has one sequential log block, so the next sequential write forces its merge.
    assert_eq!(merges("fast", &[whole, vec![16]].concat()), (1, 0, 0));
    assert_eq!(merges("fast", &[begun, vec![16]].concat()), (0, 1, 0));
    // The other log block has room for sixteen pages of any logical block. The seventeenth page forces a full merge of each of these
    // blocks.
    let one_each: Vec<u64> = (0..17).map(|block| block * 16 + 1).collect();
    assert_eq!(merges("fast", &one_each), (0, 0, 16));
}

#[test]
fn a_part_of_a_page_is_read_modified_and_written() {
    let config = device("superblock", &[("geometry.block_groups.0.page_kb", "16")]);
    // 16 KB pages of four units: a write of 4 KB reads the page once if there is old data, and not otherwise.
    let (device, told) = run(&config, &[command(0, Write, 0, 16), command(10_000, Write, 4, 4), command(20_000, Write, 16, 4)]);
    assert_eq!(device.counters().read_modify_writes, 1);
    assert_eq!(device.counters().page_programs[OperationCause::Host as usize], 3);
    assert_eq!(responses_us(&told), [1000.0, 1100.0, 1000.0]);
}

#[test]
fn a_page_map_that_is_not_in_memory_is_read_first() {
    let config = device("bast", &[("mapping.cached_maps", "2")]);
    let at = |us: i64, page: u64| command(us, Read, page * 4, 4);
    let mut commands: Vec<DeviceCommand> = (0..4).map(|i| command(i * 20_000, Write, i as u64 * 64, 64)).collect();
    // Blocks 3 and 2 were written last.
    commands.extend([at(200_000, 48), at(210_000, 32), at(220_000, 0), at(230_000, 1), at(240_000, 48)]);
    let (device, told) = run(&config, &commands);
    assert_eq!(responses_us(&told[4..]), [100.0, 100.0, 200.0, 100.0, 200.0]);
    assert_eq!((device.counters().map_misses, device.counters().map_hits), (6, 3));
}

#[test]
fn clustered_planes_read_and_write_at_once() {
    let settings = [
        ("mapping.clustering", "channels"),
        ("geometry.channels", "2"),
        ("geometry.planes_per_die", "2"),
        ("timing.parallelism", "multi_plane"),
        ("timing.bus_ns_per_byte", "10"),
    ];
    let (device, told) = run(
        &device("superblock", &settings),
        &[command(0, Write, 0, 16), command(10_000, Read, 0, 16), command(20_000, Read, 0, 4)],
    );
    assert_eq!((device.geometry().planes, device.geometry().groups[0].page_bytes), (1, 16384));
    // 8 KB cross each of the two buses; 4 KB use only one of them.
    assert_eq!(responses_us(&told), [1081.92, 181.92, 140.96]);
}

#[test]
fn a_map_on_demand_pays_for_what_is_not_in_memory() {
    let small = device("dftl", &[("mapping.cached_entries", "4")]);
    let large = device("dftl", &[("mapping.cached_entries", "640")]);
    let (few, all) = (overwrite(&small, random(2000)), overwrite(&large, random(2000)));
    // All 640 entries are in one page of the map: when an entry is evicted, the other three dirty entries are written back with it.
    assert!(few.map_misses > 1900 && (450..=550).contains(&few.page_programs[OperationCause::Map as usize]), "{few:?}");
    assert!(all.map_misses == 0 && all.page_programs[OperationCause::Map as usize] == 0, "{all:?}");
    assert!(few.waf() > all.waf());
    let ram = |config: &DeviceConfig| Device::new(config).map_ram_bytes();
    assert_eq!((ram(&small), ram(&large), ram(&device("page", &[]))), (4 * 8 + 4, 640 * 8 + 4, 640 * 4));
}

/// Times of reads of these pages in us, after writes of some pages each that were executed one by one.
fn reads(config: &DeviceConfig, writes: &[(u64, u32)], reads: &[u64]) -> (Device, Vec<f64>) {
    let writes = (0..).zip(writes).map(|(i, (page, pages))| command(i * 100_000, Write, page * 4, pages * 4));
    let mut commands: Vec<DeviceCommand> = writes.collect();
    let count = commands.len();
    let from = 100_000 * count as i64;
    commands.extend((0..).zip(reads).map(|(i, page)| command(from + i * 10_000, Read, page * 4, 4)));
    let (device, told) = run(config, &commands);
    (device, responses_us(&told[count..]))
}

#[test]
fn places_that_are_only_about_right_take_fewer_segments_and_cost_second_reads() {
    let read_back = |gamma: &str| {
        let config = device("leaftl", &[("mapping.gamma", gamma)]);
        let mut device = Device::new(&config);
        let (mut at, mut told) = (0, Completions::default());
        let all = (0..640).chain(random(3000).map(|page| page % 640));
        for (op, page) in all.map(|page| (Write, page)).chain((0..640).map(|page| (Read, page))) {
            at += 100_000;
            device.submit(&command(at, op, page * 4, 4), &mut told).unwrap();
        }
        let twice = responses_us(&told.0[3640..]).iter().filter(|us| **us == 200.0).count() as u64;
        (device.map_figures().unwrap().segments, device.counters().map_double_reads, twice)
    };
    let (exact, about) = (read_back("0"), read_back("4"));
    assert_eq!((exact.1, exact.2), (0, 0));
    assert!(about.0 < exact.0 && about.1 > 0, "{exact:?} {about:?}");
    assert_eq!(about.1, about.2, "each of them makes a read take twice its time");
}

#[test]
fn a_run_of_places_takes_one_segment_or_one_run_of_memory() {
    for scheme in ["leaftl", "rqftl"] {
        let (device, took) = reads(&device(scheme, &[]), &[(0, 100), (100, 100), (200, 20)], &[5, 150, 219]);
        let figures = device.map_figures().unwrap();
        // A group has eight bytes in addition to its segments. Unwritten units also form a run.
        let wanted = if scheme == "leaftl" { (1, 16) } else { (2, 22) };
        assert_eq!((figures.segments, figures.cached_bytes), wanted, "{scheme}");
        assert_eq!((figures.segment_units, took), (220, vec![100.0; 3]), "{scheme}");
    }
}

#[test]
fn a_miss_loads_one_run_or_all_runs_of_its_page_that_fit() {
    // Written from the last page on, the 160 runs of four units are not continued by each other.
    let misses = |whole_page: &str, index: &str| {
        let config =
            device("rqftl", &[("mapping.map_cache_kb", "4"), ("mapping.whole_page", whole_page), ("mapping.index_pct", index)]);
        let submit = |device: &mut Device, op, page: u64, count: u32| {
            let arrival = Nanos(device.idle_from().0.max(0));
            device.submit(&DeviceCommand::new(arrival, op, page * 8, count * 8), &mut NullObserver).unwrap();
        };
        let mut whole = Device::new(&config.with_whole_map().unwrap().unwrap());
        (0..160).rev().for_each(|run| submit(&mut whole, Write, run * 4, 4));
        let places = |device: &Device| (0..640).map(|unit| device.lookup(Lpn(unit))).collect::<Vec<_>>();
        let before = places(&whole);
        let mut mapped = whole.with_map_on_flash(&config);
        assert_eq!(places(&mapped), before, "all data stays where it is");
        (0..640).for_each(|page| submit(&mut mapped, Read, page, 1));
        DeviceChecker::of(&mapped).verify(&mapped).unwrap();
        (mapped.counters().map_missed_requests, mapped.map_figures().unwrap().segments)
    };
    assert_eq!(misses("0", "10"), (160, 160));
    assert_eq!(misses("1", "10"), (1, 160));
    // With room for 37 runs, a miss loads the run and the 36 behind it.
    assert_eq!(misses("1", "1000"), (5, 37));
}

#[test]
fn a_miss_brings_the_rest_of_its_request_along() {
    let config = device("tpftl", &[]);
    let (device, _) = run(&config, &[command(0, Write, 0, 400), command(900_000, Read, 0, 400)]);
    let counters = device.counters();
    assert_eq!((counters.map_misses, counters.map_prefetched, counters.map_hits), (1, 99, 199));
    assert_eq!(device.map_figures().unwrap().cached_bytes, 100 * 6 + 8);
}

#[test]
fn misses_are_counted_alike_by_request_whatever_comes_along() {
    let commands = [
        command(0, Write, 0, 400),
        command(900_000, Write, 1500, 400),
        command(1_800_000, Read, 0, 400),
        command(2_700_000, Read, 400, 4),
    ];
    // No page of the map is on the flash before dirty entries are evicted; one read serves the 100 entries of a request.
    for (scheme, missed) in [("dftl", 3), ("tpftl", 0), ("leaftl", 0), ("rqftl", 0)] {
        let memory = if scheme == "dftl" { ("mapping.cached_entries", "100") } else { ("mapping.map_cache_kb", "4") };
        let (device, _) = run(&device(scheme, &[memory]), &commands);
        let counters = device.counters();
        assert_eq!((counters.map_requests, counters.map_missed_requests), (4, missed), "{scheme}");
        if scheme == "dftl" {
            assert_eq!(counters.map_misses, 301);
        }
    }
}

#[test]
fn a_lookup_takes_its_time_for_every_entry() {
    for scheme in ["dftl", "tpftl", "leaftl", "rqftl"] {
        let config = device(scheme, &[("mapping.lookup_ns", "5000")]);
        let (_, told) = run(&config, &[command(0, Write, 0, 4), command(100_000, Read, 0, 4)]);
        assert_eq!(responses_us(&told), [1005.0, 105.0], "{scheme}");
    }
}

#[test]
fn memory_is_that_of_the_entries_and_of_the_directory() {
    let ram = |scheme| Device::new(&device(scheme, &[("mapping.map_cache_kb", "8")])).map_ram_bytes();
    // 640 units occupy one page of the map, or two if a page has two groups of 256 units.
    assert_eq!((ram("tpftl"), ram("leaftl"), ram("rqftl")), (8192 + 4, 8192 + 8, 8192 + 4));
}

#[test]
fn discarded_data_is_not_merged() {
    for &scheme in BLOCK_MAPPED {
        let mut config = device(scheme, &[]);
        // A scheme without this setting has one log block.
        let _ = config.set("mapping.log_blocks", "2");
        let mut device = Device::new(&config);
        let mut checker = DeviceChecker::of(&device);
        let mut at = 0;
        let mut submit = |device: &mut Device, op, kb: u64, length: u32| {
            at += 100_000;
            let command = command(at, op, kb, length);
            checker.expect(&command);
            device.submit(&command, &mut checker).unwrap();
            checker.verify(device).unwrap();
        };
        submit(&mut device, Write, 0, 640);
        submit(&mut device, Discard, 0, 640);
        for page in [3, 20, 40, 60, 80, 100] {
            submit(&mut device, Write, page * 4, 4);
        }
        // The upper bound is the data written since; with the discarded data, each merge would copy fifteen pages.
        let copied = device.counters().page_programs[OperationCause::Gc as usize];
        assert!(copied <= 6, "{scheme}: {copied} pages copied");
    }
}

#[test]
fn worn_blocks_end_the_life_of_every_scheme() {
    for scheme in ["block", "bast", "fast", "superblock", "dftl", "tpftl", "leaftl", "rqftl"] {
        let config =
            device(scheme, &[("geometry.block_groups.0.erase_limit", "5"), ("geometry.block_groups.0.spare_blocks", "2")]);
        let mut device = Device::new(&config);
        let mut told = Completions::default();
        for (i, page) in random(100_000).enumerate() {
            let command = command(i as i64 * 100_000, Write, page % 600 * 4, 4);
            device.submit(&command, &mut told).unwrap();
            if device.stop().is_some() {
                break;
            }
        }
        assert_eq!(device.stop(), Some(emmclab_device::StopReason::WornOut), "{scheme}");
        assert_eq!(device.counters().bad_blocks, 3, "{scheme}");
    }
}
