//! What a run found. The names are those of the JSON output and of Python.

use std::collections::BTreeMap;

use emmclab_device::{Cause, Device, DeviceConfig, Geometry};
use emmclab_trace::Ledger;
use serde::Serialize;

use crate::host::HostCounts;
use crate::measure::{Kinds, Measure};
use crate::options::Mode;
use crate::states::States;

/// Mean and percentiles, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Times {
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// Bytes programmed over bytes the host wrote, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WafByCause {
    /// The host's own data, with what page sizes waste.
    pub host: f64,
    /// Moved by garbage collection.
    pub gc: f64,
    /// Moved by wear levelling.
    pub wear: f64,
    /// Pages of a map that lies on the flash.
    pub map: f64,
}

/// Counts of equal steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    /// Smallest value.
    pub min: u32,
    /// Largest value.
    pub max: u32,
    /// Mean value.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Lower bound of each step.
    pub from: Vec<u32>,
    /// Blocks in each step.
    pub blocks: Vec<u64>,
}

/// Steps of a distribution.
const STEPS: u64 = 20;

impl Distribution {
    fn of(values: impl Iterator<Item = u32> + Clone) -> Self {
        let count = values.clone().count() as f64;
        if count == 0.0 {
            return Self::default();
        }
        let (mut min, mut max, mut sum, mut squares) = (u32::MAX, 0, 0.0, 0.0);
        for value in values.clone() {
            min = min.min(value);
            max = max.max(value);
            sum += f64::from(value);
            squares += f64::from(value) * f64::from(value);
        }
        let step = (u64::from(max - min) + 1).div_ceil(STEPS);
        let steps = (u64::from(max - min) + 1).div_ceil(step);
        let mut blocks = vec![0; steps as usize];
        for value in values {
            blocks[(u64::from(value - min) / step) as usize] += 1;
        }
        let mean = sum / count;
        Self {
            min,
            max,
            mean,
            deviation: (squares / count - mean * mean).max(0.0).sqrt(),
            from: (0..steps).map(|i| min + (i * step) as u32).collect(),
            blocks,
        }
    }
}

/// Share of the time in which each part was busy, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Utilisation {
    pub channels_pct: Vec<f64>,
    pub dies_pct: Vec<f64>,
    pub planes_pct: Vec<f64>,
}

/// What the device's RAM for data did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheCounts {
    /// Map units of written data that it took in.
    pub units_written: u64,
    /// Share of them that were there already and so cost no program.
    pub write_hit_pct: f64,
    /// Map units that the host read.
    pub units_read: u64,
    /// Share of them that were in RAM.
    pub read_hit_pct: f64,
    /// Flushes that found written data.
    pub flushes: u64,
}

/// How long the device would live under this workload; only with an erase limit and erases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lifetime {
    /// Bytes that the host can write until every block has reached its limit: perfect levelling.
    pub even_host_bytes: f64,
    /// Bytes that the host can write until the most worn block reaches its limit, wear going on as it did.
    pub first_block_host_bytes: f64,
}

/// What a layer did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LayerResult {
    /// Name of the layer.
    pub name: String,
    /// Requests that it held because there was no room: back-pressure.
    pub held_full: u64,
    /// Requests that it held because background work was writing in their place.
    pub held_overlap: u64,
    /// How long it held them in all.
    pub held_ms: f64,
    /// Its own counts.
    #[serde(flatten)]
    pub counters: BTreeMap<&'static str, u64>,
}

/// What the second device did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SecondDevice {
    /// Name of the device.
    pub device: String,
    /// Bytes that layers read from it.
    pub host_bytes_read: u64,
    /// Bytes that they wrote to it.
    pub host_bytes_written: u64,
    /// Pages programmed.
    pub page_programs: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// Bytes programmed / bytes written to it.
    pub waf: f64,
    /// What its host queue did, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostCounts>,
}

