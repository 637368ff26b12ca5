//! Devices after use in a phone: how full and how worn they are, and that the days of the last years need not be simulated. The lifetime
//! ends with the first kind of block that is worn out.

use crate::common::{checked, completed, scattered_writes, short_blocks};
use emmclab_device::{BlockState, Device, DeviceConfig, EraseBlockSummary, NullObserver};
use emmclab_replay::{ImageStore, Precondition, ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{ErrorClass, Result};
use proptest::prelude::*;

fn small(settings: &[(&str, &str)]) -> DeviceConfig {
    short_blocks(&[&[("geometry.block_groups.0.blocks", "256")], settings].concat())
}

fn made(config: &DeviceConfig, text: &str, seed: u64) -> Result<Device> {
    let options = ReplayOptions { precondition: text.parse()?, seed, ..checked() };
    Ok(Simulation::new(config, &options, None)?.into_device())
}

fn valid_pct(device: &Device) -> f64 {
    let valid: u64 = device.blocks().map(|block| u64::from(block.valid)).sum();
    100.0 * valid as f64 / f64::from(device.geometry().logical_units)
}

fn erases(device: &Device) -> Vec<u32> {
    device.blocks().map(|block: EraseBlockSummary| block.erases).collect()
}

fn total(device: &Device) -> f64 {
    erases(device).iter().map(|erases| f64::from(*erases)).sum()
}

#[test]
fn a_used_device_holds_what_is_filled_and_what_was_not_discarded() {
    let config = small(&[]);
    for filled in [10.0, 50.0, 90.0, 100.0] {
        let device = made(&config, &format!("used:1y,daily=1MB,filled={filled}"), 1).unwrap();
        assert!((valid_pct(&device) - filled).abs() < 1.0, "{filled}: {}", valid_pct(&device));
        let kept = made(&config, &format!("used:1y,daily=2MB,filled={filled},trim=no"), 1).unwrap();
        assert!(valid_pct(&kept) > 98.0, "{filled}: every free place was written in 730 MB");
    }
    let new = made(&config, "used:0d,filled=40", 1).unwrap();
    assert!((valid_pct(&new) - 40.0).abs() < 1.0 && total(&new) == 0.0);
    assert_eq!(valid_pct(&made(&config, "used:1y,filled=0", 1).unwrap()), 0.0);
}

#[test]
fn erases_grow_with_age_although_not_every_day_is_simulated() {
    let config = small(&[]);
    let capacity = 64.0;
    let at = |days: u32| total(&made(&config, &format!("used:{days}d,daily=8MB"), 1).unwrap());
    // The short usage is simulated to the end (at most 8 capacities), and the others are far beyond.
    let (short, long, longer) = (at(56), at(560), at(1120));
    let block_mb = 4.0 * 16.0 / 1024.0;
    let least = |days: f64| (days * 8.0 - capacity) / block_mb;
    assert!(short >= least(56.0) && long >= least(560.0), "{short} {long}");
    let (per_day, per_later_day) = ((long - short) / 504.0, (longer - long) / 560.0);
    assert!((per_later_day / per_day - 1.0).abs() < 0.05, "{per_day} {per_later_day}");
}

#[test]
fn what_is_not_simulated_wears_all_blocks_in_use_alike() {
    let config = small(&[]);
    let spread = |days: u32| {
        let erases = erases(&made(&config, &format!("used:{days}d,daily=64MB,random=90,filled=95"), 1).unwrap());
        (*erases.iter().min().unwrap(), *erases.iter().max().unwrap())
    };
    let ((least, most), (later_least, later_most)) = (spread(20), spread(2000));
    assert!(later_least > 1000 + least && (later_most - later_least).abs_diff(most - least) <= 1);
}

#[test]
fn a_device_that_would_be_worn_out_is_refused_with_its_limit() {
    let config = small(&[("geometry.block_groups.0.erase_limit", "300")]);
    assert!(made(&config, "used:100d,daily=64MB", 1).is_ok());
    let error = made(&config, "used:10y,daily=64MB", 1).err().unwrap();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Config, Some("precondition")));
    assert!(error.to_string().contains("300"), "{error}");
}

