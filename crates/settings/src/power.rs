//! Sleep, waking, and power by state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sleep, waking, and power by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerSettings {
    /// Idle time after which the device sleeps; 0 = never. For a UFS, the timer of auto-hibernate, which includes clock gating.
    pub sleep_after_us: f64,
    /// Time to wake up, which delays the request that arrives; on a UFS, which leaves hibernation, it delays all requests that arrive in
    /// this time.
    pub wake_us: f64,
    /// Distribution of the time to wake up instead of `wake_us`: points in ascending order, the last at 100 %, with
    /// straight lines between them.
    pub wake_quantiles: Vec<TimeQuantile>,
    /// Seed of the wake-up times, and of `controller.read_stalls` and `controller.write_stalls`.
    pub seed: u64,
    /// Power while working, in addition to that of the flash.
    pub active_mw: f64,
    /// Power while idle and awake.
    pub idle_mw: f64,
    /// Power asleep.
    pub sleep_mw: f64,
    /// Power while waking up.
    pub waking_mw: f64,
}

/// A point of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeQuantile {
    /// Share that takes at most `us`.
    pub up_to_pct: f64,
    /// Time.
    pub us: f64,
}
