//! Clock jumps and pauses of the recording: which gaps are jumps, and what remains after their removal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::support::{convert, read_plain, scratch};
use emmclab_trace::{
    ArrivalGaps, ClockJumps, ErrorClass, JumpDirection, Ledger, MendClock, Nanos, ReadOptions, Result, TraceReader,
};
use proptest::prelude::*;
use tempfile::TempDir;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const MIN: i64 = 60 * S;
const H: i64 = 60 * MIN;
const DAY: i64 = 24 * H;
const NONE: [i64; 0] = [];

/// Arrivals with these gaps.
fn arrivals(gaps: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut now = 1_000 * S;
    std::iter::once(now)
        .chain(gaps.into_iter().map(|gap| {
            now += gap;
            now
        }))
        .collect()
}

/// Lengths of the jumps, longest first.
fn jumps(gaps: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut all = ArrivalGaps::default();
    all.extend(&arrivals(gaps));
    all.jumps().iter().map(|(length, _)| *length as i64).collect()
}

/// The gaps of a day of a phone in use: 2,000 gaps of milliseconds and seconds, every hundredth up to `longest`.
fn day(longest: i64) -> impl Iterator<Item = i64> {
    (0..2_000).map(move |i| match i % 100 {
        0 => longest - i % 700 * S / 100,
        other if other % 10 == 0 => other * S / 10,
        other => other * MS / 3,
    })
}

/// The gaps of several days, separated by nights of eight hours.
fn days_and_nights(days: i64, longest: i64) -> impl Iterator<Item = i64> {
    (0..days).flat_map(move |number| day(longest).chain([8 * H + number * MIN]))
}

#[test]
fn gaps_of_an_hour_and_more_that_are_far_above_all_others_are_jumps() {
    assert_eq!(jumps(day(20 * S)), NONE);
    assert_eq!(jumps(day(20 * S).chain([6 * DAY]).chain(day(20 * S))), [6 * DAY]);
    let gaps = day(20 * S).chain([6 * DAY]).chain(day(30 * S)).chain([2 * H]).chain(day(20 * S));
    assert_eq!(jumps(gaps), [6 * DAY, 2 * H]);
    // A jump is at least an hour long, and a hundred times as long as the next gap.
    assert_eq!(jumps(day(20 * S).chain([H])), [H]);
    assert_eq!(jumps(day(20 * S).chain([H - 1])), NONE);
    assert_eq!(jumps(day(20 * S).chain([36 * S, H - S])), NONE);
    assert_eq!(jumps(day(20 * S).chain([36 * S, H])), [H]);
    assert_eq!(jumps(day(20 * S).chain([36 * S + 1, H])), NONE);
    // If a trace has only long gaps, there is nothing to compare them with.
    assert_eq!(jumps([2 * DAY]), NONE);
    assert_eq!(jumps([2 * DAY; 5]), NONE);
    assert_eq!(jumps([]), NONE);
}

#[test]
fn nights_and_weekends_are_no_jumps_where_gaps_of_the_day_reach_minutes() {
    let week = |gap: i64| days_and_nights(4, 30 * MIN).chain([gap]).chain(days_and_nights(5, 30 * MIN));
    assert_eq!(jumps(days_and_nights(7, 30 * MIN)), NONE);
    assert_eq!(jumps(week(60 * H)), NONE);
    assert_eq!(jumps(week(40 * DAY)), [40 * DAY]);
    assert_eq!(jumps(days_and_nights(3, 6 * MIN)), NONE);
    assert_eq!(jumps(days_and_nights(3, 4 * MIN)), [8 * H + 2 * MIN, 8 * H + MIN, 8 * H]);
}

#[test]
fn more_than_sixty_four_pauses_are_a_habit() {
    let pauses = |count| (0..count).flat_map(|_| day(2 * S).take(50).chain([2 * H]));
    assert_eq!(jumps(pauses(64)).len(), 64);
    assert_eq!(jumps(pauses(65)), NONE);
}

#[test]
fn a_jump_has_the_number_of_the_request_behind_it_and_the_time_before_it() {
    let mut all = ArrivalGaps::default();
    all.extend(&arrivals([MS; 700].into_iter().chain([6 * DAY]).chain([MS; 700])));
    let (length, place) = all.jumps()[0];
    assert_eq!((length as i64, place.request, place.at_ns), (6 * DAY, 702, 700 * MS));
}

/// Gaps, of which some are jumps.
fn some_gaps() -> impl Strategy<Value = Vec<i64>> {
    let gap = prop_oneof![20 => 0..40 * MS, 3 => 0..50 * S, 1 => 0..9 * H, 1 => 0..50 * DAY];
    prop::collection::vec(gap, 1..900)
}

