//! Screening of requests in order of arrival: re-issues are marked or dropped, requests are selected, several devices are rejected.

use crate::support::{Trace, convert, read, read_with};
use emmclab_trace::{
    ErrorClass, Ledger, MendClock, ReadOptions, ReissueWindow, RequestFilter, RequestFlags, Result, TraceCombiner, TraceInput,
    TraceReader,
};

const PIXEL: &str = "proces,device,rw_flag,sector,size,timestamp\n";
const TIMED: &str = "arrival_ns,complete_ns,op,sector,sectors,process,device\n";

fn parsed(heading: &str, lines: &str, options: &ReadOptions) -> Result<Trace> {
    crate::support::read_bytes(format!("{heading}{lines}").as_bytes(), "csv", options)
}

fn only(text: &str) -> ReadOptions {
    ReadOptions { only: Some(RequestFilter::parse(&[text.to_owned()]).unwrap()), ..ReadOptions::default() }
}

fn dropping() -> ReadOptions {
    ReadOptions { drop_reissued: true, ..ReadOptions::default() }
}

/// Number of suspected re-issues in the ledger, which must equal that of the marks.
fn reissued(heading: &str, lines: &str) -> Option<u64> {
    let trace = parsed(heading, lines, &ReadOptions::default()).unwrap();
    let marked = trace.requests.iter().filter(|request| request.flags.contains(RequestFlags::REISSUED)).count();
    assert_eq!(trace.ledger.reissued.unwrap_or(0), marked as u64);
    trace.ledger.reissued
}

fn second(line: &str) -> Option<u64> {
    reissued(PIXEL, &format!("app-7,8388608,W,800,8,1.000\n{line}\n"))
}

#[test]
fn a_worker_that_issues_anothers_request_again_after_half_to_three_milliseconds_is_suspected() {
    assert_eq!(second("kworker/u17:0-9,8388608,W,800,8,1.001"), Some(1));
    // The window includes its bounds.
    assert_eq!(second("kworker/u17:0-9,8388608,W,800,8,1.0005"), Some(1));
    assert_eq!(second("kworker/u17:0-9,8388608,W,800,8,1.003"), Some(1));
    for line in [
        "kworker/u17:0-9,8388608,W,800,8,1.000499",
        "kworker/u17:0-9,8388608,W,800,8,1.003001",
        "kworker/u17:0-9,8388608,R,800,8,1.001",
        "kworker/u17:0-9,8388608,W,800,16,1.001",
        "kworker/u17:0-9,8388608,W,808,8,1.001",
        "kworker/u17:0-9,8388624,W,800,8,1.001",
        "other-9,8388608,W,800,8,1.001",
        "kworker/u17:0-7,8388608,W,800,8,1.001",
    ] {
        assert_eq!(second(line), Some(0), "{line}");
    }
}

#[test]
fn the_window_of_reissues_is_a_setting_that_the_trace_remembers() {
    let lines = "app-7,8388608,W,800,8,1.000\nkworker/0:1-9,8388608,W,800,8,1.040\n";
    let wide = ReadOptions { reissue_window: Some(ReissueWindow::parse("0-100ms").unwrap()), ..ReadOptions::default() };
    let usual = parsed(PIXEL, lines, &ReadOptions::default()).unwrap();
    assert_eq!((usual.ledger.reissued, usual.header.reissue_window), (Some(0), None));
    let trace = parsed(PIXEL, lines, &wide).unwrap();
    assert_eq!((trace.ledger.reissued, trace.header.reissue_window.as_deref()), (Some(1), Some("0ms-100ms")));

    // A trace with stored marks cannot be checked again: requests may have been removed since.
    let folder = tempfile::tempdir().unwrap();
    let (text, stored) = (folder.path().join("trace.csv"), folder.path().join("trace.parquet"));
    std::fs::write(&text, format!("{PIXEL}{lines}")).unwrap();
    convert(&text, &wide, &stored);
    assert_eq!(read(&stored).unwrap().header.reissue_window.as_deref(), Some("0ms-100ms"));
    let refused = TraceReader::open(&stored, &wide).err().unwrap();
    assert_eq!(refused.kind(), ErrorClass::Config);
    assert!(refused.to_string().contains("--reissue-window"), "{refused}");
}

