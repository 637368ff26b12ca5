//! Evaluates the rule for suspected re-issues in a guest whose kernel reports every returned request: the host of a SCSI disk
//! returns every 20th command as busy. Runs with `make test-guest`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use crate::common::guest::{Clock, Guest, folder};
use emmclab_trace::{Ledger, ReadOptions, ReissueWindow, RequestFlags, TraceReader};

/// Device, range and operation; there is only one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    write: bool,
    sector: u64,
    sectors: u64,
}

/// The issue of a request to the driver.
#[derive(Debug)]
struct Issue {
    time_ns: i64,
    process: String,
    pid: String,
    place: Place,
    complete_ns: Option<i64>,
    /// For a re-issue: time since the first issue of the returned request.
    again_after_ns: Option<i64>,
    by_another: bool,
}

/// The issues in the kernel's text; its requeue events show which of them are re-issues.
fn issues(text: &str) -> Vec<Issue> {
    let mut issues: Vec<Issue> = Vec::new();
    // The issues of open requests, and the requests that were returned.
    let (mut open, mut back) = (HashMap::<Place, Vec<usize>>::new(), HashSet::new());
    for line in text.lines() {
        let Some((head, event)) = line.split_once(": block_rq_") else { continue };
        let (task, time) = (head.split('[').next().unwrap().trim(), head.rsplit(' ').next().unwrap());
        let (process, pid) = task.rsplit_once('-').unwrap();
        let time_ns = (time.parse::<f64>().unwrap() * 1e9).round() as i64;
        let (kind, rest) = event.split_once(": ").unwrap();
        let rwbs = rest.split(' ').nth(1).unwrap();
        let mut range = rest.split_once(") ").unwrap().1.split(' ');
        let sector = range.next().unwrap().parse().unwrap();
        let sectors = range.nth(1).unwrap().parse().unwrap();
        if sectors == 0 || !rwbs.contains(['R', 'W']) {
            continue;
        }
        let place = Place { write: rwbs.contains('W'), sector, sectors };
        match kind {
            "issue" => {
                if !back.remove(&place) {
                    open.remove(&place);
                }
                let earlier = open.entry(place).or_default();
                let first = earlier.first().map(|first| &issues[*first]);
                let again_after_ns = first.map(|first| time_ns - first.time_ns);
                let by_another = first.is_some_and(|first| first.pid != pid);
                earlier.push(issues.len());
                let (process, pid) = (process.to_owned(), pid.to_owned());
                issues.push(Issue { time_ns, process, pid, place, complete_ns: None, again_after_ns, by_another });
            }
            // A request that never reached the driver is also returned.
            "requeue" if open.contains_key(&place) => drop(back.insert(place)),
            "complete" => {
                let end = sector + sectors;
                let ends = |key: &Place| {
                    key.write == place.write && key.sector <= sector && (sector + 1..=end).contains(&(key.sector + key.sectors))
                };
                open.retain(|key, numbers| {
                    if ends(key) {
                        for number in &*numbers {
                            issues[*number].complete_ns = Some(time_ns);
                        }
                    }
                    !ends(key)
                });
            }
            _ => {}
        }
    }
    issues
}

/// How well the rule detects re-issues in a trace of issues.
#[derive(Clone, Copy, Debug, Default)]
struct Judgement {
    known: usize,
    marked: usize,
    right: usize,
}

impl Judgement {
    fn add(self, other: Self) -> Self {
        Self { known: self.known + other.known, marked: self.marked + other.marked, right: self.right + other.right }
    }

    /// Share of the marked requests that are re-issues.
    fn precision(self) -> f64 {
        self.right as f64 / self.marked.max(1) as f64
    }

    /// Share of the re-issues that are marked.
    fn recall(self) -> f64 {
        self.right as f64 / self.known.max(1) as f64
    }
}

/// Reads the issues as a trace without other events, with or without completions.
fn judge(issues: &[Issue], completions: bool, window: Option<&str>) -> Judgement {
    let mut text = "arrival_ns,complete_ns,op,sector,sectors,process,pid,device\n".to_owned();
    for issue in issues {
        let Place { write, sector, sectors } = issue.place;
        let complete = issue.complete_ns.filter(|_| completions).map(|time| time.to_string());
        let op = if write { "write" } else { "read" };
        let (time, process, pid) = (issue.time_ns, &issue.process, &issue.pid);
        let complete = complete.unwrap_or_default();
        writeln!(text, "{time},{complete},{op},{sector},{sectors},{process},{pid},sda").unwrap();
    }
    let file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
    std::fs::write(&file, text).unwrap();
    let window = window.map(|window| ReissueWindow::parse(window).unwrap());
    let options = ReadOptions { reissue_window: window, ..ReadOptions::default() };
    let mut reader = TraceReader::open(file.path(), &options).unwrap();
    let mut marks = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        marks.extend(batch.iter().map(|request| request.flags.contains(RequestFlags::REISSUED)));
    }
    assert_eq!(marks.len(), issues.len());
    let known = issues.iter().map(|issue| issue.again_after_ns.is_some());
    known.zip(marks).fold(Judgement::default(), |sum, (known, marked)| {
        sum.add(Judgement { known: usize::from(known), marked: usize::from(marked), right: usize::from(known && marked) })
    })
}

