//! Reading traces.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_trace::formats::FORMATS;
use emmclab_trace::{Ledger, ReadOptions, TraceReader};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;

/// A trace of any format as a stream of batches in order of arrival.
#[pyclass(name = "Reader", module = "emmclab._core")]
pub(crate) struct PyReader(Mutex<TraceReader>);

impl PyReader {
    /// The reader itself; the mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut TraceReader {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyReader {
    #[new]
    #[pyo3(signature = (path, *, format=None, lenient=false, columns=None, time_unit=None, size_unit=None, reorder_window=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        format: Option<String>,
        lenient: bool,
        columns: Option<String>,
        time_unit: Option<String>,
        size_unit: Option<String>,
        reorder_window: Option<usize>,
    ) -> PyResult<Self> {
        let options = ReadOptions { format, lenient, columns, time_unit, size_unit, reorder_window };
        run(py, || TraceReader::open(&path, &options)).map(|reader| Self(Mutex::new(reader)))
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        Ok(run(py, || self.inner().next_batch())?.map(PyBatch))
    }

    /// What was seen, kept, skipped and changed so far.
    fn ledger<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(py, &self.inner().ledger())
    }

    /// Where the trace comes from.
    fn header<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.inner().header())
    }

    /// Bytes of the file read so far, and in all where known.
    fn progress(&mut self) -> (u64, Option<u64>) {
        let progress = self.inner().progress();
        (progress.done, progress.total)
    }
}

/// The counts in the order of declaration.
pub(crate) fn ledger_to_python<'py>(py: Python<'py>, ledger: &Ledger) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (field, _, value) in ledger.entries() {
        out.set_item(field, value)?;
    }
    Ok(out)
}

/// The header's fields.
pub(crate) fn header_to_python<'py>(
    py: Python<'py>,
    header: &emmclab_trace::Header,
) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("source", &header.source)?;
    out.set_item("format", &header.format)?;
    out.set_item("device", &header.device)?;
    out.set_item("clock", &header.clock)?;
    out.set_item("note", &header.note)?;
    Ok(out)
}

/// Every trace format: name, about, reads, writes.
#[pyfunction]
pub(crate) fn formats(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    FORMATS
        .iter()
        .map(|format| {
            let out = PyDict::new(py);
            out.set_item("name", format.name)?;
            out.set_item("about", format.about)?;
            out.set_item("reads", true)?;
            out.set_item("writes", format.create.is_some())?;
            Ok(out)
        })
        .collect()
}

/// The words for the counts of a ledger, by field.
#[pyfunction]
pub(crate) fn ledger_labels(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    for (field, label, _) in Ledger::default().entries() {
        out.set_item(field, label)?;
    }
    Ok(out)
}
