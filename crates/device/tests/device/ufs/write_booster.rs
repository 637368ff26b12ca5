//! `WriteBooster`: blocks in SLC mode that receive writes, in cases small enough to compute on paper. A page program takes 1,000 us in
//! normal cells, and 100 us in SLC mode.

use emmclab_base::Op::Write;
use emmclab_base::{Nanos, Op};
use emmclab_device::checker::DeviceChecker;
use emmclab_device::{BoosterCounters, Device, DeviceCommand, DeviceConfig, Lpn, NullObserver};

use super::ufs;
use crate::common::{Completions, command};

/// A UFS of 128 blocks of 12 TLC pages. 8 blocks are in SLC mode, with four pages each: 32 pages, minus the blocks that stay free.
fn boosted(settings: &[(&str, &str)]) -> DeviceConfig {
    let all = [
        ("geometry.block_groups.0.blocks", "128"),
        ("geometry.block_groups.0.pages_per_block", "12"),
        ("geometry.block_groups.0.cell_mode", "tlc"),
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "30"),
        ("slc.mode", "cache"),
        ("slc.blocks", "8"),
        ("slc.max_kb", "1024"),
        ("slc.program_us", "100"),
        ("slc.read_us", "50"),
        ("slc.fold_after_us", "10000"),
    ];
    ufs(&[&all, settings].concat())
}

/// A device that is checked after every step. Commands are executed one by one.
struct Rig {
    device: Device,
    checker: DeviceChecker,
    told: Completions,
    now: Nanos,
}

impl Rig {
    fn new(config: &DeviceConfig) -> Self {
        let device = Device::new(config);
        Self { checker: DeviceChecker::of(&device), device, told: Completions::default(), now: Nanos::ZERO }
    }

    /// Response time in us of a command that arrives `pause_us` after the end of the previous one.
    fn after(&mut self, pause_us: i64, op: Op, kb: u64) -> i64 {
        let command = DeviceCommand { arrival: self.now + Nanos::from_micros(pause_us), ..command(0, op, kb, 4) };
        self.checker.expect(&command);
        self.device.submit(&command, &mut (&mut self.checker, &mut self.told)).unwrap();
        self.checker.verify(&self.device).unwrap();
        let event = self.told.0.last().unwrap();
        self.now = event.complete;
        (event.complete - event.arrival).0 / 1000
    }

    /// Response times of writes of `pages` pages from an address on, without pauses.
    fn fill(&mut self, kb: u64, pages: u64) -> Vec<i64> {
        (0..pages).map(|page| self.after(0, Write, kb + page * 4)).collect()
    }

    /// The 4 KB pages in `from..to` that are in the buffer.
    fn held(&self, from: u32, to: u32) -> Vec<u32> {
        let block = |unit: u32| self.device.lookup(Lpn(unit)).map(|place| self.device.geometry().block_of(place));
        (from..to).filter(|unit| block(*unit).is_some_and(|block| self.device.block(block).group == 1)).collect()
    }

    fn counts(&self) -> BoosterCounters {
        self.device.counters().booster
    }

    fn written_to_slc(&self) -> u64 {
        self.device.counters().group_programs[1]
    }
}

#[test]
fn cells_of_three_bits_keep_a_third_of_their_pages() {
    for (cells, pages) in [("slc", 12), ("mlc", 6), ("tlc", 4), ("qlc", 3)] {
        let config = boosted(&[("geometry.block_groups.0.cell_mode", cells)]);
        assert_eq!(config.settings().block_groups()[1].pages_per_block, pages, "{cells}");
    }
}

#[test]
fn writes_are_fast_until_it_is_full_and_again_after_it_was_flushed() {
    let mut rig = Rig::new(&boosted(&[]));
    let times = rig.fill(0, 40);
    // 107 us are 100 us of the program and 7 us of the link. All blocks except those that stay free accept data.
    let fast = times.iter().filter(|us| **us == 107).count();
    assert!((24..=32).contains(&fast), "{times:?}");
    assert!(times[fast..].iter().all(|us| *us >= 1007), "the cliff: {times:?}");
    assert_eq!(rig.after(1_000_000, Write, 0), 107, "idle time emptied it");
    assert!(rig.device.counters().folds >= 6);
}

#[test]
fn a_short_pause_flushes_nothing() {
    let mut rig = Rig::new(&boosted(&[]));
    rig.fill(0, 40);
    let folds = rig.device.counters().folds;
    assert!(rig.after(9_000, Write, 400) >= 1007);
    assert_eq!(rig.device.counters().folds, folds);
}

