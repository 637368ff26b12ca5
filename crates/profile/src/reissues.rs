//! Suspected re-issues of requests: their percentage by the idle time before the first issue, and the figures that re-issues change.

use std::collections::VecDeque;

use emmclab_trace::{NameId, Nanos, Op, Request, RequestFlags, Sector};

use crate::bins::pct;
use crate::elapsed;
use crate::locality::SequentialCounters;
use crate::options::MergeRelation;
use crate::report::{ReissueFigures, ReissueRow, ReissueSummary as Report};

/// Maximum time from the first issue of a request to its second: the longest re-issue window that a reader can be configured with.
const WITHIN_NS: u64 = 1_000_000_000;
/// Maximum number of requests that are stored to recognise their second issue; they occupy 128 KB.
const HELD: usize = 1 << 12;
/// Upper edges of the bins of idle times, ms; one more bin counts times above the last edge.
const EDGES_MS: [u64; 11] = [1, 2, 3, 4, 5, 6, 8, 10, 15, 30, 100];
const BINS: usize = EDGES_MS.len() + 1;
/// Minimum number of requests in a bin for its percentage to be used.
const ENOUGH: u64 = 30;
/// Maximum percentage of re-issues in a bin of idle times for which the link to the device counts as awake.
const AWAKE_PCT: f64 = 5.0;
/// Minimum percentage of re-issues in a bin of idle times for which the link to the device counts as asleep.
const ASLEEP_PCT: f64 = 90.0;
/// Width of the histogram bins for the time from first to second issue, up to [`WITHIN_NS`]: 0.1 ms.
const STEP_NS: u64 = 100_000;
const STEPS: usize = (WITHIN_NS / STEP_NS) as usize;

/// Counts of re-issues, in bounded memory.
#[derive(Clone, Debug)]
pub(crate) struct ReissueCounters {
    /// Requests that may be issued again, the oldest first.
    recent: VecDeque<FirstIssue>,
    last: Option<Nanos>,
    requests: [u64; BINS],
    reissues_by_bin: [u64; BINS],
    /// Histogram of the times from the first issue of a request to the second, in bins of [`STEP_NS`] up to [`WITHIN_NS`].
    first_to_second: Vec<u64>,
    requests_in_total: u64,
    reissued: u64,
    without_reissues: FiguresWithoutReissues,
}

/// A request that may be issued again, with the bin of the idle time before it.
#[derive(Clone, Copy, Debug)]
struct FirstIssue {
    arrival: Nanos,
    sector: Sector,
    sectors: u32,
    device: Option<NameId>,
    op: Op,
    bin: u8,
}

/// Counters for the figures of the IISWC 2015 paper, computed without the re-issued requests.
#[derive(Clone, Debug, Default)]
struct FiguresWithoutReissues {
    requests: u64,
    writes: u64,
    sectors: u64,
    address_hits: u64,
    sequences: SequentialCounters,
}

impl Default for ReissueCounters {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            last: None,
            requests: [0; BINS],
            reissues_by_bin: [0; BINS],
            first_to_second: Vec::new(),
            requests_in_total: 0,
            reissued: 0,
            without_reissues: FiguresWithoutReissues::default(),
        }
    }
}

impl ReissueCounters {
    /// Adds a request; `address_hit` is set if its first sector was the first sector of an earlier request.
    #[inline]
    pub fn add(&mut self, request: &Request, space: u32, address_hit: bool) {
        let before = self.last.replace(request.arrival);
        self.requests_in_total += 1;
        if request.flags.contains(RequestFlags::REISSUED) {
            self.reissued += 1;
            self.add_second(request);
            return;
        }
        self.without_reissues.add(request, space, address_hit);
        let Some(before) = before else { return };
        let bin = bin_of(elapsed(before, request.arrival));
        self.requests[bin] += 1;
        while self.recent.len() >= HELD
            || self.recent.front().is_some_and(|first| elapsed(first.arrival, request.arrival) > WITHIN_NS)
        {
            self.recent.pop_front();
        }
        let Request { arrival, sector, sectors, device, op, .. } = *request;
        self.recent.push_back(FirstIssue { arrival, sector, sectors, device, op, bin: bin as u8 });
    }

    /// Finds the first issue of a request that was issued again.
    fn add_second(&mut self, second: &Request) {
        let same = |first: &&FirstIssue| {
            (first.sector, first.sectors, first.op, first.device) == (second.sector, second.sectors, second.op, second.device)
        };
        if let Some(first) = self.recent.iter().rev().find(same) {
            self.reissues_by_bin[first.bin as usize] += 1;
            let step = (elapsed(first.arrival, second.arrival) / STEP_NS) as usize;
            self.first_to_second.resize(self.first_to_second.len().max(step.min(STEPS) + 1), 0);
            self.first_to_second[step.min(STEPS)] += 1;
        }
    }

