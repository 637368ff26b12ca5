//! Tests with recordings whose parts are known exactly, and random recordings compared with the definition at each point in time.

use std::sync::Arc;

use emmclab_testing::cases;
use emmclab_trace::{
    BatchBuilder, FsWriterThreads, JournalCounts, Ledger, LostEventsGap, NameId, NameTable, Nanos, Op, Request, RequestFlags,
    Sector, SyncCounts, SyncWait, TraceHeader, UnfinishedWait,
};
use proptest::prelude::*;

use super::*;
use crate::report::{FsyncParts, FsyncReport, UnknownCause};

const JBD2: i32 = 100;
const APP: i32 = 1;
const OTHER: i32 = 9;

fn wait(pid: i32, start: i64, end: i64) -> SyncWait {
    SyncWait {
        start: Nanos(start),
        time: Nanos(end - start),
        process: format!("app-{pid}"),
        pid,
        file_system: "ext4".into(),
        device: "sda1".into(),
    }
}

/// A write of a task with the times of arrival, issue and completion.
fn write(pid: i32, times: [i64; 3]) -> Request {
    let [arrival, issue, complete] = times.map(Nanos);
    Request {
        start: Some(issue),
        issue: Some(issue),
        complete: Some(complete),
        pid: Some(pid),
        device: Some(NameId(0)),
        ..Request::new(arrival, Op::Write, Sector(8), 8)
    }
}

fn durable(request: Request) -> Request {
    Request { flags: RequestFlags::PREFLUSH.union(RequestFlags::FUA), ..request }
}

fn flush(request: Request) -> Request {
    Request { op: Op::Flush, sectors: 0, ..request }
}

fn activity(waits: Vec<SyncWait>, commits: &[(i64, i64)]) -> RecordedActivity {
    let mut waits = waits;
    waits.sort();
    let mut syncs: BTreeMap<(String, String), SyncCounts> = BTreeMap::new();
    for wait in &waits {
        let (process, file_system) = (wait.process.clone(), wait.file_system.clone());
        let counts = syncs.entry((process.clone(), file_system.clone())).or_insert(SyncCounts {
            process,
            file_system,
            calls: 0,
            errors: 0,
            time: Nanos::ZERO,
            longest: Nanos::ZERO,
        });
        counts.calls += 1;
        counts.time += wait.time;
        counts.longest = counts.longest.max(wait.time);
    }
    RecordedActivity {
        waits,
        syncs: syncs.into_values().collect(),
        writers: ["ext4", "f2fs"]
            .map(|system| FsWriterThreads { file_system: system.into(), device: "sda1".into(), pids: vec![JBD2] })
            .into(),
        journals: vec![JournalCounts {
            device: "sda1".into(),
            commits: commits.len() as u64,
            handles: 0,
            blocks: 0,
            commit_starts: commits.iter().map(|(start, _)| Nanos(*start)).collect(),
            commit_times: commits.iter().map(|(start, end)| Nanos(end - start)).collect(),
        }],
        ..RecordedActivity::default()
    }
}

fn divided(activity: RecordedActivity, requests: &[Request]) -> FsyncProfile {
    let mut fsync = FsyncProfile::new(activity);
    let mut requests = requests.to_vec();
    requests.sort_by_key(|request| request.arrival);
    let (mut devices, processes) = (NameTable::default(), Arc::new(NameTable::default()));
    for name in ["sda", "sdb"] {
        devices.intern(name);
    }
    let devices = Arc::new(devices);
    // Small batches test waits that continue across batch boundaries.
    for some in requests.chunks(3) {
        let mut builder = BatchBuilder::default();
        for request in some {
            builder.push(request);
        }
        fsync.update(&builder.finish(&processes, &devices));
    }
    fsync.end();
    fsync
}