#[test]
fn in_hibernation_it_is_flushed_while_the_link_sleeps() {
    let config = boosted(&[
        ("slc.fold_after_us", "0"),
        ("slc.flush", "hibernate"),
        ("power.sleep_after_us", "5000"),
        ("power.wake_us", "300"),
    ]);
    let mut rig = Rig::new(&config);
    rig.fill(0, 40);
    // A page of the flush takes 50 us and 1,000 us. The pause of 8 ms, minus 5 ms before hibernation, suffices for 3 pages.
    let took = rig.after(8_000, Write, 400);
    let wake_up = rig.told.0.last().unwrap().waits.wake_up;
    assert_eq!(wake_up, Nanos::from_micros(300), "the link slept while the flash worked: {took}");
    let folded = rig.device.counters().page_programs[2];
    assert!((1..=4).contains(&folded), "{folded}");
    rig.after(1_000_000, Write, 404);
    assert!(rig.device.counters().folds >= 6);
}

#[test]
fn a_host_that_asks_for_a_flush_late_leaves_it_as_it_is_before() {
    let folds = |pages| {
        let mut rig = Rig::new(&boosted(&[("slc.flush_at_pct", "40")]));
        rig.fill(0, pages);
        rig.after(1_000_000, Write, 800);
        rig.device.counters().folds
    };
    // Eight blocks of four pages: after twelve pages more than 40 % are free.
    assert_eq!(folds(12), 0);
    assert!(folds(24) >= 5);
}

#[test]
fn it_takes_capacity_or_shrinks_with_the_free_space() {
    let reduced = boosted(&[]);
    let preserved = boosted(&[("slc.preserve_user_space", "true")]);
    let capacity = |config: &DeviceConfig| Device::new(config).geometry().logical_units;
    assert_eq!((capacity(&reduced), capacity(&preserved)), (120 * 12 * 10 / 13, 128 * 12 * 10 / 13));
    // A block uses 12 units of free space. With 30 units free, the buffer accepts the data of only three blocks.
    let taken = |config: &DeviceConfig, left: u64| {
        let mut rig = Rig::new(config);
        let units = u64::from(capacity(config));
        rig.fill(0, units - left);
        rig.after(10_000_000, Write, 0);
        rig.after(10_000_000, Op::Read, 0);
        let before = rig.written_to_slc();
        rig.fill(0, 40);
        rig.written_to_slc() - before
    };
    assert!(taken(&reduced, 30) >= 24);
    assert!((1..=12).contains(&taken(&preserved, 30)));
    assert_eq!(taken(&preserved, 0), 0);
    let text = boosted(&[]).set_all(&[("slc.preserve_user_space", "true"), ("slc.blocks", "60")]).unwrap_err();
    assert!(text.to_string().contains("slc.blocks"), "{text}");
}

#[test]
fn one_of_a_logical_unit_takes_no_writes_of_others() {
    let mut rig = Rig::new(&boosted(&[("slc.dedicated_mb", "1")]));
    assert_eq!(rig.after(0, Write, 1024), 1007);
    assert_eq!(rig.after(0, Write, 1020), 107);
    assert_eq!(rig.written_to_slc(), 1);
}

#[test]
fn a_fifo_flush_leaves_the_data_that_was_written_last() {
    let mut rig = Rig::new(&boosted(&[("slc.partial_flush", "fifo"), ("slc.keep_pct", "25")]));
    rig.fill(0, 24);
    rig.after(1_000_000, Op::Read, 0);
    // A quarter of eight blocks of four pages stays.
    assert_eq!(rig.held(0, 24), (16..24).collect::<Vec<_>>());
    assert_eq!(rig.counts().folded_units, 16);
    rig.after(1_000_000, Op::Read, 92);
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!(rig.counts().folded_units, 16, "what stays is not flushed later either");
    assert_eq!(rig.device.counters().group_bytes_read, [8192, 4096]);
}

#[test]
fn by_least_recent_use_a_block_that_is_read_stays() {
    let mut rig = Rig::new(&boosted(&[("slc.partial_flush", "lru"), ("slc.keep_pct", "25")]));
    rig.fill(0, 24);
    rig.after(0, Op::Read, 0);
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!(rig.held(0, 24), [0, 1, 2, 3, 20, 21, 22, 23]);
}

/// Pinned data of the first MB, in at most half of the blocks.
const PINNED: [(&str, &str); 4] =
    [("slc.preserve_user_space", "true"), ("slc.partial_flush", "pinned"), ("slc.keep_pct", "50"), ("slc.pinned_to_mb", "1")];