proptest! {
    #[test]
    fn pieces_merge_to_the_jumps_of_the_whole(gaps in some_gaps(), cut in 0_usize..900, size in 1_usize..400) {
        let times = arrivals(gaps);
        let cut = cut.min(times.len());
        let result = |times: &[i64], size: usize| {
            let mut all = ArrivalGaps::default();
            times.chunks(size).for_each(|batch| all.extend(batch));
            all
        };
        let whole = result(&times, usize::MAX);
        let mut merged = result(&times[..cut], size);
        merged.join(&result(&times[cut..], size));
        prop_assert_eq!(merged.jumps(), whole.jumps());
        prop_assert_eq!(merged.span_ns(), whole.span_ns());
        let mut recordings = result(&times[cut..], size);
        recordings.add_recording(&result(&times[..cut], size));
        let mut other = result(&times[..cut], size);
        other.add_recording(&result(&times[cut..], size));
        prop_assert_eq!(recordings.jumps(), other.jumps());
    }
}

/// A trace in the order of the file: writes with these arrivals, each complete after 2 ms. The sector is the position in the file.
fn file(times: &[i64]) -> (TempDir, PathBuf) {
    let (folder, path) = scratch("trace.csv");
    let mut text = "arrival_ns,start_ns,complete_ns,op,sector,sectors\n".to_owned();
    for (place, time) in times.iter().enumerate() {
        writeln!(text, "{time},{},{},write,{place},8", time + MS, time + 2 * MS).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// The result of reading: arrivals and sectors in order, the ledger and the jumps.
struct Found {
    requests: Vec<(i64, u64)>,
    ledger: Ledger,
    jumps: ClockJumps,
}

impl Found {
    fn counts(&self) -> (u64, u64) {
        (self.ledger.clock_jumps, self.ledger.mended_jumps)
    }

    /// Direction, request number and length of each jump.
    fn listed(&self) -> Vec<(JumpDirection, u64, i64)> {
        let listed = |jump: &emmclab_trace::ClockJump| (jump.direction, jump.request, jump.length_ns as i64);
        self.jumps.jumps.iter().map(listed).collect()
    }

    fn span(&self) -> i64 {
        self.requests.last().unwrap().0 - self.requests[0].0
    }
}

fn read_file(path: &Path, mend: Option<MendClock>, window: Option<usize>) -> Result<Found> {
    let options = ReadOptions { mend_clock: mend, reorder_window: window, ..ReadOptions::default() };
    let mut reader = TraceReader::open(path, &options)?;
    let mut requests = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        for request in &batch {
            assert_eq!(request.response(), Some(Nanos(2 * MS)));
            requests.push((request.arrival.0, request.sector.0));
        }
    }
    assert!(requests.is_sorted_by_key(|(arrival, _)| *arrival));
    let jumps = reader.header().clock_jumps().unwrap_or_default();
    Ok(Found { requests, ledger: reader.ledger(), jumps })
}

fn read(times: &[i64], mend: Option<MendClock>) -> Result<Found> {
    let (_folder, path) = file(times);
    read_file(&path, mend, None)
}

/// `count` arrivals from `start` on, one every 10 ms with small variations; some follow another one closely, as in real traces.
fn steady(start: i64, count: i64) -> impl Iterator<Item = i64> + Clone {
    let even = move |i: i64| start + i * 10 * MS + i % 7 * MS;
    (0..count).map(move |i| if i % 10 == 5 { even(i - 1) + MS / 2 } else { even(i) })
}

/// `count` requests, a backward step of the clock, and `count` requests again.
fn set_back(count: i64, back: i64) -> Vec<i64> {
    steady(1_000 * S, count).chain(steady(1_000 * S + count * 10 * MS - back, count)).collect()
}

#[test]
fn a_clock_set_back_by_500_s_is_found_and_counted() {
    let result = read(&set_back(3_000, 500 * S), None).unwrap();
    assert_eq!((result.counts(), result.ledger.kept), ((1, 0), 6_000));
    let length = 500 * S - 10 * MS + 2_999 % 7 * MS;
    assert_eq!(result.listed(), [(JumpDirection::Backward, 3_001, length)]);
    // 30 s and 30 s, minus the step between them.
    assert!((result.jumps.without_ns - 60 * S).abs() < 20 * MS, "{}", result.jumps.without_ns);
}

#[test]
fn a_clock_set_back_further_than_the_window_is_named_with_its_cure() {
    let error = read(&set_back(150_000, 1_000 * S), None).err().unwrap();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Order, Some("arrival")));
    let text = error.to_string();
    assert!(text.contains("the clock jumps back at request 150001") && text.contains("16.67 min back"), "{text}");
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("--mend-clock") && hint.contains("--reorder-window"), "{hint}");
}

