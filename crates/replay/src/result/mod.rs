//! Results of a run, in groups. The names of fields are those of the JSON output and of Python, and their doc comments are shown as their
//! meanings. Attributes of a field that commands, pages and notebooks show:
//!
//! - `label`: its label. If several fields have the same struct as type, `{of}` in the labels of the struct stands for their attribute
//!   `of`.
//! - `short`: a shorter label for narrow columns.
//! - `digits`: the number of digits after the point; default 0.
//! - `better`: `lower` or `higher`, if one direction is better.
//! - `unit`: the unit; default is the ending of the name. Bytes are shown in MB, or in `shown_in`.
//! - `column`: the column of the SQL table `runs`; default is the path with `_` for `.`.
//!
//! A `whole` struct is one field. `make generate` writes the types and the table of fields for Python from these structs.

mod fio;
mod flash;
mod ftl;
mod times;
mod ufs;

use std::collections::BTreeMap;
use std::time::Duration;

use emmclab_device::{Device, DeviceConfig, DeviceSettings, SettingChange};
use emmclab_trace::{Ledger, Nanos, Op, RecordedFeatures as RecordedKinds, RequestFlags, TraceHeader};
use schemars::JsonSchema;
use serde::Serialize;

use crate::host::HostCounts;
use crate::options::{ReplayMode, ReplayOptions};
use crate::recorder::RunTimeRow;
use crate::run_measurement::{OperationTotals, RecordedTotals, RunMeasurement};
use crate::time_histogram::TimeSummary;

pub use fio::*;
pub use flash::*;
pub use ftl::*;
pub use times::*;
pub use ufs::*;

/// The result of a run. Except for `computing`, it depends only on input, settings and version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SimulationResult {
    /// Name of the device.
    pub device: String,
    /// The most important settings of the device.
    pub configuration: ConfigurationSummary,
    /// How the workload was replayed, and how the run ended.
    pub run: ReplaySummary,
    /// Number of completed requests.
    pub requests: RequestTotals,
    /// Response times (complete - arrival) of reads and writes together; `read` and `write` contain the times of one operation.
    #[schemars(extend("of" = "response"))]
    pub response: ResponseTimeSummary,
    /// With `--percentiles`: a list of `op` (`read`, `write`, and `all` for both; flushes and discards are not included), `percentile` and
    /// `response_ms`, which is at most 0.1 % too high.
    #[schemars(extend("unit" = "ms"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<ResponsePercentileRow>,
    /// In Python with `distribution=True`: a list of ranges of response times, with `op` (as in `percentiles`), `up_to_ms`, `requests` and
    /// `cumulative_pct`. Each power of two is divided into 16 ranges.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_distribution: Vec<ResponseHistogramRow>,
    /// With `--over-time`: a list of bins of time by arrival: `time_s` (after the first arrival), `width_s`, `reads`, `writes`,
    /// `read_kb`, `write_kb`, `iops`, `mb_per_s`, `response_mean_ms`, `response_p99_ms`, `response_max_ms`, `read_mean_ms`,
    /// `read_p99_ms`, `write_mean_ms`, `write_p99_ms` (percentiles at most 3.2 % too high), mean waits `queue_ms`, `gc_ms`, `wake_up_ms`
    /// of reads and writes, `collections` and `collecting_ms` (blocks, and their time together), `wake_ups`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<RunTimeRow>,
    /// Service times (complete - start), with the fields of `response`.
    #[schemars(extend("of" = "service", "short" = {}))]
    pub service: ServiceTimeSummary,
    /// Mean of each part of the response time over all requests. The parts add up to the response time.
    pub waits: WaitTimes,
    /// Recorded and simulated times of the replayed requests, defined as in the profile of a trace; null if the trace has no such times.
    /// The group has `all` (reads and writes; flushes and discards are not included), `read` and `write`.
    pub recorded: RecordedComparison,
    /// Use of the flash space by host data.
    pub space: SpaceUse,
    /// Bytes programmed / bytes that the host wrote, in total and by cause.
    pub write_amplification: WriteAmplification,
    /// Page and block operations.
    pub flash: FlashOperations,
    /// Share of the simulated time in which each channel, die and plane was busy, as lists.
    pub utilisation: Utilisation,
    /// The map from logical to physical addresses.
    pub map: MapCounts,
    /// Summary of garbage collection.
    pub gc: GcSummary,
    /// Wear of the blocks.
    pub wear: WearSummary,
    /// Use of blocks in SLC mode.
    pub slc: SlcCounts,
    /// Write buffer and read cache; null if the device has neither.
    pub cache: Option<CacheCounts>,
    /// Link, queues, WriteBooster and hibernation of a UFS; absent for an eMMC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ufs: Option<UfsUse>,
    /// Time in each power state. The times add up to the simulated time.
    pub power: PowerStateTimes,
    /// Energy consumption; null if the settings of the device contain no values for it.
    pub energy: EnergyUse,
    /// Queue of the host above the device; null if the host neither merges requests nor packs commands and `host.kernel` selects no kernel.
    /// Without a kernel, its field `driver` is null.
    pub host: Option<HostCounts>,
    /// Counts of the records that the reader kept, changed or skipped; `emmclab explain ledger.` lists them.
    #[schemars(with = "std::collections::BTreeMap<String, Option<u64>>")]
    pub ledger: Ledger,
    /// With layers: a list from top to bottom with the name of the layer, the requests that had to wait at it, and its counters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerResult>,
    /// Response times of flushes, and of writes with a flag for durability or order (FUA, preflush, barrier), as sent by the workload;
    /// missing without such requests.
    #[schemars(extend("of" = "of flushes and synchronous writes"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<DurableTimes>,
    /// Figures of fio for the jobs of a job file; absent for a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fio: Option<FioResult>,
    /// First sector and length of the first writes to the device. The option `first_writes` is the number of these writes.
    #[schemars(extend("unit" = "sector"))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_writes: Vec<(u64, u32)>,
    /// For a served device whose settings changed: a list of `at_s` (simulated time), `key`, `from` and `to`. The figures cover the whole
    /// run with all settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub setting_changes: Vec<SettingChange>,
    /// With a second device: bytes, page programs, block erases, WAF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_device: Option<SecondDevice>,
    /// Cost of the run on this computer. Only these fields differ between equal runs.
    pub computing: ComputeCost,
}

