//! Presets from measured service times.

use std::path::PathBuf;

use emmclab_calibrate::{CalibrateOptions, calibrate, samples_of_fio, samples_of_traces};
use emmclab_trace::TraceCombiner;
use pyo3::prelude::*;

use crate::errors::run;
use crate::options::to_json;
use crate::reader::PyReader;

/// Fits a preset to the service times of a trace. Returns the result as JSON.
#[pyfunction]
pub(crate) fn calibrate_trace(
    py: Python<'_>, reader: PyRef<'_, PyReader>, name: String, source: String, capacity_gb: u32, seed: u64, skip_packed: bool,
) -> PyResult<String> {
    let inputs = PyReader::inputs_of_one_device(&[reader]);
    run(py, || {
        let samples = samples_of_traces(&mut TraceCombiner::open(inputs, 1)?, skip_packed)?;
        to_json(&calibrate(&samples, &CalibrateOptions { name, source, capacity_gb, seed })?)
    })
}

/// Fits a preset to the output of `fio --output-format=json` in the file `path`. Returns the result as JSON.
#[pyfunction]
pub(crate) fn calibrate_fio(
    py: Python<'_>, path: PathBuf, text: &str, name: String, source: String, capacity_gb: u32, seed: u64,
) -> PyResult<String> {
    run(py, || {
        let options = CalibrateOptions { name, source, capacity_gb, seed };
        let calibration = samples_of_fio(text).and_then(|samples| calibrate(&samples, &options));
        to_json(&calibration.map_err(|error| error.in_file(&path))?)
    })
}
