//! Results on flash operations, write amplification, space, wear, and energy.

use emmclab_device::{Device, DeviceCounters, DeviceSettings, IdleStage, LOOKUP_NJ, OperationCause, SlcMode};
use emmclab_trace::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// Use of the flash space by host data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SpaceUse {
    /// Bytes that the host wrote / flash bytes that they occupied.
    #[schemars(extend("label" = "Space utilisation", "short" = "Space util.", "digits" = 4, "better" = "higher", "column" = "space_utilisation"))]
    pub space_utilisation: f64,
    /// Space utilisation - 1, as in Figure 9 of IISWC 2015.
    pub gain_difference: f64,
    /// `emmclab compare` only: space utilisation / space utilisation of the first device - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain_ratio: Option<f64>,
}

impl SpaceUse {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        let space_utilisation = counters.space_utilisation();
        Self { space_utilisation, gain_difference: space_utilisation - 1.0, gain_ratio: None }
    }
}

/// Bytes programmed / bytes that the host wrote, in total and by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WriteAmplification {
    /// Bytes programmed for all causes / bytes that the host wrote.
    #[schemars(extend("label" = "Write amplification", "short" = "WAF", "digits" = 3, "better" = "lower", "column" = "waf"))]
    pub waf: f64,
    /// Part of the write amplification that is due to host data, including the padding of pages.
    pub host: f64,
    /// Part of the write amplification that is due to pages moved by garbage collection.
    pub gc: f64,
    /// Part of the write amplification that is due to pages moved by wear levelling.
    pub wear: f64,
    /// Part of the write amplification that is due to pages moved because they were read often or were old.
    pub refresh: f64,
    /// Part of the write amplification that is due to pages of a mapping table on the flash.
    pub map: f64,
}

impl WriteAmplification {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        Self {
            waf: counters.waf(),
            host: counters.waf_of(OperationCause::Host),
            gc: counters.waf_of(OperationCause::Gc),
            wear: counters.waf_of(OperationCause::Wear),
            refresh: counters.waf_of(OperationCause::Refresh),
            map: counters.waf_of(OperationCause::Map),
        }
    }
}

/// Number of page operations, in total and by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PageOperations {
    /// Number of page operations in total.
    #[schemars(extend("label" = "{of}", "better" = "lower"))]
    pub total: u64,
    /// Number of page operations for host data.
    #[schemars(extend("label" = "{of} for the host"))]
    pub host: u64,
    /// Number of page operations for writes that cover only a part of a map unit (of a page, in block-mapped schemes). Their programs count
    /// as host data.
    #[schemars(extend("label" = "{of} of partial writes"))]
    pub read_modify_write: u64,
    /// Number of page operations for garbage collection and log-block merges.
    #[schemars(extend("label" = "{of} of garbage collection"))]
    pub gc: u64,
    /// Number of page operations for wear levelling.
    #[schemars(extend("label" = "{of} of wear levelling"))]
    pub wear: u64,
    /// Number of page operations for the refresh of data that was read often or is old.
    #[schemars(extend("label" = "{of} of refresh"))]
    pub refresh: u64,
    /// Number of page operations for a map on the flash.
    #[schemars(extend("label" = "{of} of the map"))]
    pub map: u64,
}

impl PageOperations {
    fn new(pages: &[u64]) -> Self {
        Self {
            total: pages.iter().sum(),
            host: pages[OperationCause::Host as usize],
            read_modify_write: pages[OperationCause::ReadModifyWrite as usize],
            gc: pages[OperationCause::Gc as usize],
            wear: pages[OperationCause::Wear as usize],
            refresh: pages[OperationCause::Refresh as usize],
            map: pages[OperationCause::Map as usize],
        }
    }
}

/// Operations of the flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct FlashOperations {
    /// Number of pages read.
    #[schemars(extend("of" = "Page reads"))]
    pub page_reads: PageOperations,
    /// Number of pages programmed.
    #[schemars(extend("of" = "Page programs"))]
    pub page_programs: PageOperations,
    /// Number of blocks erased.
    #[schemars(extend("label" = "Block erases", "short" = "Erases", "better" = "lower"))]
    pub block_erases: u64,
    /// Number of page reads that needed a read retry.
    #[schemars(extend("label" = "Retried page reads", "better" = "lower"))]
    pub retried_reads: u64,
    /// Number of blocks whose data was refreshed because they were read often or were old.
    #[schemars(extend("label" = "Refreshed blocks", "better" = "lower"))]
    pub refreshed_blocks: u64,
    /// Number of read retries.
    #[schemars(extend("label" = "Read retries", "better" = "lower"))]
    pub read_retries: u64,
    /// Number of times that a read of the host suspended an erase.
    #[schemars(extend("label" = "Suspensions of erases"))]
    pub suspended_erases: u64,
    /// Number of times that a read of the host suspended the move of a page.
    #[schemars(extend("label" = "Suspensions of page moves"))]
    pub suspended_moves: u64,
    /// Number of times that a read of the host suspended a program of data from the write cache.
    #[schemars(extend("label" = "Suspensions of cached programs"))]
    pub suspended_programs: u64,
}

