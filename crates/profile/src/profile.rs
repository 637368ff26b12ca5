//! Adds batches to a profile, and builds its report.

use std::hint::black_box;

use emmclab_trace::{ArrivalGaps, Batch, Error, ErrorClass, Ledger, Nanos, Op, RecordedActivity, Request, Result, TraceHeader};
use serde::Serialize;

use crate::arrivals::ArrivalCounters;
use crate::bins::{DoublingBins, QuarterOctaveBins, pct};
use crate::clock_jumps::{ProfileClockJumps, key_figures};
use crate::findings::{BUFFER_KB, FindingValues, findings};
use crate::fsync::{FsyncProfile, stall_rows};
use crate::journal::JournalCost;
use crate::locality::SequentialCounters;
use crate::operations::{AlignmentCounters, FlagCounters, OperationStatistics, OperationTable};
use crate::options::{MergeRelation, ProfileOptions};
use crate::pages::{NewPages, PageStatistics, pages_of};
use crate::processes::{IoShareTable, NameMap};
use crate::queue::QueueStatistics;
use crate::reissues::ReissueCounters;
use crate::report::{FigureRows, LocalitySummary, PaperTables, ProfileReport, ReissueFigures};
use crate::reuse_distance::ReuseDistances;
use crate::timeline::{AddressHeatmap, IoTimeline};
use crate::wake_up::WakeUpDelays;

/// Number of requests whose pages are prefetched in advance.
const AHEAD: usize = 64;

/// A profile that is being computed, in one pass over the batches of a trace in order of arrival.
///
/// The size of a profile is bounded, except for its [`PageStatistics`]. Two profiles are merged as pieces of one recording or as separate
/// recordings ([`MergeRelation`]).
#[derive(Clone, Debug, Default)]
pub struct Profile {
    options: ProfileOptions,
    gaps: ArrivalGaps,
    operations: OperationTable,
    arrivals: ArrivalCounters,
    queue: QueueStatistics,
    wake_up: WakeUpDelays,
    sequences: SequentialCounters,
    alignment: AlignmentCounters,
    devices: NameMap,
    pages: PageStatistics,
    reuse: ReuseDistances,
    timeline: IoTimeline,
    picture: AddressHeatmap,
    processes: IoShareTable,
    by_device: IoShareTable,
    reissues: ReissueCounters,
    flags: FlagCounters,
    /// The cost of journaling, if the trace has notes on blocks or its journal is found by addresses.
    journal: JournalCost,
    fsync: Option<Box<FsyncProfile>>,
}

impl Profile {
    /// Creates an empty profile.
    pub fn new(options: ProfileOptions) -> Self {
        Self { queue: QueueStatistics::new(options.gc), timeline: IoTimeline::new(options.bin), options, ..Self::default() }
    }

    /// Returns the profile with an analysis of the recorded waits for durability, which are divided into parts. A profile with such an
    /// analysis is not merged with others.
    #[must_use]
    pub fn with_waits(mut self, activity: RecordedActivity) -> Self {
        self.fsync = Some(Box::new(FsyncProfile::new(activity)));
        self
    }

    /// Adds a batch. Batches must be added in order of arrival.
    pub fn update(&mut self, batch: &Batch) {
        if let Some(fsync) = &mut self.fsync {
            fsync.update(batch);
        }
        self.devices.follow(batch.devices());
        self.processes.follow(batch.processes());
        self.by_device.follow(batch.devices());
        self.gaps.extend(batch.arrivals());
        if batch.has_notes() {
            for (row, request) in batch.iter().enumerate() {
                self.journal.add(&request, batch.notes(row), self.devices.index(request.device));
            }
        }
        let mut ahead = Vec::with_capacity(AHEAD);
        let mut requests = batch.iter();
        loop {
            ahead.extend(requests.by_ref().take(AHEAD));
            if ahead.is_empty() {
                break;
            }
            for request in &ahead {
                black_box(self.pages.warm(request, self.devices.index(request.device)));
            }
            // Each loop updates a single structure. Its iterations do not depend on each other, so the processor can overlap them.
            for request in &ahead {
                self.processes.add(request, request.process);
            }
            for request in &ahead {
                self.by_device.add(request, request.device);
            }
            for request in &ahead {
                self.timeline.add_data(request);
            }
            if !batch.has_notes() {
                for request in &ahead {
                    self.journal.add(request, &[], self.devices.index(request.device));
                }
            }
            for request in ahead.drain(..) {
                self.add(&request);
            }
        }
    }

