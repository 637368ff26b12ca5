//! Divides one wait for durability into parts. `docs/concepts/fsync.md` defines the parts.

use std::ops::Range;

use emmclab_trace::{Op, Request, RequestFlags};

/// The parts of a wait, in the order of charts.
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

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOwner {
    /// Of the task that waits.
    Own,
    /// Of a thread that writes for the file system.
    Writer,
    Other,
}

/// The step of a wait to which a request belongs. At each moment the time counts for the first step that is in progress: a task
/// waits for its own requests before it waits for a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitStep {
    OwnData,
    OwnCommit,
    OwnFlush,
    WriterCommit,
    WriterFlush,
    /// It is not of the wait.
    None,
}

const STEPS: usize = WaitStep::None as usize;

impl WaitStep {
    fn of(request: &Request, owner: RequestOwner) -> Self {
        let is_flush = request.op == Op::Flush || is_durable(request);
        match owner {
            RequestOwner::Own if is_flush => Self::OwnFlush,
            // The metadata of f2fs, if the task writes the checkpoint itself.
            RequestOwner::Own if request.op == Op::Write && request.flags.contains(RequestFlags::META) => {
                Self::OwnCommit
            }
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
    /// When the device got it; its arrival if this was not recorded.
    pub issue: i64,
    pub complete: i64,
    pub step: WaitStep,
    /// Index of the device's name.
    pub device: u32,
    /// Whether `issue` was recorded.
    pub is_issued: bool,
}

impl OverlappingRequest {
    /// `None` if it has no completion.
    pub fn new(request: &Request, owner: RequestOwner, device: u32) -> Option<Self> {
        let complete = request.complete?.0;
        // The issue of a durable write is that of its data, after its preflush.
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

/// The parts of a wait in ns, by [`WaitPart`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitSplit {
    pub parts: [i64; WaitPart::ALL.len()],
    /// Time of data, commit and flush in which the device had requests of others, too.
    pub shared: i64,
    /// Whether queueing of all requests of the wait was recorded.
    pub knows_queue: bool,
}

/// Changes of counts at a moment.
#[derive(Clone, Copy, Debug)]
enum ActivityChange {
    /// Requests of a step that wait at the host.
    Queued(WaitStep),
    /// Requests of a step at the device.
    At(WaitStep),
    /// Requests of others at the device.
    Others,
    /// Commits in progress.
    Commits,
}

/// Counts of requests of one device.
#[derive(Clone, Copy, Debug, Default)]
struct InFlightCounters {
    queued: [i32; STEPS],
    at: [i32; STEPS],
    others: i32,
}

/// The last moment of the wait at which a commit ended: the wait was for what the writers did until then, but not for their
/// next commit. `None` if no commit ended in the wait.
fn last_commit(wait: &Range<i64>, pieces: &[OverlappingRequest], commits: &[Range<i64>]) -> Option<i64> {
    let of_writers = pieces.iter().filter(|piece| piece.step == WaitStep::WriterFlush).map(|piece| piece.complete);
    let ends = of_writers.chain(commits.iter().map(|commit| commit.end));
    ends.filter(|end| (wait.start + 1..=wait.end).contains(end)).max()
}

/// The step of a piece in this wait: only what ended in it can have been waited for.
pub(super) fn step_in(wait: &Range<i64>, piece: &OverlappingRequest, last_commit: Option<i64>) -> WaitStep {
    let until = match piece.step {
        WaitStep::WriterCommit | WaitStep::WriterFlush => last_commit,
        _ => Some(wait.end),
    };
    if until.is_some_and(|until| piece.complete <= until) { piece.step } else { WaitStep::None }
}

/// Divides a wait. `commits` are those of its file system, `each` is called with each stretch of time and its part.
pub(super) fn split(
    wait: &Range<i64>,
    pieces: &[OverlappingRequest],
    commits: &[Range<i64>],
    mut each: impl FnMut(Range<i64>, WaitPart),
) -> (WaitSplit, Option<i64>) {
    let last = last_commit(wait, pieces, commits);
    let mut changes: Vec<(i64, i32, u32, ActivityChange)> = Vec::with_capacity(4 * pieces.len());
    let mut during = |from: i64, to: i64, device: u32, change: ActivityChange| {
        let (from, to) = (from.max(wait.start), to.min(wait.end));
        if from < to {
            changes.extend([(from, 1, device, change), (to, -1, device, change)]);
        }
    };
    let mut found = WaitSplit { knows_queue: true, ..WaitSplit::default() };
    let mut devices = 0;
    for piece in pieces {
        devices = devices.max(piece.device as usize + 1);
        match step_in(wait, piece, last) {
            WaitStep::None if matches!(piece.step, WaitStep::OwnData | WaitStep::OwnCommit | WaitStep::OwnFlush) => {}
            WaitStep::None => during(piece.issue, piece.complete, piece.device, ActivityChange::Others),
            step => {
                found.knows_queue &= piece.is_issued;
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
            found.parts[part as usize] += to - from;
            found.shared += if is_shared { to - from } else { 0 };
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
    (found, last)
}

/// The part of a moment with these counts of each device, and whether the device also works for others.
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