impl FlashOperations {
    pub(super) fn new(counters: &DeviceCounters) -> Self {
        let [suspended_erases, suspended_moves, suspended_programs] = counters.suspensions;
        Self {
            page_reads: PageOperations::new(&counters.page_reads),
            page_programs: PageOperations::new(&counters.page_programs),
            block_erases: counters.block_erases(),
            retried_reads: counters.retried_reads,
            refreshed_blocks: counters.refreshes,
            read_retries: counters.group_retries.iter().sum(),
            suspended_erases,
            suspended_moves,
            suspended_programs,
        }
    }

    /// Returns the total number of pages read and programmed.
    pub fn page_operations(&self) -> u64 {
        self.page_reads.total + self.page_programs.total
    }
}

/// Share of the simulated time in which each channel, die and plane was busy, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Utilisation {
    /// Share of the time in which each channel was busy.
    pub channels_pct: Vec<f64>,
    /// Share of the time in which each die was busy.
    pub dies_pct: Vec<f64>,
    /// Share of the time in which each plane was busy.
    pub planes_pct: Vec<f64>,
}

impl Utilisation {
    pub(super) fn new(device: &Device, elapsed: Nanos) -> Self {
        let load = device.load();
        let share = |busy: &[u64]| {
            let elapsed = elapsed.0.max(1) as f64;
            busy.iter().map(|busy| 100.0 * *busy as f64 / elapsed).collect()
        };
        Self { channels_pct: share(&load.channels), dies_pct: share(&load.dies), planes_pct: share(&load.planes) }
    }
}

/// Wear of the blocks, and wear levelling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WearSummary {
    /// Blocks moved by wear levelling.
    #[schemars(extend("label" = "Blocks moved by wear levelling"))]
    pub moved_blocks: u64,
    /// Blocks that went bad.
    #[schemars(extend("label" = "Blocks that went bad"))]
    pub bad_blocks: u64,
    /// Distribution of the erase counts of all blocks.
    pub erase_counts: BlockDistribution,
    /// Erases of each kind of block so far, including preconditioning, as a list.
    pub kinds: Vec<KindWear>,
    /// Estimated lifetime; null without an erase limit. Blocks without a limit (`slc.erase_limit = 0`) are not included.
    pub lifetime: Option<LifetimeEstimate>,
}

impl WearSummary {
    pub(super) fn new(settings: &DeviceSettings, device: &Device) -> Self {
        Self {
            moved_blocks: device.counters().wear_moves,
            bad_blocks: device.counters().bad_blocks,
            erase_counts: BlockDistribution::of(device.blocks().map(|block| block.erases)),
            kinds: KindWear::all(settings, device),
            lifetime: LifetimeEstimate::of(settings, device),
        }
    }
}

/// Erases of one kind of block so far, including preconditioning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct KindWear {
    /// Name of the kind: WriteBooster, SLC cache or enhanced area (blocks in SLC mode), or bits in a cell and page size of a block group.
    pub kind: String,
    /// Number of blocks.
    pub blocks: u64,
    /// Mean erases of a block.
    pub mean_erases: f64,
    /// Erases of the most worn block.
    pub most_erases: u32,
    /// Erases after which a block goes bad; null without a limit.
    pub erase_limit: Option<u32>,
    /// Mean erases / erase limit, which the registers of a device report (eMMC: `DEVICE_LIFE_TIME_EST`); null without a limit.
    pub mean_used_pct: Option<f64>,
    /// Erases of the most worn block / erase limit; null without a limit.
    pub used_pct: Option<f64>,
    /// Bytes that the host can write until all blocks of this kind, without spare ones, have reached their erase limit, if each byte needs as
    /// many programs and erases as in the run; null without a limit, or if the run programmed none of these blocks.
    pub even_host_bytes: Option<f64>,
}

