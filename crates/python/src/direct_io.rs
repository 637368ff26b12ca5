//! A simulated device under synchronous direct I/O.

use std::sync::{Mutex, PoisonError};

use emmclab_replay::{DirectIo, bandwidth, fitted_figures as figures};
use emmclab_trace::{Op, Result};
use pyo3::prelude::*;

use crate::errors::run;
use crate::json::to_json;
use crate::simulate::PyDeviceConfig;

/// Bandwidths of a device that is full of data, for transfers of these sizes: rows as JSON.
#[pyfunction]
pub(crate) fn bandwidths(py: Python<'_>, config: &PyDeviceConfig, units_kb: Vec<u64>) -> PyResult<String> {
    run(py, || to_json(&bandwidth(config.settings(), &units_kb)?))
}

/// The published figures to which a preset was fitted, each with the figure of the preset: rows as JSON.
#[pyfunction]
pub(crate) fn fitted_figures(py: Python<'_>, config: &PyDeviceConfig) -> PyResult<String> {
    run(py, || to_json(&figures(config.settings())?))
}

/// A new device, one transfer at a time.
#[pyclass(name = "DirectIo", module = "emmclab._core", frozen)]
pub(crate) struct PyDirectIo(Mutex<DirectIo>);

#[pymethods]
impl PyDirectIo {
    #[new]
    fn new(config: &PyDeviceConfig) -> Self {
        Self(Mutex::new(DirectIo::new(config.settings())))
    }

    /// Sectors of the device.
    #[getter]
    fn sectors(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// Reads or writes `length` sectors at each of these, one after the other; the time of each in ns.
    fn transfer(&self, py: Python<'_>, write: bool, sectors: Vec<u64>, length: u64) -> PyResult<Vec<i64>> {
        run(py, || {
            let mut io = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let op = if write { Op::Write } else { Op::Read };
            sectors.iter().map(|sector| io.transfer(op, *sector, length).map(|took| took.0)).collect::<Result<Vec<_>>>()
        })
    }
}
