//! A profile lists clock jumps, reports its key figures without them, and has no verdict that depends on a few gaps.

use crate::common::{batch, profile_of, report_of, request};
use emmclab_profile::report::{Finding, FindingVerdict};
use emmclab_profile::{MergeRelation, Profile, ProfileOptions, ProfileReport};
use emmclab_trace::{ClockJump, ClockJumps, JumpDirection, Ledger, Nanos, Op, Request, TraceHeader};

const S: i64 = 1_000_000;
const DAY: i64 = 86_400 * S;

/// Writes of 4 KB, one every `gap_us` from `start_us` on, each served in 1 ms.
fn steady(start_us: i64, count: i64, gap_us: i64) -> impl Iterator<Item = Request> {
    (0..count).map(move |i| request(Op::Write, start_us + i * gap_us, [10, 20, 1_000], i as u64 % 50 * 64, 8))
}

/// Two minutes of requests, one every 60 ms, with a jump of five days in the middle.
fn jumping() -> Vec<Request> {
    steady(0, 1_000, 60_000).chain(steady(60 * S + 5 * DAY, 1_000, 60_000)).collect()
}

fn finding(report: &ProfileReport, id: &str) -> Finding {
    report.findings.iter().find(|finding| finding.id == id).unwrap().clone()
}

fn near(value: Option<f64>, expected: f64) {
    let value = value.unwrap();
    assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value} is not {expected}");
}

#[test]
fn a_forward_jump_is_listed_and_the_key_figures_are_given_without_it() {
    let report = report_of(&jumping());
    let [jump] = report.clock_jumps[..] else { panic!("{:?}", report.clock_jumps) };
    assert_eq!((jump.direction, jump.request, jump.mended), ("forward", 1_001, false));
    assert_eq!((jump.time_s, jump.length_s), (59.94, 5.0 * 86_400.0 + 0.06));
    let (with, without) = (report.key_figures, report.key_figures_without_jumps.unwrap());
    near(Some(with.duration_s), 432_119.941);
    near(with.mean_inter_arrival_ms, (432_119.94 * 1e3) / 1_999.0);
    near(Some(without.duration_s), 119.881);
    near(without.arrival_rate_per_s, 2_000.0 / 119.881);
    near(without.access_rate_kb_per_s, 8_000.0 / 119.881);
    near(without.mean_inter_arrival_ms, 60.0);
    near(without.busy_pct, 100.0 * (2_000.0 * 0.001) / 119.881);
    near(without.idle_pct, 100.0 * (1_998.0 * 0.059) / 119.881);
    assert_eq!(
        (Some(with.duration_s), with.arrival_rate_per_s),
        (Some(report.tables.duration_s), report.tables.arrival_rate_per_s)
    );
}

#[test]
fn a_trace_without_a_jump_has_no_second_set_of_key_figures() {
    let report = report_of(&steady(0, 2_000, 60_000).collect::<Vec<_>>());
    assert!(report.clock_jumps.is_empty() && report.key_figures_without_jumps.is_none());
    near(report.key_figures.mean_inter_arrival_ms, 60.0);
}

#[test]
fn a_jump_between_pieces_and_in_a_later_piece_is_found_as_in_one_pass() {
    let requests = jumping();
    let whole = report_of(&requests);
    for cut in [1, 400, 1_000, 1_300] {
        let mut merged = profile_of(&requests[..cut]);
        merged.merge(profile_of(&requests[cut..]), MergeRelation::Consecutive).unwrap();
        let merged = merged.finish(&Ledger::default(), &TraceHeader::default());
        assert_eq!(merged.clock_jumps, whole.clock_jumps, "cut after {cut}");
        assert_eq!(merged.key_figures_without_jumps, whole.key_figures_without_jumps, "cut after {cut}");
    }
}

#[test]
fn the_size_of_batches_changes_nothing() {
    let requests = jumping();
    let whole = report_of(&requests);
    for rows in [1, 7, 999] {
        let mut profile = Profile::new(ProfileOptions::default());
        requests.chunks(rows).for_each(|rows| profile.update(&batch(rows)));
        let report = profile.finish(&Ledger::default(), &TraceHeader::default());
        assert_eq!(report.clock_jumps, whole.clock_jumps);
        assert_eq!(report.key_figures_without_jumps, whole.key_figures_without_jumps);
        assert_eq!(report.findings, whole.findings);
    }
}

