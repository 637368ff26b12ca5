//! An internal device and a card beside it.
#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "a test may fail")]

use emmclab_device::{DeviceConfig, Quiet};
use emmclab_replay::{Pair, PairResult, Routing};
use emmclab_trace::{Nanos, Op, Request, Sector};

/// 4 KB pages on one chip, so long a program.
fn device(program_us: u32) -> DeviceConfig {
    DeviceConfig::from_toml(&format!(
        "name = 'one chip'
         gc.policy = 'none'
         capacity.over_provisioning_pct = 0
         [[geometry.block_groups]]
         page_kb = 4
         blocks = 64
         pages_per_block = 64
         program_us = {program_us}
         read_us = 100
         erase_us = 5000"
    ))
    .unwrap()
}

fn run(routing: Routing, requests: &[(i64, u64, u32)]) -> PairResult {
    let mut pair = Pair::new(&device(1000), &device(3000), routing).unwrap();
    for (at_us, kb_from, kb) in requests {
        let request = Request::new(Nanos::from_micros(*at_us), Op::Write, Sector(kb_from * 2), kb * 2);
        assert!(pair.push(&request, &mut Quiet).unwrap());
    }
    pair.finish()
}

#[test]
fn striping_helps_long_requests_and_hurts_short_ones_on_the_card() {
    let long = [(0, 0, 32)];
    assert_eq!(run(Routing::Internal, &long).response.mean_ms, 8.0);
    // Four pages on each: the card needs 12 ms for its half.
    let striped = run(Routing::Striping { chunk_kb: 4 }, &long);
    assert_eq!(striped.response.mean_ms, 12.0);
    assert_eq!((striped.internal_bytes, striped.card_bytes), (16384, 16384));
    assert_eq!((striped.internal_requests, striped.card_requests, striped.requests), (1, 1, 1));
    let short = [(0, 0, 4), (100_000, 4, 4)];
    assert_eq!(run(Routing::Striping { chunk_kb: 4 }, &short).response.mean_ms, 2.0);
}

#[test]
fn routing_by_file_cuts_at_the_border_and_by_size_sends_large_ones_to_the_card() {
    let result = run(Routing::ByFile { from_mb: 1 }, &[(0, 1020, 8), (100_000, 0, 4), (200_000, 2048, 4)]);
    assert_eq!((result.internal_bytes, result.card_bytes), (8192, 8192));
    assert_eq!(result.response.mean_ms, (3.0 + 1.0 + 3.0) / 3.0);
    let result = run(Routing::BySize { max_kb: 4 }, &[(0, 0, 4), (0, 64, 8)]);
    assert_eq!((result.internal_bytes, result.card_bytes), (4096, 8192));
    assert!((result.response.max_ms - 6.0).abs() < 0.01);
}

#[test]
fn stripes_over_a_card_a_third_as_fast_make_even_a_burst_slower() {
    let burst: Vec<_> = (0..8u32).map(|i| (0, u64::from(i) * 4, 4)).collect();
    assert_eq!(run(Routing::Internal, &burst).response.mean_ms, 4.5);
    // 1 to 4 ms inside, 3 to 12 ms on the card.
    assert_eq!(run(Routing::Striping { chunk_kb: 4 }, &burst).response.mean_ms, 5.0);
}

#[test]
fn impossible_stripes_are_refused() {
    assert!(Pair::new(&device(1), &device(1), Routing::Striping { chunk_kb: 6 }).is_err());
    assert!(Pair::new(&device(1), &device(1), Routing::Striping { chunk_kb: 0 }).is_err());
}
