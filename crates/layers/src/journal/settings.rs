//! The settings of the journal layer, and the checks that they are valid.

use emmclab_base::{ByteSize, Error, ErrorClass, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::DisksBelow;

use super::log::{ALIGN, LogArea, SEGMENTS};
use super::mode::JournalLayerMode;

/// Settings of the layer below a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JournalLayerSettings {
    /// The treatment of the journal's commits.
    pub mode: JournalLayerMode,
    /// Size of the layer's own log, at the end of the device, in the modes that have one.
    pub log: ByteSize,
}

impl Default for JournalLayerSettings {
    fn default() -> Self {
        Self { mode: JournalLayerMode::default(), log: ByteSize::mb(16) }
    }
}

impl JournalLayerSettings {
    /// Returns the location of the log; `None` for a mode without one.
    ///
    /// # Errors
    /// If the log is too small, or as large as the device.
    pub(super) fn area(&self, below: &DisksBelow) -> Result<Option<LogArea>> {
        if !self.mode.features().own_log() {
            return Ok(None);
        }
        let segment = self.log.sectors() / u64::from(SEGMENTS * ALIGN) * u64::from(ALIGN);
        let fault = |problem: String, hint: &str| Err(Error::new(ErrorClass::Config, problem).hint(hint));
        let Some(segment) = u32::try_from(segment).ok().filter(|segment| *segment >= 4 * ALIGN) else {
            return fault(
                format!("layer `journal`: a log of {} is too small or too large", self.log),
                "use at least 128 KB, for example --set journal.log=16MB",
            );
        };
        let area = LogArea { first: 0, segment };
        let Some(first) = below.main.checked_sub(area.sectors()).filter(|first| *first > 0) else {
            return fault(
                format!("layer `journal`: its log of {} uses all of the device", self.log),
                "use a smaller log, for example --set journal.log=16MB",
            );
        };
        let first = first / u64::from(ALIGN) * u64::from(ALIGN);
        Ok(Some(LogArea { first, ..area }))
    }
}
