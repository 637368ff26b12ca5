//! Policies against plain models of them, sampled curves against exact ones, and forms known in closed form.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::float_cmp,
    clippy::items_after_statements,
    clippy::needless_for_each,
    reason = "a test may"
)]

use std::collections::VecDeque;

use emmclab_base::{Nanos, Op, Request, Sector};
use emmclab_cache::{CacheOptions, CachedOps, MissRatioRow, MissRatios, policies};
use proptest::prelude::*;

fn request(op: Op, page: u64, pages: u32) -> Request {
    Request::new(Nanos::ZERO, op, Sector(page * 8), pages * 8)
}

/// Curves over single page touches.
fn curves(pages: impl IntoIterator<Item = u64>, options: &CacheOptions) -> Vec<MissRatioRow> {
    let mut ratios = MissRatios::new(options).unwrap();
    for page in pages {
        ratios.add(&request(Op::Read, page, 1), 0);
    }
    ratios.rows()
}

fn options(policies: &[&str], pages: &[u64]) -> CacheOptions {
    CacheOptions {
        policies: policies.iter().map(|name| (*name).to_owned()).collect(),
        sizes_kb: pages.iter().map(|pages| 4 * pages).collect(),
        ..CacheOptions::default()
    }
}

/// Misses of a policy in the plainest form that there is: lists that are searched from end to end.
fn plain_misses(policy: &str, size: usize, touches: &[u64]) -> usize {
    match policy {
        "lru" => plain_lru(size, touches),
        "fifo" => plain_fifo(size, touches),
        "clock" => plain_clock(size, touches),
        "arc" => plain_arc(size, touches),
        "s3-fifo" => plain_s3_fifo(size, touches),
        _ => panic!("{policy} has no model"),
    }
}

fn plain_lru(size: usize, touches: &[u64]) -> usize {
    let mut list: Vec<u64> = Vec::new();
    let mut misses = 0;
    for page in touches {
        match list.iter().position(|held| held == page) {
            Some(at) => drop(list.remove(at)),
            None => misses += 1,
        }
        list.insert(0, *page);
        list.truncate(size);
    }
    misses
}

fn plain_fifo(size: usize, touches: &[u64]) -> usize {
    let mut list: Vec<u64> = Vec::new();
    let mut misses = 0;
    for page in touches {
        if !list.contains(page) {
            misses += 1;
            list.insert(0, *page);
            list.truncate(size);
        }
    }
    misses
}

/// FIFO in which a touched page at the end goes to the front again, without its mark: the same as a ring with a hand.
fn plain_clock(size: usize, touches: &[u64]) -> usize {
    let mut list: Vec<(u64, bool)> = Vec::new();
    let mut misses = 0;
    for page in touches {
        if let Some(held) = list.iter_mut().find(|held| held.0 == *page) {
            held.1 = true;
            continue;
        }
        misses += 1;
        while list.len() >= size {
            let (oldest, marked) = list.pop().unwrap();
            if marked {
                list.insert(0, (oldest, false));
            }
        }
        list.insert(0, (*page, false));
    }
    misses
}

/// Figure 4 of the paper, with its names; the newest page of a list stands first.
fn plain_arc(c: usize, touches: &[u64]) -> usize {
    let (mut t1, mut t2, mut b1, mut b2) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut p = 0.0_f64;
    let mut misses = 0;
    fn replace(lists: [&mut Vec<u64>; 4], in_b2: bool, p: f64) {
        let [t1, t2, b1, b2] = lists;
        let len = t1.len() as f64;
        if !t1.is_empty() && ((in_b2 && len == p) || len > p) {
            b1.insert(0, t1.pop().unwrap());
        } else {
            b2.insert(0, t2.pop().unwrap());
        }
    }
    for x in touches {
        let take =
            |list: &mut Vec<u64>| list.iter().position(|page| page == x).map(|at| list.remove(at)).is_some();
        if take(&mut t1) || take(&mut t2) {
            t2.insert(0, *x);
            continue;
        }
        misses += 1;
        if b1.contains(x) {
            let delta = if b1.len() >= b2.len() { 1.0 } else { b2.len() as f64 / b1.len() as f64 };
            p = (p + delta).min(c as f64);
            replace([&mut t1, &mut t2, &mut b1, &mut b2], false, p);
            take(&mut b1);
            t2.insert(0, *x);
        } else if b2.contains(x) {
            let delta = if b2.len() >= b1.len() { 1.0 } else { b1.len() as f64 / b2.len() as f64 };
            p = (p - delta).max(0.0);
            replace([&mut t1, &mut t2, &mut b1, &mut b2], true, p);
            take(&mut b2);
            t2.insert(0, *x);
        } else {
            if t1.len() + b1.len() == c {
                if t1.len() < c {
                    b1.pop();
                    replace([&mut t1, &mut t2, &mut b1, &mut b2], false, p);
                } else {
                    t1.pop();
                }
            } else if t1.len() + t2.len() + b1.len() + b2.len() >= c {
                if t1.len() + t2.len() + b1.len() + b2.len() == 2 * c {
                    b2.pop();
                }
                replace([&mut t1, &mut t2, &mut b1, &mut b2], false, p);
            }
            t1.insert(0, *x);
        }
    }
    misses
}