impl KindWear {
    /// The kinds of a device, in the order of its block groups.
    fn all(settings: &DeviceSettings, device: &Device) -> Vec<Self> {
        let groups = device.geometry().groups.iter().zip(erases(device)).enumerate();
        groups
            .map(|(number, (group, so_far))| {
                let BlockErases { blocks, sum, most } = so_far;
                let limit = (group.erase_limit > 0).then_some(group.erase_limit);
                let mean = sum as f64 / blocks.max(1) as f64;
                let used = |erases: f64| limit.map(|limit| 100.0 * erases / f64::from(limit));
                Self {
                    kind: kind_name(settings, number),
                    blocks,
                    mean_erases: mean,
                    most_erases: most,
                    erase_limit: limit,
                    mean_used_pct: used(mean),
                    used_pct: used(f64::from(most)),
                    even_host_bytes: limit
                        .map(|_| GroupLifetime::of(settings, device, number, so_far).even)
                        .filter(|bytes| bytes.is_finite()),
                }
            })
            .collect()
    }
}

fn kind_name(settings: &DeviceSettings, number: usize) -> String {
    let own = &settings.geometry.block_groups;
    let Some(group) = own.get(number) else {
        return match settings.slc.mode {
            SlcMode::Cache if settings.interface.is_ufs() => "WriteBooster",
            SlcMode::Cache => "SLC cache",
            SlcMode::Region | SlcMode::Off if settings.zones.blocks > 0 => "conventional zones",
            SlcMode::Region | SlcMode::Off => "enhanced area",
        }
        .to_owned();
    };
    let cells = format!("{:?}", group.cell_mode).to_uppercase();
    if own.len() == 1 { cells } else { format!("{cells}, pages of {} KB", group.page_kb) }
}

/// Erases of the blocks of a block group.
#[derive(Clone, Copy, Default)]
struct BlockErases {
    blocks: u64,
    sum: u64,
    most: u32,
}

/// The erases of the blocks of each block group so far.
fn erases(device: &Device) -> Vec<BlockErases> {
    let mut groups = vec![BlockErases::default(); device.geometry().groups.len()];
    for block in device.blocks() {
        let BlockErases { blocks, sum, most } = &mut groups[usize::from(block.group)];
        (*blocks, *sum, *most) = (*blocks + 1, *sum + u64::from(block.erases), block.erases.max(*most));
    }
    groups
}

/// Bytes that the host can write during the life of the device, which ends with the first block group or SLC area to wear out. Blocks
/// without an erase limit are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LifetimeEstimate {
    /// Bytes that the host can write until all blocks of a group (or all blocks in SLC mode) have reached their erase limit; spare blocks are
    /// not counted. Assumes that each byte needs as many programs and erases as in the run. Null if the run erased no block.
    #[schemars(extend("label" = "Lifetime, even wear", "short" = "Life", "digits" = 2, "better" = "higher", "shown_in" = "TB"))]
    pub even_host_bytes: Option<f64>,
    /// Bytes that the host can write until the most worn block reaches its erase limit; null if the run erased no block. Assumes that each
    /// byte needs as many programs and erases as in the run, and that the distribution of wear remains as uneven as so far.
    pub first_block_host_bytes: Option<f64>,
    /// Erases of the most worn block / erase limit, including preconditioning.
    #[schemars(extend("label" = "Wear so far", "short" = "Wear", "digits" = 2, "better" = "lower"))]
    pub used_pct: f64,
    /// Erases of the most worn block in SLC mode / erase limit; null without such blocks, or without a limit for them.
    #[schemars(extend("label" = "Wear so far, SLC mode", "short" = "Wear of SLC", "digits" = 2, "better" = "lower"))]
    pub used_slc_pct: Option<f64>,
}

impl LifetimeEstimate {
    fn of(settings: &DeviceSettings, device: &Device) -> Option<Self> {
        let groups = &device.geometry().groups;
        let erases = erases(device);
        let kinds: Vec<_> = (0..groups.len())
            .filter(|group| groups[*group].erase_limit > 0)
            .map(|group| GroupLifetime::of(settings, device, group, erases[group]))
            .collect();
        // Blocks in SLC mode form the last block group.
        let limited = groups.last().is_some_and(|group| group.erase_limit > 0);
        let slc = kinds.last().filter(|_| limited && settings.slc.mode != SlcMode::Off);
        let least = |life: fn(&GroupLifetime) -> f64| kinds.iter().map(life).fold(f64::INFINITY, f64::min);
        let used = kinds.iter().map(|kind| kind.used).reduce(f64::max)?;
        let erased = kinds.iter().any(|kind| kind.erases > 0);
        let even = least(|kind| kind.even);
        Some(Self {
            even_host_bytes: erased.then_some(even),
            first_block_host_bytes: erased.then(|| least(|kind| kind.first_block).min(even)),
            used_pct: 100.0 * used,
            used_slc_pct: slc.map(|kind| 100.0 * kind.used),
        })
    }
}

