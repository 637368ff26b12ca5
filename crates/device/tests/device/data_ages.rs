//! Read retries by wear and age of the data, and the refresh of data that was read often or is old, against calculations by hand.

use emmclab_base::Nanos;
use emmclab_base::Op::{Read, Write};
use emmclab_device::{BlockId, Device, DeviceCommand, Lpn, NullObserver, OperationCause};

use crate::common::{Completions, command, config, responses_us};

const DAY: i64 = 86_400_000_000;
/// Steps of a page: 0 to 2 in the first 100 days of a new block, 4 to 10 after 1,000 erases.
const TABLE: &str = "[{steps=0}, {days=100, steps=2}, {erases=1000, steps=4}, {erases=1000, days=100, steps=10}]";
const RETRIES: [(&str, &str); 2] = [("geometry.block_groups.0.retry_us", "30"), ("geometry.block_groups.0.retries", TABLE)];

/// A device with these settings on which `pages` pages of 4 KB were written at time 0.
fn filled(settings: &[(&str, &str)], pages: u32) -> Device {
    let mut device = Device::new(&config(&[&RETRIES, settings].concat()));
    device.submit(&command(0, Write, 0, 4 * pages), &mut NullObserver).unwrap();
    device.settle(&mut NullObserver);
    device
}

/// Response times in us of reads of single pages, one after another, from `at_us` on.
fn reads(device: &mut Device, pages: impl Iterator<Item = u64>, at_us: i64) -> Vec<f64> {
    let mut told = Completions::default();
    for page in pages {
        let at = device.idle_from().max(Nanos::from_micros(at_us));
        device.submit(&DeviceCommand { arrival: at, ..command(0, Read, 4 * page, 4) }, &mut told).unwrap();
    }
    for event in &told.0 {
        assert_eq!(event.waits.array, event.complete - event.arrival, "a retry is time of the array");
    }
    responses_us(&told.0)
}

#[test]
fn a_read_with_n_retries_takes_n_times_longer_in_the_array() {
    // Without a fraction, every page needs the number of retries of the table: interpolated by days, then by erases.
    for (erases, days, steps) in
        [(0, 0, 0), (0, 50, 1), (0, 100, 2), (0, 400, 2), (500, 0, 2), (500, 50, 4), (1000, 50, 7), (2000, 400, 10)]
    {
        let mut device = filled(&[], 4);
        device.wear_on(&[erases]).unwrap();
        assert_eq!(reads(&mut device, 0..4, days * DAY), [100.0 + 30.0 * f64::from(steps); 4], "{erases} erases, {days} days");
        let counters = device.counters();
        let retried = if steps > 0 { 4 } else { 0 };
        assert_eq!((counters.retried_reads, counters.group_retries[0]), (retried, 4 * steps as u64));
    }
}

#[test]
fn the_mean_over_the_pages_is_that_of_the_table_and_each_page_keeps_its_retries() {
    let pages = 4096;
    let mut device =
        filled(&[("geometry.block_groups.0.blocks", "64"), ("geometry.block_groups.0.pages_per_block", "64")], pages);
    let mut before = vec![100.0; pages as usize];
    for days in [10, 30, 35, 70, 95] {
        let times = reads(&mut device, 0..u64::from(pages), days * DAY);
        // The reads take less than a second, in which data does not age noticeably.
        assert_eq!(times, reads(&mut device, 0..u64::from(pages), days * DAY));
        assert!(times.iter().zip(&before).all(|(now, then)| now >= then), "older data needs fewer retries");
        let mean = times.iter().map(|time| (time - 100.0) / 30.0).sum::<f64>() / f64::from(pages);
        // Four standard deviations of the mean of draws that are 0 or 1.
        assert!((mean - days as f64 / 50.0).abs() < 4.0 * 0.5 / f64::from(pages).sqrt(), "{mean} after {days} days");
        before = times;
    }
}

#[test]
fn data_from_before_the_run_has_the_age_of_the_settings_and_new_data_none() {
    let mut device = filled(&[("wear.data_age_days", "50")], 4);
    assert_eq!(reads(&mut device, 0..1, 0), [100.0]);
    let mut aged =
        Device::from_image(&config(&[&RETRIES[..], &[("wear.data_age_days", "50")]].concat()), &device.to_image()).unwrap();
    device.rewind();
    for device in [&mut device, &mut aged] {
        device.submit(&command(0, Write, 16, 4), &mut NullObserver).unwrap();
        assert_eq!(reads(device, [0, 4].into_iter(), 0), [130.0, 100.0]);
        assert_eq!(reads(device, [0, 4].into_iter(), 50 * DAY), [160.0, 130.0]);
    }
}

