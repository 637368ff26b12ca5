//! Images of preconditioned devices: they are shared between processes, limited in size, and always complete. Settings that are declared to
//! have no influence on preconditioning have none.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::common::preset;
use emmclab_device::{DeviceConfig, SettingExplanation, decides_contents, presets};
use emmclab_replay::{ImageStore, Precondition, ReplayOptions, Simulation, age_by_traces, prepare};
use emmclab_trace::interrupt::interruptible;
use emmclab_trace::{ErrorClass, ReadOptions, TraceInput, formats};
use proptest::prelude::*;
use proptest::sample::Index;

fn small(settings: &[(&str, &str)]) -> DeviceConfig {
    preset("small-1gb", &[&[("geometry.block_groups.0.blocks", "64")], settings].concat())
}

fn aged(share: f64) -> ReplayOptions {
    ReplayOptions { precondition: Precondition::Random(share), ..Default::default() }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// The result of a run on the preconditioned device.
fn outcome(options: &ReplayOptions, store: Option<&ImageStore>) -> Vec<u8> {
    Simulation::new(&small(&[]), options, store).unwrap().into_device().to_image()
}

#[test]
fn preconditioning_can_be_interrupted_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap();
    let options = ReplayOptions { precondition: Precondition::SteadyState { most_capacities: 1000.0 }, ..Default::default() };
    let error = interruptible(|| true, || Simulation::new(&small(&[]), &options, Some(&store)).err()).unwrap();
    assert_eq!(error.kind(), ErrorClass::Interrupted);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn an_image_that_another_one_makes_is_waited_for_or_left_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap();
    assert!(prepare(&small(&[]), &aged(50.0), &store).unwrap());
    let [image] = files(folder.path()).try_into().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    std::fs::remove_file(&image).unwrap();
    // Another process has locked the image.
    let claim = image.with_extension("lock");
    let lock = std::fs::File::create(&claim).unwrap();
    lock.lock().unwrap();
    assert!(!prepare(&small(&[]), &aged(50.0), &store).unwrap());
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || outcome(&aged(50.0), Some(&store))
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished(), "it waits");
    std::fs::write(&image, &bytes).unwrap();
    let written = image.metadata().unwrap().len();
    std::fs::remove_file(&claim).unwrap();
    drop(lock);
    assert_eq!(waiting.join().unwrap(), outcome(&aged(50.0), None));
    assert_eq!((files(folder.path()), image.metadata().unwrap().len()), (vec![image.clone()], written));
}

#[test]
fn devices_that_differ_only_in_what_cannot_show_share_an_image() {
    let packed = [("controller.queue_depth", "1"), ("features.packed_writes", "8"), ("host.packed_writes", "8")];
    let same: [&[(&str, &str)]; 7] = [
        &[("name", "\"another\"")],
        &packed,
        &[("controller.queue_depth", "1"), ("host.merge_max_kb", "512")],
        &[("controller.queue_depth", "32")],
        &[("cache.read_kb", "4096")],
        &[("gc.idle_after_us", "10000"), ("gc.hpi", "false")],
        &[("power.sleep_after_us", "100")],
    ];
    let steady = Precondition::SteadyState { most_capacities: 1.0 };
    for precondition in [Precondition::Sequential(90.0), Precondition::Random(100.0), steady] {
        let options = ReplayOptions { precondition, ..Default::default() };
        let folder = tempfile::tempdir().unwrap();
        let store = ImageStore::open(folder.path()).unwrap();
        let image = outcome(&options, Some(&store));
        for settings in same {
            let config = small(settings);
            // The device itself, without the store, has the same contents.
            let made = Simulation::new(&config, &options, None).unwrap().into_device().to_image();
            assert!(made == image, "{settings:?}");
            assert!(prepare(&config, &options, &store).unwrap());
        }
        assert_eq!(files(folder.path()).len(), 1);
        assert!(prepare(&small(&[("gc.policy", "\"fifo\"")]), &options, &store).unwrap());
        assert_eq!(files(folder.path()).len(), 2);
    }
}

