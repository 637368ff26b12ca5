//! Definitions, each tested on a trace that is small enough to count by hand, and compared with a second implementation.

use std::collections::{HashMap, HashSet};

use crate::common::{profile_of, report_of, request};
use emmclab_profile::report::FindingVerdict;
use emmclab_trace::{Ledger, NameId, Nanos, Op, Request, RequestFlags, Sector, TraceHeader};
use proptest::prelude::*;

#[test]
fn a_request_that_arrives_when_the_last_one_completes_does_not_wait() {
    let at = |arrival, done| request(Op::Read, arrival, [0, 0, done], 0, 8);
    let report = report_of(&[at(0, 100), at(100, 100), at(150, 10), at(201, 9)]);
    // The second request arrives when the first completes, the third while the second is unfinished, the fourth on an idle device.
    assert_eq!(report.tables.no_wait_pct, Some(75.0));
    assert_eq!(report.queue.unwrap().max_at_arrival, 1);
}

#[test]
fn sequential_means_the_next_address_of_the_same_device() {
    let on = |device, sector| Request {
        device: Some(NameId(device)),
        ..request(Op::Write, i64::try_from(sector).unwrap(), [0, 0, 1], sector, 8)
    };
    let report = report_of(&[on(0, 0), on(0, 8), on(1, 16), on(1, 24), on(1, 40)]);
    assert_eq!(report.locality.sequential_requests, 2);
    assert_eq!((report.locality.mean_run_requests, report.locality.max_run_requests), (Some(2.0), 2));
}

#[test]
fn the_same_sector_of_another_device_is_no_re_use() {
    let on =
        |device, arrival, sector| Request { device: Some(NameId(device)), ..request(Op::Write, arrival, [0, 0, 1], sector, 8) };
    let report = report_of(&[on(0, 0, 8), on(1, 1, 8), on(0, 2, 8), on(0, 3, 3), on(1, 4, 3), on(1, 5, 3)]);
    assert_eq!(report.locality.address_hits, 2);
}

#[test]
fn flushes_and_discards_count_in_no_table() {
    let report = report_of(&[
        request(Op::Write, 0, [0, 0, 10], 0, 8),
        request(Op::Flush, 20, [0, 0, 10], 0, 0),
        request(Op::Discard, 40, [0, 0, 10], 1_000, 8_000),
        request(Op::Write, 60, [0, 0, 10], 8, 8),
    ]);
    assert_eq!((report.tables.requests, report.tables.data_size_kb), (2, 8.0));
    assert_eq!(report.locality.sequential_requests, 1);
    let flushes = &report.figures.flags[0];
    assert_eq!((flushes.flag, flushes.requests, flushes.pct), ("flush", Some(1), Some(25.0)));
}

#[test]
fn a_write_of_20_kb_uses_five_sixths_of_its_8_kb_pages() {
    let report = report_of(&[request(Op::Write, 0, [0, 0, 10], 0, 40)]);
    let row = report.figures.alignment.iter().find(|row| row.page_kb == 8).unwrap();
    assert!((row.space_utilisation_pct - 83.333).abs() < 0.001);
    assert_eq!((row.start_aligned_pct, row.size_aligned_pct), (100.0, 0.0));
}

#[test]
fn without_completion_times_nothing_is_said_about_waiting() {
    let plain = |arrival| Request::new(Nanos::from_millis(arrival), Op::Write, Sector(0), 8);
    let requests: Vec<_> = (0..15).flat_map(|i| [plain(i * 900), plain(i * 900 + 400)]).collect();
    let report = report_of(&[&requests[..], &[plain(15 * 900)]].concat());
    assert_eq!((report.tables.no_wait_pct, report.tables.mean_response_ms), (None, None));
    assert!(report.queue.is_none() && report.idle_gc.is_none() && report.figures.idle_gaps.is_empty());
    assert_eq!(report.power_saving.shown_by, None);
    let unknown: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.shown == FindingVerdict::Unknown)
        .map(|finding| (finding.id.as_str(), finding.meaning.as_str()))
        .collect();
    let reason = "unknown: the trace has no completion times";
    let or_gaps = "unknown: the trace has no completion times, or too few idle gaps";
    let expected =
        [("characteristic-3", reason), ("characteristic-4", or_gaps), ("implication-1", reason), ("implication-2", reason)];
    assert_eq!(unknown, expected);
    let gaps = report.findings.iter().find(|finding| finding.id == "characteristic-6").unwrap();
    assert_eq!((gaps.measured, gaps.shown), (Some(450.0), FindingVerdict::Yes));
}

