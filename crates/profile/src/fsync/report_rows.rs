//! Builds the report on waits for durability.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_trace::{
    FsWriterThreads, JournalCounts, Ledger, Nanos, Op, Request, RequestFlags, SyncCounts, SyncWait, TraceHeader,
};

use super::{FsyncProfile, WaitRequest};
use crate::report::{
    ExplainedWait, FsyncPartRow, FsyncParts, FsyncReport, FsyncRow, UnfinishedWaitRow, UnknownCause, UnknownCauseRow,
    WaitRequestRow,
};

/// Number of the longest waits that the chart shows.
const CHARTED: usize = 24;
/// Maximum number of requests that the report lists for an explained wait.
const REQUESTS: usize = 100;
/// The flags of a request that show why a process waits for it.
const SHOWN_FLAGS: [RequestFlags; 5] =
    [RequestFlags::SYNC, RequestFlags::FUA, RequestFlags::PREFLUSH, RequestFlags::META, RequestFlags::JOURNAL];

impl FsyncProfile {
    /// Reports on all batches added so far. `origin` is the first arrival of the trace.
    pub fn report(&self, header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> FsyncReport {
        let mut ended = self.clone();
        ended.end();
        ended.report_of_ended(header, ledger, origin)
    }

    /// The parts of the longest waits, for a chart.
    pub fn part_rows(&self, header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> Vec<FsyncPartRow> {
        let mut ended = self.clone();
        ended.end();
        let cause = ended.cause(header, ledger);
        let row = |(rank, index): (u64, usize)| {
            let wait = &ended.activity.waits[index];
            let split = ended.splits[index].ok().filter(|_| cause.is_none());
            split.into_iter().flat_map(move |split| {
                WaitPart::ALL.into_iter().zip(split.parts).map(move |(part, length)| FsyncPartRow {
                    rank,
                    process: wait.process.clone(),
                    file_system: wait.file_system.clone(),
                    start_s: seconds(wait.start.0.saturating_sub(origin.0)),
                    wait_ms: ms(wait.time.0),
                    part: part.name(),
                    part_ms: ms(length),
                })
            })
        };
        (1..).zip(ended.by_length()).take(CHARTED).flat_map(row).collect()
    }

    /// Indices of the waits, the longest first.
    fn by_length(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.activity.waits.len()).collect();
        order.sort_by_key(|index| (Reverse(self.activity.waits[*index].time), *index));
        order
    }

    /// Returns the reason why the parts of all waits are unknown; `None` if they are known.
    fn cause(&self, header: &TraceHeader, ledger: &Ledger) -> Option<UnknownCause> {
        let left_out = ledger.filtered + ledger.filtered_before + ledger.dropped_reissues;
        [
            (ledger.lost > self.lost_in_gaps, UnknownCause::Lost),
            (left_out > 0, UnknownCause::LeftOut),
            (ledger.mended_jumps > 0, UnknownCause::Clock),
            (header.coarse_clock.is_some(), UnknownCause::CoarseClock),
            (self.without_completion, UnknownCause::Completions),
        ]
        .into_iter()
        .find_map(|(is_so, cause)| is_so.then_some(cause))
    }

    fn report_of_ended(&self, header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> FsyncReport {
        let cause = self.cause(header, ledger);
        let split = |index: usize| self.splits[index].ok().filter(|_| cause.is_none());
        let waits = &self.activity.waits;
        let mut unknown: BTreeMap<UnknownCause, u64> = BTreeMap::new();
        for split in &self.splits {
            if let Some(cause) = cause.or(split.err()) {
                *unknown.entry(cause).or_default() += 1;
            }
        }
        let mut groups: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (index, wait) in waits.iter().enumerate() {
            groups.entry((&wait.process, &wait.file_system)).or_default().push(index);
        }
        let syncs = &self.activity.syncs;
        let mut by_process: Vec<_> = syncs
            .iter()
            .map(|counts| {
                let stored = groups.get(&(&*counts.process, &*counts.file_system));
                self.row(counts, stored.map_or(&[], Vec::as_slice), split)
            })
            .collect();
        by_process.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms).then_with(|| a.process.cmp(&b.process)));
        let longest = self.by_length().into_iter().take(super::EXPLAINED);
        FsyncReport {
            calls: syncs.iter().map(|counts| counts.calls).sum(),
            stored: waits.len() as u64,
            split: (0..waits.len()).filter(|index| split(*index).is_some()).count() as u64,
            unknown: unknown.into_iter().map(|(cause, calls)| UnknownCauseRow { cause, calls }).collect(),
            journals_without_thread: self.journals(|writers| writers.pids.is_empty()),
            journals_without_times: self.journals(|writers| {
                let is_timed = |journal: &JournalCounts| journal.device == writers.device && !journal.commit_starts.is_empty();
                !writers.pids.is_empty() && !self.activity.journals.iter().any(is_timed)
            }),
            unqueued: ledger.unqueued,
            by_process,
            longest: longest.map(|index| self.explained(index, split(index), origin)).collect(),
            unfinished: self
                .activity
                .unfinished
                .iter()
                .map(|wait| UnfinishedWaitRow {
                    process: wait.process.clone(),
                    pid: wait.pid,
                    file_system: wait.file_system.clone(),
                    device: wait.device.clone(),
                    start_s: seconds(wait.start.0.saturating_sub(origin.0)),
                })
                .collect(),
        }
    }