/// The parts of each wait, in order of their starts: data, commit, flush, queue, unexplained.
fn parts(waits: Vec<SyncWait>, commits: &[(i64, i64)], requests: &[Request]) -> Vec<[i64; 5]> {
    let fsync = divided(activity(waits, commits), requests);
    fsync.splits.iter().map(|split| split.unwrap().parts).collect()
}

fn report(activity: RecordedActivity, requests: &[Request], ledger: &Ledger) -> FsyncReport {
    divided(activity, requests).report(&TraceHeader::default(), ledger, Nanos::ZERO)
}

#[test]
fn a_wait_is_for_its_data_then_for_the_commit_then_for_the_flush() {
    let requests = [write(APP, [10, 15, 40]), write(JBD2, [50, 50, 70]), durable(write(JBD2, [70, 72, 95]))];
    // Without recorded commits, the time in which the journal's thread has no request counts as unexplained.
    for (commits, commit, unexplained) in [(&[(45, 96)][..], 26, 19), (&[], 20, 25)] {
        assert_eq!(parts(vec![wait(APP, 0, 100)], commits, &requests), [[30, commit, 25, 0, unexplained]]);
    }
}

#[test]
fn a_request_waits_in_the_queue_while_the_device_works_for_others() {
    let requests = [write(APP, [10, 60, 80]), write(OTHER, [5, 20, 50])];
    assert_eq!(parts(vec![wait(APP, 0, 100)], &[], &requests), [[40, 0, 0, 30, 30]]);
    // Requests to another device cause no delay, and requests that the device has already received are not queued.
    let elsewhere = Request { device: Some(NameId(1)), ..requests[1] };
    assert_eq!(parts(vec![wait(APP, 0, 100)], &[], &[requests[0], elsewhere]), [[70, 0, 0, 0, 30]]);
    let fsync = divided(activity(vec![wait(APP, 0, 100)], &[]), &[write(APP, [10, 10, 80]), write(OTHER, [5, 20, 50])]);
    let split = fsync.splits[0].unwrap();
    assert_eq!((split.parts, split.shared), ([70, 0, 0, 0, 30], 30));
}

#[test]
fn two_processes_that_wait_for_one_commit_both_have_its_time() {
    let requests = [write(1, [0, 0, 10]), write(2, [15, 15, 30]), write(JBD2, [20, 20, 40]), durable(write(JBD2, [40, 40, 90]))];
    let waits = vec![wait(1, 0, 95), wait(2, 12, 97)];
    assert_eq!(parts(waits, &[], &requests), [[10, 20, 50, 0, 15], [15, 10, 50, 0, 10]]);
}

#[test]
fn a_wait_without_a_request_is_not_explained() {
    assert_eq!(parts(vec![wait(APP, 0, 100)], &[], &[]), [[0, 0, 0, 0, 100]]);
    assert_eq!(parts(vec![wait(APP, 50, 50)], &[], &[write(APP, [0, 0, 80])]), [[0; 5]]);
}

#[test]
fn what_ends_after_the_wait_was_not_waited_for() {
    // The wait ends at time 100. Requests and commits that end later do not explain it, nor does a commit without a recorded end.
    let requests = [
        write(APP, [10, 10, 130]),
        durable(write(JBD2, [20, 20, 40])),
        write(JBD2, [50, 50, 90]),
        durable(write(JBD2, [90, 90, 120])),
    ];
    for commits in [&[][..], &[(15, 40), (45, 121)]] {
        let commit = if commits.is_empty() { 0 } else { 5 };
        assert_eq!(parts(vec![wait(APP, 0, 100)], commits, &requests), [[0, commit, 20, 0, 80 - commit]]);
    }
}

#[test]
fn a_wait_may_begin_in_a_request_and_end_after_the_last_one() {
    let requests = [write(APP, [0, 5, 60]), flush(write(APP, [70, 70, 80])), write(OTHER, [75, 75, 76])];
    let waits = vec![wait(APP, 50, 1_000), wait(2, 2_000, 2_010), wait(3, -20, -10)];
    assert_eq!(parts(waits, &[], &requests), [[0, 0, 0, 0, 10], [10, 0, 10, 0, 930], [0, 0, 0, 0, 10]]);
}

