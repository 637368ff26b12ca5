//! The settings that determine the contents of a preconditioned device.

use emmclab_base::{Error, ErrorClass, Result};
use toml::Value;

use super::DeviceConfig;
use super::explain::{fits, leaves};

/// Settings that never affect the contents, as patterns of [`fits`].
const WITHOUT_INFLUENCE: &[&str] = &[
    // They name the device.
    "name",
    "about",
    "fitted_to",
    // They affect only commands that wait for each other, and flags that plain writes do not have.
    "host.",
    "features.",
    "controller.queue_depth",
    "controller.reliable_write_us",
    "interface.fua_us",
    // They affect only the duration of host reads and flushes: the next command arrives when the previous one is complete.
    "cache.read_kb",
    "controller.read_overhead_us",
    "cache.flush_us",
    // Energy is computed from counters.
    "_uj",
    "_uj_per_kb",
    "_mw",
];
/// Settings that affect the contents only if the device had pauses.
const INFLUENCE_IN_PAUSES: &[&str] = &["gc.idle_after_us", "gc.hpi", "gc.hpi_us", "power."];

/// Whether a setting affects what a device holds after commands that were executed one by one, with or without pauses.
pub fn decides_contents(key: &str, pauses: bool) -> bool {
    let among = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, key));
    !among(WITHOUT_INFLUENCE) && (pauses || !among(INFLUENCE_IN_PAUSES))
}

impl DeviceConfig {
    /// The settings, as lines `key = value`, that determine what a device holds after commands without flags that were executed one by one.
    /// `pauses` is whether there were pauses between them. A UFS always has one, because it hibernates at the end. Devices with the same
    /// text can share an image.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if settings cannot be written as TOML.
    pub fn deciding_contents(&self, pauses: bool) -> Result<String> {
        let pauses = pauses || self.settings().interface.is_ufs();
        let all = Value::try_from(self.settings())
            .map_err(|error| Error::new(ErrorClass::Config, format!("settings cannot be written: {error}")))?;
        let deciding = leaves(&all).into_iter().filter(|(key, _)| decides_contents(key, pauses));
        let lines: Vec<_> = deciding.map(|(key, value)| format!("{key} = {value}")).collect();
        Ok(lines.join("\n"))
    }
}
