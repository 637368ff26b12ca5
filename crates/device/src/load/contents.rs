//! The settings that decide what a preconditioned device holds.

use emmclab_base::Result;

use super::DeviceConfig;
use emmclab_settings::{HostSettings, PowerSettings, Settings};

impl DeviceConfig {
    /// The settings, as TOML, that decide what a device holds after writes that came one after the other, without pauses. Devices for
    /// which this text is the same can share an image. All other settings have their defaults in it: they act on reads, on
    /// commands that wait for each other, on pauses, on flags that plain writes do not have, or on energy.
    ///
    /// # Errors
    /// As [`DeviceConfig::to_toml`].
    pub fn deciding_contents(&self) -> Result<String> {
        let given = self.settings();
        let mut deciding = given.clone();
        let plain = Settings::default();
        deciding.name.clone_from(&plain.name);
        deciding.about.clone_from(&plain.about);
        deciding.fitted_to.clone_from(&plain.fitted_to);
        deciding.host = HostSettings::default();
        deciding.features = plain.features;
        deciding.cache.read_kb = plain.cache.read_kb;
        deciding.controller.queue_depth = plain.controller.queue_depth;
        if !given.interface.is_ufs() {
            // A UFS has hibernated before a run: that is a pause, in which it works.
            deciding.gc.idle_after_us = plain.gc.idle_after_us;
            deciding.gc.hpi = plain.gc.hpi;
            deciding.gc.hpi_us = plain.gc.hpi_us;
            deciding.power = PowerSettings::default();
        }
        super::toml_of(&deciding)
    }
}