#[test]
fn what_follows_a_backward_jump_is_put_behind_what_came_before() {
    for (count, back) in [(3_000, 500 * S), (150_000, 1_000 * S)] {
        let result = read(&set_back(count, back), Some(MendClock::Jumps)).unwrap();
        assert_eq!((result.counts(), result.ledger.kept), ((1, 1), 2 * count as u64));
        assert!(result.requests.iter().map(|(_, sector)| *sector).is_sorted());
        assert!((result.span() - 2 * count * 10 * MS).abs() < 40 * MS, "{}", result.span());
        assert!(result.jumps.jumps[0].mended && !result.jumps.interleaved());
    }
}

#[test]
fn fewer_than_256_requests_out_of_order_are_sorted_and_no_jump() {
    let late = |count: i64| steady(0, 2_000).chain(steady(10 * S, count)).chain(steady(20 * S + MS, 2_000)).collect::<Vec<_>>();
    for count in [1, 255] {
        let result = read(&late(count), None).unwrap();
        assert_eq!((result.counts(), result.ledger.kept), ((0, 0), 4_000 + count as u64), "{count}");
        assert_eq!(read(&late(count), Some(MendClock::Jumps)).unwrap().requests, result.requests);
    }
    let result = read(&late(256), None).unwrap();
    assert_eq!(result.listed()[0].1, 2_001);
}

#[test]
fn all_that_remain_are_enough_for_a_jump_and_less_than_a_second_is_none() {
    let ending = |back: i64| steady(0, 2_000).chain(steady(20 * S - back, 20)).collect::<Vec<_>>();
    assert_eq!(read(&ending(5 * S), None).unwrap().counts(), (1, 0));
    assert_eq!(read(&ending(900 * MS), None).unwrap().counts(), (0, 0));
}

/// A forward jump of six days, one of two days back, one of three hours forward; a minute of requests between them.
fn set_on_and_back() -> Vec<i64> {
    let stretch = |start| steady(start, 6_000);
    let end = |start: i64| start + MIN;
    let second = end(0) + 6 * DAY;
    let third = end(second) - 2 * DAY;
    let fourth = end(third) + 3 * H;
    stretch(0).chain(stretch(second)).chain(stretch(third)).chain(stretch(fourth)).collect()
}

#[test]
fn jumps_in_both_directions_are_found_in_the_order_of_the_file() {
    let result = read(&set_on_and_back(), None).unwrap();
    let directions: Vec<_> = result.listed().iter().map(|(direction, request, _)| (*direction, *request)).collect();
    let expected = [(JumpDirection::Forward, 6_001), (JumpDirection::Backward, 12_001), (JumpDirection::Forward, 18_001)];
    assert_eq!((directions, result.counts()), (expected.to_vec(), (3, 0)));
    assert!((result.jumps.without_ns - 4 * MIN).abs() < 100 * MS, "{}", result.jumps.without_ns);
}

/// Backward jumps by a direct implementation of the rule: first request, counted from 1, and length.
fn plain_backward(times: &[i64]) -> Vec<(u64, i64)> {
    let (mut found, mut latest, mut at) = (Vec::new(), times[0], 1);
    while at < times.len() {
        let below = times[at..].iter().take(256).take_while(|time| **time <= latest - S).count();
        if below > 0 && (below == 256 || at + below == times.len()) {
            found.push((at as u64 + 1, latest - times[at]));
            latest = times[at];
            at += 1;
        } else {
            at += below.max(1);
            latest = latest.max(times[at - 1]);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(48)))]

    #[test]
    fn backward_jumps_are_those_of_the_plain_rule_and_no_request_is_lost(
        steps in prop::collection::vec(
            prop_oneof![
                400 => -2 * MS..30 * MS, 4 => -900 * MS..5 * S, 2 => -3 * S..-S, 1 => -500 * S..-S, 1 => 0..9 * H
            ],
            1..1_500,
        ),
        late in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..300), 0..6),
    ) {
        let mut times = arrivals(steps);
        for (from, behind) in late {
            let from = from.index(times.len());
            let time = times.remove(from);
            times.insert((from + behind).min(times.len()), time);
        }
        let result = read(&times, None);
        // Few requests over hours without two within a millisecond are rejected, because the unit seems to be wrong.
        prop_assume!(!result.as_ref().is_err_and(|error| error.kind() == ErrorClass::Unit));
        let result = result.unwrap();
        let expected = plain_backward(&times);
        prop_assert_eq!(result.ledger.kept, times.len() as u64);
        let backward: Vec<_> = result.listed().into_iter().filter(|jump| jump.0 == JumpDirection::Backward).collect();
        let shown: Vec<_> = expected.iter().map(|(request, length)| (JumpDirection::Backward, *request, *length)).collect();
        prop_assert_eq!(backward, shown);
        let mended = read(&times, Some(MendClock::Jumps));
        prop_assume!(!mended.as_ref().is_err_and(|error| error.kind() == ErrorClass::Unit));
        let mended = mended.unwrap();
        let mut sectors: Vec<_> = mended.requests.iter().map(|(_, sector)| *sector).collect();
        sectors.sort_unstable();
        prop_assert!(sectors.into_iter().eq(0..times.len() as u64));
        prop_assert!(mended.ledger.mended_jumps >= expected.len() as u64);
    }
}

