//! Settings that can change while a device is in use: the costs of further commands, and when background work starts. All other settings
//! determine the layout of the device's contents (map, blocks, buffers, queues), so they cannot change.

use std::collections::BTreeMap;

use emmclab_base::{Error, ErrorClass, Nanos, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::geometry::Geometry;
use crate::load::{DeviceConfig, fits};

/// Keys of the settings that can change in a device in use; `*` is the number of a block group or of another entry of a list.
pub const CHANGEABLE: &[&str] = &[
    "cache.flush_us",
    "cache.idle_after_us",
    "cache.lies",
    "cache.write_back",
    "controller.bus_mode",
    "controller.discard_us",
    "controller.host_us_per_kb",
    "controller.read_overhead_us",
    "controller.reliable_write_us",
    "controller.write_overhead_us",
    "gc.high_watermark",
    "gc.hpi",
    "gc.hpi_us",
    "gc.idle_after_us",
    "gc.idle_free_blocks",
    "gc.low_watermark",
    "gc.urgent_free_blocks",
    "geometry.block_groups.*.erase_us",
    "geometry.block_groups.*.page_types.*.program_us",
    "geometry.block_groups.*.page_types.*.read_us",
    "geometry.block_groups.*.program_us",
    "geometry.block_groups.*.read_us",
    "geometry.block_groups.*.retry_us",
    "interface.command_us",
    "interface.fua_us",
    "power.sleep_after_us",
    "power.wake_us",
    "slc.erase_us",
    "slc.flush_at_pct",
    "slc.keep_pct",
    "slc.partial_flush",
    "slc.pinned_from_mb",
    "slc.pinned_to_mb",
    "slc.program_us",
    "slc.read_us",
    "slc.size_pct",
    "timing.bus_ns_per_byte",
    "timing.bus_write_extra_ns_per_byte",
    "timing.command_ns",
];

/// Reasons why a setting of a running device cannot change, by a pattern for the key of the setting (see [`fits`]). The first match
/// applies.
const REASONS: &[(&str, &str)] = &[
    ("_mw", "the energy of a whole run is computed with one value"),
    ("_uj", "the energy of a whole run is computed with one value"),
    ("_uj_per_kb", "the energy of a whole run is computed with one value"),
    ("host.", "it belongs to the host of a replay; a served device has a real host"),
    ("name", "it names the device"),
    ("about", "it names the device"),
    ("fitted_to", "it names the device"),
    ("wear.data_age_days", "it is the age of the data at the begin of the run"),
    ("geometry.", "it determines the layout of the blocks and pages that hold data"),
    ("capacity.", "it determines the layout of the blocks and pages that hold data"),
    ("slc.", "it determines the layout of the blocks and pages that hold data"),
    ("mapping.", "it determines the layout of the map"),
    ("cache.", "it determines the layout of the buffers that hold data"),
    ("controller.", "it determines the order of commands that the device has already accepted"),
    ("interface.", "hosts have already read its descriptors"),
    ("features.", "hosts have already read its registers"),
    ("zones.", "hosts have already placed their data in its zones"),
    ("timing.", "it determines the order of operations in progress"),
    ("power.", "the wake-up times of the run were drawn with it"),
];
const OTHERWISE: &str = "it determines the order of the lists of blocks";

/// A setting that changed in a device in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingChange {
    /// Simulated time of the change, s.
    pub at_s: f64,
    /// Key of the setting.
    pub key: String,
    /// Value before the change, as TOML.
    pub from: String,
    /// Value after the change, as TOML.
    pub to: String,
}

/// Whether a setting can change in a device in use.
pub fn is_changeable(key: &str) -> bool {
    let fits = |(known, part): (&str, &str)| if known == "*" { part.parse::<u32>().is_ok() } else { part == known };
    let is = |known: &&str| known.split('.').count() == key.split('.').count() && known.split('.').zip(key.split('.')).all(fits);
    CHANGEABLE.iter().any(is)
}

impl DeviceConfig {
    /// Returns the settings in which `to` differs, all of which must be changeable. `at` is the time of the change.
    /// Errors: [`ErrorClass::Config`] for the first setting that cannot change in a device in use, with the reason.
    pub fn changes(&self, to: &Self, at: Nanos) -> Result<Vec<SettingChange>> {
        // The settings of a policy exist only while the policy is selected, so the keys of both configurations are collected.
        let mut values: BTreeMap<String, [String; 2]> = BTreeMap::new();
        for (side, config) in [self, to].into_iter().enumerate() {
            for row in config.explain() {
                values.entry(row.key).or_default()[side] = row.value;
            }
        }
        let changed = values.into_iter().filter(|(_, [from, to])| from != to);
        changed
            .map(|(key, [from, to])| {
                if is_changeable(&key) {
                    return Ok(SettingChange { at_s: at.as_secs_f64(), key, from, to });
                }
                let reason = REASONS.iter().find(|(pattern, _)| fits(pattern, &key));
                let reason = reason.map_or(OTHERWISE, |(_, reason)| reason);
                let problem = format!("`{key}` cannot change from {from} to {to} in a device in use: {reason}");
                Err(Error::new(ErrorClass::Config, problem)
                    .hint(format!("only these settings can change while the device is in use: {}", CHANGEABLE.join(", "))))
            })
            .collect()
    }
}

impl Device {
    /// Replaces the settings `from` of the device by `to` at time `at`. Everything that begins before `at` must have been executed
    /// ([`Device::advance`]). Programs and erases in progress keep their times; idle times restart at `at`. Returns the changed settings.
    /// Errors: as [`DeviceConfig::changes`]; then no setting has changed.
    pub fn reconfigure(&mut self, from: &DeviceConfig, to: &DeviceConfig, at: Nanos) -> Result<Vec<SettingChange>> {
        let changes = from.changes(to, at)?;
        if !changes.is_empty() {
            let settings = to.settings();
            let geometry = Geometry::new(settings);
            self.nand.reconfigure(settings, &geometry);
            self.ftl.reconfigure(settings, geometry);
            self.controller.reconfigure(settings, &self.ftl.core.geometry, self.ftl.core.slc.folds_after(), at);
        }
        Ok(changes)
    }
}
