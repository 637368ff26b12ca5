//! Suspected re-issues in a profile: percentages by idle time, and the figures without re-issues.

use crate::common::{profile_of, request};
use emmclab_profile::report::ReissueSummary;
use emmclab_profile::{MergeRelation, Profile, ProfileReport};
use emmclab_trace::{Ledger, Op, Request, RequestFlags, TraceHeader};

/// Pairs of writes: one 2 ms after the previous write, and one 20 ms later, which is issued again after 1 ms.
fn reissued(pairs: i64) -> Vec<Request> {
    let write = |at_us, sector| request(Op::Write, at_us, [10, 20, 100], sector, 8);
    (0..pairs)
        .flat_map(|pair| {
            let (at, sector) = (pair * 23_000, pair as u64 * 64);
            let reissue = Request { flags: RequestFlags::REISSUED, ..write(at + 21_000, sector + 8) };
            [write(at, sector), write(at + 20_000, sector + 8), reissue]
        })
        .collect()
}

fn judged(profile: &Profile, dropped: u64) -> ProfileReport {
    let ledger = Ledger { reissued: Some(0), dropped_reissues: dropped, ..Ledger::default() };
    profile.finish(&ledger, &TraceHeader::default())
}

#[test]
fn the_share_by_idle_time_shows_when_the_link_sleeps() {
    let report = judged(&profile_of(&reissued(100)), 0);
    let rows: Vec<_> = report.figures.reissue_by_idle.iter().map(|row| (&*row.bin, row.requests, row.pct)).collect();
    // The first request of the trace has no idle time before it.
    assert_eq!(rows, [("1 - 2 ms", 99, 0.0), ("15 - 30 ms", 100, 100.0)]);
    let summary = report.reissues.unwrap();
    assert_eq!((summary.reissued, summary.reissued_pct), (100, Some(100.0 / 3.0)));
    assert_eq!((summary.awake_up_to_ms, summary.asleep_from_ms), (Some(2), Some(15)));
    assert_eq!(summary.median_until_again_ms, Some(1.05));
}

#[test]
fn figures_without_reissues_are_those_of_a_trace_that_never_had_them() {
    let all = reissued(50);
    let first: Vec<_> = all.iter().filter(|request| request.flags != RequestFlags::REISSUED).copied().collect();
    let with = judged(&profile_of(&all), 0).reissues.unwrap();
    let never = judged(&profile_of(&first), 50).reissues.unwrap();
    let (summary, expected) = (with.figures_without.unwrap(), never.figures);
    assert_eq!((summary.requests, summary.data_size_kb, summary.mean_size_kb), (100, 400.0, Some(4.0)));
    assert_eq!((summary.spatial_locality_pct, summary.temporal_locality_pct), (Some(50.0), Some(0.0)));
    assert_eq!((summary.spatial_locality_pct, summary.requests), (expected.spatial_locality_pct, expected.requests));
    assert_eq!((never.figures_without, never.dropped, never.reissued), (None, 50, 0));
}

#[test]
fn a_trace_that_was_not_judged_has_no_reissues_rather_than_none() {
    let report = profile_of(&reissued(2)).finish(&Ledger::default(), &TraceHeader::default());
    assert_eq!(report.reissues, None);
}

#[test]
fn pieces_of_a_recording_and_separate_recordings_add_up() {
    let all = reissued(40);
    let whole = judged(&profile_of(&all), 0);
    let merged = |join, cut: usize| {
        let mut profile = profile_of(&all[..cut]);
        profile.merge(profile_of(&all[cut..]), join).unwrap();
        judged(&profile, 0).reissues.unwrap()
    };
    let of_whole = whole.reissues.unwrap();
    // A boundary between pairs loses the idle time before one request.
    let summary: ReissueSummary = merged(MergeRelation::Consecutive, 60);
    assert_eq!((summary.reissued, summary.figures_without), (of_whole.reissued, of_whole.figures_without));
    let summary = merged(MergeRelation::Separate, 60);
    assert_eq!(summary.figures_without.unwrap().requests, of_whole.figures_without.unwrap().requests);
}

#[test]
fn devices_are_listed_with_their_shares() {
    let devices = [0, 0, 0, 2].map(|id| Some(emmclab_trace::NameId(id)));
    let requests: Vec<_> = devices
        .into_iter()
        .zip(0..)
        .map(|(device, at)| Request { device, ..request(Op::Read, at * 1_000, [1, 2, 3], 8, 8) })
        .collect();
    let report = judged(&profile_of(&requests), 0);
    let rows: Vec<_> =
        report.figures.device_share.iter().map(|row| (&*row.device, row.share.reads, row.share.requests_pct)).collect();
    assert_eq!(rows, [("mmcblk0", 3, 75.0), ("mmcblk2", 1, 25.0)]);
}