#[test]
fn the_latest_earlier_request_decides() {
    // There is another request of the worker between the two.
    let lines = "app-7,8388608,W,800,8,1.000\nkworker/0:1-9,8388608,W,800,8,1.0001\nkworker/0:1-9,8388608,W,800,8,1.001\n";
    assert_eq!(reissued(PIXEL, lines), Some(0));
    // Each re-issue in a burst is detected.
    let burst: String = (0..500)
        .map(|i| format!("app-7,8388608,W,{},8,1.{:06}\n", 8 * i, i))
        .chain((0..500).map(|i| format!("kworker/0:1-9,8388608,W,{},8,1.{:06}\n", 8 * i, 1000 + i)))
        .collect();
    assert_eq!(reissued(PIXEL, &burst), Some(500));
}

#[test]
fn a_request_after_a_recorded_completion_is_no_reissue() {
    let lines = |complete: &str| format!("0,{complete},read,800,8,app,sda\n1000000,3000000,read,800,8,kworker/0:1,sda\n");
    assert_eq!(reissued(TIMED, &lines("1500000")), Some(1));
    assert_eq!(reissued(TIMED, &lines("900000")), Some(0));
    assert_eq!(reissued(TIMED, &lines("1000000")), Some(0));
}

#[test]
fn without_processes_completions_judge_and_without_both_nothing_is() {
    let heading = "arrival_ns,complete_ns,op,sector,sectors\n";
    assert_eq!(reissued(heading, "0,1500000,read,800,8\n1000000,3000000,read,800,8\n"), Some(1));
    assert_eq!(reissued(heading, "0,900000,read,800,8\n1000000,3000000,read,800,8\n"), Some(0));
    let heading = "arrival_ns,op,sector,sectors\n";
    assert_eq!(reissued(heading, "0,read,800,8\n1000000,read,800,8\n"), None);
}

#[test]
fn dropped_reissues_are_counted_and_gone() {
    let lines = "app-7,8388608,W,800,8,1.000\nkworker/0:1-9,8388608,W,800,8,1.001\napp-7,8388608,W,900,8,1.002\n";
    let trace = parsed(PIXEL, lines, &dropping()).unwrap();
    let Ledger { kept, reissued, dropped_reissues, .. } = trace.ledger;
    assert_eq!((trace.requests.len(), kept, reissued, dropped_reissues), (2, 2, Some(1), 1));
    assert_eq!(trace.rows(|request| request.sector.0), [800, 900]);
}

#[test]
fn a_parquet_trace_remembers_its_reissues_and_counts_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // The third request is a re-issue of the first, if the second, which is of the same worker, is removed.
    let lines = "app-7,8388608,W,800,8,1.000\nkworker/0:1-9,8388608,W,800,8,1.001\n\
                 kworker/0:1-9,8388608,W,800,8,1.002\napp-7,8388608,W,900,8,1.010\n";
    std::fs::write(path("trace.csv"), format!("{PIXEL}{lines}")).unwrap();
    convert(&path("trace.csv"), &ReadOptions::default(), &path("marked.parquet"));
    convert(&path("trace.csv"), &dropping(), &path("dropped.parquet"));
    convert(&path("marked.parquet"), &dropping(), &path("dropped-later.parquet"));
    for (name, options, kept, dropped) in [
        ("marked.parquet", ReadOptions::default(), 4, 0),
        ("marked.parquet", dropping(), 3, 1),
        ("dropped.parquet", ReadOptions::default(), 3, 1),
        ("dropped.parquet", dropping(), 3, 1),
        ("dropped-later.parquet", dropping(), 3, 1),
    ] {
        let trace = read_with(&path(name), &options).unwrap();
        let Ledger { kept: count, reissued, dropped_reissues, .. } = trace.ledger;
        assert_eq!((trace.requests.len() as u64, count), (kept, kept), "{name}");
        assert_eq!((reissued, dropped_reissues), (Some(1), dropped), "{name}");
    }
}