#[test]
fn checkpoints_of_f2fs_are_commits_by_its_thread_or_by_the_task_itself() {
    let meta = |request| Request { flags: RequestFlags::META, ..request };
    let waits = vec![SyncWait { file_system: "f2fs".into(), ..wait(APP, 0, 100) }];
    for pid in [APP, JBD2] {
        let requests = [write(APP, [0, 0, 10]), meta(write(pid, [10, 10, 30])), durable(write(pid, [30, 30, 70]))];
        assert_eq!(parts(waits.clone(), &[], &requests), [[10, 20, 40, 0, 30]], "{pid}");
    }
}

#[test]
fn parts_are_unknown_and_not_0_where_the_recording_has_gaps() {
    let requests = [write(APP, [10, 10, 40])];
    let all = || activity(vec![wait(APP, 0, 100)], &[]);
    let open = [Request { complete: None, ..requests[0] }];
    let lost = Ledger { lost: 1, ..Ledger::default() };
    let filtered = Ledger { filtered: 1, ..Ledger::default() };
    let mended = Ledger { mended_jumps: 1, ..Ledger::default() };
    let none = Ledger::default();
    for (activity, requests, ledger, cause) in [
        (all(), &requests, &lost, UnknownCause::Lost),
        (all(), &requests, &filtered, UnknownCause::LeftOut),
        (all(), &requests, &mended, UnknownCause::Clock),
        (all(), &open, &none, UnknownCause::Completions),
    ] {
        let report = report(activity, requests, ledger);
        let row = &report.by_process[0];
        assert_eq!((report.unknown[0].cause, report.unknown[0].calls), (cause, 1));
        assert_eq!((row.calls, row.max_ms, row.split, row.parts), (1, 1e-4, 0, FsyncParts::default()));
        assert_eq!(report.longest[0].parts, FsyncParts::default());
    }
    // If only the time at which the device received the request is missing, only `queue_ms` is unknown.
    let queued = [Request { start: None, issue: None, ..requests[0] }];
    let row = report(all(), &queued, &none).by_process[0].parts;
    assert_eq!((row.data_ms, row.queue_ms, row.unexplained_ms), (Some(3e-5), None, Some(7e-5)));
}

#[test]
fn parts_are_unknown_if_the_clock_is_coarser_than_responses() {
    let requests = [write(APP, [10, 10, 40])];
    let coarse = TraceHeader { coarse_clock: Some("steps of 4 ms".into()), ..TraceHeader::default() };
    let profile = divided(activity(vec![wait(APP, 0, 100)], &[]), &requests);
    let report = profile.report(&coarse, &Ledger::default(), Nanos::ZERO);
    assert_eq!((report.unknown[0].cause, report.split), (UnknownCause::CoarseClock, 0));
    assert_eq!(report.longest[0].parts, FsyncParts::default());
    assert!(profile.part_rows(&coarse, &Ledger::default(), Nanos::ZERO).is_empty());
}

#[test]
fn only_waits_near_a_gap_are_unknown_if_the_times_of_all_gaps_are_known() {
    let waits = vec![wait(APP, 0, 100), wait(APP, 200, 300), wait(APP, 400, 500), wait(APP, 600, 700)];
    let gaps = vec![LostEventsGap { from: Nanos(250), to: Nanos(260), events: 7 }];
    let all = RecordedActivity { gaps, ..activity(waits, &[]) };
    // An event was lost between 250 ns and 260 ns, so the completion that is recorded for the second request may belong to another request.
    let requests = [write(APP, [10, 10, 40]), write(APP, [240, 240, 420]), write(APP, [610, 610, 640])];
    let split = |lost| {
        let report = report(all.clone(), &requests, &Ledger { lost, ..Ledger::default() });
        (report.split, report.unknown.iter().map(|row| row.calls).sum::<u64>())
    };
    assert_eq!((split(7), split(8)), ((2, 2), (0, 4)));
}