#[test]
fn a_used_device_is_kept_as_an_image_and_works_on_with_its_wear() {
    let folder = tempfile::tempdir().unwrap();
    let store = ImageStore::open(folder.path()).unwrap();
    let config = small(&[]);
    let options = ReplayOptions { precondition: "used:1y,daily=4MB,random=50".parse().unwrap(), ..checked() };
    let mut images = Vec::new();
    for _ in 0..2 {
        let mut run = Simulation::new(&config, &options, Some(&store)).unwrap();
        let before = total(run.device());
        for request in scattered_writes(20_000, 8000, 100) {
            assert!(run.push(&request, &mut NullObserver).unwrap());
        }
        assert!(total(run.device()) > before && before > 1000.0);
        images.push(run.into_device().to_image());
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(images[0], images[1]);
}

#[test]
fn the_lifetime_of_a_used_device_is_of_the_work_of_the_run() {
    let config = small(&[("geometry.block_groups.0.erase_limit", "3000")]);
    let lives = ["used:30d,daily=64MB", "used:90d,daily=64MB"].map(|text| {
        let options = ReplayOptions { precondition: text.parse().unwrap(), ..ReplayOptions::default() };
        let run = Simulation::new(&config, &options, None).unwrap();
        completed(run, &scattered_writes(60_000, 12_000, 100)).0.wear.lifetime.unwrap()
    });
    // The same work on devices with a different history.
    let even = lives.map(|life| life.even_host_bytes.unwrap());
    assert!((even[0] / even[1] - 1.0).abs() < 0.1, "{lives:?}");
    for (life, even) in lives.iter().zip(even) {
        let share = life.first_block_host_bytes.unwrap() / even;
        assert!((0.3..=1.0).contains(&share), "{life:?}");
    }
    assert!(lives[1].used_pct > 2.0 * lives[0].used_pct, "{lives:?}");
}

#[test]
fn a_zoned_device_is_refused() {
    let config = DeviceConfig::preset("zufs").unwrap().with_capacity(1 << 30, "X").unwrap();
    let error = made(&config, "used:1y", 1).err().unwrap();
    assert!(error.to_string().contains("zoned"), "{error}");
}

#[test]
fn every_scheme_and_kind_of_device_can_be_used() {
    for name in ["nexus5", "ufs31", "emmc51-cache", "kingston-c4"] {
        let config = DeviceConfig::preset(name).unwrap().with_capacity(1 << 30, "X").unwrap();
        let device = made(&config, "used:60d,daily=64MB,filled=60", 1).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(valid_pct(&device) > 55.0 && device.blocks().any(|block| block.state == BlockState::Full), "{name}");
    }
}

proptest! {
    #[test]
    fn the_text_form_says_all_values_and_comes_back(
        days in 0_u32..20_000, daily in 1_u32..2000, unit in prop::sample::select(vec!["KB", "MB", "GB"]),
        filled in 0_u32..=100, random in 0_u32..=100, trim in prop::sample::select(vec!["yes", "no"]),
    ) {
        let text = format!("used:{days}d,trim={trim},daily={daily}{unit},random={random}%,filled={filled}");
        let found: Precondition = text.parse().unwrap();
        prop_assert_eq!(&found.to_string().parse::<Precondition>().unwrap(), &found);
    }

    #[test]
    fn no_text_is_understood_by_halves(text in "(used|steady|random|none|sequential)?:?[0-9a-z=,.%-]{0,20}") {
        match text.parse::<Precondition>() {
            Ok(found) => prop_assert_eq!(&found.to_string().parse::<Precondition>().unwrap(), &found),
            Err(error) => {
                prop_assert_eq!((error.kind(), error.field()), (ErrorClass::Config, Some("precondition")));
                prop_assert!(error.hint_text().is_some());
            }
        }
    }
}

#[test]
fn wrong_texts_are_refused_by_the_word_that_is_wrong() {
    for (text, word) in [
        ("used:", "``"),
        ("used", "`used`"),
        ("used:1", "`1`"),
        ("used:-1y", "`-1y`"),
        ("used:nany", "`nany`"),
        ("used:101y", "36865"),
        ("used:1y,daily=2", "`daily=2`"),
        ("used:1y,daily=1000TB", "bytes a day"),
        ("used:1y,filled=101", "filled=101"),
        ("used:1y,filled=nan", "filled=NaN"),
        ("used:1y,full=10", "`full=10`"),
        ("used:1y,trim=maybe", "`trim=maybe`"),
        ("used:1y,,", "``"),
        ("steady:x", "`x`"),
        ("steady:1001", "1001"),
        ("random:101", "101"),
        ("none:1", "`none:1`"),
    ] {
        let error = text.parse::<Precondition>().unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
}

/// Fills and overwrites each preset, scaled to this capacity.
fn fill_and_overwrite(mb: u64) {
    for preset in ["emmc51-cache", "emmc51-tlc", "ufs22", "ufs31", "ufs31-hps", "ufs40", "pixel6a"] {
        let config = DeviceConfig::preset(preset).unwrap().with_capacity(mb << 20, "X").unwrap();
        if let Err(error) = made(&config, "steady:1", 1) {
            panic!("{preset} of {mb} MB: {error}");
        }
    }
}

#[test]
fn every_preset_scaled_to_a_small_capacity_is_filled_and_overwritten() {
    fill_and_overwrite(512);
    fill_and_overwrite(1024);
}

#[test]
#[ignore = "slow: fills whole devices"]
fn every_preset_scaled_to_three_gigabytes_is_filled_and_overwritten() {
    fill_and_overwrite(3072);
}

#[test]
fn preconditioning_folds_the_slc_cache_of_every_interface() {
    let never: &[_] = &[("slc.fold_after_us", "0")];
    let rarely: &[_] = &[("slc.flush_at_pct", "1")];
    for (name, settings) in [("emmc51-cache", &[][..]), ("emmc51-cache", never), ("ufs31", &[]), ("ufs31", rarely)] {
        let config = crate::common::preset(name, settings).with_capacity(4 << 30, "X").unwrap();
        for (text, share) in
            [("sequential:20", 20.0), ("sequential:2", 2.0), ("random:3", 3.0), ("used:3d,daily=64MB,filled=30", 30.0)]
        {
            let device = made(&config, text, 1).unwrap();
            let slc = device.geometry().groups.len() - 1;
            let full = |block: &EraseBlockSummary| usize::from(block.group) == slc && block.state == BlockState::Full;
            assert_eq!(device.blocks().filter(full).count(), 0, "{name} {settings:?} {text}");
            assert!((valid_pct(&device) - share).abs() < 1.0, "{name} {settings:?} {text}: {}", valid_pct(&device));
        }
    }
}

/// Every byte of the days passes a cache that is folded in the pauses: erases of a block = bytes written / size of the cache. A random
/// write of 4 KB takes a page of 16 KB.
#[test]
fn the_days_wear_an_slc_cache_by_all_their_bytes() {
    for (name, kind, random_pct, mb) in
        [("emmc51-cache", "SLC cache", 0.0, 128), ("emmc51-cache", "SLC cache", 25.0, 128), ("ufs31", "WriteBooster", 0.0, 128)]
    {
        let config = DeviceConfig::preset(name).unwrap().with_capacity(1 << 30, "X").unwrap();
        let used = format!("used:1y,daily={mb}MB,filled=50,random={random_pct}");
        let options = ReplayOptions { precondition: used.parse().unwrap(), ..ReplayOptions::default() };
        let run = Simulation::new(&config, &options, None).unwrap();
        let geometry = run.device().geometry();
        let slc = geometry.groups.last().unwrap();
        let cache = f64::from(slc.blocks * geometry.planes * slc.pages_per_block) * f64::from(slc.page_bytes);
        let health = run.device().health(config.settings());
        let wear = run.finish(None, &mut NullObserver).unwrap().wear;
        let [main, found] = wear.kinds.try_into().unwrap();
        let pages = 1.0 + random_pct / 100.0 * 3.0;
        let expected = 365.0 * f64::from(mb) * 1_048_576.0 * pages / cache;
        assert!((found.mean_erases / expected - 1.0).abs() < 0.08, "{name} {random_pct}: {found:?}, expected {expected}");
        // The registers of the device have the mean of each kind.
        assert_eq!((main.kind.as_str(), found.kind.as_str()), ("TLC", kind));
        let pct = |share: Option<f64>| share.map(|share| (1e6 * share).round() / 1e4);
        for (kind, life) in [(main, health.life_used), (found, health.slc_life_used)] {
            let limit = f64::from(kind.erase_limit.unwrap());
            assert_eq!(pct(kind.mean_used_pct.map(|pct| pct / 100.0)), pct(life), "{kind:?}");
            assert_eq!(kind.used_pct.unwrap(), 100.0 * f64::from(kind.most_erases) / limit);
        }
    }
}

/// A device with blocks of 16 pages and an erase limit of 3,000; an SLC cache receives all writes.
fn cached(slc_limit: u32) -> DeviceConfig {
    small(&[
        ("geometry.block_groups.0.erase_limit", "3000"),
        ("slc.mode", "cache"),
        ("slc.blocks", "32"),
        ("slc.max_kb", "1024"),
        ("slc.erase_limit", &slc_limit.to_string()),
    ])
}

/// Writes `units` map units of 4 KB on a used device.
fn written(config: &DeviceConfig, units: u64) -> (SimulationResult, f64) {
    let options = ReplayOptions { precondition: "used:30d,daily=64MB".parse().unwrap(), ..ReplayOptions::default() };
    let run = Simulation::new(config, &options, None).unwrap();
    let geometry = run.device().geometry();
    let group = &geometry.groups[0];
    let bytes = f64::from(group.blocks * geometry.planes * group.pages_per_block) * f64::from(group.page_bytes);
    (completed(run, &scattered_writes(units, 12_000, 1000)).0, bytes)
}

fn even(result: &SimulationResult) -> f64 {
    result.wear.lifetime.unwrap().even_host_bytes.unwrap()
}

#[test]
fn wear_so_far_is_known_after_a_run_that_erased_nothing() {
    let used = "used:30d,daily=64MB".parse().unwrap();
    let options = ReplayOptions { precondition: used, ..ReplayOptions::default() };
    let life = |config: &DeviceConfig, options: &ReplayOptions| {
        let run = Simulation::new(config, options, None).unwrap();
        run.finish(None, &mut NullObserver).unwrap().wear.lifetime
    };
    let with_limit = cached(3000);
    let worn = life(&with_limit, &options).unwrap();
    assert_eq!((worn.even_host_bytes, worn.first_block_host_bytes), (None, None));
    assert!(worn.used_pct > 0.0 && worn.used_slc_pct.unwrap() <= worn.used_pct, "{worn:?}");
    let new = life(&with_limit, &ReplayOptions::default()).unwrap();
    assert_eq!((new.used_pct, new.used_slc_pct), (0.0, Some(0.0)));
    assert_eq!(life(&cached(0), &options).unwrap().used_slc_pct, None, "the blocks in SLC mode have no limit");
}

#[test]
fn the_first_kind_of_block_to_wear_out_ends_the_lifetime() {
    let [endless, long, short] = [0, 1_000_000, 3000].map(|limit| written(&cached(limit), 60_000));
    // All data that is not overwritten in the cache reaches the main blocks, which can be written 3,000 times.
    let bound = 3000.0 * endless.1;
    for (result, _) in [&endless, &long] {
        assert!(even(result) > 0.2 * bound && even(result) < 1.2 * bound, "{} {bound}", even(result));
    }
    assert_eq!(even(&endless.0), even(&long.0));
    // The cache has a twentieth of the bytes and receives every write.
    assert!(even(&short.0) < 0.1 * bound, "{} {bound}", even(&short.0));
    for (result, _) in [endless, long, short] {
        let life = result.wear.lifetime.unwrap();
        assert!(life.first_block_host_bytes <= life.even_host_bytes, "{life:?}");
    }
}

#[test]
fn what_lies_in_the_slc_cache_at_the_end_counts_as_wear_of_the_blocks_that_it_is_folded_into() {
    // One and a half times the size of the cache, so much of the data is not folded during the run.
    let (short, long) = (written(&cached(0), 1500).0, written(&cached(0), 60_000).0);
    let ratio = even(&short) / even(&long);
    assert!((0.3..=3.0).contains(&ratio), "{ratio}");
}