#[test]
fn one_request_says_nothing_about_localities() {
    let sample = Request::new(Nanos(0), Op::Read, Sector(0), 8);
    let shown = |requests: &[Request], id: &str| {
        let report = report_of(requests);
        report.findings.into_iter().find(|finding| finding.id == id).map(|actual| (actual.shown, actual.meaning))
    };
    for id in ["characteristic-5", "implication-3", "implication-4"] {
        assert_eq!(shown(&[sample], id).unwrap().0, FindingVerdict::Unknown, "{id}");
    }
    // Neither sequences nor returns: both localities are weak, but the spatial one is not weaker.
    let scattered = (0..9).map(|i| Request::new(Nanos(i), Op::Read, Sector(i as u64 * 800), 8));
    let (verdict, meaning) = shown(&scattered.collect::<Vec<_>>(), "characteristic-5").unwrap();
    assert_eq!(verdict, FindingVerdict::No);
    assert!(meaning.contains("no rarer than returns"), "{meaning}");
}

#[test]
fn a_profile_of_nothing_has_no_figures() {
    let report = report_of(&[]);
    assert_eq!(report.tables.requests, 0);
    assert_eq!((report.tables.mean_size_kb, report.tables.arrival_rate_per_s), (None, None));
    assert!(report.findings.iter().all(|finding| finding.shown == FindingVerdict::Unknown));
    assert!(!serde_json::to_string(&report).unwrap().contains("NaN"));
}

#[test]
fn the_columns_of_the_published_tables_are_the_names_in_json() {
    let value = serde_json::to_value(report_of(&[request(Op::Read, 0, [1, 2, 3], 0, 8)])).unwrap();
    for table in [
        include_str!("../../../../presets/published/iiswc15_table3_size.csv"),
        include_str!("../../../../presets/published/iiswc15_table4_timing.csv"),
    ] {
        for column in table.lines().next().unwrap().split(',').skip(2) {
            assert!(value.get(column).is_some(), "{column} is missing");
        }
    }
    let text = serde_json::to_string(&report_of(&[])).unwrap();
    assert!(text.starts_with("{\"name\":"), "the name comes first");
}

#[test]
fn absurd_numbers_do_no_harm() {
    let extreme = |arrival: i64, complete: i64, sector: u64, sectors: u32, op| Request {
        start: Some(Nanos::MAX),
        issue: Some(Nanos(i64::MIN + 1)),
        complete: Some(Nanos(complete)),
        flags: RequestFlags(u16::MAX),
        ..Request::new(Nanos(arrival), op, Sector(sector), sectors)
    };
    let report = report_of(&[
        extreme(i64::MIN, i64::MAX, u64::MAX, u32::MAX, Op::Write),
        extreme(i64::MIN, i64::MIN + 1, u64::MAX - 3, 1, Op::Read),
        extreme(0, -1, 0, u32::MAX, Op::Write),
        extreme(i64::MAX, i64::MIN + 1, u64::MAX / 2, 0, Op::Read),
        extreme(i64::MAX, i64::MAX, 7, u32::MAX, Op::Discard),
    ]);
    let set = report.working_set.unwrap();
    assert!(set.untracked_pages > 0 && set.unique_pages <= 3 << 18, "{set:?}");
    assert!(report.figures.io_over_time.len() <= 256);
    serde_json::to_string(&report).unwrap();
}

#[test]
fn requests_that_never_complete_stay_in_bounds() {
    let forever: Vec<_> = (0..70_000).map(|at| request(Op::Read, at, [0, 0, 1_000_000], 0, 8)).collect();
    let queue = report_of(&forever).queue.unwrap();
    assert!(queue.capped && queue.max_at_arrival == 1 << 16);
}