#[test]
fn percentiles_are_known_as_far_as_the_longest_calls_are_stored() {
    let waits = (1..=4).map(|length| wait(APP, 1_000 * length, 1_000 * length + 100 * length)).collect();
    let mut all = activity(waits, &[]);
    let row = |all: &RecordedActivity| report(all.clone(), &[], &Ledger::default()).by_process[0].clone();
    assert_eq!((row(&all).p50_ms, row(&all).p99_ms, row(&all).mean_ms), (Some(2e-4), Some(4e-4), 2.5e-4));
    // Four shorter calls are counted but not stored, so the median is unknown.
    all.syncs[0].calls = 8;
    assert_eq!((row(&all).p50_ms, row(&all).p99_ms), (None, Some(4e-4)));
}

#[test]
fn the_three_longest_are_explained_and_unfinished_ones_named() {
    let mut all = activity((0..5).map(|n| wait(APP, 1_000 * n, 1_000 * n + 100 + n)).collect(), &[]);
    all.unfinished = vec![UnfinishedWait {
        process: "sqlite3".into(),
        pid: 5,
        file_system: "ext4".into(),
        device: "sda1".into(),
        start: Nanos(9_000_000_000),
    }];
    let requests =
        [durable(write(APP, [4_010, 4_015, 4_030])), write(OTHER, [4_020, 4_020, 4_025]), write(OTHER, [4_040, 4_040, 4_050])];
    let report = report(all, &requests, &Ledger::default());
    assert_eq!(report.longest.iter().map(|wait| wait.start_s).collect::<Vec<_>>(), [4e-6, 3e-6, 2e-6]);
    let rows: Vec<_> = report.longest[0].requests.iter().map(|row| (row.at_ms, row.part, &*row.what)).collect();
    // While a request of the waiting process is in progress, requests of other processes do not explain the wait.
    assert_eq!(rows, [(1e-5, "flush", "write fua preflush"), (4e-5, "other", "write")]);
    assert_eq!((report.calls, report.unfinished[0].start_s), (5, 9.0));
}