impl SecondDevice {
    /// What a device has done so far.
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

/// What a run found. All but `wall_s` and the rates made from it depend on nothing but input, settings and version.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SimulationResult {
    /// Name of the device.
    pub device: String,
    /// Capacity that the host sees.
    pub capacity_bytes: u64,
    /// RAM that the device keeps for data.
    pub ram_kb: u64,
    /// Unit of parallelism, which decides much.
    pub parallelism: String,
    /// Mapping scheme.
    pub mapping: String,
    /// When a write was taken as complete.
    pub write_complete: String,
    /// Open or closed loop.
    pub mode: Mode,
    /// Requests completed.
    pub requests: u64,
    /// Reads among them.
    pub requests_read: u64,
    /// Writes among them.
    pub requests_write: u64,
    /// Discards and flushes among them.
    pub requests_other: u64,
    /// Why the run ended early, where it did.
    pub stopped: Option<String>,
    /// Mean of complete - arrival.
    pub mean_response_ms: f64,
    /// Median of it.
    pub p50_response_ms: f64,
    /// 99th percentile of it.
    pub p99_response_ms: f64,
    /// Mean of complete - start.
    pub mean_service_ms: f64,
    /// Mean response of reads.
    pub mean_response_ms_read: f64,
    /// Mean response of writes.
    pub mean_response_ms_write: f64,
    /// Median response of reads.
    pub p50_response_ms_read: f64,
    /// Median response of writes.
    pub p50_response_ms_write: f64,
    /// 99th percentile of the response of reads.
    pub p99_response_ms_read: f64,
    /// 99th percentile of the response of writes.
    pub p99_response_ms_write: f64,
    /// Mean service time of reads.
    pub mean_service_ms_read: f64,
    /// Mean service time of writes.
    pub mean_service_ms_write: f64,
    /// All percentiles of the response time.
    pub response: Times,
    /// ... of reads.
    pub response_read: Times,
    /// ... of writes.
    pub response_write: Times,
    /// All percentiles of the service time.
    pub service: Times,
    /// ... of reads.
    pub service_read: Times,
    /// ... of writes.
    pub service_write: Times,
    /// Requests that the device began at once, in percent.
    pub no_wait_pct: f64,
    /// Mean of each part of the response time, in ms; they add up to it.
    pub wait_queue_ms: f64,
    /// In the controller and between host and device.
    pub wait_controller_ms: f64,
    /// On the bus and for it.
    pub wait_bus_ms: f64,
    /// In the array.
    pub wait_array_ms: f64,
    /// Behind collection.
    pub wait_gc_ms: f64,
    /// For waking up.
    pub wait_wake_up_ms: f64,
    /// Bytes the host read.
    pub host_bytes_read: u64,
    /// Bytes the host wrote.
    pub host_bytes_written: u64,
    /// MB (1,024 x 1,024 bytes) per second of simulated time.
    pub throughput_mb_per_s: f64,
    /// Bytes the host wrote / flash bytes that they took.
    pub space_utilisation: f64,
    /// The paper's Figure 9 for this device against 4PS, whose utilisation is 1: utilisation - 1.
    pub space_gain_difference: f64,
    /// Bytes programmed / bytes the host wrote.
    pub waf: f64,
    /// The same by cause.
    pub waf_by_cause: WafByCause,
    /// Pages read.
    pub page_reads: u64,
    /// Pages read for the host.
    pub page_reads_host: u64,
    /// Pages read because a write covered a unit in part.
    pub page_reads_merge: u64,
    /// Pages read by collection and wear levelling.
    pub page_reads_gc: u64,
    /// Pages programmed.
    pub page_programs: u64,
    /// Pages programmed for the host.
    pub page_programs_host: u64,
    /// Pages programmed by collection and wear levelling.
    pub page_programs_gc: u64,
    /// Pages read of a map that lies on the flash.
    pub page_reads_map: u64,
    /// Pages programmed of it.
    pub page_programs_map: u64,
    /// Bytes of memory that the map takes inside the device.
    pub map_ram_bytes: u64,
    /// Map entries that were in memory when they were needed, in percent; `None` where all of them always are.
    pub map_hit_pct: Option<f64>,
    /// Merges of the block-mapped schemes that copied nothing.
    pub switch_merges: u64,
    /// ... that copied the rest of the data to the log block.
    pub partial_merges: u64,
    /// ... that copied all of it to a fresh block.
    pub full_merges: u64,
    /// Blocks erased.
    pub block_erases: u64,
    /// Blocks collected.
    pub gc_count: u64,
    /// Of these, while idle.
    pub gc_idle_count: u64,
    /// Time that the flash spent on collection.
    pub gc_s: f64,
    /// Blocks moved to even out wear.
    pub wear_moves: u64,
    /// Blocks gone bad.
    pub bad_blocks: u64,
    /// Units read that had never been written.
    pub unwritten_reads: u64,
    /// Units discarded.
    pub trimmed_units: u64,
    /// Times the device woke up.
    pub wake_ups: u64,
    /// Erase counts of all blocks.
    pub erase_counts: Distribution,
    /// Valid units in the full blocks.
    pub valid_units: Distribution,
    /// How busy the parts were.
    pub utilisation: Utilisation,
    /// What the host did before the device, where it merges or packs.
    pub host: Option<HostCounts>,
    /// What the device's RAM for data did, where it has any.
    pub cache: Option<CacheCounts>,
    /// Blocks folded from an SLC cache into others.
    pub folds: u64,
    /// Requests that interrupted idle collection.
    pub gc_interruptions: u64,
    /// Time that the flash spent on idle collection.
    pub gc_idle_s: f64,
    /// Time and energy in each state.
    pub states: States,
    /// Energy of flash, bus and waiting, in mJ.
    pub energy_mj: f64,
    /// How long the device would live.
    pub lifetime: Option<Lifetime>,
    /// From the first arrival to the last completion.
    pub simulated_s: f64,
    /// Requests with wrapped addresses, and what the readers counted.
    pub ledger: Ledger,
    /// What each layer did, the first on top.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerResult>,
    /// The first writes that came from the layers to the device, sector and length, as many as were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_writes: Vec<(u64, u32)>,
    /// What the second device did, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_device: Option<SecondDevice>,
    /// Computing time of the run; differs from run to run.
    pub wall_s: f64,
    /// Page reads and programs per second of computing time.
    pub page_operations_per_s: f64,
}