/// Algorithm 1 of the paper; the newest page of a queue stands first. A page that came back leaves a gap in the ghost queue.
fn plain_s3_fifo(size: usize, touches: &[u64]) -> usize {
    let small_size = (size / 10).max(1);
    let main_size = (size - small_size).max(1);
    let mut small: VecDeque<(u64, u8)> = VecDeque::new();
    let mut main: VecDeque<(u64, u8)> = VecDeque::new();
    let mut ghost: VecDeque<Option<u64>> = VecDeque::new();
    let mut misses = 0;
    fn evict_main(main: &mut VecDeque<(u64, u8)>) {
        while let Some((page, touches)) = main.pop_back() {
            if touches == 0 {
                return;
            }
            main.push_front((page, touches - 1));
        }
    }
    for page in touches {
        if let Some(held) = small.iter_mut().chain(&mut main).find(|held| held.0 == *page) {
            held.1 = (held.1 + 1).min(3);
            continue;
        }
        misses += 1;
        let gap = ghost.iter_mut().find(|entry| **entry == Some(*page));
        let known = gap.is_some();
        if let Some(entry) = gap {
            *entry = None;
        }
        while small.len() + main.len() >= size {
            if small.len() >= small_size || main.is_empty() {
                while let Some((oldest, touches)) = small.pop_back() {
                    if touches > 1 {
                        if main.len() >= main_size {
                            evict_main(&mut main);
                        }
                        main.push_front((oldest, 0));
                    } else {
                        ghost.push_front(Some(oldest));
                        ghost.truncate(main_size);
                        break;
                    }
                }
            } else {
                evict_main(&mut main);
            }
        }
        if known { main.push_front((*page, 0)) } else { small.push_front((*page, 0)) }
    }
    misses
}

/// Touches that return often, to pages near and far, with scans between.
fn touches() -> impl Strategy<Value = Vec<u64>> {
    let some = prop_oneof![
        4 => prop::collection::vec(0_u64..12, 1..20),
        2 => prop::collection::vec(0_u64..60, 1..20),
        1 => (0_u64..60, 1_u64..40).prop_map(|(from, pages)| (from..from + pages).collect()),
    ];
    prop::collection::vec(some, 1..30).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn every_policy_misses_as_its_plain_model(touches in touches()) {
        let sizes = [1, 2, 3, 5, 8, 10, 16, 21, 40];
        let names: Vec<&str> = policies().iter().map(|kind| kind.name).collect();
        for row in curves(touches.iter().copied(), &options(&names, &sizes)) {
            let misses = plain_misses(row.policy, (row.cache_kb / 4) as usize, &touches);
            let expected = 100.0 * misses as f64 / touches.len() as f64;
            prop_assert_eq!((row.miss_pct, row.sampling), (expected, 1), "{} of {} KB", row.policy, row.cache_kb);
        }
    }

    #[test]
    fn pieces_of_other_recordings_add_up(first in touches(), second in touches()) {
        let options = options(&["lru", "arc"], &[4, 16]);
        let of = |touches: &[u64]| {
            let mut ratios = MissRatios::new(&options).unwrap();
            touches.iter().for_each(|page| ratios.add(&request(Op::Read, *page, 1), 0));
            ratios
        };
        let (alone, other) = (of(&first), of(&second));
        for goes_on in [false, true] {
            let mut both = alone.clone();
            both.merge(other.clone(), goes_on);
            for ((row, a), b) in both.rows().iter().zip(alone.rows()).zip(other.rows()) {
                let weighted = a.miss_pct * first.len() as f64 + b.miss_pct * second.len() as f64;
                prop_assert!((row.miss_pct - weighted / (first.len() + second.len()) as f64).abs() < 1e-9);
            }
        }
    }
}

/// Skewed touches of many pages with a scan now and then.
fn skewed(touches: usize, pages: u64) -> impl Iterator<Item = u64> {
    let mut state = 1_u64;
    let mut scan = 0_u64;
    (0..touches).map(move |number| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
        if number % 4_000 < 400 {
            scan += 1;
            return pages + scan % (4 * pages);
        }
        (pages as f64 * uniform.powi(2)) as u64
    })
}

