//! Divides each recorded wait for durability into parts, by the requests during the wait. `docs/concepts/fsync.md` defines the parts.

mod report_rows;

use emmclab_trace::{Batch, Ledger, Nanos, RecordedActivity, Request, SyncWait, TraceHeader};

use crate::report::{FsyncStallRow, UnknownCause};

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::processes::NameMap;
use report_rows::{OverlappingRequest, RequestOwner, WaitPart, WaitSplit, split, step_in};

/// Maximum number of requests that are kept in memory to divide the waits in progress into parts. Beyond it, the parts are unknown.
const MOST_PIECES: usize = 1 << 21;
/// Number of the longest waits that are explained request by request.
const EXPLAINED: usize = 3;
/// Maximum number of requests that are kept to explain a wait.
const MOST_DETAILS: usize = 1 << 14;

/// Divides the recorded waits for durability into parts, in one pass over the requests in order of arrival.
#[derive(Clone, Debug)]
pub(crate) struct FsyncProfile {
    activity: Arc<RecordedActivity>,
    /// The recorded waits for durability, in order of their starts.
    waits: Arc<[RecordedWait]>,
    /// Commits of each file system as intervals in ns, in order of their starts.
    commits: Arc<[Vec<Range<i64>>]>,
    processes: NameMap,
    devices: NameMap,
    /// Index of the next wait to begin, in `waits`.
    next: usize,
    active: Vec<ActiveWait>,
    /// Requests that have arrived and may still be in progress when the next wait begins.
    open: Vec<NamedRequest>,
    /// Size of `open` at which completed requests are removed from it.
    prune_at: usize,
    /// Number of requests in memory for the waits in progress.
    in_flight: usize,
    without_completion: bool,
    /// Periods in which events were lost, in order and without overlap.
    gaps: Arc<[Range<i64>]>,
    /// Number of events that were lost in the periods in `gaps`.
    lost_in_gaps: u64,
    /// For each wait, the lengths of its parts, or the reason why they are unknown.
    splits: Vec<Result<WaitSplit, UnknownCause>>,
    explained: BTreeMap<usize, Vec<WaitRequest>>,
}

/// A recorded wait for durability, with the threads that write for its file system.
#[derive(Clone, Debug)]
struct RecordedWait {
    time: Range<i64>,
    pid: i32,
    /// Ids of the threads that write for the file system.
    writers: Arc<[i32]>,
    /// Index of the file system in [`FsyncProfile::commits`].
    file_system: usize,
    is_explained: bool,
}

/// A wait for durability that has begun but not ended.
#[derive(Clone, Debug)]
struct ActiveWait {
    index: usize,
    overlapping: Vec<OverlappingRequest>,
    details: Vec<(NamedRequest, OverlappingRequest)>,
    is_abandoned: bool,
}

/// A request, with the profile's indices for the names of its process and device.
#[derive(Clone, Copy, Debug)]
struct NamedRequest {
    request: Request,
    process: u32,
    device: u32,
}

/// A request that is part of the explanation of a wait.
#[derive(Clone, Copy, Debug)]
struct WaitRequest {
    named: NamedRequest,
    /// The part of the wait to which the request belongs; `None` for a request of another process.
    part: Option<WaitPart>,
    overlap: OverlappingRequest,
}