#[test]
fn recordings_of_a_fleet_keep_their_jumps_and_the_time_between_them_is_none() {
    let mut fleet = profile_of(&jumping());
    let quiet: Vec<_> = steady(900 * DAY, 1_000, 60_000).collect();
    fleet.merge(profile_of(&quiet), MergeRelation::Separate).unwrap();
    let report = fleet.finish(&Ledger::default(), &TraceHeader::default());
    assert_eq!(report.clock_jumps, report_of(&jumping()).clock_jumps);
}

#[test]
fn a_jump_outside_the_reads_and_writes_leaves_their_mean_gap_alone() {
    let flush = request(Op::Flush, -40 * DAY, [10, 20, 1_000], 0, 0);
    let requests: Vec<_> = std::iter::once(flush).chain(steady(0, 1_000, 60_000)).collect();
    let report = report_of(&requests);
    assert_eq!(report.clock_jumps.len(), 1);
    near(report.key_figures.mean_inter_arrival_ms, 60.0);
    near(report.key_figures_without_jumps.unwrap().mean_inter_arrival_ms, 60.0);
}

#[test]
fn a_mean_that_rests_on_a_jump_gives_no_verdict_on_distance() {
    let verdict = finding(&report_of(&jumping()), "characteristic-6");
    assert_eq!(verdict.shown, FindingVerdict::Unknown);
    assert!(verdict.measured.unwrap() > 200_000.0);
    assert_eq!(verdict.meaning, "unknown: the verdict depends on the 10 longest gaps; without them, the mean is 60.00 ms");
}

#[test]
fn a_mean_that_holds_without_the_ten_longest_gaps_is_a_verdict() {
    for (gap_us, shown) in [(250_000, FindingVerdict::Yes), (60_000, FindingVerdict::No)] {
        let report = report_of(&steady(0, 1_000, gap_us).collect::<Vec<_>>());
        assert_eq!(finding(&report, "characteristic-6").shown, shown);
    }
}

#[test]
fn ten_gaps_or_fewer_give_no_verdict_on_distance() {
    let verdict = finding(&report_of(&steady(0, 11, 250_000).collect::<Vec<_>>()), "characteristic-6");
    assert_eq!(verdict.shown, FindingVerdict::Unknown);
    assert!(verdict.meaning.contains("no gap is left"), "{}", verdict.meaning);
}

#[test]
fn collections_that_fit_into_a_jump_only_do_not_fit() {
    // Writes without pauses of a second, in which a block could be reclaimed.
    let verdict = finding(&report_of(&jumping()), "implication-2");
    assert_eq!(verdict.shown, FindingVerdict::Unknown);
    assert!(verdict.meaning.starts_with("unknown: the verdict depends on the 10 longest gaps; without them, 0 of the"));
    let paused: Vec<_> = (0..100).flat_map(|i| steady(i * 10 * S, 20, 2_000)).collect();
    assert_eq!(finding(&report_of(&paused), "implication-2").shown, FindingVerdict::Yes);
}

#[test]
fn a_sleep_that_ten_requests_show_is_unknown() {
    let sleepy = |wakes: i64| -> Vec<Request> {
        let mut now = 0;
        let mut requests = Vec::new();
        for i in 0..400 {
            let asleep = i % 40 == 0 || (wakes > 10 && i % 10 == 0);
            now += if asleep { 900_000 } else { 3_000 };
            let wait = if asleep { 5_000 } else { 0 };
            requests.push(request(Op::Write, now, [10, 20 + wait, 1_000], i as u64 * 8, 8));
        }
        requests
    };
    let verdict = finding(&report_of(&sleepy(40)), "characteristic-4");
    assert_eq!(verdict.shown, FindingVerdict::Yes, "{}", verdict.meaning);
    let verdict = finding(&report_of(&sleepy(10)), "characteristic-4");
    assert_ne!(verdict.shown, FindingVerdict::Yes, "{}", verdict.meaning);
}

/// A header that the reader writes for a clock that was set back by 500 s in the middle, with the jump in the trace or removed.
fn header(mended: bool) -> TraceHeader {
    let jump = ClockJump {
        direction: JumpDirection::Backward,
        request: 1_001,
        at_ns: 59_940_000_000,
        length_ns: 500_000_000_000,
        mended,
    };
    let jumps = ClockJumps { jumps: vec![jump], without_ns: 119_880_000_000 };
    TraceHeader { clock_jumps: serde_json::to_string(&jumps).ok(), ..TraceHeader::default() }
}