#[test]
fn all_writes_to_one_page_of_a_hundred_show_as_hot() {
    let mut writes: Vec<_> = (0..100).map(|page| request(Op::Write, page, [0, 0, 1], page as u64 * 8, 8)).collect();
    writes.extend((0..300).map(|at| request(Op::Write, 1_000 + at, [0, 0, 1], 8, 8)));
    let report = report_of(&writes);
    let hot = report.figures.hot_pages.iter().find(|row| row.op == "write" && row.pages_pct == 1).unwrap();
    assert_eq!((hot.pages, hot.accesses, hot.share_pct), (1, 301, 75.25));
    assert_eq!(report.locality.overwrite_pct, Some(75.0));
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let sample = (0_i64..5_000, any::<bool>(), 0_u64..400, 1_u32..40, [0_i64..900, 0_i64..900, 0_i64..9_000]);
    prop::collection::vec(sample, 1..80).prop_map(|rows| {
        let mut now = 0;
        let step = |(gap, write, sector, sectors, [a, b, c]): (i64, bool, u64, u32, [i64; 3])| {
            now += gap;
            request(if write { Op::Write } else { Op::Read }, now, [a, a + b, a + b + c], sector, sectors)
        };
        rows.into_iter().map(step).collect()
    })
}

#[test]
fn response_times_by_size_name_the_range_of_a_median_and_their_correlation_is_of_ranks() {
    let of = |kb: u32, us: i64| request(Op::Read, i64::from(kb) * 100_000, [0, 0, us], 0, 2 * kb);
    let report = report_of(&[of(4, 1_000), of(8, 1_800), of(8, 2_000), of(16, 4_000)]);
    let rows = report.figures.response_by_size.iter().filter(|row| row.op == "read");
    let actual: Vec<_> = rows.map(|row| (row.low_kb, row.requests, row.p50_ms >= 1.0)).collect();
    assert_eq!(actual, [(0.0, 1, true), (4.0, 2, true), (8.0, 1, true)]);
    let up = report.tables.size_response_correlation.unwrap();
    assert!(up > 0.9 && up <= 1.0, "{up}");
    let down = report_of(&[of(4, 9_000), of(8, 4_000), of(16, 1_000)]).tables.size_response_correlation;
    assert!((down.unwrap() + 1.0).abs() < 1e-12);
    assert_eq!(report_of(&[of(4, 1_000), of(4, 2_000)]).tables.size_response_correlation, None, "one size");
}

/// Ranks of the values; equal values have the mean of their ranks.
fn ranks(values: &[u64]) -> Vec<f64> {
    let rank = |value: &u64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        below as f64 + equal as f64 / 2.0
    };
    values.iter().map(rank).collect()
}

/// Pearson's correlation.
fn correlation(first: &[f64], second: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (a, b) = (mean(first), mean(second));
    let sum = |pick: fn(f64, f64) -> f64| -> f64 { first.iter().zip(second).map(|(x, y)| pick(x - a, y - b)).sum() };
    sum(|x, y| x * y) / (sum(|x, _| x * x) * sum(|_, y| y * y)).sqrt()
}

