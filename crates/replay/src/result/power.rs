//! Time and energy of the device by power state, and energy of the flash operations.

use emmclab_device::{Device, DeviceCounters, DeviceSettings, LOOKUP_NJ};
use emmclab_trace::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

/// Time of the device in each power state, in s; the times add up to the simulated time, and that of draining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PowerStateTimes {
    /// Processing requests, or collecting garbage while idle.
    pub active_s: f64,
    /// Awake without work.
    pub idle_s: f64,
    /// Asleep.
    pub asleep_s: f64,
    /// Waking up.
    pub waking_s: f64,
    /// Times the device woke up.
    #[schemars(extend("label" = "Wake-ups"))]
    pub wake_ups: u64,
}

impl PowerStateTimes {
    pub(super) fn new(counters: &DeviceCounters, busy: Nanos, elapsed: Nanos) -> Self {
        let elapsed_s = elapsed.as_secs_f64();
        let asleep_s = (counters.asleep_ns as f64 / 1e9).min(elapsed_s);
        let waking_s = (counters.waking_ns as f64 / 1e9).min(elapsed_s - asleep_s);
        let worked_s = (busy.0 as f64 - counters.waking_ns as f64).max(0.0) / 1e9;
        let worked_s = worked_s + counters.gc_idle_ns as f64 / 1e9;
        let active_s = worked_s.min(elapsed_s - asleep_s - waking_s);
        let idle_s = (elapsed_s - asleep_s - waking_s - active_s).max(0.0);
        Self { active_s, idle_s, asleep_s, waking_s, wake_ups: counters.wake_ups }
    }
}

/// Energy that the device took, in mJ; `None` if its settings give no figure for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct EnergyUse {
    /// All of it.
    #[schemars(extend("label" = "Energy", "digits" = 1, "better" = "lower"))]
    pub total_mj: Option<f64>,
    /// Page reads, page programs, block erases and bus transfers.
    pub flash_mj: Option<f64>,
    /// Lookups of the map in the controller (`mapping.lookup_nj`).
    pub map_mj: Option<f64>,
    /// Active state, without the flash operations.
    pub active_mj: Option<f64>,
    /// Idle.
    pub idle_mj: Option<f64>,
    /// Asleep.
    pub asleep_mj: Option<f64>,
    /// Waking up.
    pub waking_mj: Option<f64>,
}

impl EnergyUse {
    pub(super) fn new(settings: &DeviceSettings, device: &Device, states: &PowerStateTimes) -> Self {
        let power = &settings.power;
        let groups = settings.block_groups();
        let of_flash = groups.iter().map(|group| group.read_uj + group.program_uj + group.erase_uj);
        let figures = of_flash.sum::<f64>() + settings.timing.bus_uj_per_kb;
        let flash_mj = (figures > 0.0).then(|| flash_mj(settings, device));
        let spent = |time_s: f64, power_mw: f64| (power_mw > 0.0).then_some(time_s * power_mw);
        let active_mj = spent(states.active_s, power.active_mw);
        let idle_mj = spent(states.idle_s, power.idle_mw);
        let asleep_mj = spent(states.asleep_s, power.sleep_mw);
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
        })
        .sum::<f64>()
        * f64::from(device.geometry().clustered_planes);
    let bus_uj = counters.bus_bytes as f64 / 1024.0 * settings.timing.bus_uj_per_kb;
    (flash_uj + bus_uj) / 1e3
}