#[test]
fn a_mended_trace_has_no_jump_and_lasts_as_long_as_its_stretches() {
    for mend in [MendClock::Jumps, MendClock::Above(Nanos(H))] {
        let result = read(&set_on_and_back(), Some(mend)).unwrap();
        assert_eq!((result.counts(), result.ledger.kept), ((3, 3), 24_000));
        assert!(result.jumps.jumps.iter().all(|jump| jump.mended));
        assert!((result.span() - 4 * MIN).abs() < 100 * MS, "{}", result.span());
        assert!(result.requests.iter().map(|(_, sector)| *sector).is_sorted());
        let mended: Vec<_> = result.requests.iter().map(|(arrival, _)| *arrival).collect();
        assert_eq!(read(&mended, None).unwrap().counts(), (0, 0));
    }
}

#[test]
fn a_forward_jump_is_cut_to_the_median_gap() {
    // Half of the gaps are 3 ms, the others 20 ms and 1 ms.
    let gaps = (0..4_000).map(|i| [3, 20, 3, 1][i % 4] * MS);
    let times = arrivals(gaps.clone().chain([6 * DAY]).chain(gaps));
    let result = read(&times, Some(MendClock::Jumps)).unwrap();
    let left = result.requests[4_001].0 - result.requests[4_000].0;
    assert!((left - 3 * MS).abs() <= 3 * MS / 1_000, "{left}");
}

#[test]
fn requests_without_a_jump_keep_their_times() {
    let times: Vec<_> = arrivals(days_and_nights(2, 30 * MIN));
    let result = read(&times, None).unwrap();
    let mended = read(&times, Some(MendClock::Jumps)).unwrap();
    assert_eq!((result.counts(), mended.counts()), ((0, 0), (0, 0)));
    assert_eq!(mended.requests, result.requests);
}

#[test]
fn a_late_request_from_before_a_jump_stays_before_it() {
    let mut times: Vec<_> = steady(0, 1_000).chain(steady(6 * DAY, 1_000)).collect();
    let late = times.remove(995);
    times.insert(1_004, late);
    let result = read(&times, Some(MendClock::Jumps)).unwrap();
    let place = result.requests.iter().position(|(_, sector)| *sector == 1_004).unwrap();
    assert_eq!((place, result.requests[place].0, result.counts()), (995, late, (1, 1)));
}

#[test]
fn requests_that_change_places_at_a_backward_jump_stay_on_their_side_of_it() {
    for back in [500 * S, 900 * S] {
        let mut times = set_back(1_000, back);
        // The last three requests before the jump follow the first four after it; another request is late for a different reason.
        times[997..1_004].rotate_left(3);
        let late = times.remove(600);
        times.insert(950, late);
        let result = read(&times, Some(MendClock::Jumps)).unwrap();
        assert_eq!(result.counts(), (1, 1));
        assert!((result.span() - 20 * S).abs() < S / 2, "{}", result.span());
        let sides = result.requests.iter().position(|(_, sector)| *sector >= 1_004).unwrap();
        assert!((990..=1_004).contains(&sides), "{sides}");
        let place = result.requests.iter().position(|(_, sector)| *sector == 950).unwrap();
        assert_eq!(place, 600);
    }
}