    /// Returns the names of the ext4 devices for which `is_so` is true.
    fn journals(&self, is_so: impl Fn(&FsWriterThreads) -> bool) -> Vec<String> {
        let ext4 = self.activity.writers.iter().filter(|writers| writers.file_system == "ext4");
        ext4.filter(|writers| is_so(writers)).map(|writers| writers.device.clone()).collect()
    }

    /// Returns the row of a process. `stored` contains the indices of its stored waits, which are its longest waits.
    fn row(&self, counts: &SyncCounts, stored: &[usize], split: impl Fn(usize) -> Option<WaitSplit>) -> FsyncRow {
        let waits = &self.activity.waits;
        let mut lengths: Vec<_> = stored.iter().map(|index| waits[*index].time.0).collect();
        lengths.sort_unstable();
        let shorter = counts.calls.saturating_sub(lengths.len() as u64);
        let percentile = |percent: u64| {
            let rank = (counts.calls * percent).div_ceil(100).max(1);
            let place = rank.checked_sub(shorter + 1)?;
            lengths.get(place as usize).map(|length| ms(*length))
        };
        let (mut splits, mut split_ms) = (Vec::new(), 0.0);
        for index in stored {
            if let Some(split) = split(*index) {
                splits.push(split);
                split_ms += ms(waits[*index].time.0);
            }
        }
        let parts = sum(&splits);
        FsyncRow {
            process: counts.process.clone(),
            file_system: counts.file_system.clone(),
            calls: counts.calls,
            errors: counts.errors,
            total_ms: ms(counts.time.0),
            mean_ms: ms(counts.time.0) / counts.calls.max(1) as f64,
            p50_ms: percentile(50),
            p99_ms: percentile(99),
            max_ms: ms(counts.longest.0),
            split: splits.len() as u64,
            split_ms,
            parts,
            shares: parts.shares(split_ms),
        }
    }

    fn explained(&self, index: usize, split: Option<WaitSplit>, origin: Nanos) -> ExplainedWait {
        let wait = &self.activity.waits[index];
        let mut requests: Vec<_> = match (split, self.explained.get(&index)) {
            (Some(_), Some(requests)) => requests.iter().collect(),
            _ => Vec::new(),
        };
        let all = requests.len();
        // Requests that belong to the wait are kept first, then the longest other requests.
        requests.sort_by_key(|it| (it.part.is_none(), Reverse(it.overlap.complete - it.overlap.arrival)));
        requests.truncate(REQUESTS);
        requests.sort_by_key(|it| (it.overlap.arrival, it.overlap.complete));
        ExplainedWait {
            process: wait.process.clone(),
            pid: wait.pid,
            file_system: wait.file_system.clone(),
            device: wait.device.clone(),
            start_s: seconds(wait.start.0.saturating_sub(origin.0)),
            wait_ms: ms(wait.time.0),
            parts: sum(split.as_slice()),
            requests_left_out: (all - requests.len()) as u64,
            requests: requests.into_iter().map(|explained| self.request(wait, explained)).collect(),
        }
    }

