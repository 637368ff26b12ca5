//! The queue of the host above the device: merging, packing, one command at a time.

use crate::common::{Reported, check_times, checked, completed, in_mode, short_blocks};
use emmclab_device::{DeviceConfig, NullObserver, RequestCompleted};
use emmclab_replay::{ReplayMode, Simulation, SimulationResult};
use emmclab_trace::{Nanos, Op, Request, RequestFlags, Sector};
use proptest::prelude::*;

fn config(settings: &[(&str, &str)]) -> DeviceConfig {
    let one_chip = [
        ("geometry.block_groups.0.blocks", "64"),
        ("geometry.channels", "1"),
        ("geometry.chips_per_channel", "1"),
        ("timing.parallelism", "none"),
        ("controller.queue_depth", "1"),
        ("controller.write_overhead_us", "200"),
        ("controller.read_overhead_us", "100"),
        ("controller.bus_mode", "hs52"),
    ];
    short_blocks(&[&one_chip, settings].concat())
}

fn request(at_us: i64, op: Op, kb_from: u64, kb: u32) -> Request {
    Request::new(Nanos::from_micros(at_us), op, Sector(kb_from * 2), kb * 2)
}

fn run(config: &DeviceConfig, requests: &[Request]) -> (SimulationResult, Vec<RequestCompleted>) {
    completed(Simulation::new(config, &checked(), None).unwrap(), requests)
}

/// Checks that every request is reported once and in order, and that its times are possible.
fn check_reported(reported: &[RequestCompleted], requests: &[Request]) {
    assert_eq!(reported.len(), requests.len());
    for (event, request) in reported.iter().zip(requests) {
        assert_eq!((event.op, event.sector, event.sectors), (request.op, request.sector.0, request.sectors));
    }
    check_times(reported);
}

/// 4 KB writes at different addresses, which all arrive while the first is being executed.
fn burst(count: u64) -> Vec<Request> {
    (0..count).map(|i| request(i as i64, Op::Write, i * 8, 4)).collect()
}

#[test]
fn a_pack_pays_one_overhead_and_one_header_and_ends_as_one() {
    let (alone, reported_alone) = run(&config(&[]), &burst(9));
    let (packed, reported) = run(&config(&[("host.packed_writes", "8")]), &burst(9));
    let host = packed.host.clone().unwrap();
    assert_eq!((host.commands, host.packs, host.packed_requests), (2, 1, 8));
    assert_eq!(host.packs_by_entries[8], 1);
    // The first write is sent alone, and the others in one command.
    assert!(reported[1..].iter().all(|event| event.complete == reported[8].complete && event.start == reported[1].start));
    let last = |reported: &[RequestCompleted]| reported.last().unwrap().complete;
    let header_ns = 512 * 1000 / 52;
    let saved = last(&reported_alone) - last(&reported);
    assert!((saved.0 - (7 * 200_000 - header_ns)).abs() < 100, "{saved}");
    assert!(packed.response.mean_response_ms > 0.0 && alone.host.is_none());
}

#[test]
fn packed_reads_share_the_overhead_and_the_way_out() {
    let mut requests = burst(4);
    requests.extend((0..4).map(|i| request(100_000 + i, Op::Read, i as u64 * 8, 4)));
    let (_, alone) = run(&config(&[]), &requests);
    let (result, packed) = run(&config(&[("host.packed_reads", "4")]), &requests);
    assert_eq!(result.host.unwrap().packs_by_entries, [0, 0, 0, 1, 0]);
    let saved = alone[7].complete - packed[7].complete;
    assert!((saved.0 - (2 * 100_000 - 512 * 1000 / 52)).abs() < 100, "{saved}");
}

#[test]
fn merged_requests_complete_with_the_one_that_took_them() {
    let requests =
        [request(0, Op::Write, 100, 4), request(1, Op::Write, 0, 4), request(2, Op::Write, 200, 4), request(3, Op::Write, 4, 4)];
    let (result, reported) = run(&config(&[("host.merge_max_kb", "512")]), &requests);
    let host = result.host.unwrap();
    assert_eq!((host.commands, host.merged, host.largest_command_bytes), (3, 1, 8192));
    assert_eq!(reported[1].complete, reported[3].complete);
    assert!(reported[2].complete > reported[3].complete, "the merged request overtook");
    let order: Vec<_> = reported.iter().map(|event| (event.id, event.arrival.0 / 1000, event.sector)).collect();
    assert_eq!(order, [(0, 0, 200), (1, 1, 0), (2, 2, 400), (3, 3, 8)], "reported in order of arrival");
    assert_eq!((reported[1].subrequests, reported[3].subrequests), (2, 0));
}

#[test]
fn a_write_with_a_flag_is_not_merged_and_one_behind_a_flush_is_not_packed() {
    let counts = |flags| {
        let mut requests = burst(4);
        requests[2].flags = flags;
        let (result, reported) = run(&config(&[("host.packed_writes", "8"), ("host.merge_max_kb", "512")]), &requests);
        let host = result.host.unwrap();
        assert_eq!(reported.len(), 4);
        (host.commands, host.merged, host.packs, host.packed_requests)
    };
    // The first write is sent at once. The entries of a packed command have their own flags.
    assert_eq!(counts(RequestFlags::META), counts(RequestFlags::default()), "a hint is no obstacle");
    assert_eq!(counts(RequestFlags::FUA), (2, 0, 1, 3));
    assert_eq!(counts(RequestFlags::PREFLUSH), (4, 0, 0, 0));
}

