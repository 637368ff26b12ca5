//! Properties of a UFS.

pub mod any_schedule;
mod by_hand;
mod faults;
mod promises;
mod write_booster;

use emmclab_device::DeviceConfig;
use emmclab_testing::UFS;

use crate::common::config;

/// The device of [`config`] as a UFS, changed by these settings.
pub fn ufs(settings: &[(&str, &str)]) -> DeviceConfig {
    config(&[&UFS, settings].concat())
}
