//! The report on waits for durability.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use emmclab_trace::{FsWriterThreads, JournalCounts, Ledger, Nanos, RequestFlags, SyncCounts, SyncWait, TraceHeader};

use super::wait_split::{WaitPart, WaitSplit};
use super::{FsyncProfile, WaitRequest};
use crate::report::{
    ExplainedWait, FsyncPartRow, FsyncParts, FsyncReport, FsyncRow, UnfinishedWaitRow, UnknownCause, UnknownCauseRow,
    WaitRequestRow,
};

/// Number of waits in the chart.
const CHARTED: usize = 24;
/// Maximum number of requests of an explained wait.
const REQUESTS: usize = 100;
/// The flags of a request that show why a process waits for it.
const SHOWN_FLAGS: [RequestFlags; 5] =
    [RequestFlags::SYNC, RequestFlags::FUA, RequestFlags::PREFLUSH, RequestFlags::META, RequestFlags::JOURNAL];

impl FsyncProfile {
    /// The report on all batches so far. `origin` is the first arrival of the trace.
    pub fn report(&self, header: &TraceHeader, ledger: &Ledger, origin: Nanos) -> FsyncReport {
        let mut ended = self.clone();
        ended.end();
        ended.report_of_ended(header, ledger, origin)
    }

    /// Parts of the longest waits, for a chart.
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

    /// The waits, the longest first.
    fn by_length(&self) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.activity.waits.len()).collect();
        order.sort_by_key(|index| (Reverse(self.activity.waits[*index].time), *index));
        order
    }

    /// The cause for which the parts of every wait are unknown.
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
                let is_timed =
                    |journal: &JournalCounts| journal.device == writers.device && !journal.commit_starts.is_empty();
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

    /// Devices with ext4 whose journals are like this.
    fn journals(&self, is_so: impl Fn(&FsWriterThreads) -> bool) -> Vec<String> {
        let ext4 = self.activity.writers.iter().filter(|writers| writers.file_system == "ext4");
        ext4.filter(|writers| is_so(writers)).map(|writers| writers.device.clone()).collect()
    }

    /// The calls of a process; `stored` are those that are stored, which are its longest.
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
        // Those of the wait come first, then those that ran longest.
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

/// The sums of parts; without any, they are unknown.
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