/// The most important settings of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ConfigurationSummary {
    /// Capacity that the host can use.
    pub capacity_bytes: u64,
    /// Size of the RAM for write buffer and read cache.
    #[schemars(extend("label" = "RAM", "better" = "lower"))]
    pub ram_kb: u64,
    /// Size of the RAM for the write buffer (`cache.size_kb`).
    pub write_buffer_kb: u64,
    /// Units that work in parallel: `timing.parallelism`.
    pub parallelism: String,
    /// Mapping scheme: `mapping.scheme`.
    pub mapping_scheme: String,
    /// When a write is complete: `timing.write_complete`.
    pub write_complete: String,
    /// The durability promise that the device breaks on purpose (`cache.lies`), or `none`.
    pub lies: String,
}

impl ConfigurationSummary {
    fn new(settings: &DeviceSettings, device: &Device) -> Self {
        Self {
            capacity_bytes: device.geometry().capacity().0,
            ram_kb: u64::from(settings.cache.size_kb) + u64::from(settings.cache.read_kb),
            write_buffer_kb: settings.cache.size_kb.into(),
            parallelism: word(settings.timing.parallelism),
            mapping_scheme: settings.mapping.scheme.clone(),
            write_complete: word(settings.timing.write_complete),
            lies: word(settings.cache.lies),
        }
    }
}

/// Returns the name of an enumeration value, as in the settings file.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// How the workload was replayed, and how the run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ReplaySummary {
    /// `open`, `closed` or `back_to_back`.
    pub mode: ReplayMode,
    /// Why this mode was chosen; null if it was requested.
    pub mode_reason: Option<String>,
    /// Operations and flags (discard, flush, `secure_erase`, fua, preflush) that the trace does not record, separated by blanks; null if it
    /// records all of them. Figures about unrecorded operations are null, unless the run contained such operations.
    pub unrecorded: Option<String>,
    /// Step of the trace's clock, such as `1ms`, if it is too coarse to show which requests waited for each other; null otherwise.
    pub coarse_clock: Option<String>,
    /// Whether the device kept pace with the arrivals.
    pub load: LoadSummary,
    /// Why the run ended early; null if it did not.
    pub stopped: Option<String>,
    /// Time from the first arrival to the last completion.
    #[schemars(extend("label" = "Simulated time", "short" = "Time", "digits" = 3))]
    pub simulated_s: f64,
    /// Bytes read and written per second of simulated time.
    #[schemars(extend("label" = "Throughput", "digits" = 3, "better" = "higher"))]
    pub throughput_mb_per_s: f64,
    /// Time from the last completion until the layers had moved all deferred data to its final location; null unless requested (`--drain`).
    #[schemars(extend("label" = "Drain time", "digits" = 3, "better" = "lower"))]
    pub drain_s: Option<f64>,
}