#[test]
fn a_limited_store_drops_what_was_not_used_for_longest() {
    let folder = tempfile::tempdir().unwrap();
    let open = |limit| ImageStore::open(folder.path()).unwrap().limited(limit);
    let make = |share, limit| {
        outcome(&aged(share), Some(&open(limit)));
        files(folder.path())
    };
    let first = make(10.0, u64::MAX);
    let both = make(20.0, u64::MAX);
    assert_eq!((first.len(), both.len()), (1, 2));
    for (age_s, path) in [(1000, &both[0]), (1000, &both[1]), (2000, &first[0])] {
        let old = SystemTime::now() - Duration::from_secs(age_s);
        std::fs::File::open(path).unwrap().set_modified(old).unwrap();
    }
    let size = |paths: &[PathBuf]| paths.iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    // The first image is used, so that the second is the least recently used.
    let limit = size(&both) + size(&first) / 2;
    assert_eq!(make(10.0, limit), both);
    let now = make(15.0, limit);
    assert!(now.contains(&first[0]) && now.len() == 2 && size(&now) <= limit, "{now:?}");
    // An image that can never fit is not stored, and neither is one that the disk refuses.
    assert_eq!(make(30.0, 10), now);
    assert_eq!(outcome(&aged(30.0), Some(&open(10))), outcome(&aged(30.0), None));
}

#[test]
fn stores_that_fill_the_same_folder_at_once_keep_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let limit = {
        outcome(&aged(10.0), Some(&ImageStore::open(folder.path()).unwrap()));
        files(folder.path())[0].metadata().unwrap().len() * 3
    };
    std::thread::scope(|scope| {
        for share in 11..19 {
            let store = ImageStore::open(folder.path()).unwrap().limited(limit);
            scope.spawn(move || outcome(&aged(f64::from(share)), Some(&store)));
        }
    });
    let size: u64 = files(folder.path()).iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(0 < size && size <= limit, "{size} of {limit}");
}

#[test]
fn a_damaged_image_of_a_limited_store_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap().limited(u64::MAX);
    let made = outcome(&aged(10.0), Some(&store));
    let [image] = files(folder.path()).try_into().unwrap();
    let whole = std::fs::read(&image).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&b"half"[..], &flipped] {
        std::fs::write(&image, damaged).unwrap();
        // The last device would be copied from memory.
        outcome(&aged(20.0), Some(&store));
        assert_eq!(outcome(&aged(10.0), Some(&store)), made);
        assert!(std::fs::read(&image).unwrap() == whole);
    }
}

#[test]
fn a_fill_in_order_is_one_image_for_all_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap();
    for (precondition, images) in [(Precondition::Sequential(10.0), 1), (Precondition::Random(10.0), 3)] {
        for seed in [1, 2] {
            let options = ReplayOptions { precondition: precondition.clone(), seed, ..Default::default() };
            assert!(prepare(&small(&[]), &options, &store).unwrap());
        }
        assert_eq!(files(folder.path()).len(), images);
    }
}

#[test]
fn what_identifies_a_trace_is_the_same_in_every_process() {
    // Addresses of functions would not be reproducible.
    let options = ReadOptions { further: formats::FORMATS, ..ReadOptions::default() };
    assert!(!format!("{options:?}").contains("0x"), "{options:?}");
}

#[test]
fn what_a_device_does_in_pauses_makes_another_used_device_and_no_other_one() {
    let image = |settings: &[(&str, &str)], precondition: &str, images: usize, folder: &Path| {
        let options = ReplayOptions { precondition: precondition.parse().unwrap(), ..Default::default() };
        assert!(prepare(&small(settings), &options, &ImageStore::open(folder).unwrap()).unwrap());
        assert_eq!(files(folder).len(), images, "{settings:?} {precondition}");
    };
    let folder = tempfile::tempdir().unwrap();
    let (quick, slow) = (&[("cache.flush_us", "10.0")], &[("cache.flush_us", "900.0")]);
    let idle: &[_] = &[("gc.idle_after_us", "10000")];
    for (precondition, first) in [("random:20", 1), ("used:7d,daily=1MB", 2)] {
        image(&[], precondition, first, folder.path());
        image(quick, precondition, first, folder.path());
        image(slow, precondition, first, folder.path());
    }
    image(idle, "random:20", 2, folder.path());
    image(idle, "used:7d,daily=1MB", 3, folder.path());
}