#[test]
fn reissues_are_found_on_the_mended_clock_and_not_between_traces() {
    // The clock goes back between other requests; the pair follows the jump.
    let before: String = (0..600).map(|i| format!("app-7,8388608,W,{},8,{}.5\n", 8 * i, 5000 + i)).collect();
    let after: String = (0..600).map(|i| format!("app-7,8388608,W,{},8,{}.5\n", 8 * i, 100 + i)).collect();
    let pair = "app-7,8388608,W,80000,8,900.000\nkworker/0:1-9,8388608,W,80000,8,900.001\n";
    let options = ReadOptions { mend_clock: Some(MendClock::Jumps), ..dropping() };
    let trace = parsed(PIXEL, &format!("{before}{after}{pair}"), &options).unwrap();
    assert_eq!((trace.ledger.mended_jumps, trace.ledger.dropped_reissues, trace.requests.len()), (1, 1, 1201));

    // Two traces together: the worker of one trace issues the same request as the application of the other.
    let folder = tempfile::tempdir().unwrap();
    let inputs = [("a", "app-7,8388608,W,800,8,1.000\n"), ("b", "kworker/0:1-9,8388608,W,800,8,5.0\n")];
    let inputs = inputs.map(|(name, line)| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{PIXEL}{line}")).unwrap();
        let start_offset = emmclab_trace::Nanos(if name == "b" { 1_000_000 } else { 0 });
        TraceInput { path, options: ReadOptions::default(), start_offset }
    });
    let mut both = TraceCombiner::open(inputs.to_vec(), 1).unwrap();
    let batch = both.next_batch().unwrap().unwrap();
    assert_eq!(batch.get(1).arrival.0 - batch.get(0).arrival.0, 1_000_000);
    assert!(both.next_batch().unwrap().is_none());
    assert_eq!(both.ledger().reissued, Some(0));
}

#[test]
fn a_selection_keeps_times_as_recorded_and_counts_what_it_leaves_out() {
    let lines = "0,9000000,read,800,8,app,sda\n1000000,2000000,write,16,8,kworker/0:1,sda\n\
                 2000000000,2000900000,read,24,8,kworker/1:0,sdb\n3000000000,3000900000,write,32,8,app,sda\n";
    let sectors = |text: &str| {
        let trace = parsed(TIMED, lines, &only(text)).unwrap();
        let (kept, left) = (trace.requests.len() as u64, trace.ledger.filtered);
        assert_eq!((trace.ledger.kept, kept + left), (kept, 4), "{text}");
        trace.rows(|request| request.sector.0)
    };
    for (text, expected) in [
        ("process=app", vec![800, 32]),
        ("process=kworker/*", vec![16, 24]),
        ("process=app|kworker/1:?", vec![800, 24, 32]),
        ("device=sdb", vec![24]),
        ("op=write", vec![16, 32]),
        ("from=1ms,to=3s", vec![16, 24]),
        ("from=2s", vec![24, 32]),
        ("device=sda,process=app,to=1s", vec![800]),
    ] {
        assert_eq!(sectors(text), expected, "{text}");
    }
    let trace = parsed(TIMED, lines, &only("process=app,op=read")).unwrap();
    assert_eq!(trace.requests[0].complete.unwrap().0, 9_000_000);
    let pids = "app-7,8388608,W,800,8,1.000\nfio-9,8388608,W,900,8,1.5\n";
    assert_eq!(parsed(PIXEL, pids, &only("pid=9")).unwrap().requests[0].sector.0, 900);
}