#[test]
fn a_request_that_was_under_way_at_the_jump_loses_it_too() {
    let (_folder, path) = scratch("trace.csv");
    let mut text = "arrival_ns,start_ns,complete_ns,op,sector,sectors\n".to_owned();
    for (place, time) in steady(0, 1_000).chain(steady(6 * DAY, 1_000)).enumerate() {
        let complete = if place == 999 { 6 * DAY - MS } else { time + 2 * MS };
        writeln!(text, "{time},{},{complete},write,{place},8", time + MS).unwrap();
    }
    std::fs::write(&path, text).unwrap();
    for mend in [MendClock::Jumps, MendClock::Above(Nanos(H))] {
        let options = ReadOptions { mend_clock: Some(mend), ..ReadOptions::default() };
        let batch = TraceReader::open(&path, &options).unwrap().next_batch().unwrap().unwrap();
        let longest = batch.iter().filter_map(|request| request.response()).max().unwrap();
        assert!(longest < Nanos(20 * MS), "{longest}");
    }
}

#[test]
fn windows_and_formats_change_nothing() {
    let (folder, path) = file(&set_on_and_back());
    for mend in [None, Some(MendClock::Jumps), Some(MendClock::Above(Nanos(30 * MIN)))] {
        let plain = read_file(&path, mend, None).unwrap();
        let wide = read_file(&path, mend, Some(300_000)).unwrap();
        assert_eq!((&wide.requests, wide.counts(), &wide.jumps), (&plain.requests, plain.counts(), &plain.jumps));
        for ending in ["parquet", "csv"] {
            let converted = folder.path().join(format!("converted.{ending}"));
            convert(&path, &ReadOptions { mend_clock: mend, ..ReadOptions::default() }, &converted);
            let second = read_file(&converted, None, None).unwrap();
            assert_eq!(second.requests, plain.requests);
            if ending == "parquet" {
                assert_eq!((second.counts(), &second.jumps), (plain.counts(), &plain.jumps));
            }
        }
    }
}

#[test]
fn jumps_of_a_parquet_trace_are_found_and_taken_out_too() {
    let times: Vec<_> = steady(0, 30_000).chain(steady(6 * DAY, 30_000)).collect();
    let (folder, path) = file(&times);
    let converted = folder.path().join("converted.parquet");
    convert(&path, &ReadOptions::default(), &converted);
    assert_eq!(read_file(&converted, None, None).unwrap().counts(), (1, 0));
    let mended = read_file(&converted, Some(MendClock::Jumps), None).unwrap();
    assert_eq!(mended.counts(), (1, 1));
    assert_eq!(mended.requests, read_file(&path, Some(MendClock::Jumps), None).unwrap().requests);
}

#[test]
fn a_pipe_needs_a_length_above_which_gaps_are_cut() {
    let (folder, path) = file(&set_on_and_back());
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let feed = || {
        let (from, to) = (path.clone(), pipe.clone());
        std::thread::spawn(move || std::fs::copy(from, to).ok())
    };
    let feeder = feed();
    let error = read_file(&pipe, Some(MendClock::Jumps), None).err().unwrap();
    assert_eq!((error.kind(), error.field()), (ErrorClass::Unsupported, Some("--mend-clock")));
    assert!(error.hint_text().unwrap().contains("--mend-clock 1h"));
    feeder.join().unwrap();
    let feeder = feed();
    let limit = Some(MendClock::Above(Nanos(H)));
    let result = read_file(&pipe, limit, None).unwrap();
    feeder.join().unwrap();
    assert_eq!(result.requests, read_file(&path, limit, None).unwrap().requests);
}

#[test]
fn a_length_has_a_unit_or_is_in_seconds_and_nonsense_is_refused_with_a_hint() {
    for (text, length) in [("1h", H), ("90s", 90 * S), ("1.5min", 90 * S), ("2d", 2 * DAY), ("30", 30 * S), ("5ms", 5 * MS)] {
        assert_eq!(MendClock::parse(text).unwrap(), MendClock::Above(Nanos(length)), "{text}");
    }
    assert_eq!(MendClock::parse("auto").unwrap(), MendClock::Jumps);
    for text in ["", "h", "1w", "-1h", "0s", "nan", "inf", "1e99", "an hour"] {
        let error = MendClock::parse(text).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorClass::Config, Some("--mend-clock")), "{text}");
        assert!(error.to_string().contains(text) && error.hint_text().unwrap().contains("1h"));
    }
}

#[test]
fn a_matched_event_that_ends_late_shows_no_backward_jump() {
    // Requests of two devices without completions are in the file device by device.
    let mut text = String::new();
    for i in 0..1_000_u64 {
        for device in ["8,0", "8,16"] {
            let (s, ns) = (i / 100, i % 100 * 10_000_000);
            writeln!(text, "{device} 0 {i} {s:5}.{ns:09} 1234 Q WS {} + 8 [app]", i * 8).unwrap();
        }
    }
    let ledger = read_plain(text, "blkparse").unwrap().ledger;
    assert_eq!((ledger.kept, ledger.clock_jumps), (2_000, 0));
}