/// Number of completed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct RequestTotals {
    /// All requests.
    #[schemars(extend("label" = "Requests"))]
    pub total: u64,
    /// Reads.
    #[schemars(extend("label" = "Reads"))]
    pub read: u64,
    /// Writes.
    #[schemars(extend("label" = "Writes"))]
    pub write: u64,
    /// Number of discards and flushes; null if there were none in a trace that does not record both kinds.
    #[schemars(extend("label" = "Flushes and discards", "short" = "Flushes"))]
    pub other: Option<u64>,
    /// Share of the reads and writes that arrived when no earlier request was unfinished, as in a profile.
    #[schemars(extend("label" = "No-wait", "digits" = 2, "better" = "higher", "column" = "no_wait_pct"))]
    pub no_wait_pct: f64,
    /// Share of the reads and writes that the device started at their arrival, alone or in parallel with others.
    #[schemars(extend("column" = "begun_at_once_pct"))]
    pub begun_at_once_pct: f64,
    /// Bytes that the host read.
    #[schemars(extend("label" = "Data read", "digits" = 1))]
    pub bytes_read: u64,
    /// Bytes that the host wrote.
    #[schemars(extend("label" = "Data written", "digits" = 1))]
    pub bytes_written: u64,
    /// Share of the requests whose addresses were beyond the device and were wrapped.
    pub wrapped_pct: f64,
}

/// Cost of a run on the computer that simulated it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ComputeCost {
    /// Computing time.
    pub wall_s: f64,
    /// Page reads and programs per second of computing time.
    pub page_operations_per_s: f64,
}

impl SimulationResult {
    /// Summarises a run. Power states and utilisation include `drain`, the time in which layers moved deferred data after the last request.
    pub(crate) fn new(
        config: &DeviceConfig, device: &Device, (measure, recorded): (&RunMeasurement, &RecordedTotals),
        (options, mode): (&ReplayOptions, ReplayMode), drain: Option<Nanos>,
    ) -> Self {
        let settings = config.settings();
        let counters = device.counters();
        let elapsed = measure.elapsed();
        let simulated_s = elapsed.as_secs_f64();
        let bytes = measure.reads.bytes() + measure.writes.bytes();
        let after = drain.unwrap_or(Nanos::ZERO);
        let power = PowerStateTimes::new(settings, counters, measure.busy + after, elapsed + after);
        Self {
            device: settings.name.clone(),
            configuration: ConfigurationSummary::new(settings, device),
            run: ReplaySummary {
                mode,
                mode_reason: options.mode_reason.clone(),
                unrecorded: None,
                coarse_clock: None,
                load: LoadSummary::new(measure, mode),
                stopped: device.stop().map(|stop| stop.reason().to_owned()),
                simulated_s,
                throughput_mb_per_s: if elapsed > Nanos::ZERO { bytes as f64 / 1_048_576.0 / simulated_s } else { 0.0 },
                drain_s: drain.map(Nanos::as_secs_f64),
            },
            requests: RequestTotals {
                total: measure.requests(),
                read: measure.reads.count,
                write: measure.writes.count,
                other: Some(measure.others.count),
                no_wait_pct: measure.no_wait_pct()[0],
                begun_at_once_pct: OperationTotals::begun_at_once_pct(&measure.timed()),
                bytes_read: counters.host_bytes_read,
                bytes_written: counters.host_bytes_written,
                // This field is set later, when the number of wrapped addresses is known.
                wrapped_pct: 0.0,
            },
            durable: measure.durable(),
            response: ResponseTimeSummary::new(measure),
            percentiles: ResponsePercentileRow::all(measure, &options.percentiles),
            response_distribution: if options.distribution { ResponseHistogramRow::all(measure) } else { Vec::new() },
            service: ServiceTimeSummary::new(measure),
            waits: WaitTimes::new(measure),
            recorded: RecordedComparison::new(measure, recorded, options, mode),
            space: SpaceUse::new(counters),
            write_amplification: WriteAmplification::new(counters),
            flash: FlashOperations::new(counters),
            utilisation: Utilisation::new(device, elapsed + after),
            map: MapCounts::new(device),
            gc: GcSummary::new(device),
            wear: WearSummary::new(settings, device),
            slc: SlcCounts {
                folded_blocks: counters.folds,
                folded_bytes: counters.booster.folded_units * u64::from(device.geometry().unit_bytes),
            },
            cache: CacheCounts::of(settings, counters),
            ufs: UfsUse::of(settings, device, elapsed + after),
            energy: EnergyUse::new(settings, device, &power),
            power,
            ..Self::default()
        }
    }