impl FsyncProfile {
    /// Creates a profile of the waits for durability of a recording.
    pub fn new(activity: RecordedActivity) -> Self {
        let commits: Vec<_> = activity
            .journals
            .iter()
            .map(|journal| {
                let spans = journal.commit_starts.iter().zip(&journal.commit_times);
                let mut spans: Vec<_> = spans.map(|(start, time)| start.0..start.0.saturating_add(time.0.max(0))).collect();
                spans.sort_by_key(|span| (span.start, span.end));
                spans
            })
            .chain([Vec::new()])
            .collect();
        let mut by_length: Vec<_> = (0..activity.waits.len()).collect();
        by_length.sort_by_key(|index| (Reverse(activity.waits[*index].time), *index));
        by_length.truncate(EXPLAINED);
        let mut writers: BTreeMap<(&str, &str), Arc<[i32]>> = BTreeMap::new();
        for row in &activity.writers {
            writers.insert((&row.file_system, &row.device), row.pids.as_slice().into());
        }
        let waits: Arc<[RecordedWait]> = activity
            .waits
            .iter()
            .enumerate()
            .map(|(index, wait)| RecordedWait {
                time: wait.start.0..wait.start.0.saturating_add(wait.time.0.max(0)),
                pid: wait.pid,
                writers: writers.get(&(&*wait.file_system, &*wait.device)).cloned().unwrap_or_default(),
                file_system: activity
                    .journals
                    .iter()
                    .position(|journal| wait.file_system == "ext4" && journal.device == wait.device)
                    .unwrap_or(commits.len() - 1),
                is_explained: by_length.contains(&index),
            })
            .collect();
        Self {
            gaps: joined(activity.gaps.iter().map(|gap| gap.from.0..gap.to.0.max(gap.from.0))),
            lost_in_gaps: activity.gaps.iter().map(|gap| gap.events).sum(),
            splits: vec![Ok(WaitSplit::default()); waits.len()],
            waits,
            commits: commits.into(),
            activity: Arc::new(activity),
            processes: NameMap::default(),
            devices: NameMap::default(),
            next: 0,
            active: Vec::new(),
            open: Vec::new(),
            prune_at: 0,
            in_flight: 0,
            without_completion: false,
            explained: BTreeMap::new(),
        }
    }

    /// Adds a batch. Batches must be added in order of arrival.
    pub fn update(&mut self, batch: &Batch) {
        self.processes.follow(batch.processes());
        self.devices.follow(batch.devices());
        for request in batch {
            self.add(&request);
        }
    }

    fn add(&mut self, request: &Request) {
        let arrival = request.arrival.0;
        self.begin_until(arrival);
        self.end_until(arrival);
        if self.active.is_empty() && self.next == self.waits.len() {
            return;
        }
        let Some(complete) = request.complete else {
            self.without_completion = true;
            return;
        };
        let seen = NamedRequest {
            request: *request,
            process: self.processes.index(request.process),
            device: self.devices.index(request.device),
        };
        for active in &mut self.active {
            self.in_flight += active.add(&self.waits[active.index], &seen, self.in_flight < MOST_PIECES);
        }
        if self.waits.get(self.next).is_some_and(|next| complete.0 > next.time.start) {
            if self.open.len() >= self.prune_at {
                self.open.retain(|open| open.request.complete.is_some_and(|complete| complete.0 > arrival));
                self.prune_at = 2 * self.open.len() + 64;
            }
            self.open.push(seen);
        }
    }

    /// Begins the waits for durability that start at or before `time`.
    fn begin_until(&mut self, time: i64) {
        while let Some(wait) = self.waits.get(self.next)
            && wait.time.start <= time
        {
            let mut active = ActiveWait { index: self.next, overlapping: Vec::new(), details: Vec::new(), is_abandoned: false };
            for open in &self.open {
                self.in_flight += active.add(wait, open, self.in_flight < MOST_PIECES);
            }
            self.active.push(active);
            self.next += 1;
        }
    }

    /// Ends the waits for durability that end at or before `time`, the arrival of the next request, and divides them into parts.
    fn end_until(&mut self, time: i64) {
        let mut place = 0;
        while let Some(active) = self.active.get(place) {
            if self.waits[active.index].time.end > time {
                place += 1;
                continue;
            }
            let ended = self.active.swap_remove(place);
            self.in_flight -= ended.overlapping.len();
            self.divide(&ended);
        }
    }