    #[inline]
    fn add(&mut self, request: &Request) {
        let arrived = self.queue.add(request);
        self.arrivals.add(request, arrived.depth.map(|_| arrived.idle));
        self.wake_up.add(request, arrived.gap_ns);
        self.operations.add(request);
        self.flags.add(request);
        let mut new = NewPages::default();
        let space = self.devices.index(request.device);
        let hits = self.pages.address_hits();
        if request.op.has_data() {
            self.sequences.add(request, space);
            self.alignment.add(request);
            new = self.pages.add(request, space);
            self.reuse.add(space, pages_of(request));
            self.picture.add(request);
        }
        self.reissues.add(request, space, self.pages.address_hits() > hits);
        self.timeline.add(request, arrived.depth, new);
    }

    /// Adds another profile.
    ///
    /// [`MergeRelation::Consecutive`]: `other` is the next piece of the same recording. If all requests of this piece are complete before the next
    /// one begins, the result is that of one pass, except for four figures that start again in each piece: reuse distances (the first
    /// touch of a page in a piece counts as a first touch), update intervals (an overwrite of a page last written in an earlier piece
    /// counts in `overwrite_pct`, but has no interval), the growth of the working set (its end is correct), and journals that are found by
    /// addresses (a commit that continues in the next piece is not recognised). If requests overlap the
    /// boundary, queue depth, no-wait and busy time are computed for each piece separately.
    ///
    /// [`MergeRelation::Separate`]: `other` is another recording. Counts, times and durations are added; addresses, gaps and sequences do not
    /// continue; figures over time are overlaid from a common start.
    /// Errors: [`ErrorClass::Order`] if the next piece begins before this one ends.
    pub fn merge(&mut self, other: Self, join: MergeRelation) -> Result<()> {
        if let (MergeRelation::Consecutive, Some(last), Some(first)) = (join, self.arrivals.last(), other.arrivals.first())
            && first < last
        {
            let message = format!("the next piece begins {} before this one ends", last - first);
            return Err(Error::new(ErrorClass::Order, message)
                .hint("merge pieces of one recording in their order of time; merge different recordings as separate ones"));
        }
        let aligned = join == MergeRelation::Separate;
        match join {
            MergeRelation::Consecutive => self.gaps.join(&other.gaps),
            MergeRelation::Separate => self.gaps.add_recording(&other.gaps),
        }
        let spaces = self.devices.merge(&other.devices);
        let space_of = |space: u32| spaces.get(space as usize).copied().unwrap_or(space);
        let gap_ns = self.queue.merge(other.queue, join);
        self.arrivals.merge(&other.arrivals, join);
        self.wake_up.merge(&other.wake_up, join, gap_ns);
        self.operations.merge(&other.operations);
        self.sequences.merge(&other.sequences, join, space_of);
        self.alignment.merge(&other.alignment);
        self.pages.merge(other.pages, join, space_of);
        self.reuse.merge(other.reuse, join);
        self.timeline.merge(other.timeline, aligned);
        self.picture.merge(other.picture, aligned);
        self.processes.merge(&other.processes);
        self.by_device.merge(&other.by_device);
        self.reissues.merge(other.reissues, join, space_of);
        self.flags.merge(&other.flags);
        self.journal.merge(other.journal, join, space_of);
        Ok(())
    }

    /// Returns the report on all batches added so far. Pass the `ledger` (counts of records) and `header` as they are after the whole trace
    /// was read.
    pub fn finish(&self, ledger: &Ledger, header: &TraceHeader) -> ProfileReport {
        let unknown;
        let waits = if header.coarse_clock.is_some() {
            // With a coarse clock, the statistics of queueing, wake-up delays and arrivals are unknown, so they are replaced by empty ones.
            unknown = (QueueStatistics::new(self.options.gc), WakeUpDelays::default(), ArrivalCounters::default());
            WaitStatistics { queue: &unknown.0, wake_up: &unknown.1, arrivals: &unknown.2 }
        } else {
            WaitStatistics { queue: &self.queue, wake_up: &self.wake_up, arrivals: &self.arrivals }
        };
        let all = self.operations.data();
        let tables = self.tables(&all, waits.arrivals);
        let percentiles = &self.options.percentiles;
        let mut by_operation: Vec<_> = Op::ALL
            .into_iter()
            .map(|op| (op, self.operations.of(op)))
            .filter(|(_, operation)| operation.requests() > 0)
            .map(|(op, operation)| operation.row(op.name(), percentiles))
            .collect();
        by_operation.push(all.row("all", percentiles));
        let runs = self.sequences.summary();
        let jumps = ProfileClockJumps::new(&self.gaps, header);
        let busy_and_idle_s = waits.queue.busy_and_idle_s(u64::MAX);
        let mut report = ProfileReport {
            name: self.options.name.clone(),
            ledger: ledger.clone(),
            // The report contains the clock jumps in its own list, so the header omits them.
            header: TraceHeader { clock_jumps: None, ..header.clone() },
            clock_jumps: jumps.rows(),
            key_figures: key_figures(&tables, tables.duration_s, self.arrivals.mean_gap_ms(), busy_and_idle_s),
            key_figures_without_jumps: jumps.figures_without(&tables, &self.arrivals, waits.queue),
            reissues: ledger.reissued.map(|_| self.reissues.report(reissue_figures(&tables), ledger.dropped_reissues)),
            by_operation,
            locality: LocalitySummary {
                sequential_requests: self.sequences.sequential(),
                address_hits: self.pages.address_hits(),
                mean_run_requests: runs.mean_requests,
                mean_run_kb: runs.mean_kb,
                max_run_requests: runs.longest,
                overwrite_pct: self.pages.overwrite_pct(),
                median_update_interval_s: self.pages.median_interval_s(),
                reuse_sampling: self.reuse.sampling(),
            },
            working_set: self.pages.working_set(),
            queue: waits.queue.summary(tables.duration_s),
            idle_gc: waits.queue.idle_gc(tables.duration_s, self.operations.of(Op::Write).sectors()),
            power_saving: waits.wake_up.power_saving(),
            journal: self.journal.report_if_found(header, &self.devices),
            fsync: self.fsync.as_ref().map(|fsync| fsync.report(header, ledger, self.origin())),
            figures: self.figures(&all, &tables, &waits, header, ledger),
            findings: Vec::new(),
            tables,
        };
        report.findings = findings(&report, self.finding_values(&all, &waits));
        report
    }