#[test]
fn the_flags_of_a_request_reach_the_cache() {
    let mut requests = burst(3);
    requests[1].flags = RequestFlags::FUA;
    requests.push(Request::new(Nanos::from_micros(50_000), Op::Flush, Sector(0), 0));
    let cached = config(&[("cache.size_kb", "512"), ("cache.write_back", "when_full")]);
    let (result, reported) = run(&cached, &requests);
    let service = |i: usize| (reported[i].complete - reported[i].start).0;
    assert!(service(0) < 400_000 && service(2) < 400_000, "plain writes end in the cache");
    assert!(service(1) > 1_000_000, "a write with FUA is programmed");
    assert!(service(3) > 1_000_000, "the flush programs the other two");
    assert_eq!(result.cache.unwrap().flushes, Some(1));
}

#[test]
fn closed_loop_waits_for_what_the_host_still_holds() {
    let recorded =
        |at: i64, end: i64, kb: u64| Request { complete: Some(Nanos::from_micros(end)), ..request(at, Op::Write, kb, 4) };
    let requests = [recorded(0, 100, 0), recorded(10, 100, 8), recorded(500, 600, 16)];
    let config = config(&[("host.packed_writes", "8")]);
    let mut simulation = Simulation::new(&config, &in_mode(ReplayMode::Closed), None).unwrap();
    let mut reported = Reported::default();
    for request in &requests {
        simulation.push(request, &mut reported).unwrap();
    }
    simulation.finish(None, &mut NullObserver).unwrap();
    let think = Nanos::from_micros(400);
    assert_eq!(reported.0.len(), 2);
    assert!(reported.0.iter().all(|event| event.complete > think));
}

/// Gap in us, operation, address, length in sectors, flags.
type Step = (u16, u8, u16, u8, bool);

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(60), ..ProptestConfig::default() })]

    /// The checker compares contents and sums of times. This test checks that every request is reported once and in order.
    #[test]
    fn every_request_is_reported_once_in_order_of_arrival(
        merge in prop::sample::select(vec!["0", "16", "512"]),
        writes in prop::sample::select(vec!["0", "2", "63"]),
        reads in prop::sample::select(vec!["0", "5"]),
        (cache, shared) in prop::sample::select(vec![("0", "false"), ("0", "true"), ("64", "false")]),
        steps in prop::collection::vec(any::<Step>(), 1..300),
    ) {
        let config = config(&[
            ("host.merge_max_kb", merge),
            ("host.packed_writes", writes),
            ("host.packed_reads", reads),
            ("host.packed_max_kb", "256"),
            ("cache.size_kb", cache),
            ("controller.share_packed_pages", if writes == "0" { "false" } else { shared }),
            ("geometry.block_groups.0.page_kb", "16"),
        ]);
        let mut now = 0;
        let requests: Vec<_> = steps.iter().map(|(gap, op, place, length, fua)| {
            now += i64::from(*gap % 2000);
            let op = match op { 0..=150 => Op::Write, 151..=220 => Op::Read, 221..=240 => Op::Discard, _ => Op::Flush };
            let (sector, sectors) = if op == Op::Flush { (0, 0) } else {
                (u64::from(*place % 500) * 8, u32::from(*length % 4 + 1) * 8)
            };
            let mut request = Request::new(Nanos::from_micros(now), op, Sector(sector), sectors);
            if *fua && op == Op::Write {
                request.flags = RequestFlags::FUA;
            }
            request
        }).collect();
        let (result, reported) = run(&config, &requests);
        prop_assert_eq!(result.requests.total as usize, requests.len());
        check_reported(&reported, &requests);
    }

    /// Tests all kernels on devices without some functions. The checker compares contents and sums of times.
    #[test]
    fn every_kernel_completes_every_request_with_all_its_commands(
        kernel in prop::sample::select(vec!["linux_3.10", "linux_4.9", "linux_5.10", "linux_no_fua", "vendor_barrier"]),
        merge in prop::sample::select(vec!["0", "512"]),
        cache in prop::sample::select(vec!["0", "64"]),
        policy in prop::sample::select(vec!["fifo", "lru"]),
        (reliable, barrier) in prop::sample::select(vec![("true", "true"), ("true", "false"), ("false", "true")]),
        steps in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u16>(), 0u8..16), 1..200),
    ) {
        let config = config(&[
            ("host.kernel", kernel),
            ("host.merge_max_kb", merge),
            ("cache.size_kb", cache),
            ("cache.policy", policy),
            ("features.reliable_write", reliable),
            ("features.barrier", barrier),
            ("geometry.block_groups.0.page_kb", "16"),
        ]);
        let flags = [RequestFlags::FUA, RequestFlags::PREFLUSH, RequestFlags::META, RequestFlags::SYNC];
        let mut now = 0;
        let requests: Vec<_> = steps.iter().map(|(gap, op, place, bits)| {
            now += i64::from(*gap % 2000);
            let op = match op { 0..=170 => Op::Write, 171..=200 => Op::Read, 201..=220 => Op::Discard, _ => Op::Flush };
            let (sector, sectors) = if op == Op::Flush { (0, 0) } else { (u64::from(*place % 500) * 8, 8) };
            let mut request = Request::new(Nanos::from_micros(now), op, Sector(sector), sectors);
            for (bit, flag) in flags.iter().enumerate().filter(|_| op == Op::Write) {
                request.flags.set(*flag, bits >> bit & 1 == 1);
            }
            request
        }).collect();
        let (result, reported) = run(&config, &requests);
        check_reported(&reported, &requests);
        let driver = result.host.unwrap().driver.unwrap();
        prop_assert!(cache != "0" || driver.flushes + driver.barriers == 0);
        prop_assert!(reliable == "true" || driver.reliable_writes == 0);
    }
}