    fn request(&self, wait: &SyncWait, explained: &WaitRequest) -> WaitRequestRow {
        let WaitRequest { named: seen, part, overlap: piece } = explained;
        let after = |time: i64| ms(time.saturating_sub(wait.start.0));
        let flags = SHOWN_FLAGS.iter().filter(|flag| seen.request.flags.contains(**flag));
        let named = flags.filter_map(|flag| RequestFlags::NAMES.get(flag.0.trailing_zeros() as usize).copied());
        WaitRequestRow {
            at_ms: after(piece.arrival),
            process: self.processes.name(seen.process as usize).unwrap_or("(unknown)").to_owned(),
            pid: seen.request.pid,
            device: self.devices.name(seen.device as usize).unwrap_or("(unknown)").to_owned(),
            what: std::iter::once(seen.request.op.name()).chain(named).collect::<Vec<_>>().join(" "),
            part: part.map_or("other", WaitPart::name),
            sector: seen.request.sector.0,
            sectors: seen.request.sectors,
            queued_ms: piece.is_issued.then(|| ms(piece.issue - piece.arrival)),
            service_ms: seen.request.service().map(|time| ms(time.0)),
            end_ms: after(piece.complete),
        }
    }
}

/// Sums the parts of several waits; all sums are unknown if there are no waits.
fn sum(splits: &[WaitSplit]) -> FsyncParts {
    if splits.is_empty() {
        return FsyncParts::default();
    }
    let part = |part: WaitPart| Some(ms(splits.iter().map(|split| split.parts[part as usize]).sum()));
    FsyncParts {
        data_ms: part(WaitPart::Data),
        commit_ms: part(WaitPart::Commit),
        flush_ms: part(WaitPart::Flush),
        queue_ms: part(WaitPart::Queue).filter(|_| splits.iter().all(|split| split.knows_queue)),
        unexplained_ms: part(WaitPart::Unexplained),
        shared_ms: Some(ms(splits.iter().map(|split| split.shared).sum())),
    }
}

fn ms(time: i64) -> f64 {
    time as f64 / 1e6
}

fn seconds(time: i64) -> f64 {
    time as f64 / 1e9
}

/// The parts into which a wait is divided, in the order of charts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitPart {
    Data,
    Commit,
    Flush,
    Queue,
    Unexplained,
}

impl WaitPart {
    pub const ALL: [Self; 5] = [Self::Data, Self::Commit, Self::Flush, Self::Queue, Self::Unexplained];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Commit => "commit",
            Self::Flush => "flush",
            Self::Queue => "queue",
            Self::Unexplained => "unexplained",
        }
    }
}

/// The task that issued a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOwner {
    /// The waiting task itself.
    Own,
    /// A thread that writes for the file system.
    Writer,
    Other,
}

/// The step of a wait to which a request belongs. If several steps are in progress, the time counts for the first of them: a task waits for
/// its own requests before it waits for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitStep {
    OwnData,
    OwnCommit,
    OwnFlush,
    WriterCommit,
    WriterFlush,
    /// The request does not belong to the wait.
    None,
}

const STEPS: usize = WaitStep::None as usize;

impl WaitStep {
    fn of(request: &Request, owner: RequestOwner) -> Self {
        let is_flush = request.op == Op::Flush || is_durable(request);
        match owner {
            RequestOwner::Own if is_flush => Self::OwnFlush,
            // f2fs metadata is written by the task itself if the task writes the checkpoint.
            RequestOwner::Own if request.op == Op::Write && request.flags.contains(RequestFlags::META) => Self::OwnCommit,
            RequestOwner::Own => Self::OwnData,
            RequestOwner::Writer if is_flush => Self::WriterFlush,
            RequestOwner::Writer => Self::WriterCommit,
            RequestOwner::Other => Self::None,
        }
    }

