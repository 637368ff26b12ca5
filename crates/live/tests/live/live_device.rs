//! A live device as its exports use it: contents, power, state, clock and trace.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Client, options};
use emmclab_base::{CommandFlags, Op};
use emmclab_device::DeviceConfig;
use emmclab_layers::LayerConfig;
use emmclab_live::{ClockPace, LiveDevice, LiveOptions};
use emmclab_replay::{Precondition, ReplayOptions};
use emmclab_serve::{BlockAction, BlockDevice, RequestFailure, ServedRequest};
use emmclab_testing::{SMALL_DEVICE, UFS, ZONED};
use emmclab_trace::TraceReader;
use emmclab_trace::formats::ReadOptions;
use proptest::prelude::*;

const SECTOR: usize = 512;

/// A device of 2.5 MB with these additional settings.
fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let mut config = DeviceConfig::from_toml(SMALL_DEVICE).unwrap();
    config.set_all(&[("geometry.block_groups.0.blocks", "16")]).unwrap();
    config.set_all(settings).unwrap();
    config
}

fn stamp(version: u32, sectors: usize) -> Vec<u8> {
    (0..sectors * SECTOR / 4).flat_map(|i| (version.wrapping_mul(2_654_435_761) ^ i as u32).to_le_bytes()).collect()
}

/// A write of 4 KB of this version, which is also its tag.
fn write_of(version: u32, sector: u64, modifiers: CommandFlags) -> ServedRequest {
    ServedRequest { tag: version.into(), action: BlockAction::Write(stamp(version, 8)), sector, sectors: 8, modifiers }
}

fn layers() -> impl Strategy<Value = Vec<LayerConfig>> {
    prop::sample::select(vec![
        vec![],
        vec![small("advil").with("clustered_page", "16 KB")],
        vec![small("ressd")],
        beside(),
        vec![LayerConfig::named("pair").with("routing", "striping").with("chunk", "8KB")],
        vec![LayerConfig::named("nvm-buffer").with("size", "256KB").with("longest", "16KB").with("second_device", "true")],
    ])
}

/// A layer with a reserved area of 512 KB.
fn small(name: &str) -> LayerConfig {
    LayerConfig::named(name).with("reserved", "512 KB").with("clustered_block", "32 KB")
}

/// A layer that logs to a second device.
fn beside() -> Vec<LayerConfig> {
    vec![small("ressd").with("second_device", "true")]
}

