//! Counts sequential requests, and runs of them (spatial locality, section III-C).

use emmclab_trace::Request;

use crate::bins::DoublingBins;
use crate::options::MergeRelation;
use crate::report::SequentialRunRow;

/// Bins for the lengths of runs: up to 2, 4, ... 4,096 requests, and more. Bin 0 is always empty, because a run has at least two requests.
type RunBins = DoublingBins<1, 14>;
const RUN_BINS: usize = 14;

/// Counts the reads and writes that start where the previous request of the same device ended. Requests are added in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct SequentialCounters {
    sequential: u64,
    /// The start of the first request, needed to join pieces of a recording.
    first: Option<DeviceSector>,
    /// The sector at which the next request must start to be sequential.
    next: Option<DeviceSector>,
    /// The first sequential run, stored when it ends. It is not counted yet, because it may continue a run of the previous piece of the
    /// recording.
    head: Option<SequentialRun>,
    current: SequentialRun,
    runs: RunBins,
    requests: [u64; RUN_BINS],
    sectors: [u64; RUN_BINS],
    longest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DeviceSector {
    space: u32,
    sector: u64,
}

/// A run of consecutive sequential requests.
#[derive(Clone, Copy, Debug, Default)]
struct SequentialRun {
    requests: u64,
    sectors: u64,
}

impl SequentialCounters {
    #[inline]
    pub fn add(&mut self, request: &Request, space: u32) {
        let here = DeviceSector { space, sector: request.sector.0 };
        if self.next == Some(here) {
            self.sequential += 1;
        } else if self.current.requests > 0 {
            self.close();
        }
        self.first.get_or_insert(here);
        self.next = Some(DeviceSector { space, sector: request.end().0 });
        self.current.requests += 1;
        self.current.sectors += u64::from(request.sectors);
    }

    /// Ends the current run.
    #[inline]
    fn close(&mut self) {
        let run = std::mem::take(&mut self.current);
        if self.head.is_some() {
            self.count(run);
        } else {
            self.head = Some(run);
        }
    }

    #[inline]
    fn count(&mut self, run: SequentialRun) {
        if run.requests < 2 {
            return;
        }
        let index = RunBins::index(run.requests);
        self.runs.add_at(index, 1);
        self.requests[index] += run.requests;
        self.sectors[index] += run.sectors;
        self.longest = self.longest.max(run.requests);
    }

    /// Adds the counters of another profile. `space_of` maps the device numbers of `other` to those of this profile.
    pub fn merge(&mut self, other: &Self, join: MergeRelation, space_of: impl Fn(u32) -> u32) {
        let Some(other_first) = other.first else { return };
        let here = |place: DeviceSector| DeviceSector { space: space_of(place.space), ..place };
        self.sequential += other.sequential;
        self.runs.merge(&other.runs);
        for index in 0..RUN_BINS {
            self.requests[index] += other.requests[index];
            self.sectors[index] += other.sectors[index];
        }
        self.longest = self.longest.max(other.longest);
        let joined = join == MergeRelation::Consecutive && self.next == Some(here(other_first));
        if joined {
            self.sequential += 1;
        } else if self.current.requests > 0 {
            self.close();
        }
        // Now the first sequential run of `other` is added to the last run here. The last run is not empty only if both recordings are
        // joined.
        let other_head = other.head.unwrap_or(other.current);
        self.current.requests += other_head.requests;
        self.current.sectors += other_head.sectors;
        if other.head.is_some() {
            self.close();
            self.current = other.current;
        }
        self.first = self.first.or(Some(here(other_first)));
        self.next = other.next.map(here);
    }

    pub fn sequential(&self) -> u64 {
        self.sequential
    }

    /// Returns a copy in which the first and the last run are counted, too.
    fn ended(&self) -> Self {
        let mut all = self.clone();
        for run in [self.head.unwrap_or_default(), self.current] {
            all.count(run);
        }
        all
    }

    pub fn summary(&self) -> SequentialRunSummary {
        let all = self.ended();
        let runs = all.runs.total() as f64;
        let mean = |sum: u64| (runs > 0.0).then(|| sum as f64 / runs);
        SequentialRunSummary {
            mean_requests: mean(all.requests.iter().sum()),
            mean_kb: mean(all.sectors.iter().sum()).map(|sectors| sectors / 2.0),
            longest: all.longest,
        }
    }

    pub fn rows(&self, requests: u64) -> Vec<SequentialRunRow> {
        let all = self.ended();
        let rows = all.runs.bins().enumerate().skip(1).take(all.runs.used().end.saturating_sub(1));
        rows.map(|(index, bin)| SequentialRunRow {
            bin: match bin.high {
                Some(2) => "2".to_owned(),
                Some(high) => format!("{} - {high}", bin.low + 1),
                None => format!("> {}", bin.low),
            },
            low_requests: bin.low,
            high_requests: bin.high,
            runs: bin.count,
            requests: all.requests[index],
            data_kb: all.sectors[index] as f64 / 2.0,
            requests_pct: 100.0 * all.requests[index] as f64 / requests.max(1) as f64,
        })
        .collect()
    }
}

pub(crate) struct SequentialRunSummary {
    pub mean_requests: Option<f64>,
    pub mean_kb: Option<f64>,
    pub longest: u64,
}
