//! Merging the profiles of pieces results in the profile of the whole trace.

use crate::common::{batch, profile_of, request};
use emmclab_profile::{MergeRelation, Profile, ProfileOptions};
use emmclab_trace::{ErrorClass, Ledger, NameId, Nanos, Op, Request, RequestFlags, TraceHeader};
use proptest::prelude::*;
use serde_json::Value;

/// Requests in order of arrival, which may overlap, on so few addresses that they recur.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let sample = (
        0_i64..2_000_000,
        0_usize..5,
        prop_oneof![(0_u64..600).prop_map(|page| page * 8), 0_u64..5_000, Just(1 << 40)],
        1_u32..80,
        [0_i64..500, 0_i64..4_000, 0_i64..300_000],
        0_u16..256,
        0_u32..4,
    );
    prop::collection::vec(sample, 1..60).prop_map(|rows| {
        let mut now = 1_700_000_000_000_000;
        let mut end = 0;
        rows.into_iter()
            .map(|(gap, op, sector, sectors, [start, issue, done], flags, name)| {
                now += gap;
                // Some requests start where the previous one ended.
                let sector = if flags % 3 == 0 { end } else { sector };
                end = sector + u64::from(sectors);
                let times = [start, start + issue, start + issue + done];
                Request {
                    flags: RequestFlags(flags),
                    device: (name > 1).then_some(NameId(name)),
                    process: (name > 0).then_some(NameId(name)),
                    ..request(Op::ALL[op], now, times, sector, sectors)
                }
            })
            .collect()
    })
}

/// Moves the second piece after the completion of the first one, and returns both.
fn pieces(mut first: Vec<Request>, second: Vec<Request>, pause_us: i64) -> [Vec<Request>; 2] {
    let end = first.iter().filter_map(|request| request.complete).max().unwrap();
    let by = end.0 + pause_us * 1_000 - second[0].arrival.0;
    let put = |time: Nanos| Nanos(time.0 + by);
    let second = second.into_iter().map(|request| Request {
        arrival: put(request.arrival),
        start: request.start.map(put),
        issue: request.issue.map(put),
        served: request.served.map(put),
        complete: request.complete.map(put),
        ..request
    });
    let second: Vec<_> = second.collect();
    first.shrink_to_fit();
    [first, second]
}

fn json(profile: &Profile) -> Value {
    serde_json::to_value(profile.finish(&Ledger::default(), &TraceHeader::default())).unwrap()
}

/// Removes the figures that start again in each piece, according to [`Profile::merge`].
fn without_what_begins_anew(mut report: Value) -> Value {
    for figure in ["reuse_distance", "update_interval"] {
        report["figures"][figure].take();
    }
    report["locality"]["median_update_interval_s"].take();
    let growth = report["figures"]["working_set"].as_array().unwrap().last().cloned();
    report["figures"]["working_set"] = growth.unwrap_or_default();
    for finding in report["findings"].as_array_mut().unwrap() {
        if finding["id"] == "implication-3" {
            finding["meaning"].take();
        }
    }
    report
}