/// The second device, for layers that use one.
fn second_of(layers: &[LayerConfig]) -> Option<DeviceConfig> {
    let uses = |layer: &LayerConfig| layer.name == "pair" || layer.settings.contains_key("second_device");
    layers.iter().any(uses).then(|| config(&[]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(150), ..ProptestConfig::default() })]

    /// Compares the device with an array under discards, zeros and writes with and without flags, several at once.
    #[test]
    fn a_live_device_holds_what_a_plain_array_holds(
        layers in layers(),
        cache_kb in prop::sample::select(vec!["0", "64"]),
        batches in prop::collection::vec(
            prop::collection::vec((any::<u8>(), any::<u16>(), 1u32..60, any::<u8>()), 1..8), 1..20),
    ) {
        let options = LiveOptions { second: second_of(&layers), layers, ..options() };
        let device = LiveDevice::new(&config(&[("cache.size_kb", cache_kb)]), &options, None).unwrap();
        let client = Client::of(&device);
        let limits = device.limits();
        let mut model = vec![0u8; limits.sectors as usize * SECTOR];
        // Sectors that are undefined after a discard: a layer or a part of a unit may keep them.
        let mut undefined = vec![false; limits.sectors as usize];
        let mut version = 0;
        for batch in batches {
            let (mut requests, mut wanted) = (Vec::new(), Vec::new());
            for (tag, (kind, place, sectors, flags)) in (0..).zip(batch) {
                let sector = u64::from(place) % (limits.sectors - u64::from(sectors) + 1);
                let range = sector as usize..sector as usize + sectors as usize;
                let bytes = range.start * SECTOR..range.end * SECTOR;
                let modifiers = if flags < 60 { CommandFlags::RELIABLE } else { CommandFlags::empty() };
                version += 1;
                let action = match kind {
                    0..=110 => {
                        let data = stamp(version, sectors as usize);
                        model[bytes.clone()].copy_from_slice(&data);
                        undefined[range.clone()].fill(false);
                        BlockAction::Write(data)
                    }
                    111..=140 => {
                        model[bytes.clone()].fill(0);
                        undefined[range.clone()].fill(false);
                        BlockAction::WriteZeroes { keep_allocated: flags % 2 == 0 }
                    }
                    141..=160 => {
                        undefined[range.clone()].fill(true);
                        BlockAction::Discard { secure: flags % 2 == 0 }
                    }
                    161..=230 => BlockAction::Read,
                    _ => BlockAction::Flush,
                };
                wanted.push((action == BlockAction::Read).then(|| (model[bytes].to_vec(), undefined[range].to_vec())));
                let flush = action == BlockAction::Flush;
                let (sector, sectors) = if flush { (0, 0) } else { (sector, sectors) };
                requests.push(ServedRequest { tag, action, sector, sectors, modifiers });
            }
            let count = requests.len();
            client.send(requests);
            let mut completed = client.take(count);
            completed.sort_by_key(|completion| completion.tag);
            for (completion, wanted) in completed.into_iter().zip(wanted) {
                let data = completion.outcome.unwrap();
                let Some((wanted, undefined)) = wanted else { continue };
                prop_assert_eq!(data.len(), wanted.len());
                for (i, hidden) in undefined.iter().enumerate() {
                    let part = i * SECTOR..(i + 1) * SECTOR;
                    prop_assert!(*hidden || data[part.clone()] == wanted[part], "sector {} of a read", i);
                }
            }
        }
        device.stop().unwrap();
    }

    /// Data that was acknowledged with a flush or FUA survives a power cut, also if the device is served again. A device that
    /// lies loses such data, which shows that the test can fail.
    #[test]
    fn acknowledged_data_survives_cuts_and_an_unclean_end(
        layers in layers(),
        writes in prop::collection::vec((0u64..60, 1usize..24, any::<bool>(), prop::option::weighted(0.15, any::<bool>())), 1..60),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let image = Some(folder.path().join("disk.img"));
        let config = config(&[("cache.size_kb", "128"), ("cache.write_back", "when_full")]);
        let second = second_of(&layers);
        let second_image = second.is_some().then(|| folder.path().join("second.img"));
        let options = LiveOptions { layers, image, second, second_image, ..options() };
        let mut device = LiveDevice::new(&config, &options, None).unwrap();
        let mut promised = vec![0u32; 84];
        let mut newest = promised.clone();
        for (version, (sector, sectors, durable, cut)) in (1..).zip(writes) {
            let client = Client::of(&device);
            let modifiers = if durable { CommandFlags::RELIABLE } else { CommandFlags::empty() };
            let range = sector as usize..sector as usize + sectors;
            client.ask(BlockAction::Write(stamp(version, 1).repeat(sectors)), sector, sectors as u32, modifiers).unwrap();
            newest[range.clone()].fill(version);
            if durable {
                promised[range].fill(version);
            } else if version % 7 == 0 {
                client.flush().unwrap();
                promised.clone_from(&newest);
            }
            let Some(killed) = cut else { continue };
            if killed {
                // The process ends without a shutdown.
                drop(device);
                device = LiveDevice::new(&config, &options, None).unwrap();
                prop_assert!(device.previous_run().image && !device.previous_run().clean);
            } else {
                device.cut().unwrap();
                prop_assert_eq!(Client::of(&device).flush(), Err(RequestFailure::Io));
                device.restore();
            }
            let result = Client::of(&device).read(0, 84);
            for (at, sector) in result.chunks(SECTOR).enumerate() {
                let held = (promised[at]..=newest[at]).find(|version| {
                    if *version == 0 { sector.iter().all(|byte| *byte == 0) } else { sector == stamp(*version, 1) }
                });
                prop_assert!(held.is_some(), "sector {} lost version {}", at, promised[at]);
                newest[at] = held.unwrap();
            }
        }
        device.stop().unwrap();
        // A shutdown keeps everything.
        let device = LiveDevice::new(&config, &options, None).unwrap();
        prop_assert!(device.previous_run().clean);
        let result = Client::of(&device).read(0, 84);
        for (at, sector) in result.chunks(SECTOR).enumerate() {
            prop_assert!(newest[at] == 0 || sector == stamp(newest[at], 1), "sector {} at the end", at);
        }
        device.stop().unwrap();
    }
}