/// The life of the blocks of a block group, in bytes that the host writes to the device; infinite if the run did not erase these blocks.
struct GroupLifetime {
    even: f64,
    first_block: f64,
    /// Share of the erase limit that the most worn block has used.
    used: f64,
    /// Number of erases in the run. Earlier erases of the blocks are not included.
    erases: u64,
}

impl GroupLifetime {
    fn of(settings: &DeviceSettings, device: &Device, number: usize, so_far: BlockErases) -> Self {
        let (counters, geometry) = (device.counters(), device.geometry());
        let group = &geometry.groups[number];
        let (written, limit) = (counters.host_bytes_written as f64, f64::from(group.erase_limit));
        // Spare blocks are empty until a block goes bad. With even wear all others go bad at about the same time.
        let blocks = f64::from(group.blocks - group.spare_blocks) * f64::from(geometry.planes);
        let erases = counters.group_erases[number];
        // Wear is computed from filled blocks instead of erases, because the number of free blocks may have changed during the run.
        let block_bytes = f64::from(group.pages_per_block) * f64::from(group.page_bytes);
        let filled = counters.group_programs[number] as f64 / f64::from(group.pages_per_block)
            + still_to_fold(settings, device, number) / block_bytes;
        let used = f64::from(so_far.most) / limit;
        Self {
            even: written * limit * blocks / filled.max(erases as f64),
            first_block: if erases > 0 { written / used * (so_far.sum as f64 / erases as f64) } else { f64::INFINITY },
            used,
            erases,
        }
    }
}

/// Bytes in the SLC cache at the end of the run that will be folded into blocks of this block group.
fn still_to_fold(settings: &DeviceSettings, device: &Device, number: usize) -> f64 {
    let slc = &settings.slc;
    if slc.mode != SlcMode::Cache || slc.group as usize != number {
        return 0.0;
    }
    let geometry = device.geometry();
    let cache = geometry.groups.len() - 1;
    let more = device.valid_units(cache).saturating_sub(device.counters().group_valid_before[cache]);
    more as f64 * f64::from(geometry.unit_bytes)
}

/// Distribution of a value over blocks, in equal steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("whole" = true))]
pub struct BlockDistribution {
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
    /// Number of blocks in each step.
    pub blocks: Vec<u64>,
}

/// Maximum number of steps of a distribution.
const STEPS: u64 = 20;

impl BlockDistribution {
    pub(super) fn of(values: impl Iterator<Item = u32> + Clone) -> Self {
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

/// Time of the device in each power state, in s. The times add up to the simulated time, including draining.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PowerStateTimes {
    /// Time executing requests, or collecting garbage in idle time.
    pub active_s: f64,
    /// Time awake without work.
    pub idle_s: f64,
    /// Time asleep.
    pub asleep_s: f64,
    /// Time waking up.
    pub waking_s: f64,
    /// Number of wake-ups of the device.
    #[schemars(extend("label" = "Wake-ups"))]
    pub wake_ups: u64,
    /// With `power.stages`: a list of the stages of sleep: `after_us` (idle time after which the stage begins), `wake_ups`, `asleep_s`,
    /// `waking_s`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sleep_stages: Vec<IdleStageTimes>,
}

/// Wake-ups from a stage of sleep, and times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct IdleStageTimes {
    /// Idle time after which the stage begins, in us.
    pub after_us: f64,
    /// Number of wake-ups from this stage.
    pub wake_ups: u64,
    /// Time in this stage, in s.
    pub asleep_s: f64,
    /// Time of the wake-ups, in s.
    pub waking_s: f64,
}

impl IdleStageTimes {
    /// Returns the times of all stages. A wake-up from a later stage has been through the whole of the stages before it.
    fn of(stages: &[IdleStage], counters: &DeviceCounters) -> Vec<Self> {
        let counted = counters.sleep_stages;
        let first_us = stages.first().map_or(0.0, |stage| stage.after_us);
        let times = stages.iter().enumerate().map(|(i, stage)| {
            let own = counted[i];
            let before_s = own.wake_ups as f64 * (stage.after_us - first_us) / 1e6;
            let later: u64 = counted[i + 1..].iter().map(|later| later.wake_ups).sum();
            let whole_us = stages.get(i + 1).map_or(0.0, |next| next.after_us - stage.after_us);
            let asleep_s = (own.asleep_ns as f64 / 1e9 - before_s).max(0.0) + later as f64 * whole_us / 1e6;
            Self { after_us: stage.after_us, wake_ups: own.wake_ups, asleep_s, waking_s: own.waking_ns as f64 / 1e9 }
        });
        times.collect()
    }
}