    /// Histograms of sizes, response times, gaps and reuse distances of all batches so far, in bins that are the same for every trace.
    pub fn histograms(&self) -> Vec<FixedBinHistogram> {
        histograms(&self.operations, &self.arrivals, &self.queue, &self.reuse)
    }

    /// Returns the values that the findings of the report need and that are not columns of its tables.
    fn finding_values(&self, all: &OperationStatistics, waits: &WaitStatistics) -> FindingValues {
        FindingValues {
            small_pct: pct(all.small_requests(), all.requests()),
            mean_gap_ms: self.arrivals.mean_gap_ms(),
            mean_gap_without_few_ms: self.arrivals.mean_gap_without_few_ms(),
            above_16_ms_pct: waits.arrivals.above_16_ms_pct(),
            buffer_hit_pct: self.reuse.hit_pct(BUFFER_KB),
            blocks_that_fit_without_few: waits.queue.blocks_that_fit_without_few(),
            sleeps_without_few: waits.wake_up.has_threshold_without_few(),
        }
    }

    fn tables(&self, all: &OperationStatistics, arrivals: &ArrivalCounters) -> PaperTables {
        let (reads, writes) = (self.operations.of(Op::Read), self.operations.of(Op::Write));
        let requests = all.requests();
        let duration_s = self.arrivals.duration_s();
        let per_s = |amount: f64| (duration_s > 0.0).then(|| amount / duration_s);
        PaperTables {
            data_size_kb: all.data_kb(),
            requests,
            max_size_kb: all.max_kb(),
            mean_size_kb: all.mean_kb(),
            mean_read_kb: reads.mean_kb(),
            mean_write_kb: writes.mean_kb(),
            write_requests_pct: pct(writes.requests(), requests),
            written_bytes_pct: pct(writes.sectors(), all.sectors()),
            duration_s,
            arrival_rate_per_s: per_s(requests as f64),
            access_rate_kb_per_s: per_s(all.data_kb()),
            no_wait_pct: arrivals.no_wait_pct(),
            mean_service_ms: all.mean_service_ms(),
            mean_response_ms: all.mean_response_ms(),
            spatial_locality_pct: pct(self.sequences.sequential(), requests),
            temporal_locality_pct: pct(self.pages.address_hits(), requests),
            size_response_correlation: all.size_response_correlation(),
            recorded_no_wait_pct: self.arrivals.recorded_no_wait_pct(),
        }
    }

    /// Returns the arrival time of the first request. Figures that plot values over time start at this time.
    fn origin(&self) -> Nanos {
        self.arrivals.first().unwrap_or(Nanos::ZERO)
    }

