//! Fits device presets to measured service times.

use std::path::PathBuf;

use emmclab_calibrate::{CalibrateOptions, calibrate, samples_of_fio, samples_of_traces};
use emmclab_trace::TraceCombiner;
use pyo3::prelude::*;

use crate::options::run_to_python;
use crate::reader::PyReader;
use crate::simulate::PyDeviceConfig;

/// Fits a device preset to the service times of a trace. `names` are those of the preset and of the source. Returns the result.
#[pyfunction]
pub(crate) fn calibrate_trace<'py>(
    py: Python<'py>, reader: PyRef<'_, PyReader>, names: (String, String), capacity_gb: u32, seed: u64, skip_packed: bool,
    base: Option<PyRef<'_, PyDeviceConfig>>,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = PyReader::inputs_of_one_device(&[reader]);
    let (base, (name, source)) = (base.map(|base| base.0.clone()), names);
    run_to_python(py, || {
        let samples = samples_of_traces(&mut TraceCombiner::open(inputs, 1)?, skip_packed)?;
        calibrate(&samples, &CalibrateOptions { name, source, capacity_gb, base, seed })
    })
}

/// Fits a device preset to the output of `fio --output-format=json` in the file `path`; `names` as for a trace. Returns the result.
#[pyfunction]
pub(crate) fn calibrate_fio<'py>(
    py: Python<'py>, path: PathBuf, text: &str, names: (String, String), capacity_gb: u32, seed: u64,
    base: Option<PyRef<'_, PyDeviceConfig>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (base, (name, source)) = (base.map(|base| base.0.clone()), names);
    run_to_python(py, || {
        let options = CalibrateOptions { name, source, capacity_gb, base, seed };
        samples_of_fio(text).and_then(|samples| calibrate(&samples, &options)).map_err(|error| error.in_file(&path))
    })
}