#[test]
fn a_device_that_ignores_flushes_loses_what_it_acknowledged() {
    let config = config(&[("cache.size_kb", "128"), ("cache.write_back", "when_full"), ("cache.lies", "flush")]);
    let device = LiveDevice::new(&config, &options(), None).unwrap();
    let client = Client::of(&device);
    client.write(0, stamp(1, 8)).unwrap();
    client.flush().unwrap();
    device.cut().unwrap();
    device.restore();
    assert_eq!(client.read(0, 8), vec![0; 8 * SECTOR]);
}

#[test]
fn a_tearing_device_leaves_half_of_a_write_that_was_cut() {
    let config = config(&[("cache.lies", "tear")]);
    let device = LiveDevice::new(&config, &LiveOptions { pace: ClockPace::Scaled(1000.0), ..options() }, None).unwrap();
    let client = Client::of(&device);
    client.send(vec![write_of(1, 0, CommandFlags::RELIABLE)]);
    device.cut().unwrap();
    assert_eq!(client.take(1)[0].outcome, Err(RequestFailure::Io));
    device.set_pace(ClockPace::Free);
    device.restore();
    let result = client.read(0, 8);
    assert!(result[..4 * SECTOR] == stamp(1, 8)[..4 * SECTOR] && result[4 * SECTOR..] == [0; 4 * SECTOR]);
}

#[test]
fn a_cut_during_the_second_page_of_a_word_line_damages_the_first_unless_the_device_protects_it() {
    for (lie, kept) in [("none", true), ("paired_pages", false)] {
        let config = config(&[("geometry.channels", "1"), ("cache.lies", lie)]);
        let device = LiveDevice::new(&config, &options(), None).unwrap();
        let client = Client::of(&device);
        client.write(0, stamp(1, 16)).unwrap();
        device.set_pace(ClockPace::Scaled(1000.0));
        client.send(vec![write_of(2, 16, CommandFlags::empty())]);
        device.cut().unwrap();
        assert_eq!(client.take(1)[0].outcome, Err(RequestFailure::Io));
        device.set_pace(ClockPace::Free);
        device.restore();
        let result = client.read(0, 16);
        assert_eq!(result == stamp(1, 16), kept, "{lie}");
        assert!(kept || result.chunks(SECTOR).all(|sector| sector.iter().any(|byte| *byte != 0)), "undefined data, not zeros");
        client.write(0, stamp(3, 16)).unwrap();
        client.write(16, stamp(4, 16)).unwrap();
        assert_eq!(client.read(0, 32), [stamp(3, 16), stamp(4, 16)].concat());
        device.stop().unwrap();
    }
}

/// The error of a device that cannot be created.
fn refused(config: &DeviceConfig, options: &LiveOptions) -> String {
    LiveDevice::new(config, options, None).err().unwrap().to_string()
}

fn image_of(folder: &Path) -> PathBuf {
    folder.join("disk.img")
}

/// The contents of a state file, which are a zstd frame after the mark; `None` if it is damaged.
fn state_contents(state: &[u8]) -> Option<Vec<u8>> {
    let frame = state.windows(4).position(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd])?;
    zstd::decode_all(&state[frame..]).ok()
}