/// Computes the parts of a wait according to their definition. Each point in time counts for the first step of the wait that has a request
/// in progress at that time.
fn by_moments(wait: &SyncWait, commits: &[(i64, i64)], requests: &[Request]) -> [i64; 5] {
    let (start, end) = (wait.start.0, wait.start.0 + wait.time.0);
    let is_flush = |request: &Request| request.op == Op::Flush || !request.flags.is_empty();
    let complete = |request: &Request| request.complete.unwrap().0;
    let in_wait = |time: i64| start < time && time <= end;
    let durable = requests.iter().filter(|it| it.pid == Some(JBD2) && is_flush(it)).map(complete);
    let last = durable.chain(commits.iter().map(|(_, end)| *end)).filter(|time| in_wait(*time)).max();
    let step = |request: &Request| match request.pid {
        pid if pid == Some(wait.pid) && complete(request) <= end => Some(usize::from(is_flush(request))),
        Some(JBD2) if last.is_some_and(|last| complete(request) <= last) => Some(2 + usize::from(is_flush(request))),
        _ => None,
    };
    let mut parts = [0; 5];
    for time in start..end {
        let runs = |it: &&Request| it.arrival.0 <= time && time < complete(it);
        let at_device = |it: &&Request| runs(it) && it.start.unwrap().0 <= time;
        let first = requests.iter().filter(runs).filter_map(step).min();
        let part = match first {
            Some(first) => {
                let mut own = requests.iter().filter(runs).filter(|it| step(it) == Some(first));
                let others = |device| {
                    requests
                        .iter()
                        .filter(at_device)
                        .any(|it| step(it).is_none() && it.pid != Some(wait.pid) && it.device == device)
                };
                let waits = own.clone().all(|it| !at_device(&it)) && own.any(|it| others(it.device));
                if waits { 3 } else { [0, 2, 1, 2][first] }
            }
            None if commits.iter().any(|(from, to)| (*from..*to).contains(&time) && *to <= end) => 1,
            None => 4,
        };
        parts[part] += 1;
    }
    parts
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let fields = (prop::sample::select(vec![1, 2, JBD2, OTHER]), 0..200_i64, 0..20_i64, 1..40_i64, 0..3_u8, 0..2_u32);
    let request = fields.prop_map(|(pid, arrival, queued, service, kind, device)| {
        let request = write(pid, [arrival, arrival + queued, arrival + queued + service]);
        let request = Request { device: Some(NameId(device)), ..request };
        match kind {
            0 => durable(request),
            1 => flush(request),
            _ => request,
        }
    });
    prop::collection::vec(request, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(256)))]

    #[test]
    fn parts_are_those_of_the_definition_and_sum_to_the_wait(
        requests in requests(),
        waits in prop::collection::vec((1..3_i32, 0..220_i64, 0..90_i64), 1..6),
        commits in prop::collection::vec((1..30_i64, 1..30_i64), 0..5),
    ) {
        let waits: Vec<_> = waits.iter().map(|(pid, start, time)| wait(*pid, *start, start + time)).collect();
        let mut at = 0;
        let commits: Vec<_> = commits
            .iter()
            .map(|(gap, time)| {
                at += gap + time;
                (at - time, at)
            })
            .collect();
        let all = activity(waits, &commits);
        let fsync = divided(all.clone(), &requests);
        for (wait, split) in all.waits.iter().zip(&fsync.splits) {
            let split = split.unwrap();
            prop_assert!(split.parts.iter().all(|part| *part >= 0));
            prop_assert_eq!(split.parts.iter().sum::<i64>(), wait.time.0);
            prop_assert_eq!(split.parts, by_moments(wait, &commits, &requests));
        }
    }
}

#[test]
fn waits_stand_on_the_time_line_of_the_requests_unless_its_jumps_were_taken_out() {
    let wait = wait(7, 1_500_000_000, 1_750_000_000);
    let early = SyncWait { start: Nanos(500_000_000), ..wait.clone() };
    let activity = RecordedActivity { waits: vec![early, wait.clone()], ..RecordedActivity::default() };
    let header = TraceHeader { activity: serde_json::to_string(&activity).ok(), ..TraceHeader::default() };
    let rows = stall_rows(&header, &Ledger::default(), Nanos(1_000_000_000));
    let times: Vec<_> = rows.iter().map(|row| (row.start_s, row.end_s, row.wait_ms)).collect();
    assert_eq!(times, [(-0.5, -0.25, 250.0), (0.5, 0.75, 250.0)]);
    let mended = Ledger { mended_jumps: 1, ..Ledger::default() };
    assert_eq!(stall_rows(&header, &mended, Nanos::ZERO), []);
    let shorter = |time| SyncWait { time: Nanos(time), ..wait.clone() };
    let waits = (0..2 * MOST as i64).map(shorter).collect();
    let many =
        TraceHeader { activity: RecordedActivity { waits, ..RecordedActivity::default() }.to_json(), ..TraceHeader::default() };
    let rows = stall_rows(&many, &Ledger::default(), Nanos::ZERO);
    assert!(rows.len() == MOST && rows.iter().all(|row| row.wait_ms >= MOST as f64 / 1e6));
    for damaged in [None, Some("{".to_owned())] {
        let header = TraceHeader { activity: damaged, ..TraceHeader::default() };
        assert_eq!(stall_rows(&header, &Ledger::default(), Nanos::ZERO), []);
    }
}