    pub fn merge(&mut self, other: Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        let add = |mine: &mut [u64], theirs: &[u64]| mine.iter_mut().zip(theirs).for_each(|(a, b)| *a += b);
        add(&mut self.requests, &other.requests);
        add(&mut self.reissues_by_bin, &other.reissues_by_bin);
        self.first_to_second.resize(self.first_to_second.len().max(other.first_to_second.len()), 0);
        add(&mut self.first_to_second, &other.first_to_second);
        self.requests_in_total += other.requests_in_total;
        self.reissued += other.reissued;
        self.without_reissues.merge(&other.without_reissues, join, space_of);
        if other.requests_in_total > 0 {
            (self.recent, self.last) = (other.recent, other.last);
        }
    }

    /// Reports the re-issues. `figures` are the figures of all requests; `dropped` is the number of re-issues that the reader dropped.
    pub fn report(&self, figures: ReissueFigures, dropped: u64) -> Report {
        let (awake_ms, asleep_ms) = self.edges();
        Report {
            reissued: self.reissued,
            reissued_pct: pct(self.reissued, self.requests_in_total),
            dropped,
            awake_up_to_ms: awake_ms,
            asleep_from_ms: asleep_ms,
            median_until_again_ms: self.median_until_again_ms(),
            figures_without: (self.reissued > 0).then(|| self.without_reissues.figures(&figures)),
            figures,
        }
    }

    /// Returns two idle times in ms. After idle times up to the first one, hardly any request is issued again. After idle times above the
    /// second one, nearly all requests are. Both are `None` if there are no such idle times.
    fn edges(&self) -> (Option<u64>, Option<u64>) {
        let judged = |bin: &usize| self.requests[*bin] >= ENOUGH;
        let share = |bin: usize| 100.0 * self.reissues_by_bin[bin] as f64 / self.requests[bin] as f64;
        let awake = (0..BINS).filter(judged).take_while(|bin| share(*bin) <= AWAKE_PCT).last();
        let asleep = (0..BINS).rev().filter(judged).take_while(|bin| share(*bin) >= ASLEEP_PCT).last();
        // Both limits are unknown unless at least one idle time has few re-issues (awake) and at least one has many (asleep).
        awake.zip(asleep).map(|(awake, asleep)| (EDGES_MS[awake], EDGES_MS[asleep - 1])).unzip()
    }

    fn median_until_again_ms(&self) -> Option<f64> {
        let all: u64 = self.first_to_second.iter().sum();
        let mut seen = 0;
        let step = self.first_to_second.iter().position(|count| {
            seen += count;
            all > 0 && 2 * seen >= all
        })?;
        Some((step as f64 + 0.5) * STEP_NS as f64 / 1e6)
    }

    /// Percentages of requests that are issued again, by idle time; empty if there are no re-issues.
    pub fn rows(&self) -> Vec<ReissueRow> {
        if self.reissues_by_bin.iter().all(|count| *count == 0) {
            return Vec::new();
        }
        (0..BINS)
            .filter_map(|bin| {
                let low_ms = bin.checked_sub(1).map_or(0, |below| EDGES_MS[below]);
                let high_ms = EDGES_MS.get(bin).copied();
                Some(ReissueRow {
                    bin: match high_ms {
                        Some(high) => format!("{low_ms} - {high} ms"),
                        None => format!("> {low_ms} ms"),
                    },
                    low_ms,
                    high_ms,
                    requests: self.requests[bin],
                    reissued: self.reissues_by_bin[bin],
                    pct: pct(self.reissues_by_bin[bin], self.requests[bin])?,
                })
            })
            .collect()
    }
}

#[inline]
fn bin_of(idle_ns: u64) -> usize {
    EDGES_MS.iter().position(|edge| idle_ns <= edge * 1_000_000).unwrap_or(BINS - 1)
}

impl FiguresWithoutReissues {
    #[inline]
    fn add(&mut self, request: &Request, space: u32, address_hit: bool) {
        if !request.op.has_data() {
            return;
        }
        self.requests += 1;
        self.writes += u64::from(request.op == Op::Write);
        self.sectors += u64::from(request.sectors);
        self.address_hits += u64::from(address_hit);
        self.sequences.add(request, space);
    }

    fn merge(&mut self, other: &Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        self.requests += other.requests;
        self.writes += other.writes;
        self.sectors += other.sectors;
        self.address_hits += other.address_hits;
        self.sequences.merge(&other.sequences, join, space_of);
    }

    /// Returns the figures without re-issued requests. The rates use the duration of the whole trace.
    fn figures(&self, all: &ReissueFigures) -> ReissueFigures {
        let share = self.requests as f64 / all.requests.max(1) as f64;
        let data_size_kb = self.sectors as f64 / 2.0;
        ReissueFigures {
            requests: self.requests,
            data_size_kb,
            mean_size_kb: (self.requests > 0).then(|| data_size_kb / self.requests as f64),
            write_requests_pct: pct(self.writes, self.requests),
            arrival_rate_per_s: all.arrival_rate_per_s.map(|rate| rate * share),
            spatial_locality_pct: pct(self.sequences.sequential(), self.requests),
            temporal_locality_pct: pct(self.address_hits, self.requests),
        }
    }
}
