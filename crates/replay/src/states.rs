//! Time and energy of the device by power state.

use emmclab_device::{Counters, Settings};
use serde::Serialize;

use crate::measure::Measure;

/// How long the device was in each power state, and what the state took beside the flash operations. The times add up to
/// the simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct States {
    /// Working on requests, or collecting while idle.
    pub active_s: f64,
    /// Awake without work.
    pub idle_s: f64,
    /// Asleep.
    pub asleep_s: f64,
    /// Waking up.
    pub waking_s: f64,
    /// Energy of the active time, mJ.
    pub active_mj: f64,
    /// Energy of the idle time, mJ.
    pub idle_mj: f64,
    /// Energy asleep, mJ.
    pub asleep_mj: f64,
    /// Energy of waking up, mJ.
    pub waking_mj: f64,
}

impl States {
    pub(crate) fn new(settings: &Settings, counters: &Counters, measure: &Measure, elapsed_s: f64) -> Self {
        let power = &settings.power;
        let asleep_s = (counters.asleep_ns as f64 / 1e9).min(elapsed_s);
        let waking_s = (counters.waking_ns as f64 / 1e9).min(elapsed_s - asleep_s);
        let worked_s = (measure.busy_ns as f64 - counters.waking_ns as f64).max(0.0) / 1e9;
        let worked_s = worked_s + counters.gc_idle_ns as f64 / 1e9;
        let active_s = worked_s.min(elapsed_s - asleep_s - waking_s);
        let idle_s = (elapsed_s - asleep_s - waking_s - active_s).max(0.0);
        Self {
            active_s,
            idle_s,
            asleep_s,
            waking_s,
            active_mj: active_s * power.active_mw,
            idle_mj: idle_s * power.idle_mw,
            asleep_mj: asleep_s * power.sleep_mw,
            waking_mj: waking_s * power.waking_mw,
        }
    }

    /// Energy of all states, mJ.
    pub fn energy_mj(&self) -> f64 {
        self.active_mj + self.idle_mj + self.asleep_mj + self.waking_mj
    }
}