    /// Sets figures to null that cannot be computed from the trace: counts of operations that it does not record, and figures that depend
    /// on the order of arrivals if its clock is coarse.
    pub(crate) fn withdraw_unrecorded(&mut self, trace: TraceHeader) {
        if trace.coarse_clock.is_some() {
            self.recorded.withdraw_waits();
        }
        self.run.coarse_clock = trace.coarse_clock;
        let Some(recorded) = trace.recorded else { return };
        let missing = RecordedKinds::SERVED.difference(recorded);
        if missing.is_empty() {
            return;
        }
        self.run.unrecorded = Some(missing.to_string());
        let flushes = recorded.has_op(Op::Flush) && recorded.has(RequestFlags::PREFLUSH);
        let discards = recorded.has_op(Op::Discard);
        let withdraw = |count: &mut Option<u64>, known: bool| *count = count.filter(|count| known || *count > 0);
        withdraw(&mut self.requests.other, recorded.has_op(Op::Flush) && discards);
        withdraw(&mut self.map.discarded_units, discards);
        if let Some(cache) = &mut self.cache {
            withdraw(&mut cache.flushes, flushes);
        }
        if let Some(host) = &mut self.host {
            host.driver = host.driver.filter(|driver| flushes && recorded.has(RequestFlags::FUA) || driver.any());
        }
    }

    /// Records the computing time of the run.
    pub(crate) fn computed_in(&mut self, wall: Duration) {
        let wall_s = wall.as_secs_f64();
        let operations = self.flash.page_operations() as f64;
        let page_operations_per_s = if wall_s > 0.0 { operations / wall_s } else { 0.0 };
        self.computing = ComputeCost { wall_s, page_operations_per_s };
    }
}

/// Counts of the work of a layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LayerResult {
    /// Name of the layer.
    pub name: String,
    /// Number of requests that waited because the layer had no free space (back-pressure).
    pub held_full: u64,
    /// Number of requests that waited because background work was writing to their sectors.
    pub held_overlap: u64,
    /// Total time for which requests waited at the layer.
    pub held_ms: f64,
    /// Features that the layer omitted because the devices do not support them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<&'static str>,
    /// Counters of the layer.
    #[serde(flatten)]
    pub counters: BTreeMap<&'static str, u64>,
}

/// Response times of flushes, and of writes with a flag for durability or order, above all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DurableTimes {
    /// Number of flushes and of writes with a flag for durability or order. A write with a preflush also flushes the cache.
    #[schemars(extend("label" = "Flushes and synchronous writes", "short" = "Synchronous"))]
    pub requests: u64,
    /// Mean and percentiles, ms.
    #[serde(flatten)]
    pub times: TimeSummary,
}

impl DurableTimes {
    pub(crate) fn new(measured: &OperationTotals) -> Self {
        Self { requests: measured.count, times: OperationTotals::response(&[measured]) }
    }
}

/// Counts of the work of the second device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("whole" = true))]
pub struct SecondDevice {
    /// Name of the device.
    pub device: String,
    /// Bytes that layers read from the second device.
    pub host_bytes_read: u64,
    /// Bytes that layers wrote to the second device.
    pub host_bytes_written: u64,
    /// Pages programmed.
    pub page_programs: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// Write amplification of the second device: bytes programmed / bytes that layers wrote to this device.
    pub waf: f64,
    /// Counts of the host queue of the second device, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostCounts>,
}

impl SecondDevice {
    /// Creates a summary of the current counts of a device.
    pub(crate) fn new(name: String, device: &Device, host: Option<HostCounts>) -> Self {
        let counters = device.counters();
        Self {
            device: name,
            host_bytes_read: counters.host_bytes_read,
            host_bytes_written: counters.host_bytes_written,
            page_programs: counters.all_page_programs(),
            block_erases: counters.block_erases(),
            waf: counters.waf(),
            host,
        }
    }
}
