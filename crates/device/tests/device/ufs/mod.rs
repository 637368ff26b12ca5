//! What makes it a UFS.

mod any_schedule;
mod by_hand;
mod faults;
mod hpb;
mod promises;
mod write_booster;

use emmclab_device::DeviceConfig;

use crate::common::config;

/// What every UFS of these tests says of itself: a link of one lane with 583.04 million bytes a second each way, and 32 tags.
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

/// The device of [`config`] as a UFS, with these settings on top.
pub fn ufs(settings: &[(&str, &str)]) -> DeviceConfig {
    config(&[&UFS, settings].concat())
}
