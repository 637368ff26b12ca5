//! Properties of a UFS.

mod any_schedule;
mod by_hand;
mod faults;
mod promises;
mod write_booster;

use emmclab_device::DeviceConfig;

use crate::common::config;

/// Common settings of the UFS devices in these tests: a link of one lane with 583.04 million bytes per second in each direction, and 32
/// tags.
pub const UFS: [(&str, &str); 8] = [
    ("interface.kind", "ufs"),
    ("interface.lanes", "1"),
    ("interface.gear", "hs_g3"),
    ("controller.queue_depth", "32"),
    ("features.reliable_write", "false"),
    ("features.barrier", "false"),
    ("features.packed_writes", "0"),
    ("features.packed_reads", "0"),
];

/// The device of [`config`] as a UFS, changed by these settings.
pub fn ufs(settings: &[(&str, &str)]) -> DeviceConfig {
    config(&[&UFS, settings].concat())
}