    fn figures(
        &self, all: &OperationStatistics, tables: &PaperTables, waits: &WaitStatistics, header: &TraceHeader, ledger: &Ledger,
    ) -> FigureRows {
        let by_op =
            [(Op::Read.name(), self.operations.of(Op::Read)), (Op::Write.name(), self.operations.of(Op::Write)), ("all", all)];
        let origin = self.origin();
        let over_time = self.timeline.rows(origin, self.pages.working_set().unwrap_or_default());
        FigureRows {
            throughput_by_size: by_op[..2].iter().flat_map(|(op, own)| own.throughput_rows(op)).collect(),
            size_distribution: by_op.iter().flat_map(|(op, own)| own.size_rows(op)).collect(),
            response_distribution: by_op.iter().flat_map(|(op, own)| own.response_rows(op)).collect(),
            response_by_size: by_op.iter().flat_map(|(op, own)| own.response_by_size_rows(op)).collect(),
            service_distribution: by_op.iter().flat_map(|(op, own)| own.service_rows(op)).collect(),
            inter_arrival_distribution: waits.arrivals.rows().collect(),
            working_set: over_time.working_set,
            update_interval: self.pages.interval_rows(),
            reuse_distance: self.reuse.rows(),
            hot_pages: self.pages.hot_rows(),
            sequential_runs: self.sequences.rows(tables.requests),
            alignment: self.alignment.rows(),
            queue_depth: waits.queue.depth_rows(),
            queue_depth_over_time: if header.coarse_clock.is_some() { Vec::new() } else { over_time.depth },
            io_over_time: over_time.io,
            address_time: self.picture.rows(origin),
            idle_gaps: waits.queue.gap_rows(),
            wake_up: waits.wake_up.rows(),
            reissue_by_idle: self.reissues.rows(),
            sync_stalls: stall_rows(header, ledger, origin),
            fsync_parts: self.fsync.as_ref().map_or_else(Vec::new, |fsync| fsync.part_rows(header, ledger, origin)),
            process_share: self.processes.processes(&self.options.percentiles),
            device_share: self.by_device.devices(),
            flags: self.flags.rows(tables.duration_s, header.recorded),
        }
    }
}

/// Statistics that depend on the order of arrivals, or on how many requests are unfinished when a request arrives.
struct WaitStatistics<'a> {
    queue: &'a QueueStatistics,
    wake_up: &'a WakeUpDelays,
    arrivals: &'a ArrivalCounters,
}

/// Returns those figures of the paper's Tables III and IV that re-issued requests change.
fn reissue_figures(tables: &PaperTables) -> ReissueFigures {
    ReissueFigures {
        requests: tables.requests,
        data_size_kb: tables.data_size_kb,
        mean_size_kb: tables.mean_size_kb,
        write_requests_pct: tables.write_requests_pct,
        arrival_rate_per_s: tables.arrival_rate_per_s,
        spatial_locality_pct: tables.spatial_locality_pct,
        temporal_locality_pct: tables.temporal_locality_pct,
    }
}

/// Counts of one quantity in fixed bins with exclusive lower and inclusive upper edges; the last bin has no upper edge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FixedBinHistogram {
    /// The quantity: `size_read`, `size_write`, `response_read`, `response_write`, `inter_arrival`, `idle_gap` or `reuse_distance`.
    pub name: &'static str,
    /// A description of what is counted.
    pub about: &'static str,
    /// The unit of the edges.
    pub unit: &'static str,
    /// The upper edges of all bins except the last.
    pub edges: Vec<f64>,
    /// The counts of the bins.
    pub counts: Vec<u64>,
}

fn histograms(
    operations: &OperationTable, arrivals: &ArrivalCounters, queue: &QueueStatistics, reuse: &ReuseDistances,
) -> Vec<FixedBinHistogram> {
    let (reads, writes) = (operations.of(Op::Read), operations.of(Op::Write));
    let (reuse_edges_kb, touches) = reuse.histogram();
    vec![
        doubling("size_read", "reads by size", "KB", reads.size_bins(), 2.0),
        doubling("size_write", "writes by size", "KB", writes.size_bins(), 2.0),
        quarters("response_read", "reads by response time", &reads.response_quarters()),
        quarters("response_write", "writes by response time", &writes.response_quarters()),
        quarters("inter_arrival", "gaps between the arrivals of reads and writes", arrivals.quarters()),
        doubling("idle_gap", "times without an unfinished request", "ms", queue.gap_bins(), 1e6),
        FixedBinHistogram {
            name: "reuse_distance",
            about: "touches of 4 KB pages by reuse distance, which is below the upper edge; in the last range first touches",
            unit: "KB",
            edges: reuse_edges_kb,
            counts: touches,
        },
    ]
}

fn quarters(name: &'static str, about: &'static str, counts: &QuarterOctaveBins) -> FixedBinHistogram {
    let edges = QuarterOctaveBins::edges().map(|ns| ns as f64 / 1e6).collect();
    FixedBinHistogram { name, about, unit: "ms", edges, counts: counts.counts().to_vec() }
}

fn doubling<const UNIT: u64, const N: usize>(
    name: &'static str, about: &'static str, unit: &'static str, bins: &DoublingBins<UNIT, N>, per_unit: f64,
) -> FixedBinHistogram {
    FixedBinHistogram {
        name,
        about,
        unit,
        edges: bins.bins().filter_map(|bin| bin.high).map(|high| high as f64 / per_unit).collect(),
        counts: bins.bins().map(|bin| bin.count).collect(),
    }
}
