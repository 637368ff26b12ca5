//! The contents of a device before a run.

use std::path::PathBuf;

use emmclab_replay::{Precondition, ReplayOptions, prepare, prepare_by_traces};
use pyo3::prelude::*;

use crate::errors::run;
use crate::options::OptionsFromPython;
use crate::reader::PyReader;
use crate::simulate::{PyDeviceConfig, store};

/// A way to precondition a device.
#[pyclass(name = "Precondition", module = "emmclab._core", frozen)]
pub(crate) struct PyPrecondition(Precondition);

#[pymethods]
impl PyPrecondition {
    /// Parses its text form: none, sequential:PCT, random:PCT, steady:CAPACITIES, or used:AGE with further values.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        run(py, || text.parse()).map(Self)
    }

    /// The text form with every value, defaults included.
    #[getter]
    fn text(&self) -> String {
        self.0.to_string()
    }

    /// Whether the contents of the device depend on the seed.
    #[getter]
    fn is_random(&self) -> bool {
        self.0.is_random()
    }

    /// Maximum number of bytes that it writes to a device of this many bytes; 0 for a new device.
    fn most_bytes(&self, capacity_bytes: f64) -> f64 {
        self.0.most_bytes(capacity_bytes)
    }
}

/// Bytes that preconditioning has written in this process so far.
#[pyfunction]
pub(crate) fn preconditioned_bytes() -> u64 {
    emmclab_replay::preconditioned_bytes()
}

/// Prepares the device with which a run with `options` begins, or one aged by the traces of readers, unless the folder
/// `images` contains it. Returns false if another process is preparing it.
#[pyfunction]
#[pyo3(signature = (config, options, images, *, images_limit=None, aged_by=None))]
pub(crate) fn precondition(
    py: Python<'_>,
    config: &PyDeviceConfig,
    options: OptionsFromPython<ReplayOptions>,
    images: PathBuf,
    images_limit: Option<u64>,
    aged_by: Option<Vec<PyRef<'_, PyReader>>>,
) -> PyResult<bool> {
    let aging = aged_by.map(|readers| PyReader::inputs_of_one_device(&readers));
    run(py, || {
        let store = store(images, images_limit)?;
        match aging {
            Some(traces) => prepare_by_traces(&config.0, traces, &store),
            None => prepare(&config.0, &options.0, &store),
        }
    })
}
