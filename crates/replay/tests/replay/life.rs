//! The lifetime ends with that of the first kind of block.

use emmclab_device::{DeviceConfig, NullObserver};
use emmclab_replay::{ReplayOptions, Simulation, SimulationResult};
use emmclab_trace::{Nanos, Op, Request, Sector};

/// A device of 16 pages a block whose blocks stand 3,000 erases; an SLC cache takes all writes.
fn cached(slc_limit: u32) -> DeviceConfig {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    config
        .set_all(&[
            ("geometry.block_groups.0.pages_per_block", "16"),
            ("geometry.block_groups.0.blocks", "256"),
            ("geometry.block_groups.0.erase_limit", "3000"),
            ("slc.mode", "cache"),
            ("slc.blocks", "32"),
            ("slc.max_kb", "1024"),
            ("slc.erase_limit", &slc_limit.to_string()),
        ])
        .unwrap();
    config
}

/// Writes so many map units of 4 KB on a device that was used before.
fn written(config: &DeviceConfig, units: u64) -> (SimulationResult, f64) {
    let options = ReplayOptions { precondition: "used:30d,daily=64MB".parse().unwrap(), ..ReplayOptions::default() };
    let mut run = Simulation::new(config, &options, None).unwrap();
    for number in 0..units {
        let arrival = Nanos::from_micros(number as i64 * 1000);
        let request = Request::new(arrival, Op::Write, Sector(number * 7919 % 12_000 * 8), 8);
        assert!(run.push(&request, &mut NullObserver).unwrap());
    }
    let geometry = run.device().geometry();
    let group = &geometry.groups[0];
    let bytes = f64::from(group.blocks * geometry.planes * group.pages_per_block) * f64::from(group.page_bytes);
    (run.finish(None, &mut NullObserver).unwrap(), bytes)
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
    // All but what is overwritten in the cache comes to the main blocks, which stand their bytes 3,000 times.
    let bound = 3000.0 * endless.1;
    for (result, _) in [&endless, &long] {
        assert!(even(result) > 0.2 * bound && even(result) < 1.2 * bound, "{} {bound}", even(result));
    }
    assert_eq!(even(&endless.0), even(&long.0));
    // The cache has a twentieth of the bytes and takes every write.
    assert!(even(&short.0) < 0.1 * bound, "{} {bound}", even(&short.0));
    for (result, _) in [endless, long, short] {
        let life = result.wear.lifetime.unwrap();
        assert!(life.first_block_host_bytes <= life.even_host_bytes, "{life:?}");
    }
}

#[test]
fn what_lies_in_the_slc_cache_at_the_end_counts_as_wear_of_the_blocks_that_it_is_folded_into() {
    // One and a half times what the cache holds: much of it is not folded in the run.
    let (short, long) = (written(&cached(0), 1500).0, written(&cached(0), 60_000).0);
    let ratio = even(&short) / even(&long);
    assert!((0.3..=3.0).contains(&ratio), "{ratio}");
}
