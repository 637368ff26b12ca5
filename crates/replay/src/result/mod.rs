//! Results of a run, in groups. The names are those of the JSON output and of Python; python/emmclab/data/result-fields.toml lists them.

mod distribution;
mod flash;
mod ftl;
mod layers;
mod power;
mod recorded_comparison;
mod times;
mod ufs;
mod wear;

use std::time::Duration;

use emmclab_device::{Device, DeviceConfig, DeviceSettings, SettingChange};
use emmclab_trace::{Ledger, Nanos, Op, RecordedFeatures as RecordedKinds, RequestFlags, TraceHeader};
use serde::Serialize;

use crate::host::HostCounts;
use crate::options::{ReplayMode, ReplayOptions};
use crate::over_time::RunTimeRow;
use crate::recorded_times::RecordedTotals;
use crate::run_measurement::{OperationTotals, RunMeasurement};

pub use distribution::BlockDistribution;
pub use flash::{FlashOperations, PageOperations, SpaceUse, Utilisation, WriteAmplification};
pub use ftl::{CacheCounts, GcSummary, LogBlockMerges, MapCounts, SlcCounts};
pub use layers::{DurableTimes, LayerResult, SecondDevice};
pub use power::{EnergyUse, PowerStateTimes};
pub use recorded_comparison::{
    ByOperation, LoadSummary, RecordedComparison, ShareComparison, TimeComparison,
};
pub use times::{
    ResponseHistogramRow, ResponsePercentileRow, ResponseTimeSummary, ServiceTimeSummary, TimePercentiles,
    WaitTimes,
};
pub use ufs::{LinkDirection, UfsUse, WriteBoosterUse, ZoneUse};
pub use wear::{LifetimeEstimate, WearSummary};

/// The result of a run. All but `computing` depends on nothing but input, settings and version.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationResult {
    /// Name of the device.
    pub device: String,
    /// The settings of the device that decide most.
    pub configuration: ConfigurationSummary,
    /// How the workload was driven, and how that ended.
    pub run: ReplaySummary,
    /// The requests of the workload.
    pub requests: RequestTotals,
    /// Response times: complete - arrival.
    pub response: ResponseTimeSummary,
    /// Percentiles of response times that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub percentiles: Vec<ResponsePercentileRow>,
    /// Requests by response time, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_distribution: Vec<ResponseHistogramRow>,
    /// Requests, response times and the work of the device over time, where asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub over_time: Vec<RunTimeRow>,
    /// Service times: complete - start.
    pub service: ServiceTimeSummary,
    /// Where the response time went.
    pub waits: WaitTimes,
    /// Recorded and simulated.
    pub recorded: RecordedComparison,
    /// Use of the flash space by host data.
    pub space: SpaceUse,
    /// Bytes programmed over bytes the host wrote.
    pub write_amplification: WriteAmplification,
    /// Page and block operations.
    pub flash: FlashOperations,
    /// How busy the parts were.
    pub utilisation: Utilisation,
    /// The map.
    pub map: MapCounts,
    /// Garbage collection.
    pub gc: GcSummary,
    /// Wear of the blocks.
    pub wear: WearSummary,
    /// Blocks in SLC mode.
    pub slc: SlcCounts,
    /// Write buffer and read cache, where the device has any.
    pub cache: Option<CacheCounts>,
    /// Link, queues and hibernation of a UFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ufs: Option<UfsUse>,
    /// Power states.
    pub power: PowerStateTimes,
    /// Energy.
    pub energy: EnergyUse,
    /// The counts of the host above the device, where it merges or packs.
    pub host: Option<HostCounts>,
    /// The counts of the readers, and the requests whose addresses were wrapped.
    pub ledger: Ledger,
    /// The counts of each layer, the first on top.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerResult>,
    /// The times of flushes and durable writes, as the workload saw them, where there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<DurableTimes>,
    /// The first writes that came from the layers to the device, sector and length, as many as were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_writes: Vec<(u64, u32)>,
    /// Settings that changed while the run went on: figures are made under several of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub setting_changes: Vec<SettingChange>,
    /// The counts of the second device, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_device: Option<SecondDevice>,
    /// Cost of the run on this computer; differs from run to run.
    pub computing: ComputeCost,
}

/// The settings of a device that decide most.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConfigurationSummary {
    /// Capacity that the host sees.
    pub capacity_bytes: u64,
    /// RAM of the write buffer and the read cache.
    pub ram_kb: u64,
    /// RAM of the write buffer alone.
    pub write_buffer_kb: u64,
    /// The unit of parallelism: `timing.parallelism`.
    pub parallelism: String,
    /// Mapping scheme: `mapping.scheme`.
    pub mapping_scheme: String,
    /// When a write is complete: `timing.write_complete`.
    pub write_complete: String,
    /// The promise that the device breaks on purpose, or `none`.
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