    pub const fn part(self) -> Option<WaitPart> {
        match self {
            Self::OwnData => Some(WaitPart::Data),
            Self::OwnCommit | Self::WriterCommit => Some(WaitPart::Commit),
            Self::OwnFlush | Self::WriterFlush => Some(WaitPart::Flush),
            Self::None => None,
        }
    }
}

fn is_durable(request: &Request) -> bool {
    request.op == Op::Write && request.flags.intersects(RequestFlags::FUA.union(RequestFlags::PREFLUSH))
}

/// A request that ran during a wait; times in ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverlappingRequest {
    pub arrival: i64,
    /// Time at which the device received the request; if this time was not recorded, the time of arrival.
    pub issue: i64,
    pub complete: i64,
    pub step: WaitStep,
    /// Index of the device's name in the profile.
    pub device: u32,
    /// Whether `issue` was recorded.
    pub is_issued: bool,
}

impl OverlappingRequest {
    /// Returns `None` if the request has no completion.
    pub fn new(request: &Request, owner: RequestOwner, device: u32) -> Option<Self> {
        let complete = request.complete?.0;
        // The issue time of a durable write is that of its data. The preflush precedes it, so the start time is used if it is known.
        let durable = request.op == Op::Flush || is_durable(request);
        let issue = if durable { request.start.or(request.issue) } else { request.issue.or(request.start) };
        let arrival = request.arrival.0;
        Some(Self {
            arrival,
            issue: issue.map_or(arrival, |issue| issue.0.clamp(arrival, complete)),
            complete,
            step: WaitStep::of(request, owner),
            device,
            is_issued: issue.is_some(),
        })
    }
}

/// Length of each part of a wait in ns, indexed by [`WaitPart`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitSplit {
    pub parts: [i64; WaitPart::ALL.len()],
    /// Time of the parts data, commit and flush during which the device also processed requests of other processes, ns.
    pub shared: i64,
    /// Whether the time of issue was recorded for all requests of the wait, so that their queueing time is known.
    pub knows_queue: bool,
}

/// The kind of activity that begins or ends at a certain time during a wait.
#[derive(Clone, Copy, Debug)]
enum ActivityChange {
    /// Requests of a step that are queued in the host.
    Queued(WaitStep),
    /// Requests of a step that the device processes.
    At(WaitStep),
    /// Requests of other processes that the device processes.
    Others,
    /// Commits in progress.
    Commits,
}

/// Numbers of requests in progress on one device, by step of the wait.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightCounters {
    queued: [i32; STEPS],
    at: [i32; STEPS],
    others: i32,
}

/// The time at which the last commit during the wait ended. The task waited for the requests of the file system's writer threads until this
/// time, but not for their next commit. `None` if no commit ended during the wait.
fn last_commit(wait: &Range<i64>, pieces: &[OverlappingRequest], commits: &[Range<i64>]) -> Option<i64> {
    let of_writers = pieces.iter().filter(|piece| piece.step == WaitStep::WriterFlush).map(|piece| piece.complete);
    let ends = of_writers.chain(commits.iter().map(|commit| commit.end));
    ends.filter(|end| (wait.start + 1..=wait.end).contains(end)).max()
}

/// Returns the step of a wait to which a request belongs. The task can only have waited for requests that completed during the wait.
pub(super) fn step_in(wait: &Range<i64>, piece: &OverlappingRequest, last_commit: Option<i64>) -> WaitStep {
    let until = match piece.step {
        WaitStep::WriterCommit | WaitStep::WriterFlush => last_commit,
        _ => Some(wait.end),
    };
    if until.is_some_and(|until| piece.complete <= until) { piece.step } else { WaitStep::None }
}