#[test]
fn an_image_of_another_device_layer_or_size_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let with = |layers| LiveOptions { image: Some(image_of(folder.path())), layers, ..options() };
    let first = LiveDevice::new(&config(&[]), &with(vec![]), None).unwrap();
    let busy = refused(&config(&[]), &with(vec![]));
    assert!(busy.contains("another process"), "{busy}");
    first.stop().unwrap();
    drop(first);
    let other = refused(&config(&[("controller.queue_depth", "7")]), &with(vec![]));
    assert!(other.contains("`controller.queue_depth` cannot change from 0 to 7"), "{other}");
    let larger = refused(&config(&[("geometry.block_groups.0.blocks", "24")]), &with(vec![]));
    assert!(larger.contains("the image has"), "{larger}");
    let layered = refused(&config(&[]), &with(vec![LayerConfig::named("pass-through")]));
    assert!(layered.contains("other layers"), "{layered}");
    let state = folder.path().join("disk.img.state");
    let whole = std::fs::read(&state).unwrap();
    for length in [0, 5, 40, whole.len() - 1] {
        std::fs::write(&state, &whole[..length]).unwrap();
        let damaged = refused(&config(&[]), &with(vec![]));
        assert!(damaged.contains("damaged") || damaged.contains("truncated") || damaged.contains("image"), "{damaged}");
    }
    for at in (0..whole.len()).step_by(whole.len() / 30) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        std::fs::write(&state, &flipped).unwrap();
        // A few bits of a zstd frame have no meaning: if they change, the state is the same.
        if state_contents(&flipped).is_some_and(|contents| Some(contents) == state_contents(&whole)) {
            continue;
        }
        let damaged = refused(&config(&[]), &with(vec![]));
        assert!(damaged.contains("damaged"), "byte {at}: {damaged}");
    }
    std::fs::write(&state, whole).unwrap();
    LiveDevice::new(&config(&[]), &with(vec![]), None).unwrap();
}

#[test]
fn a_start_that_fails_leaves_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let layers = vec![LayerConfig::named("advil").with("reserved", "1 TB")];
    refused(&config(&[]), &LiveOptions { image: Some(image_of(folder.path())), layers, ..options() });
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_layer_without_recovery_is_refused() {
    let layers = vec![LayerConfig::named("advil").with("recovery", "false")];
    assert!(refused(&config(&[]), &LiveOptions { layers, ..options() }).contains("recovery"));
    for (setting, value) in [("wrap_addresses", "true"), ("routing", "by_size")] {
        let layers = vec![LayerConfig::named("pair").with(setting, value)];
        assert!(refused(&config(&[]), &LiveOptions { layers, ..options() }).contains("to one place"));
    }
}

#[test]
fn on_a_real_clock_a_request_completes_when_the_model_says_and_not_before() {
    let device = LiveDevice::new(&config(&[]), &LiveOptions { pace: ClockPace::REAL, ..options() }, None).unwrap();
    let client = Client::of(&device);
    let begin = Instant::now();
    for sector in 0..20 {
        client.write(sector * 16, stamp(1, 16)).unwrap();
    }
    // Programming a page takes 1 ms.
    assert!(begin.elapsed() >= Duration::from_millis(20));
    let status = device.status();
    assert_eq!((status.requests, status.clock.as_str()), (20, "real"));
    assert!(status.late_p50_us.is_some() && status.response_p50_us.unwrap() >= 1000.0);
    let result = device.stop().unwrap();
    assert!((result.response.mean_response_ms - 1.0).abs() < 0.05, "{:?}", result.response);
}