#[test]
fn moves_of_data_are_retried_too_and_the_moved_data_is_new() {
    // Every second page is overwritten again and again, so the collected blocks contain old data.
    let settings = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "30"),
        ("geometry.block_groups.0.blocks", "16"),
        ("wear.data_age_days", "100"),
        ("geometry.block_groups.0.retries", "[{steps=0}, {days=100, steps=2}]"),
    ];
    let mut device = filled(&settings, 48);
    device.rewind();
    let mut write = 0;
    while device.counters().gc_count < 60 {
        let at = device.idle_from().max(Nanos::ZERO);
        device.submit(&DeviceCommand { arrival: at, ..command(0, Write, 8 * (write * 7 % 24), 4) }, &mut NullObserver).unwrap();
        write += 1;
    }
    let counters = device.counters();
    let retried = counters.retried_reads;
    assert_eq!((retried, 2 * retried), (counters.page_reads[2], counters.group_retries[0]), "two retries of each old page");
    let odd = reads(&mut device, (0..24).map(|page| 2 * page + 1), 0);
    let new = odd.iter().filter(|time| **time == 100.0).count();
    assert!(new > 0 && odd.iter().all(|time| [100.0, 160.0].contains(time)));
    assert!(new as u64 <= retried);
}

/// A device that moves a block of four full pages after `limit` reads.
fn disturbed(limit: &str) -> Device {
    let settings = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "100"),
        ("geometry.block_groups.0.read_disturb_limit", limit),
    ];
    filled(&settings, 8)
}

fn block_of(device: &Device, page: u32) -> BlockId {
    device.geometry().block_of(device.lookup(Lpn(page)).unwrap())
}

#[test]
fn a_block_moves_once_when_its_reads_reach_the_limit_and_then_another_is_read() {
    let mut device = disturbed("10");
    let (other, mut before) = (block_of(&device, 4), block_of(&device, 0));
    for refreshes in 1..=3 {
        reads(&mut device, [0, 1, 2, 0, 1, 3, 0, 1, 2].into_iter(), 0);
        device.idle_until(device.idle_from() + Nanos::from_millis(100));
        assert_eq!(block_of(&device, 0), before, "nine reads move nothing");
        reads(&mut device, 0..1, 0);
        device.idle_until(device.idle_from() + Nanos::from_millis(100));
        let counters = device.counters();
        let programs = counters.page_programs[OperationCause::Refresh as usize];
        assert_eq!((counters.refreshes, programs, counters.group_erases[0]), (refreshes, 4 * refreshes, refreshes));
        assert!((0..4).all(|page| block_of(&device, page) == block_of(&device, 0)) && block_of(&device, 0) != before);
        before = block_of(&device, 0);
    }
    assert_eq!(block_of(&device, 4), other, "a block that is not read stays");
    assert_eq!(device.counters().waf_of(OperationCause::Refresh), 12.0 / 8.0);
    // A new run counts reads anew.
    reads(&mut device, [0; 9].into_iter(), 0);
    device.rewind();
    reads(&mut device, [0; 9].into_iter(), 0);
    device.idle_until(Nanos::from_millis(100));
    assert_eq!(device.counters().refreshes, 0);
}

#[test]
fn the_oldest_block_moves_in_idle_time_when_its_data_reaches_the_age_of_the_settings() {
    let settings = [
        ("gc.policy", "greedy"),
        ("capacity.over_provisioning_pct", "100"),
        ("geometry.block_groups.0.refresh_days", "10"),
        ("wear.data_age_days", "7"),
    ];
    // One block is written on day 0, another on day 4.
    let mut device = filled(&settings, 4);
    device
        .submit(&DeviceCommand { arrival: Nanos::from_micros(4 * DAY), ..command(0, Write, 16, 16) }, &mut NullObserver)
        .unwrap();
    let check = |device: &mut Device, tenths: i64, refreshes: u64| {
        device.idle_until(Nanos::from_micros(DAY / 10 * tenths));
        let counters = device.counters();
        let programs = counters.page_programs[OperationCause::Refresh as usize];
        assert_eq!((counters.refreshes, programs, counters.group_erases[0]), (refreshes, 4 * refreshes, refreshes), "{tenths}");
    };
    for (tenths, refreshes) in [(99, 0), (101, 1), (139, 1), (141, 2), (199, 2), (201, 3), (239, 3), (241, 4)] {
        check(&mut device, tenths, refreshes);
    }
    // When a run begins, all data is 7 days old, also that of a restored image.
    let image = device.to_image();
    device.rewind();
    for mut device in [Device::from_image(&config(&[&RETRIES[..], &settings].concat()), &image).unwrap(), device] {
        let before = device.counters().refreshes;
        reads(&mut device, 0..1, 0);
        device.idle_until(Nanos::from_micros(DAY / 10 * 29));
        assert_eq!(device.counters().refreshes, before);
        device.idle_until(Nanos::from_micros(DAY / 10 * 31));
        assert_eq!(device.counters().refreshes, before + 2);
    }
}

#[test]
fn without_idle_time_each_command_moves_one_page() {
    // The tenth read reaches the limit. Each of the next four waits for the move of a page (100 + 1,000 us), the fifth for the erase.
    let mut device = disturbed("10");
    let mut told = Completions::default();
    for _ in 0..16 {
        device.submit(&DeviceCommand { arrival: device.idle_from(), ..command(0, Read, 0, 4) }, &mut told).unwrap();
    }
    let took = responses_us(&told.0);
    assert_eq!(took[..10], [100.0; 10]);
    assert_eq!(took[10..], [1200.0, 1200.0, 1200.0, 1200.0, 5100.0, 100.0]);
    assert_eq!(told.0[10].waits.gc, Nanos::from_micros(1100));
}