impl SimulationResult {
    /// Sums up a run.
    pub(crate) fn new(config: &DeviceConfig, device: &Device, measure: &Measure, mode: Mode) -> Self {
        let settings = config.settings();
        let counters = device.counters();
        let all = measure.timed();
        let [response, read, write] = [&all[..], &all[..1], &all[1..]].map(Kinds::response);
        let [service, service_read, service_write] = [&all[..], &all[..1], &all[1..]].map(Kinds::service);
        let elapsed_ns = measure.elapsed_ns();
        let elapsed_s = elapsed_ns as f64 / 1e9;
        let timed = measure.requests().max(1) as f64;
        let waits = measure.waits();
        let part = |i: usize| waits[i] as f64 / timed / 1e6;
        let bytes = measure.reads.bytes() + measure.writes.bytes();
        let states = States::new(settings, counters, measure, elapsed_s);
        Self {
            device: settings.name.clone(),
            capacity_bytes: device.geometry().capacity().0,
            ram_kb: u64::from(settings.cache.size_kb) + u64::from(settings.cache.read_kb),
            parallelism: word(settings.timing.parallelism),
            mapping: word(settings.mapping.scheme),
            write_complete: word(settings.timing.write_complete),
            mode,
            requests: measure.requests(),
            requests_read: measure.reads.count,
            requests_write: measure.writes.count,
            requests_other: measure.others.count,
            stopped: device.stop().map(|stop| stop.reason().to_owned()),
            mean_response_ms: response.mean_ms,
            p50_response_ms: response.p50_ms,
            p99_response_ms: response.p99_ms,
            mean_service_ms: service.mean_ms,
            mean_response_ms_read: read.mean_ms,
            mean_response_ms_write: write.mean_ms,
            p50_response_ms_read: read.p50_ms,
            p50_response_ms_write: write.p50_ms,
            p99_response_ms_read: read.p99_ms,
            p99_response_ms_write: write.p99_ms,
            mean_service_ms_read: service_read.mean_ms,
            mean_service_ms_write: service_write.mean_ms,
            response,
            response_read: read,
            response_write: write,
            service,
            service_read,
            service_write,
            no_wait_pct: Kinds::no_wait_pct(&all),
            wait_queue_ms: part(0),
            wait_controller_ms: part(1),
            wait_bus_ms: part(2),
            wait_array_ms: part(3),
            wait_gc_ms: part(4),
            wait_wake_up_ms: part(5),
            host_bytes_read: counters.host_bytes_read,
            host_bytes_written: counters.host_bytes_written,
            throughput_mb_per_s: if elapsed_s > 0.0 { bytes as f64 / 1_048_576.0 / elapsed_s } else { 0.0 },
            space_utilisation: counters.space_utilisation(),
            space_gain_difference: counters.space_utilisation() - 1.0,
            waf: counters.waf(),
            waf_by_cause: WafByCause {
                host: counters.waf_of(Cause::Host),
                gc: counters.waf_of(Cause::Gc),
                wear: counters.waf_of(Cause::Wear),
                map: counters.waf_of(Cause::Map),
            },
            page_reads: counters.all_page_reads(),
            page_reads_host: counters.page_reads[Cause::Host as usize],
            page_reads_merge: counters.page_reads[Cause::Merge as usize],
            page_reads_gc: counters.page_reads[Cause::Gc as usize]
                + counters.page_reads[Cause::Wear as usize],
            page_programs: counters.all_page_programs(),
            page_programs_host: counters.page_programs[Cause::Host as usize],
            page_programs_gc: counters.page_programs[Cause::Gc as usize]
                + counters.page_programs[Cause::Wear as usize],
            page_reads_map: counters.page_reads[Cause::Map as usize],
            page_programs_map: counters.page_programs[Cause::Map as usize],
            map_ram_bytes: device.map_ram_bytes(),
            map_hit_pct: (counters.map_hits + counters.map_misses > 0)
                .then(|| 100.0 * counters.map_hits as f64 / (counters.map_hits + counters.map_misses) as f64),
            switch_merges: counters.switch_merges,
            partial_merges: counters.partial_merges,
            full_merges: counters.full_merges,
            block_erases: counters.block_erases(),
            gc_count: counters.gc_count,
            gc_idle_count: counters.gc_idle_count,
            gc_s: counters.gc_ns as f64 / 1e9,
            host: None,
            cache: cache(config, device),
            folds: counters.folds,
            gc_interruptions: counters.gc_interruptions,
            gc_idle_s: counters.gc_idle_ns as f64 / 1e9,
            wear_moves: counters.wear_moves,
            bad_blocks: counters.bad_blocks,
            unwritten_reads: counters.unwritten_reads,
            trimmed_units: counters.trimmed_units,
            wake_ups: counters.wake_ups,
            erase_counts: Distribution::of(device.blocks().iter().map(|block| block.erases)),
            valid_units: Distribution::of(
                device
                    .blocks()
                    .iter()
                    .filter(|block| block.state == emmclab_device::BlockState::Full)
                    .map(|block| block.valid),
            ),
            utilisation: utilisation(device, elapsed_ns),
            energy_mj: states.energy_mj() + flash_mj(config, device),
            states,
            lifetime: lifetime(device, device.geometry()),
            simulated_s: elapsed_s,
            ledger: Ledger::default(),
            layers: Vec::new(),
            first_writes: Vec::new(),
            second_device: None,
            wall_s: 0.0,
            page_operations_per_s: 0.0,
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

fn utilisation(device: &Device, elapsed_ns: i64) -> Utilisation {
    let load = device.load();
    let share = |busy: &[u64]| {
        let elapsed = elapsed_ns.max(1) as f64;
        busy.iter().map(|busy| 100.0 * *busy as f64 / elapsed).collect()
    };
    Utilisation {
        channels_pct: share(&load.channels),
        dies_pct: share(&load.dies),
        planes_pct: share(&load.planes),
    }
}

/// Energy of reads, programs, erases and transfers.
fn flash_mj(config: &DeviceConfig, device: &Device) -> f64 {
    let settings = config.settings();
    let counters = device.counters();
    let flash_uj: f64 = settings
        .block_groups()
        .iter()
        .enumerate()
        .map(|(i, group)| {
            counters.group_reads[i] as f64 * group.read_uj
                + counters.group_programs[i] as f64 * group.program_uj
                + counters.group_erases[i] as f64 * group.erase_uj
        })
        .sum::<f64>()
        * f64::from(device.geometry().gang);
    let bus_uj = counters.bus_bytes as f64 / 1024.0 * settings.timing.bus_uj_per_kb;
    (flash_uj + bus_uj) / 1e3
}

fn cache(config: &DeviceConfig, device: &Device) -> Option<CacheCounts> {
    let given = &config.settings().cache;
    let counters = device.counters();
    let share = |part: u64, of: u64| if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 };
    (given.size_kb > 0 || given.read_kb > 0).then(|| CacheCounts {
        units_written: counters.cache_written,
        write_hit_pct: share(counters.cache_overwritten, counters.cache_written),
        units_read: counters.cache_read,
        read_hit_pct: share(counters.cache_read_hits, counters.cache_read),
        flushes: counters.cache_flushes,
    })
}

fn lifetime(device: &Device, geometry: &Geometry) -> Option<Lifetime> {
    let counters = device.counters();
    let written = counters.host_bytes_written as f64;
    let erases = counters.block_erases() as f64;
    let budget: f64 = geometry
        .groups
        .iter()
        .map(|group| f64::from(group.erase_limit) * f64::from(group.blocks) * f64::from(geometry.planes))
        .sum();
    let worst = device
        .blocks()
        .iter()
        .filter_map(|block| {
            let limit = geometry.groups[usize::from(block.group)].erase_limit;
            (limit > 0).then(|| f64::from(block.erases) / f64::from(limit))
        })
        .fold(0.0, f64::max);
    (erases > 0.0 && budget > 0.0 && worst > 0.0).then(|| Lifetime {
        even_host_bytes: written * budget / erases,
        first_block_host_bytes: written / worst,
    })
}