#[test]
fn the_trace_of_a_run_has_every_request_with_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.parquet");
    let device = LiveDevice::new(&config(&[]), &LiveOptions { record: Some(path.clone()), ..options() }, None).unwrap();
    let client = Client::of(&device);
    for i in 0..5 {
        client.ask(BlockAction::Write(stamp(i, 16)), u64::from(i) * 16, 16, CommandFlags::RELIABLE).unwrap();
    }
    device.set("controller.read_overhead_us", "5").unwrap();
    client.read(0, 16);
    client.flush().unwrap();
    device.stop().unwrap();
    let mut reader = TraceReader::open(&path, &ReadOptions::default()).unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    let note = reader.header().note.unwrap();
    assert!(note.contains("settings changed: controller.read_overhead_us = 5.0 from 0.005 s on"), "{note}");
    let requests: Vec<_> = batch.iter().collect();
    let ops: Vec<_> = requests.iter().map(|request| request.op).collect();
    assert_eq!(ops, [vec![Op::Write; 5], vec![Op::Read, Op::Flush]].concat());
    for (one, next) in requests.iter().zip(&requests[1..]) {
        // One request at a time on a free clock: each arrives when the one before it is complete.
        assert_eq!(one.complete.unwrap(), next.arrival);
    }
    assert!(requests[0].flags.contains(emmclab_trace::RequestFlags::FUA) && requests[0].response().unwrap().0 == 1_000_000);
}

#[test]
fn a_used_device_is_served_used() {
    let replay = ReplayOptions { precondition: Precondition::Sequential(100.0), seed: 1, ..ReplayOptions::default() };
    let device = LiveDevice::new(&config(&[]), &LiveOptions { replay, ..options() }, None).unwrap();
    let client = Client::of(&device);
    let sectors = device.limits().sectors;
    for round in 0..3 {
        for at in (0..sectors / 16).step_by(3) {
            client.write(at * 16, stamp(round, 16)).unwrap();
        }
    }
    assert!(device.status().collections > 0);
}

#[test]
fn requests_beyond_the_device_are_refused() {
    let device = LiveDevice::new(&config(&[]), &options(), None).unwrap();
    let (client, sectors) = (Client::of(&device), device.limits().sectors);
    let plain = CommandFlags::empty();
    assert_eq!(client.ask(BlockAction::Read, sectors, 1, plain), Err(RequestFailure::Invalid));
    assert_eq!(client.ask(BlockAction::Read, u64::MAX, 1, plain), Err(RequestFailure::Invalid));
    assert_eq!(client.ask(BlockAction::Read, 0, 0, plain), Err(RequestFailure::Invalid));
    assert_eq!(client.ask(BlockAction::Flush, 0, 1, plain), Err(RequestFailure::Invalid));
    assert_eq!(client.ask(BlockAction::Write(vec![0; 100]), 0, 1, plain), Err(RequestFailure::Invalid));
    assert_eq!(client.ask(BlockAction::Discard { secure: false }, 0, u32::MAX, plain), Err(RequestFailure::Invalid));
    assert_eq!(device.status().failed, 6);
}

#[test]
fn settings_change_in_use_and_result_status_and_state_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let honest = config(&[("cache.size_kb", "128"), ("cache.write_back", "when_full")]);
    let options = LiveOptions { image: Some(image_of(folder.path())), ..options() };
    let device = LiveDevice::new(&honest, &options, None).unwrap();
    let client = Client::of(&device);
    client.write(0, stamp(1, 8)).unwrap();
    client.flush().unwrap();
    device.set("cache.lies", "flush").unwrap();
    client.write(0, stamp(2, 8)).unwrap();
    client.flush().unwrap();
    device.cut().unwrap();
    device.restore();
    assert_eq!(client.read(0, 8), stamp(1, 8), "the second flush lied");
    device.set("cache.lies", "none").unwrap();
    for (key, value, reason) in [
        ("mapping.unit_kb", "8", "map"),
        ("cache.flush_us", "-1", "flush_us"),
        ("cache.flush", "1", "there is no setting"),
        ("cache.lies", "always", "lies"),
    ] {
        let error = device.set(key, value).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let changes = device.result().setting_changes;
    let changed: Vec<_> = changes.iter().map(|change| (change.key.as_str(), change.to.as_str())).collect();
    assert_eq!(changed, [("cache.lies", "\"flush\""), ("cache.lies", "\"none\"")]);
    assert!(0.0 < changes[0].at_s && changes[0].at_s < changes[1].at_s);
    assert_eq!(device.status().setting_changes, changes);
    device.set("geometry.block_groups.0.program_us", "70").unwrap();
    device.stop().unwrap();
    drop(device);
    let second = LiveDevice::new(&honest, &options, None).unwrap();
    assert_eq!(second.previous_run().setting_changes.len(), 3);
    assert!(second.previous_run().clean && second.result().setting_changes.is_empty());
}