/// Divides a wait for durability into parts. `commits` are the commits of the same file system. Calls `each` with each period of the wait
/// and the part to which it belongs. Returns the parts and the result of [`last_commit`].
pub(super) fn split(
    wait: &Range<i64>, pieces: &[OverlappingRequest], commits: &[Range<i64>], mut each: impl FnMut(Range<i64>, WaitPart),
) -> (WaitSplit, Option<i64>) {
    let last = last_commit(wait, pieces, commits);
    let mut changes: Vec<(i64, i32, u32, ActivityChange)> = Vec::with_capacity(4 * pieces.len());
    let mut during = |from: i64, to: i64, device: u32, change: ActivityChange| {
        let (from, to) = (from.max(wait.start), to.min(wait.end));
        if from < to {
            changes.extend([(from, 1, device, change), (to, -1, device, change)]);
        }
    };
    let mut divided = WaitSplit { knows_queue: true, ..WaitSplit::default() };
    let mut devices = 0;
    for piece in pieces {
        devices = devices.max(piece.device as usize + 1);
        match step_in(wait, piece, last) {
            WaitStep::None if matches!(piece.step, WaitStep::OwnData | WaitStep::OwnCommit | WaitStep::OwnFlush) => {}
            WaitStep::None => during(piece.issue, piece.complete, piece.device, ActivityChange::Others),
            step => {
                divided.knows_queue &= piece.is_issued;
                during(piece.arrival, piece.issue, piece.device, ActivityChange::Queued(step));
                during(piece.issue, piece.complete, piece.device, ActivityChange::At(step));
            }
        }
    }
    for commit in commits.iter().filter(|commit| commit.end <= wait.end) {
        during(commit.start, commit.end, 0, ActivityChange::Commits);
    }
    changes.sort_unstable_by_key(|change| change.0);
    let mut counts = vec![InFlightCounters::default(); devices];
    let (mut commits_under_way, mut from) = (0, wait.start);
    let mut until = |to: i64, counts: &[InFlightCounters], committing: bool| {
        if from < to {
            let (part, is_shared) = part_now(counts, committing);
            divided.parts[part as usize] += to - from;
            divided.shared += if is_shared { to - from } else { 0 };
            each(from..to, part);
            from = to;
        }
    };
    for (time, step_by, device, change) in changes {
        until(time, &counts, commits_under_way > 0);
        let counts = counts.get_mut(device as usize);
        match (change, counts) {
            (ActivityChange::Commits, _) => commits_under_way += step_by,
            (ActivityChange::Queued(step), Some(counts)) => counts.queued[step as usize] += step_by,
            (ActivityChange::At(step), Some(counts)) => counts.at[step as usize] += step_by,
            (ActivityChange::Others, Some(counts)) => counts.others += step_by,
            (_, None) => {}
        }
    }
    until(wait.end, &counts, false);
    (divided, last)
}

/// The part of the wait to which a point in time belongs, by the requests in progress on each device; and whether a device works for other
/// processes at that time.
fn part_now(counts: &[InFlightCounters], committing: bool) -> (WaitPart, bool) {
    const ALL: [WaitStep; STEPS] =
        [WaitStep::OwnData, WaitStep::OwnCommit, WaitStep::OwnFlush, WaitStep::WriterCommit, WaitStep::WriterFlush];
    for step in ALL {
        let index = step as usize;
        let at = counts.iter().any(|device| device.at[index] > 0);
        let queued = counts.iter().any(|device| device.queued[index] > 0);
        if !at && !queued {
            continue;
        }
        let part = step.part().unwrap_or(WaitPart::Unexplained);
        if at {
            return (part, counts.iter().any(|device| device.at[index] > 0 && device.others > 0));
        }
        let behind = counts.iter().any(|device| device.queued[index] > 0 && device.others > 0);
        return (if behind { WaitPart::Queue } else { part }, false);
    }
    (if committing { WaitPart::Commit } else { WaitPart::Unexplained }, false)
}