#[test]
fn a_backward_jump_comes_from_the_reader_and_its_time_is_added_again() {
    let requests: Vec<_> = steady(60 * S - 500 * S, 1_000, 60_000).chain(steady(0, 1_000, 60_000)).collect();
    let report = profile_of(&requests).finish(&Ledger::default(), &header(false));
    let [jump] = report.clock_jumps[..] else { panic!("{:?}", report.clock_jumps) };
    assert_eq!((jump.direction, jump.request, jump.length_s), ("backward", 1_001, 500.0));
    near(Some(report.key_figures.duration_s), 499.941);
    let without = report.key_figures_without_jumps.unwrap();
    near(Some(without.duration_s), 119.881);
    near(without.mean_inter_arrival_ms, 119_880.0 / 1_999.0);
    assert_eq!(without.busy_pct, None);
}

#[test]
fn a_jump_that_was_taken_out_is_listed_and_changes_no_figure() {
    let requests: Vec<_> = steady(0, 2_000, 60_000).collect();
    let report = profile_of(&requests).finish(&Ledger::default(), &header(true));
    assert!(report.clock_jumps[0].mended && report.key_figures_without_jumps.is_none());
}

/// Number of jumps, their length in seconds, mean gaps in ms with and without them, and the verdict of characteristic 6.
type Phone = (&'static str, usize, f64, f64, f64, FindingVerdict);

#[test]
fn phone_traces_with_broken_clocks_are_recognised() {
    const PHONES: [Phone; 8] = [
        ("pubg_exec", 1, 522_108.4, 7_788.981, 83.268, FindingVerdict::Unknown),
        ("cod_exec", 2, 366_267.8 + 181_423.8, 2_571.079, 125.995, FindingVerdict::Unknown),
        ("cod_precond", 2, 54_910.7 + 15_941.7, 1_001.622, 29.404, FindingVerdict::Unknown),
        ("genshin_impact_precond", 2, 200_524.4 + 34_581.5, 1_721.765, 56.132, FindingVerdict::Unknown),
        ("genshin_impact_exec", 0, 0.0, 66.596, 66.596, FindingVerdict::No),
        ("pubg_precond", 0, 0.0, 11.638, 11.638, FindingVerdict::No),
        ("telegram_exec", 0, 0.0, 29.674, 29.674, FindingVerdict::No),
        ("telegram_precond", 0, 0.0, 194.558, 194.558, FindingVerdict::No),
    ];
    for (name, count, length_s, with_ms, without_ms, shown) in PHONES {
        let Some(path) = crate::common::real_trace(&format!("pixel6a/{name}.csv.gz")) else { return };
        let report = crate::common::report_of_file(&path);
        assert_eq!((report.clock_jumps.len(), report.ledger.clock_jumps), (count, count as u64), "{name}");
        let jumped_s: f64 = report.clock_jumps.iter().map(|jump| jump.length_s).sum();
        assert!((jumped_s - length_s).abs() < 0.2, "{name}: {jumped_s}");
        let without = report.key_figures_without_jumps.unwrap_or(report.key_figures);
        for (figures, expected) in [(report.key_figures, with_ms), (without, without_ms)] {
            let mean_ms = figures.mean_inter_arrival_ms.unwrap();
            assert!((mean_ms - expected).abs() < 0.001, "{name}: {mean_ms}");
        }
        let duration_s = report.key_figures.duration_s - without.duration_s;
        assert!((duration_s - jumped_s).abs() < 1e-3, "{name}: {duration_s}");
        assert_eq!(finding(&report, "characteristic-6").shown, shown, "{name}");
        assert!(report.clock_jumps.iter().all(|jump| jump.direction == "forward"), "{name}");
    }
}

#[test]
fn messaging_has_no_jump() {
    let Some(path) = crate::common::real_trace("nexus5/log106_Messaging.txt") else { return };
    let report = crate::common::report_of_file(&path);
    assert_eq!((report.clock_jumps.len(), report.ledger.clock_jumps), (0, 0));
}

#[test]
fn times_before_zero_are_times_too() {
    let requests: Vec<_> = steady(-5 * DAY, 1_000, 60_000).chain(steady(0, 1_000, 60_000)).collect();
    assert_eq!(requests[0].arrival, Nanos(-5 * DAY * 1_000));
    assert_eq!(report_of(&requests).clock_jumps.len(), 1);
}