proptest! {
    #[test]
    fn consecutive_pieces_merge_to_the_whole(a in requests(), b in requests(), pause_us in 0_i64..3_000_000) {
        let [a, b] = pieces(a, b, pause_us);
        let mut merged = profile_of(&a);
        merged.merge(profile_of(&b), MergeRelation::Consecutive).unwrap();
        let whole = profile_of(&[a, b].concat());
        prop_assert_eq!(without_what_begins_anew(json(&merged)), without_what_begins_anew(json(&whole)));
    }

    #[test]
    fn histograms_of_pieces_add_up_wherever_a_recording_is_cut(all in requests(), cut in 0_usize..60) {
        let (a, b) = all.split_at(cut.min(all.len()));
        let mut merged = profile_of(a);
        merged.merge(profile_of(b), MergeRelation::Consecutive).unwrap();
        // Requests may be unfinished at the boundary; then idle gaps and reuse distances are computed for each piece.
        let exact = |profile: &Profile| {
            let mut all = profile.histograms();
            all.retain(|sample| !["idle_gap", "reuse_distance"].contains(&sample.name));
            all
        };
        prop_assert_eq!(exact(&merged), exact(&profile_of(&all)));
    }

    #[test]
    fn what_does_not_depend_on_unfinished_requests_is_exact_wherever_a_recording_is_cut(
        all in requests(),
        cuts in prop::collection::vec(0_usize..60, 0..5),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(all.len())).collect();
        cuts.sort_unstable();
        let mut merged = Profile::new(ProfileOptions::default());
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        for (from, to) in starts.zip(cuts.iter().copied().chain([all.len()])) {
            merged.merge(profile_of(&all[from..to]), MergeRelation::Consecutive).unwrap();
        }
        let (merged, whole) = (json(&merged), json(&profile_of(&all)));
        for group in ["by_operation", "working_set"] {
            prop_assert_eq!(&merged[group], &whole[group], "{}", group);
        }
        for field in ["sequential_requests", "address_hits", "max_run_requests", "overwrite_pct"] {
            prop_assert_eq!(&merged["locality"][field], &whole["locality"][field], "{}", field);
        }
        for (name, value) in whole.as_object().unwrap() {
            if !value.is_object() && !value.is_array() && name != "no_wait_pct" {
                prop_assert_eq!(&merged[name], value, "{}", name);
            }
        }
        for figure in [
            "throughput_by_size",
            "size_distribution",
            "response_distribution",
            "response_by_size",
            "service_distribution",
            "inter_arrival_distribution",
            "hot_pages",
            "sequential_runs",
            "alignment",
            "process_share",
            "device_share",
            "flags",
        ] {
            prop_assert_eq!(&merged["figures"][figure], &whole["figures"][figure], "{}", figure);
        }
        // A page that was touched in an earlier piece counts as a first touch. All other figures are exact.
        let first = |report: &Value| report["figures"]["reuse_distance"].as_array().unwrap().last().cloned();
        if let (Some(merged), Some(whole)) = (first(&merged), first(&whole)) {
            prop_assert!(merged["accesses"].as_u64() >= whole["accesses"].as_u64());
        }
    }

    #[test]
    fn a_histogram_counts_what_the_report_counts(all in requests()) {
        let profile = profile_of(&all);
        for sample in profile.histograms() {
            prop_assert_eq!(sample.counts.len(), sample.edges.len() + 1, "{}", sample.name);
            let rows = |figure: &str| json(&profile)["figures"][figure].as_array().unwrap().clone();
            let counted = |figure: &str, field: &str, op: Option<&str>| {
                let of_op = |row: &&Value| op.is_none_or(|op| row["op"] == op);
                rows(figure).iter().filter(of_op).map(|row| row[field].as_u64().unwrap()).sum::<u64>()
            };
            let expected = match sample.name {
                "size_read" => counted("size_distribution", "requests", Some("read")),
                "size_write" => counted("size_distribution", "requests", Some("write")),
                "response_read" => counted("response_distribution", "requests", Some("read")),
                "response_write" => counted("response_distribution", "requests", Some("write")),
                "inter_arrival" => counted("inter_arrival_distribution", "gaps", None),
                "idle_gap" => counted("idle_gaps", "gaps", None),
                "reuse_distance" => counted("reuse_distance", "accesses", None),
                name => panic!("{name} has no rule"),
            };
            prop_assert_eq!(sample.counts.iter().sum::<u64>(), expected, "{}", sample.name);
        }
    }

    #[test]
    fn a_profile_goes_on_after_a_merge(a in requests(), b in requests(), c in requests()) {
        let [a, b] = pieces(a, b, 1_000);
        let [ab, c] = pieces([a.clone(), b.clone()].concat(), c, 5);
        let mut merged = profile_of(&a);
        merged.merge(profile_of(&b), MergeRelation::Consecutive).unwrap();
        merged.update(&batch(&c));
        let whole = profile_of(&[ab, c].concat());
        prop_assert_eq!(without_what_begins_anew(json(&merged)), without_what_begins_anew(json(&whole)));
    }

    #[test]
    fn merging_into_nothing_and_merging_nothing_change_nothing(a in requests()) {
        for join in [MergeRelation::Consecutive, MergeRelation::Separate] {
            let mut into_nothing = Profile::new(ProfileOptions::default());
            into_nothing.merge(profile_of(&a), join).unwrap();
            let mut nothing_in = profile_of(&a);
            nothing_in.merge(Profile::new(ProfileOptions::default()), join).unwrap();
            let whole = json(&profile_of(&a));
            prop_assert_eq!(json(&nothing_in), whole.clone());
            prop_assert_eq!(json(&into_nothing), whole);
        }
    }

    #[test]
    fn the_order_of_a_fleet_does_not_matter(a in requests(), b in requests(), c in requests()) {
        let fleet = |recordings: [&[Request]; 3]| {
            let mut all = Profile::new(ProfileOptions::default());
            for recording in recordings {
                all.merge(profile_of(recording), MergeRelation::Separate).unwrap();
            }
            let mut report = json(&all);
            // Figures over time start with the first recording, whose start may be anywhere in the first bin.
            for figure in ["working_set", "queue_depth_over_time", "io_over_time", "address_time"] {
                report["figures"][figure].take();
            }
            report
        };
        prop_assert_eq!(fleet([&a, &b, &c]), fleet([&c, &a, &b]));
    }
}

#[test]
fn a_fleet_adds_durations_and_sees_no_locality_across_recordings() {
    let sample = [request(Op::Write, 0, [0, 0, 1_000], 0, 8)];
    let mut fleet = profile_of(&sample);
    fleet.merge(profile_of(&[request(Op::Write, 500, [0, 0, 2_000], 8, 8)]), MergeRelation::Separate).unwrap();
    fleet.merge(profile_of(&sample), MergeRelation::Separate).unwrap();
    let report = fleet.finish(&Ledger::default(), &TraceHeader::default());
    assert_eq!(report.tables.duration_s, 0.004);
    assert_eq!(report.tables.spatial_locality_pct, Some(0.0));
    assert_eq!(report.tables.temporal_locality_pct, Some(0.0));
    assert_eq!(report.working_set.unwrap().unique_pages, 3);
    assert_eq!(report.locality.overwrite_pct, Some(0.0));
}

#[test]
fn pieces_in_the_wrong_order_are_refused() {
    let mut late = profile_of(&[request(Op::Write, 900, [0, 0, 10], 0, 8)]);
    let early = profile_of(&[request(Op::Write, 100, [0, 0, 10], 0, 8)]);
    assert_eq!(late.merge(early, MergeRelation::Consecutive).unwrap_err().kind(), ErrorClass::Order);
}
