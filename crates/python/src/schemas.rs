//! JSON Schemas of the structures that the core returns.

use emmclab_apps::AppResult;
use emmclab_calibrate::Calibration;
use emmclab_device::{AnnouncedCapabilities, SettingExplanation};
use emmclab_disk::{DiskReplayResult, LayeredDiskResult};
use emmclab_live::{LiveStatus, PreviousRun};
use emmclab_profile::report::{ClockJumpRow, Finding, ReissueSummary};
use emmclab_registers::{HealthFormat, HealthReport, RegisterReport};
use emmclab_replay::{FittedFigure, ReplayOptions, SimulationResult};
use emmclab_trace::RecordedActivity;
use pyo3::prelude::*;
use schemars::generate::SchemaSettings;

use crate::crash::{CrashLogFacts, ExploredState};

/// The JSON Schemas of the options of a replay (`ReplayOptions`) and of each structure that the core returns, by name. `make generate`
/// writes the Python declarations from them.
#[pyfunction]
pub(crate) fn schemas(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let mut schemas = SchemaSettings::draft2020_12().for_serialize().into_generator();
    schemas.subschema_for::<(SimulationResult, AppResult, LiveStatus, PreviousRun)>();
    schemas.subschema_for::<(AnnouncedCapabilities, SettingExplanation, FittedFigure, Calibration)>();
    schemas.subschema_for::<(RegisterReport, HealthReport, HealthFormat, ClockJumpRow, Finding, ReissueSummary)>();
    schemas.subschema_for::<(DiskReplayResult, LayeredDiskResult)>();
    schemas.subschema_for::<(CrashLogFacts, ExploredState, RecordedActivity)>();
    let mut found = schemas.take_definitions(false);
    found.insert("ReplayOptions".to_owned(), schemars::schema_for!(ReplayOptions).to_value());
    Ok(pythonize::pythonize(py, &found)?)
}