proptest! {
    /// Sizes at the edges of octaves and times at the edges of their ranges, so that counting by ranges keeps all differences.
    #[test]
    fn the_correlation_of_sizes_and_times_is_spearmans(
        rows in prop::collection::vec((0_u32..8, 0_u32..12), 2..60)
    ) {
        let all: Vec<_> = (0_i64..)
            .zip(&rows)
            .map(|(at, (size, time))| request(Op::Write, at * 10_000_000, [0, 0, 1_024 << time], 0, 8 << size))
            .collect();
        let (sizes, times): (Vec<u64>, Vec<u64>) =
            rows.iter().map(|(size, time)| (u64::from(*size), u64::from(*time))).unzip();
        let plain = correlation(&ranks(&sizes), &ranks(&times));
        match report_of(&all).tables.size_response_correlation {
            Some(actual) => prop_assert!((actual - plain).abs() < 1e-9, "{actual} for {plain}"),
            None => prop_assert!(!plain.is_finite()),
        }
    }

    /// Tables III and IV and the page figures, implemented a second time directly from their definitions.
    #[test]
    fn figures_agree_with_a_plain_second_implementation(requests in requests()) {
        let report = report_of(&requests);
        let share = |count: usize| Some(100.0 * count as f64 / requests.len() as f64);
        let until = |end: usize| requests[..end].iter().filter_map(|earlier| earlier.complete).max();
        let indices = || 0..requests.len();
        let no_wait = indices().filter(|&at| until(at).is_none_or(|end| end <= requests[at].arrival)).count();
        prop_assert_eq!(report.tables.no_wait_pct, share(no_wait));
        let sequential = requests.windows(2).filter(|pair| pair[0].end() == pair[1].sector).count();
        prop_assert_eq!(report.tables.spatial_locality_pct, share(sequential));
        let mut starts = HashSet::new();
        let hits = requests.iter().filter(|request| !starts.insert(request.sector)).count();
        prop_assert_eq!(report.tables.temporal_locality_pct, share(hits));
        let depth = |at: usize| {
            requests[..at].iter().filter(|earlier| earlier.complete > Some(requests[at].arrival)).count() as u64
        };
        prop_assert_eq!(report.queue.unwrap().max_at_arrival, indices().map(depth).max().unwrap());
        let end = until(requests.len()).unwrap();
        prop_assert_eq!(report.tables.duration_s, (end - requests[0].arrival).as_secs_f64());
        let gaps = indices().skip(1).filter_map(|at| {
            let gap = requests[at].arrival - until(at)?;
            (gap > Nanos::ZERO).then_some(gap.0)
        });
        let (mut idle_ns, mut gap_count) = (0, 0);
        gaps.for_each(|gap| { idle_ns += gap; gap_count += 1; });
        prop_assert_eq!(report.idle_gc.unwrap().idle_s, idle_ns as f64 / 1e9);
        prop_assert_eq!(report.figures.idle_gaps.iter().map(|row| row.gaps).sum::<u64>(), gap_count);

        let (mut writes, mut reads, mut overwrites) = (HashMap::new(), HashSet::new(), 0);
        for request in &requests {
            for page in request.sector.0 / 8..request.end().0.div_ceil(8) {
                if request.op == Op::Write {
                    overwrites += u64::from(writes.insert(page, request.arrival).is_some());
                } else {
                    reads.insert(page);
                }
            }
        }
        let set = report.working_set.unwrap();
        prop_assert_eq!((set.written_pages, set.read_pages), (writes.len() as u64, reads.len() as u64));
        reads.extend(writes.keys());
        prop_assert_eq!(set.unique_pages, reads.len() as u64);
        let counted: u64 = report.figures.update_interval.iter().map(|row| row.page_writes).sum();
        prop_assert_eq!(counted, overwrites);
        let grown = report.figures.working_set.last().unwrap();
        prop_assert_eq!((grown.unique_kb, grown.written_kb), (set.unique_kb, set.written_kb));
    }
}

#[test]
fn with_a_coarse_clock_nothing_is_said_about_waiting() {
    let at = |ms: i64, op| request(op, ms * 1_000, [0, 0, 300], 8 * ms as u64, 8);
    let profile = profile_of(&(0..40).map(|i| at(i / 3, Op::Write)).collect::<Vec<_>>());
    let header = TraceHeader { coarse_clock: Some("1ms".into()), ..TraceHeader::default() };
    let report = profile.finish(&Ledger::default(), &header);
    assert_eq!((report.tables.no_wait_pct, report.queue, report.idle_gc), (None, None, None));
    let figures = &report.figures;
    assert!(figures.queue_depth.is_empty() && figures.queue_depth_over_time.is_empty());
    assert!(figures.idle_gaps.is_empty() && figures.inter_arrival_distribution.is_empty());
    assert!((report.tables.mean_response_ms.unwrap() - 0.3).abs() < 1e-9);
    let unknown = report.findings.iter().filter(|finding| finding.meaning.contains("steps of 1ms"));
    assert_eq!(unknown.map(|finding| finding.shown).collect::<Vec<_>>(), [FindingVerdict::Unknown; 5]);
}