/// The ledger of these lines, read as text of the kernel.
fn ledger_of_text<'a>(lines: impl Iterator<Item = &'a str>) -> Ledger {
    let file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    std::fs::write(&file, lines.flat_map(|line| [line, "\n"]).collect::<String>()).unwrap();
    let mut reader = TraceReader::open(file.path(), &ReadOptions::default()).unwrap();
    while reader.next_batch().unwrap().is_some() {}
    reader.ledger()
}

/// Results of the rule for a trace of a disk with this command time, summed over both schedulers: issues with the usual window
/// and with a wide one, and issues with completions with the wide one.
fn judged(guest: &Guest, command_ns: u32) -> [Judgement; 3] {
    let mut sums = [Judgement::default(); 3];
    for scheduler in ["mq-deadline", "none"] {
        let text = guest.ssh(&format!("sh /requeues {scheduler} {command_ns}")).unwrap();
        assert!(!text.contains("FAILED"), "{text}");
        let issues = issues(&text);
        let reissues: Vec<_> = issues.iter().filter(|issue| issue.again_after_ns.is_some()).collect();
        assert!(reissues.len() >= 20, "{scheduler}: {} of {} issued again", reissues.len(), issues.len());
        let by_worker = |issue: &&&Issue| issue.process.starts_with("kworker/") && issue.by_another;
        let by_workers = reissues.iter().filter(by_worker).count();
        let mut after_ms: Vec<_> = reissues.iter().filter_map(|issue| Some(issue.again_after_ns? as f64 / 1e6)).collect();
        after_ms.sort_by(f64::total_cmp);
        let quartiles: Vec<_> = (0..5).map(|part| format!("{:.2}", after_ms[part * (after_ms.len() - 1) / 4])).collect();
        eprintln!(
            "{scheduler}, commands of {} ms: {} of {} issues are second ones, {by_workers} by workers for another \
             process, after {} ms (quartiles)",
            f64::from(command_ns) / 1e6,
            reissues.len(),
            issues.len(),
            quartiles.join(" / "),
        );
        // If the recording contains requeue events, a second issue updates the first one.
        let with_requeues = ledger_of_text(text.lines());
        let without = ledger_of_text(text.lines().filter(|line| !line.contains("block_rq_requeue")));
        eprintln!("  events: {with_requeues}\n  without requeues: {without}");
        // Before the first requeue event, after 20 commands, two simultaneous reads of the same range are taken for one.
        assert!(with_requeues.requeued >= reissues.len() as u64 && with_requeues.unpaired <= 20, "{with_requeues}");

        let ways = [(false, None), (false, Some("0-100ms")), (true, Some("0-100ms"))];
        for (sum, (completions, window)) in sums.iter_mut().zip(ways) {
            let result = judge(&issues, completions, window);
            eprintln!(
                "  {}, {}: precision {:.2}, recall {:.2}, {result:?}",
                window.unwrap_or("0.5ms-3ms"),
                if completions { "completions" } else { "issues only" },
                result.precision(),
                result.recall(),
            );
            *sum = sum.add(result);
        }
    }
    sums
}

#[test]
fn the_rule_finds_the_requests_that_a_busy_host_gave_back_within_its_times() {
    let Some(folder) = folder() else { return };
    let guest = Guest::boot(&folder, Clock::Instructions);
    // This host repeats a command when another one ends, or after seven attempts of at least 3 ms each. Fast commands are rarely
    // re-issued within the usual window, which rarely marks anything else; slow commands often are.
    let [fast, fast_wide, fast_timed] = judged(&guest, 200_000);
    assert!(fast.marked - fast.right <= 5 && fast.recall() <= 0.25, "{fast:?}");
    let [slow, slow_wide, slow_timed] = judged(&guest, 1_500_000);
    assert!(slow.precision() >= 0.7 && slow.recall() >= 0.3, "{slow:?}");
    // Without completions, a repeated write of the same range by a worker cannot be distinguished.
    let (wide, timed) = (fast_wide.add(slow_wide), fast_timed.add(slow_timed));
    assert!(wide.recall() >= 0.95 && wide.precision() >= 0.6, "{wide:?}");
    assert!(timed.recall() >= 0.95 && timed.precision() >= 0.95, "{timed:?}");
}