/// Another value of a setting: a number times a factor, the opposite truth value, another name; `None` if there is no other value.
fn another(row: &SettingExplanation, factor: f64) -> Option<String> {
    if let Ok(truth) = row.value.parse::<bool>() {
        return Some((!truth).to_string());
    }
    if let Ok(count) = row.value.parse::<i64>() {
        return Some(((count + 1) as f64 * factor).round().to_string());
    }
    if let Ok(number) = row.value.parse::<f64>() {
        return Some(format!("{:?}", (number + 1.0) * factor));
    }
    (row.key == "name" || row.key == "about").then(|| "\"another\"".to_owned())
}

/// The contents of a preconditioned device, or the error.
fn contents(config: &DeviceConfig, options: &ReplayOptions, trace: Option<&Path>) -> Result<Vec<u8>, String> {
    let made = match trace {
        None => Simulation::new(config, options, None).map(Simulation::into_device),
        Some(path) => {
            let options = ReadOptions { further: formats::FORMATS, ..ReadOptions::default() };
            age_by_traces(
                config,
                &ReplayOptions::default(),
                vec![TraceInput { path: path.to_owned(), options, ..TraceInput::default() }],
                None,
            )
        }
    };
    made.map(|device| device.to_image()).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: emmclab_testing::cases(120), ..ProptestConfig::default() })]

    #[test]
    fn a_setting_of_no_influence_changes_no_preset_however_it_is_preconditioned(
        preset in any::<Index>(),
        setting in any::<Index>(),
        factor in 0.0..4.0_f64,
        way in 0..5_usize,
        seed in 0..3_u64,
    ) {
        let preset = preset.get(presets());
        let Ok(config) = DeviceConfig::preset(preset.name).and_then(|one| one.with_capacity(256 << 20, "256MB")) else {
            return Ok(());
        };
        let daily = "7d,daily=6MB,filled=60".parse().unwrap();
        let precondition = match way {
            0 => Precondition::Sequential(90.0),
            1 => Precondition::Random(60.0),
            2 => Precondition::SteadyState { most_capacities: 0.5 },
            3 => Precondition::Used(daily),
            _ => Precondition::None,
        };
        let pauses = way == 3 || config.settings().interface.is_ufs();
        let rows: Vec<_> = config.explain().into_iter().filter(|row| !decides_contents(&row.key, pauses)).collect();
        let row = setting.get(&rows);
        let Some(value) = another(row, factor) else { return Ok(()) };
        let mut other = config.clone();
        if other.set(&row.key, &value).is_err() {
            return Ok(());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aging.csv");
        let lines = (0..400_u64).map(|at| {
            let op = ["write", "read", "write", "flush"][(at % 4) as usize];
            let (sector, sectors) = if op == "flush" { (0, 0) } else { (at * 7919 % 100_000 * 8, 8 + at % 5 * 32) };
            format!("{},{op},{sector},{sectors}\n", at * 100_000)
        });
        std::fs::write(&path, format!("arrival_ns,op,sector,sectors\n{}", lines.collect::<String>())).unwrap();
        let options = ReplayOptions { precondition, seed, ..Default::default() };
        let trace = (way == 4).then_some(path.as_path());
        let (made, with) = (contents(&config, &options, trace), contents(&other, &options, trace));
        prop_assume!(made.is_ok());
        prop_assert!(made == with, "{} {} = {value}, way {way}", config.name(), row.key);
    }
}