#[test]
fn settings_of_layers_cannot_change_in_use() {
    let device = LiveDevice::new(&config(&[]), &LiveOptions { layers: vec![small("advil")], ..options() }, None).unwrap();
    let error = device.set("advil.reserved", "1MB").unwrap_err().to_string();
    assert!(error.contains("`advil`"), "{error}");
}

#[test]
fn cleared_figures_hold_what_came_since_and_nothing_else_changes() {
    let layers = beside();
    let options = LiveOptions { second: second_of(&layers), layers, ..options() };
    let device = LiveDevice::new(&config(&[]), &options, None).unwrap();
    let client = Client::of(&device);
    let scattered = |from: u64| {
        for i in from..from + 20 {
            client.write(i * 64 % 1600, stamp(i as u32, 8)).unwrap();
        }
    };
    scattered(0);
    let before = device.result();
    assert_eq!((before.requests.write, before.layers[0].counters["logged_writes"]), (20, 20));
    assert!(before.second_device.as_ref().unwrap().page_programs > 0);
    device.clear_counters();
    let cleared = device.result();
    assert_eq!((cleared.requests.total, cleared.flash.page_operations()), (0, 0));
    assert_eq!((cleared.layers[0].counters["logged_bytes"], cleared.second_device.unwrap().page_programs), (0, 0));
    assert!(cleared.utilisation.channels_pct.iter().all(|busy| *busy <= 0.0));
    scattered(5);
    let after = device.result();
    assert_eq!((after.requests.write, after.layers[0].counters["logged_writes"]), (20, 20));
    assert!(after.run.simulated_s < before.run.simulated_s * 2.0);
    assert_eq!((after.layers[0].counters["moved_bytes"], after.run.drain_s), (0, None));
    let drained = device.drain().unwrap();
    assert!(drained.layers[0].counters["moved_bytes"] >= 25 * 8 * 512 && drained.run.drain_s.unwrap() > 0.0);
    assert_eq!(drained.run.simulated_s.to_bits(), after.run.simulated_s.to_bits());
    assert_eq!(client.read(64, 8), stamp(1, 8));
    assert_eq!(device.result().run.drain_s, None, "requests came since");
    device.set_pace(ClockPace::REAL);
    assert!(device.drain().unwrap_err().to_string().contains("clock `free`"));
}

#[test]
fn a_second_device_needs_a_layer_that_uses_it_and_the_images_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Some(image_of(folder.path())), Some(folder.path().join("second.img")));
    let lone = LiveOptions { second: Some(config(&[])), ..options() };
    assert!(refused(&config(&[]), &lone).contains("no layer uses it"));
    let layers = beside();
    assert!(refused(&config(&[]), &LiveOptions { layers: layers.clone(), ..options() }).contains("second device"));
    let both = LiveOptions { second: second_of(&layers), layers, image: first, ..options() };
    assert!(refused(&config(&[]), &both).contains("but not those of the other"));
    let both = LiveOptions { second_image: second.clone(), ..both };
    LiveDevice::new(&config(&[]), &both, None).unwrap().stop().unwrap();
    std::fs::remove_file(second.unwrap()).unwrap();
    assert!(refused(&config(&[]), &both).contains("this image does not exist"));
    assert!(image_of(folder.path()).exists() && !both.second_image.unwrap().exists());
}