/// Compares the sampled with the exact miss-ratio curve of every policy; LRU is not sampled. `pages` are the sizes of the caches.
fn compare_sampled_with_exact(pages: &[u64]) {
    let names: Vec<&str> = policies().iter().map(|kind| kind.name).collect();
    let sampled = options(&names, pages);
    let exact = CacheOptions { exact: true, ..sampled.clone() };
    let touches = 1_500_000;
    let (sampled, exact) =
        (curves(skewed(touches, 100_000), &sampled), curves(skewed(touches, 100_000), &exact));
    let mut within = 0;
    for (row, exact) in sampled.iter().zip(&exact) {
        let is_exact = row.policy == "lru" || row.cache_kb < 4 * 8 * 128;
        assert_eq!(row.sampling, if is_exact { 1 } else { 8 });
        assert_eq!((exact.sampling, exact.error_pct), (1, 0.0));
        let apart = (row.miss_pct - exact.miss_pct).abs();
        assert!(apart < 2.0 && row.error_pct < 4.0, "{row:?}, exactly {} %", exact.miss_pct);
        assert!(!is_exact || (row.miss_pct, row.error_pct) == (exact.miss_pct, 0.0), "{row:?}");
        within += usize::from(apart <= row.error_pct);
    }
    assert!(5 * within >= 4 * sampled.len(), "{within} of {} are within their error", sampled.len());
    let span = |policy: &str| {
        let own: Vec<f64> = exact.iter().filter(|row| row.policy == policy).map(|row| row.miss_pct).collect();
        own[0] - own[own.len() - 1]
    };
    assert!(span("lru") > 30.0, "the curve that is compared is no straight line");
}

#[test]
fn a_sampled_curve_lies_within_its_error_and_lru_is_exact() {
    compare_sampled_with_exact(&[128, 4_096, 65_536]);
}

#[test]
#[ignore = "slow: simulates 25 caches exactly"]
fn a_sampled_curve_of_more_sizes_lies_within_its_error() {
    compare_sampled_with_exact(&[256, 1_024, 4_096, 16_384, 65_536]);
}

#[test]
fn lru_and_fifo_miss_every_touch_of_a_loop_larger_than_the_cache() {
    let rows = curves((0..20).flat_map(|_| 0..1_000_u64), &options(&["lru", "fifo", "clock"], &[999, 1_000]));
    for row in rows {
        let expected = if row.cache_kb < 4_000 { 100.0 } else { 5.0 };
        assert!((row.miss_pct - expected).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn pages_touched_once_leave_what_arc_and_s3_fifo_keep() {
    // 50 pages that return, and after every three rounds of them a scan of 200 that do not: LRU keeps none of them.
    let scan = |round: u64| 1_000 + 200 * round..1_200 + 200 * round;
    let touches: Vec<u64> =
        (0..200).flat_map(|round| (0..150).map(|touch| touch % 50).chain(scan(round))).collect();
    let rows = curves(touches, &options(&["lru", "arc", "s3-fifo"], &[100]));
    let miss = |policy: &str| rows.iter().find(|row| row.policy == policy).unwrap().miss_pct;
    assert!((miss("lru") - 250.0 / 3.5).abs() < 0.5, "{rows:?}");
    assert!(miss("arc") < 58.0 && miss("s3-fifo") < 58.0, "{rows:?}");
}

#[test]
fn lru_never_misses_more_in_a_larger_cache() {
    let sizes: Vec<u64> = (4..14).map(|power| 1 << power).collect();
    let rows = curves(skewed(200_000, 5_000), &options(&["lru"], &sizes));
    assert!(rows.windows(2).all(|pair| pair[1].miss_pct <= pair[0].miss_pct), "{rows:?}");
}

#[test]
fn only_the_chosen_operations_touch_the_cache() {
    let of = |ops| {
        let mut ratios = MissRatios::new(&CacheOptions { ops, ..options(&["lru"], &[8]) }).unwrap();
        for page in [0, 0, 1] {
            ratios.add(&request(Op::Write, page, 1), 0);
            ratios.add(&request(Op::Read, page + 4, 2), 0);
            ratios.add(&request(Op::Discard, page, 1), 0);
        }
        ratios.rows()[0].miss_pct
    };
    assert_eq!(of(CachedOps::Write), 100.0 * 2.0 / 3.0);
    assert_eq!(of(CachedOps::Read), 50.0);
    assert_eq!(of(CachedOps::All), 100.0 * 5.0 / 9.0);
}

#[test]
fn the_same_address_on_another_device_is_another_page() {
    let mut ratios = MissRatios::new(&options(&["fifo"], &[8])).unwrap();
    for space in [0, 1, 0, 1] {
        ratios.add(&request(Op::Read, 7, 1), space);
    }
    assert_eq!(ratios.rows()[0].miss_pct, 50.0);
}

#[test]
fn nothing_that_goes_through_the_cache_gives_no_curve() {
    assert_eq!(curves([], &CacheOptions::default()), []);
}

#[test]
fn impossible_caches_are_refused_with_what_is_possible() {
    let refused = |options: &CacheOptions| MissRatios::new(options).unwrap_err().to_string();
    assert!(refused(&options(&["lfu"], &[8])).contains("`lfu` is not a cache policy"));
    assert!(refused(&options(&[], &[8])).contains("no cache policy"));
    assert!(refused(&options(&["lru"], &[])).contains("no cache size"));
    assert!(refused(&options(&["lru"], &[0])).contains("a cache of 0 KB is impossible"));
}
