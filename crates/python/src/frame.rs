//! Reads traces from the memory of other libraries, through the Arrow C interfaces.

use std::sync::{Mutex, PoisonError};

use emmclab_trace::TraceReader;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::capsules::ArrowRecordSource;
use crate::errors::run;
use crate::reader::{header_to_python, ledger_to_python};

/// A table of requests in memory, as a stream of batches.
#[pyclass(name = "Frame", module = "emmclab._core")]
pub(crate) struct PyFrame(Mutex<TraceReader>);

impl PyFrame {
    /// The mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut TraceReader {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyFrame {
    /// `table` has `__arrow_c_stream__` or `__arrow_c_array__`; `name` is used in the header and in errors.
    #[new]
    fn new(py: Python<'_>, table: ArrowRecordSource, name: String) -> PyResult<Self> {
        run(py, || TraceReader::of_arrow(table.0, &name)).map(|reader| Self(Mutex::new(reader)))
    }

    /// Where the trace comes from.
    fn header<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.inner().header())
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        Ok(run(py, || self.inner().next_batch())?.map(PyBatch))
    }

    /// Always 0 and `None`, because there is no file whose bytes could be counted.
    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }

    /// Requests seen and kept so far.
    fn ledger<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(py, &self.inner().ledger())
    }
}
