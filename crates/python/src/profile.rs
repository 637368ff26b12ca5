//! Profiles of traces, and published tables of traces and devices.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use emmclab_profile::{BinWidth, JournalProfile, MergeRelation, Profile, ProfileOptions, published};
use emmclab_trace::{Nanos, RecordedActivity};
use pyo3::prelude::*;
use serde_json::json;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::options::run_to_python;
use crate::writer::{PyHeader, PyLedger, header_from_python, ledger_from_python};

/// A profile to which the batches of a trace are added.
#[pyclass(name = "Profiler", module = "emmclab._core")]
pub(crate) struct PyProfiler(Mutex<Profile>);

impl PyProfiler {
    /// The profile. The mutex only makes the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Profile {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns bins of `ns` nanoseconds, or bins of automatic width if `ns` is 0.
pub(crate) fn bin_width(ns: i64) -> BinWidth {
    if ns > 0 { BinWidth::From(Nanos(ns)) } else { BinWidth::Automatic }
}

#[pymethods]
impl PyProfiler {
    /// Creates an empty profile. `percentiles` are additional percentiles, `bin_ns` is the width of time bins (0: automatic), and
    /// `activity` contains the waits for durability that are divided into parts.
    #[new]
    #[pyo3(signature = (name, *, percentiles=Vec::new(), bin_ns=0, activity=None))]
    fn new(name: String, percentiles: Vec<f64>, bin_ns: i64, activity: Option<&str>) -> Self {
        let bin = bin_width(bin_ns);
        let mut profile = Profile::new(ProfileOptions { name, percentiles, bin, ..ProfileOptions::default() });
        if let Some(activity) = activity.and_then(RecordedActivity::from_json) {
            profile = profile.with_waits(activity);
        }
        Self(Mutex::new(profile))
    }

    /// Adds a batch. Batches must be added in order of arrival.
    fn update(&mut self, py: Python<'_>, batch: &PyBatch) {
        let profile = self.inner();
        py.detach(|| profile.update(&batch.0));
    }

    /// Merges the profile of another recording, or of the next part of this recording. The other profile is then empty.
    #[pyo3(signature = (other, *, consecutive=false))]
    fn merge(&mut self, py: Python<'_>, other: &mut PyProfiler, consecutive: bool) -> PyResult<()> {
        let join = if consecutive { MergeRelation::Consecutive } else { MergeRelation::Separate };
        let other = std::mem::replace(other.inner(), Profile::new(ProfileOptions::default()));
        run(py, || self.inner().merge(other, join))
    }

    /// Histograms with the same bins for every trace.
    fn histograms<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.inner().histograms()))
    }

    /// Returns the report. Without `distributions`, the figures that contain distributions are omitted.
    #[pyo3(signature = (ledger, header, *, distributions=true))]
    fn finish<'py>(
        &mut self, py: Python<'py>, ledger: PyLedger, header: PyHeader, distributions: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || {
            let report = self.inner().finish(&ledger_from_python(&ledger)?, &header_from_python(&header)?);
            Ok(if distributions { report } else { report.without_distributions() })
        })
    }
}

/// Determines the cost of journaling from the batches of a trace.
#[pyclass(name = "JournalProfiler", module = "emmclab._core")]
pub(crate) struct PyJournalProfiler(Mutex<JournalProfile>);

#[pymethods]
impl PyJournalProfiler {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Adds a batch. Batches must be added in order of arrival.
    fn update(&mut self, py: Python<'_>, batch: &PyBatch) {
        let profile = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        py.detach(|| profile.update(&batch.0));
    }

    /// Returns the report on the cost of journaling.
    fn finish<'py>(&mut self, py: Python<'py>, header: PyHeader) -> PyResult<Bound<'py, PyAny>> {
        let profile = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        run_to_python(py, || Ok(profile.finish(&header_from_python(&header)?)))
    }
}

/// Tables III and IV of the IISWC 2015 paper, and the figures in them that contradict others of the same row.
#[pyfunction]
#[pyo3(name = "published")]
pub(crate) fn published_tables(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || {
        let rows = published::rows()?;
        let inconsistencies = published::inconsistencies(&rows);
        Ok(json!({ "rows": rows, "inconsistencies": inconsistencies }))
    })
}

macro_rules! published_texts {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../presets/published/", $name, ".csv")))),*]
    };
}

/// The published tables of traces and devices as CSV text, by name.
#[pyfunction]
pub(crate) fn published_csv() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from(published_texts!(
        "advil12_table1_devices", "advil12_table2_bandwidth", "fast12_axes", "fast12_sdcards", "iiswc15_table1_workloads",
        "measured_devices", "iiswc15_table3_size", "iiswc15_table4_timing", "iiswc15_table5_devices",
    ))
}