#[test]
fn a_value_that_no_request_has_is_an_error_that_lists_what_there_is() {
    let lines = "0,9000000,read,800,8,app,sda\n1000000,2000000,write,16,8,kworker/0:1,sda\n\
                 2000000000,2000900000,read,24,8,kworker/1:0,sdb\n";
    for (text, hint) in [
        ("device=sdc", "sda (66.7 %), sdb (33.3 %)"),
        ("device=sda|sdc", "sda (66.7 %)"),
        ("process=fio", "app (33.3 %)"),
        ("op=discard", "read, write"),
        ("from=10s", "2.00 s after the first"),
        ("pid=7", "does not record"),
        ("device=sdb,process=app", "fewer"),
    ] {
        let error = parsed(TIMED, lines, &only(text)).unwrap_err();
        assert_eq!(error.kind(), ErrorClass::Config, "{text}");
        assert!(error.hint_text().unwrap().contains(hint), "{text}: {error}");
        assert!(error.to_string().contains("sample.csv"), "{error}");
    }
}

#[test]
fn reissues_are_judged_by_all_requests_and_counted_among_the_wanted() {
    let lines = "app-7,8388608,W,800,8,1.000\nkworker/0:1-9,8388608,W,800,8,1.001\napp-7,8388608,W,900,8,1.002\n";
    let trace = parsed(PIXEL, lines, &only("process=kworker/*")).unwrap();
    assert_eq!((trace.ledger.reissued, trace.ledger.filtered), (Some(1), 2));
    let trace = parsed(PIXEL, lines, &only("process=app")).unwrap();
    assert_eq!((trace.ledger.reissued, trace.ledger.filtered), (Some(0), 1));
}

#[test]
fn times_of_a_selection_count_from_the_first_arrival_on_the_mended_clock() {
    let lines: String = (0..2000)
        .map(|i| (i, f64::from(i) / 10.0 + if i < 1000 { 0.0 } else { 500_000.0 }))
        .map(|(i, time)| format!("app-7,8388608,W,{},8,{time:.1}\n", 8 * i))
        .collect();
    let mended = ReadOptions { mend_clock: Some(MendClock::Jumps), ..only("from=150s,to=160s") };
    let trace = parsed(PIXEL, &lines, &mended).unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.mended_jumps), (100, 1));
}

#[test]
fn several_devices_are_refused_with_their_shares_where_one_is_required() {
    let lines = "0,9,read,800,8,app,sda\n10,20,write,16,8,app,sdb\n30,40,write,16,8,app,sdb\n";
    let one_device = ReadOptions { one_device: true, ..ReadOptions::default() };
    let error = parsed(TIMED, lines, &one_device).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Config);
    assert!(error.to_string().contains("sdb (66.7 %), sda (33.3 %)"), "{error}");
    assert!(error.hint_text().unwrap().contains("--only device=sdb"), "{error}");
    let chosen = ReadOptions { one_device: true, ..only("device=sda") };
    assert_eq!(parsed(TIMED, lines, &chosen).unwrap().requests.len(), 1);
    // The devices of different traces are not counted together.
    assert_eq!(parsed(TIMED, "0,9,read,800,8,app,sda\n", &one_device).unwrap().devices, ["sda"]);
}

/// Percentages of re-issues on a Pixel, with one decimal; a Nexus 5, which never gates its bus, has none.
#[test]
fn real_traces_hold_the_reissues_that_a_sleeping_link_causes() {
    for (name, requests, expected) in [
        ("telegram_exec", 251_879, 36_511),
        ("genshin_impact_exec", 91_317, 10_992),
        ("pubg_exec", 67_757, 5_630),
        ("cod_exec", 223_998, 18_398),
        ("telegram_precond", 5_320, 268),
    ] {
        let Some(path) = crate::support::real_trace(&format!("pixel6a/{name}.csv.gz")) else { return };
        let trace = read_with(&path, &dropping()).unwrap();
        assert_eq!((trace.ledger.seen, trace.ledger.reissued), (requests, Some(expected)), "{name}");
        assert_eq!(trace.requests.len() as u64, requests - expected, "{name}");
    }
    let Some(path) = crate::support::real_trace("nexus5/log106_Messaging.txt") else { return };
    assert_eq!(read_with(&path, &ReadOptions::default()).unwrap().ledger.reissued, Some(0));
}
