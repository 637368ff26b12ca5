//! Reading traces.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_profile::Combiner;
use emmclab_trace::formats::FORMATS;
use emmclab_trace::{Batch, Column, Error, Header, Kind, Ledger, Progress, ReadOptions, TraceReader};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::{run, to_python};

/// Where batches come from.
enum Stream {
    File(TraceReader),
    Combined(Combiner),
    /// The reader went into a combination.
    Taken,
}

impl Stream {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        match self {
            Self::File(reader) => reader.next_batch(),
            Self::Combined(combiner) => combiner.next_batch(),
            Self::Taken => Err(Error::new(Kind::Config, "this reader is now part of a combination")),
        }
    }

    fn ledger(&self) -> Ledger {
        match self {
            Self::File(reader) => reader.ledger(),
            Self::Combined(combiner) => combiner.ledger(),
            Self::Taken => Ledger::default(),
        }
    }

    fn header(&self) -> Header {
        match self {
            Self::File(reader) => reader.header(),
            Self::Combined(combiner) => combiner.header(),
            Self::Taken => Header::default(),
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Self::File(reader) => reader.progress(),
            Self::Combined(combiner) => combiner.progress(),
            Self::Taken => Progress::default(),
        }
    }
}

/// A trace of any format, or several on one clock, as a stream of batches in order of arrival.
#[pyclass(name = "Reader", module = "emmclab._core")]
pub(crate) struct PyReader(Mutex<Stream>);

impl PyReader {
    /// The stream itself; the mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Stream {
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
        run(py, || TraceReader::open(&path, &options)).map(|reader| Self(Mutex::new(Stream::File(reader))))
    }

    /// Interleaves traces that have not been read from yet, as if all had started together; takes the readers over.
    #[staticmethod]
    fn combine(py: Python<'_>, readers: Vec<PyRefMut<'_, PyReader>>) -> PyResult<Self> {
        let mut files = Vec::with_capacity(readers.len());
        for mut reader in readers {
            match std::mem::replace(reader.inner(), Stream::Taken) {
                Stream::File(file) => files.push(file),
                _ => {
                    let error = Error::new(Kind::Config, "a combination cannot be combined again");
                    return Err(to_python(py, &error));
                }
            }
        }
        run(py, || Combiner::new(files)).map(|combiner| Self(Mutex::new(Stream::Combined(combiner))))
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
            out.set_item("writes", format.writes.is_some())?;
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

/// The columns of a trace: name, type, unit, optional, about.
#[pyfunction]
pub(crate) fn trace_columns(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    Column::ALL
        .into_iter()
        .map(|column| {
            let out = PyDict::new(py);
            out.set_item("name", column.name())?;
            out.set_item("type", column.data_type().to_string())?;
            out.set_item("unit", column.unit())?;
            out.set_item("optional", column.optional())?;
            out.set_item("about", column.about())?;
            Ok(out)
        })
        .collect()
}