#[test]
fn pinned_data_stays_up_to_its_share_and_what_is_more_is_flushed() {
    let config = boosted(&PINNED);
    let mut rig = Rig::new(&config);
    rig.fill(0, 8);
    rig.fill(2048, 8);
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!((rig.held(0, 8).len(), rig.held(512, 520).len()), (8, 0));
    assert_eq!((rig.counts().pinned_units, rig.counts().pinned_full), (8, 0));
    // At most four blocks of four pages are pinned.
    rig.fill(32, 12);
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!(rig.held(0, 20), (0..16).collect::<Vec<_>>());
    assert_eq!((rig.counts().pinned_units, rig.counts().pinned_full), (16, 1));
    let image = rig.device.to_image();
    let copy = Device::from_image(&config, &image).unwrap();
    assert_eq!(copy.to_image(), image, "an image knows what is pinned");
}

#[test]
fn pinned_data_is_released_where_the_host_ends_the_mode() {
    let (pinned, mut none) = (boosted(&PINNED), boosted(&PINNED));
    none.set_all(&[("slc.partial_flush", "none"), ("slc.keep_pct", "0"), ("slc.pinned_to_mb", "0")]).unwrap();
    let mut rig = Rig::new(&pinned);
    rig.fill(0, 10);
    rig.after(1_000_000, Op::Read, 0);
    rig.device.reconfigure(&pinned, &none, rig.now).unwrap();
    rig.fill(2048, 2);
    rig.after(1_000_000, Op::Read, 0);
    assert!(rig.held(0, 8).is_empty(), "{:?}", rig.held(0, 10));
    assert_eq!(rig.held(512, 514).len(), 0, "the open block was filled, and flushed with the others");
}

#[test]
fn the_event_comes_when_little_is_free_and_the_flush_begins_at_once() {
    let mut rig = Rig::new(&boosted(&[("slc.fold_after_us", "0"), ("slc.flush", "event"), ("slc.flush_at_pct", "40")]));
    rig.fill(0, 16);
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!((rig.counts().flush_needed, rig.counts().folded_units), (0, 0), "half of it is free");
    rig.fill(64, 5);
    // 1 ms suffices only for the start of the flush, which continues in the next gap.
    rig.after(1_000, Op::Read, 0);
    assert_eq!(rig.counts().flush_needed, 1);
    assert!((1..20).contains(&rig.counts().folded_units), "{:?}", rig.counts());
    rig.after(1_000_000, Op::Read, 0);
    assert_eq!((rig.counts().flush_needed, rig.counts().folded_units), (1, 20));
}

#[test]
fn it_shrinks_with_the_users_free_space_and_grows_again() {
    let settings = [("slc.preserve_user_space", "true"), ("slc.resize", "hint")];
    let mut rig = Rig::new(&boosted(&settings));
    let units = u64::from(rig.device.geometry().logical_units);
    rig.fill(0, units - 40);
    for _ in 0..8 {
        rig.after(1_000_000, Op::Read, 0);
    }
    // Forty free units correspond to three blocks of twelve.
    assert_eq!((rig.device.booster_blocks(), rig.counts().shrunk), (3, 5));
    rig.after(0, Op::Discard, 0);
    let discard = DeviceCommand::new(rig.now, Op::Discard, 0, 4000);
    rig.checker.expect(&discard);
    rig.device.submit(&discard, &mut (&mut rig.checker, &mut rig.told)).unwrap();
    for _ in 0..8 {
        rig.fill(0, 32);
        rig.after(1_000_000, Op::Read, 0);
    }
    assert_eq!((rig.device.booster_blocks(), rig.counts().grown), (8, 5));
}

#[test]
fn a_size_that_is_set_in_use_counts_from_then_on() {
    let (whole, mut half) = (boosted(&[("slc.preserve_user_space", "true")]), boosted(&[("slc.preserve_user_space", "true")]));
    half.set("slc.size_pct", "50").unwrap();
    let mut rig = Rig::new(&whole);
    rig.fill(0, 24);
    rig.after(0, Op::Read, 0);
    rig.device.reconfigure(&whole, &half, rig.now).unwrap();
    assert_eq!(rig.device.booster_blocks(), 4);
    rig.after(1_000_000, Op::Read, 0);
    let written = rig.written_to_slc();
    rig.fill(0, 24);
    assert_eq!(rig.written_to_slc() - written, 16);
    rig.device.settle(&mut NullObserver);
}

#[test]
fn at_the_end_of_its_life_it_takes_nothing() {
    let mut rig = Rig::new(&boosted(&[("slc.erase_limit", "4"), ("slc.life_limit_pct", "50")]));
    for _ in 0..40 {
        rig.fill(0, 24);
        rig.after(1_000_000, Op::Read, 0);
    }
    let blocks: Vec<_> = rig.device.blocks().filter(|block| block.group == 1).map(|block| block.erases).collect();
    assert_eq!(blocks.iter().max(), Some(&2), "{blocks:?}");
    assert!(rig.device.stop().is_none());
    assert_eq!(rig.after(0, Write, 0), 1007);
}