    fn divide(&mut self, active: &ActiveWait) {
        let known = &self.waits[active.index];
        if active.is_abandoned {
            self.splits[active.index] = Err(UnknownCause::Memory);
            return;
        }
        // Commits of a journal do not overlap, so the commits during the wait are consecutive in the list.
        let commits = &self.commits[known.file_system];
        let from = commits.partition_point(|commit| commit.end <= known.time.start);
        let to = commits.partition_point(|commit| commit.start < known.time.end);
        let commits = commits.get(from..to).unwrap_or_default();
        let mut otherwise: Vec<Range<i64>> = Vec::new();
        let (parts, last_commit) = split(&known.time, &active.overlapping, commits, |stretch, part| {
            if known.is_explained && matches!(part, WaitPart::Queue | WaitPart::Unexplained) {
                otherwise.push(stretch);
            }
        });
        // If events were lost, the recorded completion of a request may belong to a later request.
        let of_wait = |piece: &&OverlappingRequest| step_in(&known.time, piece, last_commit).part().is_some();
        let is_lost = self.is_in_gap(&known.time)
            || active.overlapping.iter().filter(of_wait).any(|piece| self.is_in_gap(&(piece.arrival..piece.complete)));
        if is_lost {
            self.splits[active.index] = Err(UnknownCause::Lost);
            return;
        }
        self.splits[active.index] = Ok(parts);
        let explained = active.details.iter().filter_map(|(seen, piece)| {
            let part = step_in(&known.time, piece, last_commit).part();
            let ran = |stretch: &Range<i64>| piece.issue < stretch.end && piece.complete > stretch.start;
            (part.is_some() || otherwise.iter().any(ran)).then_some(WaitRequest { named: *seen, part, overlap: *piece })
        });
        if known.is_explained {
            self.explained.insert(active.index, explained.collect());
        }
    }

    /// Whether events of the recording were lost during `time`.
    fn is_in_gap(&self, time: &Range<i64>) -> bool {
        let next = self.gaps.partition_point(|gap| gap.end < time.start);
        self.gaps.get(next).is_some_and(|gap| gap.start <= time.end)
    }

    /// Begins the waits that remain after the last request. Then ends all waits and divides them into parts.
    fn end(&mut self) {
        self.begin_until(i64::MAX);
        self.end_until(i64::MAX);
    }
}

/// Sorts periods of time, and joins those that overlap.
fn joined(stretches: impl Iterator<Item = Range<i64>>) -> Arc<[Range<i64>]> {
    let mut sorted: Vec<_> = stretches.collect();
    sorted.sort_by_key(|stretch| stretch.start);
    let mut out: Vec<Range<i64>> = Vec::new();
    for stretch in sorted {
        match out.last_mut() {
            Some(last) if stretch.start <= last.end => last.end = last.end.max(stretch.end),
            _ => out.push(stretch),
        }
    }
    out.into()
}

impl ActiveWait {
    /// Adds a request if it ran during the wait. Returns the number of requests stored: 0 or 1.
    fn add(&mut self, wait: &RecordedWait, seen: &NamedRequest, has_room: bool) -> usize {
        let owner = match seen.request.pid {
            Some(pid) if wait.pid == pid => RequestOwner::Own,
            Some(pid) if wait.writers.contains(&pid) => RequestOwner::Writer,
            _ => RequestOwner::Other,
        };
        let Some(piece) = OverlappingRequest::new(&seen.request, owner, seen.device) else { return 0 };
        if piece.arrival >= wait.time.end || piece.complete <= wait.time.start || self.is_abandoned {
            return 0;
        }
        if !has_room {
            self.is_abandoned = true;
            return 0;
        }
        self.overlapping.push(piece);
        if wait.is_explained && self.details.len() < MOST_DETAILS {
            self.details.push((*seen, piece));
        }
        1
    }
}

/// Maximum number of waits for durability in the figure.
const MOST: usize = 256;

/// Returns the longest recorded waits for durability, in order of their starts, with times relative to the first arrival.
///
/// Empty if clock jumps were removed, because this shifts the requests but not the recorded waits.
pub(crate) fn stall_rows(header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> Vec<FsyncStallRow> {
    if ledger.mended_jumps > 0 {
        return Vec::new();
    }
    let activity = header.activity.as_deref().and_then(RecordedActivity::from_json).unwrap_or_default();
    let mut waits = activity.waits;
    if waits.len() > MOST {
        waits.sort_by_key(|wait| Reverse((wait.time, wait.start)));
        waits.truncate(MOST);
        waits.sort();
    }
    let row = |wait: &SyncWait| {
        let start_s = seconds(wait.start.0.saturating_sub(origin.0));
        FsyncStallRow {
            process: wait.process.clone(),
            file_system: wait.file_system.clone(),
            start_s,
            end_s: start_s + seconds(wait.time.0),
            wait_ms: seconds(wait.time.0) * 1e3,
        }
    };
    waits.iter().map(row).collect()
}

fn seconds(time: i64) -> f64 {
    time as f64 / 1e9
}
