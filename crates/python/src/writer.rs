//! Writes trace files.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_trace::{AtomicFile, Error, ErrorClass, Ledger, TraceHeader, TraceWriter, WriteOptions};
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::errors::run;

/// A trace that is being written. Its file appears at its path only after `finish`.
#[pyclass(name = "Writer", module = "emmclab._core")]
pub(crate) struct PyWriter(Mutex<Option<TraceWriter>>);

impl PyWriter {
    /// The writer. The mutex only makes the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Option<TraceWriter> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ledger (counts of the records of a trace) as a Python dictionary; an unknown count is None.
pub(crate) type PyLedger = HashMap<String, Option<u64>>;

/// The header of a trace as a Python dictionary.
pub(crate) type PyHeader = HashMap<String, Option<String>>;

#[pymethods]
impl PyWriter {
    #[new]
    #[pyo3(signature = (path, header, *, format=None))]
    fn new(py: Python<'_>, path: PathBuf, header: PyHeader, format: Option<String>) -> PyResult<Self> {
        let options = WriteOptions { format };
        run(py, || TraceWriter::create(&path, &header_from_python(&header)?, &options))
            .map(|writer| Self(Mutex::new(Some(writer))))
    }

    /// Adds a batch. Batches must be added in order of arrival.
    fn write(&mut self, py: Python<'_>, batch: &PyBatch) -> PyResult<()> {
        run(py, || self.inner().as_mut().ok_or_else(closed)?.write(&batch.0))
    }

    /// Returns what the file format could not store: the number of omitted requests, and the number of omitted values by column.
    fn losses(&mut self) -> (u64, Vec<(&'static str, u64)>) {
        self.inner().as_ref().map_or((0, Vec::new()), |writer| {
            let losses = writer.losses();
            (losses.requests, losses.values)
        })
    }

    /// Completes the trace file and moves it from its temporary name to its path.
    fn finish(&mut self, py: Python<'_>, ledger: PyLedger, header: PyHeader) -> PyResult<()> {
        run(py, || {
            let ledger = ledger_from_python(&ledger)?;
            self.inner().take().ok_or_else(closed)?.finish(&ledger, &header_from_python(&header)?)
        })
    }

    /// Discards the written data without leaving a file.
    fn abort(&mut self) {
        *self.inner() = None;
    }
}

/// Writes a whole file under a temporary name, and then renames it. A device or a pipe is written directly.
#[pyfunction]
pub(crate) fn write_whole(py: Python<'_>, path: PathBuf, bytes: &[u8]) -> PyResult<()> {
    run(py, || {
        let mut file = AtomicFile::create(&path)?;
        file.write_all(bytes).map_err(|error| Error::io(&path, error))?;
        file.commit()
    })
}

/// Removes the temporary files of killed writers from a folder, but not those of running writers.
#[pyfunction]
pub(crate) fn sweep(py: Python<'_>, folder: PathBuf) {
    py.detach(|| emmclab_trace::sweep(&folder));
}

fn closed() -> Error {
    Error::new(ErrorClass::Config, "the writer is already finished")
}

/// Converts a ledger (counts of the records of a trace) from a Python dictionary.
pub(crate) fn ledger_from_python(counts: &PyLedger) -> Result<Ledger, Error> {
    serde_json::to_value(counts).and_then(serde_json::from_value).map_err(|error| bad_part("ledger", &error))
}

/// Converts the header of a trace from a Python dictionary.
pub(crate) fn header_from_python(fields: &PyHeader) -> Result<TraceHeader, Error> {
    serde_json::to_value(fields).and_then(serde_json::from_value).map_err(|error| bad_part("header", &error))
}

fn bad_part(part: &str, error: &serde_json::Error) -> Error {
    Error::new(ErrorClass::Config, format!("the {part} has a wrong field: {error}"))
}