impl PowerStateTimes {
    pub(super) fn new(settings: &DeviceSettings, counters: &DeviceCounters, busy: Nanos, elapsed: Nanos) -> Self {
        let elapsed_s = elapsed.as_secs_f64();
        let asleep_s = (counters.asleep_ns as f64 / 1e9).min(elapsed_s);
        let waking_s = (counters.waking_ns as f64 / 1e9).min(elapsed_s - asleep_s);
        let worked_s = (busy.0 as f64 - counters.waking_ns as f64).max(0.0) / 1e9;
        let worked_s = worked_s + counters.gc_idle_ns as f64 / 1e9;
        let active_s = worked_s.min(elapsed_s - asleep_s - waking_s);
        let idle_s = (elapsed_s - asleep_s - waking_s - active_s).max(0.0);
        let sleep_stages = IdleStageTimes::of(&settings.power.stages, counters);
        Self { active_s, idle_s, asleep_s, waking_s, wake_ups: counters.wake_ups, sleep_stages }
    }
}

/// Energy consumption of the device, in mJ; `None` if its settings contain no values for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EnergyUse {
    /// Total energy.
    #[schemars(extend("label" = "Energy", "digits" = 1, "better" = "lower"))]
    pub total_mj: Option<f64>,
    /// Energy of page reads, page programs, block erases and bus transfers.
    pub flash_mj: Option<f64>,
    /// Energy of map lookups in the controller (`mapping.lookup_nj`).
    pub map_mj: Option<f64>,
    /// Energy in the active state, without flash operations.
    pub active_mj: Option<f64>,
    /// Energy while idle.
    pub idle_mj: Option<f64>,
    /// Energy while asleep.
    pub asleep_mj: Option<f64>,
    /// Energy of wake-ups.
    pub waking_mj: Option<f64>,
}

impl EnergyUse {
    pub(super) fn new(settings: &DeviceSettings, device: &Device, states: &PowerStateTimes) -> Self {
        let power = &settings.power;
        let groups = settings.block_groups();
        let of_flash = groups.iter().map(|group| group.read_uj + group.program_uj + group.erase_uj + group.retry_uj);
        let figures = of_flash.sum::<f64>() + settings.timing.bus_uj_per_kb + settings.timing.suspend_uj;
        let flash_mj = (figures > 0.0).then(|| flash_mj(settings, device));
        let spent = |time_s: f64, power_mw: f64| (power_mw > 0.0).then_some(time_s * power_mw);
        let active_mj = spent(states.active_s, power.active_mw);
        let idle_mj = spent(states.idle_s, power.idle_mw);
        let asleep_mj = if states.sleep_stages.is_empty() {
            spent(states.asleep_s, power.sleep_mw)
        } else {
            let of_stage = |stage: &IdleStage| if stage.sleep_mw > 0.0 { stage.sleep_mw } else { power.sleep_mw };
            let stages = states.sleep_stages.iter().zip(&power.stages);
            stages.filter_map(|(times, stage)| spent(times.asleep_s, of_stage(stage))).reduce(|sum, stage| sum + stage)
        };
        let waking_mj = spent(states.waking_s, power.waking_mw);
        let counters = device.counters();
        let lookup_nj = LOOKUP_NJ.of(&settings.mapping.options) as f64;
        let map_mj = (lookup_nj > 0.0).then(|| (counters.map_hits + counters.map_misses) as f64 * lookup_nj / 1e6);
        let parts = [active_mj, idle_mj, asleep_mj, waking_mj, flash_mj, map_mj];
        let total_mj = parts.into_iter().flatten().reduce(|sum, part| sum + part);
        Self { total_mj, flash_mj, map_mj, active_mj, idle_mj, asleep_mj, waking_mj }
    }
}

/// Energy of reads, programs, erases and transfers.
fn flash_mj(settings: &DeviceSettings, device: &Device) -> f64 {
    let counters = device.counters();
    let flash_uj: f64 = settings
        .block_groups()
        .iter()
        .enumerate()
        .map(|(i, group)| {
            counters.group_reads[i] as f64 * group.read_uj
                + counters.group_programs[i] as f64 * group.program_uj
                + counters.group_erases[i] as f64 * group.erase_uj
                + counters.group_retries[i] as f64 * group.retry_uj
        })
        .sum::<f64>()
        * f64::from(device.geometry().clustered_planes)
        + counters.suspensions.iter().sum::<u64>() as f64 * settings.timing.suspend_uj;
    let bus_uj = counters.bus_bytes as f64 / 1024.0 * settings.timing.bus_uj_per_kb;
    (flash_uj + bus_uj) / 1e3
}
