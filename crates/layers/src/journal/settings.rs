//! The settings of the journal layer, and the checks that they are valid.

use emmclab_base::{Error, Kind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::Below;
use crate::size::Size;

use super::log::{ALIGN, Area, SEGMENTS};
use super::mode::Mode;

/// Settings of the layer below a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JournalSettings {
    /// The treatment of the journal's commits.
    pub mode: Mode,
    /// Size of the layer's own log, at the end of the device, in the modes that have one.
    pub log: Size,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { mode: Mode::default(), log: Size::mb(16) }
    }
}

impl JournalSettings {
    /// Returns the location of the log; `None` for a mode without one.
    ///
    /// # Errors
    /// If the log is too small, or as large as the device.
    pub(super) fn area(&self, below: &Below) -> Result<Option<Area>> {
        if !self.mode.features().own_log() {
            return Ok(None);
        }
        let segment = self.log.sectors() / u64::from(SEGMENTS * ALIGN) * u64::from(ALIGN);
        let fault = |problem: String, hint: &str| Err(Error::new(Kind::Config, problem).hint(hint));
        let Some(segment) = u32::try_from(segment).ok().filter(|segment| *segment >= 4 * ALIGN) else {
            return fault(
                format!("layer `journal`: a log of {} is too small or too large", self.log),
                "use at least 128 KB, for example --set journal.log=16MB",
            );
        };
        let area = Area { first: 0, segment };
        let Some(first) = below.main.checked_sub(area.sectors()).filter(|first| *first > 0) else {
            return fault(
                format!("layer `journal`: its log of {} uses all of the device", self.log),
                "use a smaller log, for example --set journal.log=16MB",
            );
        };
        let first = first / u64::from(ALIGN) * u64::from(ALIGN);
        Ok(Some(Area { first, ..area }))
    }
}