/// The word of an enumeration, as in the settings file.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The replay, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplaySummary {
    /// Open loop, closed loop or back to back.
    pub mode: ReplayMode,
    /// Why that was chosen, where it was not asked for.
    pub mode_reason: Option<String>,
    /// The operations and flags that a device acts upon and that the trace does not record: their figures are `None`. `None` if it
    /// records all.
    pub unrecorded: Option<String>,
    /// The step of the trace's clock, such as `1ms`, if it is too coarse to tell which requests waited for each other.
    pub coarse_clock: Option<String>,
    /// Whether the device kept up.
    pub load: LoadSummary,
    /// Why the run ended early, where it did.
    pub stopped: Option<String>,
    /// From the first arrival to the last completion, in s.
    pub simulated_s: f64,
    /// Bytes read and written per second of it, in MB (1,024 x 1,024 bytes).
    pub throughput_mb_per_s: f64,
    /// From the last completion until the layers had moved all data that they kept aside, in s; only where that was asked for.
    pub drain_s: Option<f64>,
}

/// Requests completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RequestTotals {
    /// All of them.
    pub total: u64,
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Discards and flushes; `None` if there was none, and the trace does not record both.
    pub other: Option<u64>,
    /// Reads and writes that arrived when no earlier request was unfinished, in percent: the definition of the profile.
    pub no_wait_pct: f64,
    /// Reads and writes that the device began as soon as they arrived, alone or in parallel with others, in percent.
    pub begun_at_once_pct: f64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Requests beyond the device whose addresses were wrapped into it, in percent; also those that a reader wrapped.
    pub wrapped_pct: f64,
}

/// Cost of a run on the computer that simulated it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ComputeCost {
    /// Computing time.
    pub wall_s: f64,
    /// Page reads and programs per second of it.
    pub page_operations_per_s: f64,
}

impl SimulationResult {
    /// Sums up a run. Power states and utilisation include `drain`, the time in which layers moved data after the last request.
    pub(crate) fn new(
        config: &DeviceConfig,
        device: &Device,
        (measure, recorded): (&RunMeasurement, &RecordedTotals),
        (options, mode): (&ReplayOptions, ReplayMode),
        drain: Option<Nanos>,
    ) -> Self {
        let settings = config.settings();
        let counters = device.counters();
        let elapsed = measure.elapsed();
        let simulated_s = elapsed.as_secs_f64();
        let bytes = measure.reads.bytes() + measure.writes.bytes();
        let after = drain.unwrap_or(Nanos::ZERO);
        let power = PowerStateTimes::new(counters, measure.busy + after, elapsed + after);
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
                throughput_mb_per_s: if elapsed > Nanos::ZERO {
                    bytes as f64 / 1_048_576.0 / simulated_s
                } else {
                    0.0
                },
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
                // Known when the ledger is.
                wrapped_pct: 0.0,
            },
            durable: measure.durable(),
            response: ResponseTimeSummary::new(measure),
            percentiles: ResponsePercentileRow::all(measure, &options.percentiles),
            response_distribution: if options.distribution {
                ResponseHistogramRow::all(measure)
            } else {
                Vec::new()
            },
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
            slc: SlcCounts { folded_blocks: counters.folds },
            cache: CacheCounts::of(settings, counters),
            ufs: UfsUse::of(settings, device, elapsed + after),
            power,
            energy: EnergyUse::new(settings, device, &power),
            ..Self::default()
        }
    }

    /// Sets to unknown what the trace does not show: counts of operations that it does not record, and figures that depend on the
    /// order of arrivals if its clock is coarse.
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
        let withdraw =
            |count: &mut Option<u64>, known: bool| *count = count.filter(|count| known || *count > 0);
        withdraw(&mut self.requests.other, recorded.has_op(Op::Flush) && discards);
        withdraw(&mut self.map.discarded_units, discards);
        if let Some(cache) = &mut self.cache {
            withdraw(&mut cache.flushes, flushes);
        }
        if let Some(host) = &mut self.host {
            host.driver =
                host.driver.filter(|driver| flushes && recorded.has(RequestFlags::FUA) || driver.any());
        }
    }

    /// Notes the computing time of the run.
    pub(crate) fn computed_in(&mut self, wall: Duration) {
        let wall_s = wall.as_secs_f64();
        let operations = self.flash.page_operations() as f64;
        let page_operations_per_s = if wall_s > 0.0 { operations / wall_s } else { 0.0 };
        self.computing = ComputeCost { wall_s, page_operations_per_s };
    }
}
