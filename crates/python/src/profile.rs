//! Characterising traces.

use std::sync::{Mutex, PoisonError};

use emmclab_profile::{Join, Profile, ProfileOptions, published};
use pyo3::prelude::*;
use serde::Serialize;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::json::to_json;
use crate::writer::{PyHeader, PyLedger, header_from_python, ledger_from_python};

/// A profile that grows by batches.
#[pyclass(name = "Profiler", module = "emmclab._core")]
pub(crate) struct PyProfiler(Mutex<Profile>);

impl PyProfiler {
    /// The profile itself; the mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Profile {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyProfiler {
    #[new]
    fn new(name: String) -> Self {
        Self(Mutex::new(Profile::new(ProfileOptions { name, ..ProfileOptions::default() })))
    }

    /// Adds a batch; batches come in order of arrival.
    fn update(&mut self, py: Python<'_>, batch: &PyBatch) {
        let profile = self.inner();
        py.detach(|| profile.update(&batch.0));
    }

    /// Adds the profile of another recording, or of the next piece of this one.
    #[pyo3(signature = (other, *, consecutive=false))]
    fn merge(&mut self, py: Python<'_>, other: &mut PyProfiler, consecutive: bool) -> PyResult<()> {
        let join = if consecutive { Join::Consecutive } else { Join::Separate };
        let other = other.inner().clone();
        run(py, || self.inner().merge(other, join))
    }

    /// The report as JSON.
    fn finish(&mut self, py: Python<'_>, ledger: PyLedger, header: PyHeader) -> PyResult<String> {
        run(py, || {
            to_json(&self.inner().finish(&ledger_from_python(&ledger)?, &header_from_python(&header)?))
        })
    }
}

#[derive(Serialize)]
struct Published {
    rows: Vec<published::PublishedRow>,
    inconsistencies: Vec<published::Inconsistency>,
}

/// The published Tables III and IV, and the figures in them that contradict others of their row, as JSON.
#[pyfunction]
#[pyo3(name = "published")]
pub(crate) fn published_tables(py: Python<'_>) -> PyResult<String> {
    run(py, || {
        let rows = published::rows()?;
        let inconsistencies = published::inconsistencies(&rows);
        to_json(&Published { rows, inconsistencies })
    })
}