#[test]
fn the_log_of_a_run_with_two_devices_refuses_a_second_one_with_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let layers = beside();
    let cached = config(&[("cache.size_kb", "64")]);
    let log = Some(folder.path().join("run.log"));
    let both = LiveOptions { second: Some(cached), layers, log, ..options() };
    assert!(refused(&config(&[]), &both).contains("the second device has a cache"));
    let plain = LiveOptions { second: Some(config(&[])), ..both };
    LiveDevice::new(&config(&[]), &plain, None).unwrap().stop().unwrap();
}

/// A device with zones of 192 KB; the first zone is conventional.
fn zoned() -> DeviceConfig {
    config(&[&UFS[..], &ZONED].concat())
}

#[test]
fn what_zones_do_not_allow_fails_alone_and_the_service_goes_on() {
    let device = LiveDevice::new(&zoned(), &options(), None).unwrap();
    let client = Client::of(&device);
    let zone = 384;
    assert!(client.write(zone, stamp(1, 16)).is_ok());
    for (sector, sectors) in [(zone + 32, 8), (zone, 8), (zone + 16, 3), (2 * zone - 8, 16)] {
        assert_eq!(client.write(sector, stamp(2, sectors)), Err(RequestFailure::Io), "{sector} + {sectors}");
    }
    let erased = |sectors| {
        let request = BlockAction::Discard { secure: false };
        client.ask(request, zone, sectors, CommandFlags::empty())
    };
    assert_eq!(erased(8), Err(RequestFailure::Io));
    // Zeros are written, because a discard must cover a whole zone.
    assert!(client.ask(BlockAction::WriteZeroes { keep_allocated: false }, zone + 16, 16, CommandFlags::empty()).is_ok());
    assert!(client.write(zone + 32, stamp(3, 8)).is_ok());
    assert_eq!(client.read(zone, 16), stamp(1, 16));
    assert_eq!(client.read(zone + 32, 8), stamp(3, 8));
    let status = device.status();
    assert_eq!(status.failed, 5);
    let first = |rule: &str| status.refused.iter().find(|refusal| refusal.first.contains(rule));
    assert!(first("write pointer is at sector 400").is_some(), "{:?}", status.refused);
    assert_eq!(status.refused.iter().map(|refusal| refusal.requests).sum::<u64>(), status.failed);
    assert!(device.broken().is_none());
    assert!(erased(zone as u32).is_ok());
    assert!(client.write(zone, stamp(4, 8)).is_ok());
    assert_eq!(client.read(zone, 8), stamp(4, 8));
    device.stop().unwrap();
}

#[test]
fn below_a_layer_what_zones_do_not_allow_fails_alone_too() {
    let layers = vec![LayerConfig::named("pass-through")];
    let device = LiveDevice::new(&zoned(), &LiveOptions { layers, ..options() }, None).unwrap();
    let client = Client::of(&device);
    let zone = 384;
    assert!(client.write(zone, stamp(1, 16)).is_ok());
    assert_eq!(client.write(zone + 32, stamp(2, 8)), Err(RequestFailure::Io));
    assert!(client.write(zone + 16, stamp(3, 16)).is_ok());
    assert_eq!(client.read(zone, 16), stamp(1, 16));
    assert_eq!(client.read(zone + 16, 16), stamp(3, 16));
    assert_eq!(device.status().failed, 1);
    assert!(device.broken().is_none());
    device.stop().unwrap();
}

#[test]
fn a_zone_is_not_written_where_a_request_to_it_is_under_way() {
    let device = LiveDevice::new(&zoned(), &LiveOptions { pace: ClockPace::Scaled(1000.0), ..options() }, None).unwrap();
    let client = Client::of(&device);
    client.send([1, 2].map(|version| write_of(version, 384, CommandFlags::empty())).to_vec());
    let done = client.take(2);
    let failed: Vec<_> = done.iter().filter(|completion| completion.outcome.is_err()).map(|completion| completion.tag).collect();
    assert_eq!(failed, [2]);
    assert_eq!(client.read(384, 8), stamp(1, 8));
    device.stop().unwrap();
}
