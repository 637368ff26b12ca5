//! Traces of fio's job files, and of workloads that a few figures describe.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_synth::fio::{FioJobs, WorkloadPattern};
use emmclab_trace::{Error, ErrorClass, Ledger, RecordedFeatures, TraceHeader, read_settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::reader::{header_to_python, ledger_to_python};

/// The trace of a job file or of a pattern as a stream of batches, with the methods of a reader.
#[pyclass(name = "FioTrace", module = "emmclab._core")]
pub(crate) struct PyFioTrace {
    source: String,
    note: String,
    requests_generated: u64,
    /// The mutex is there only to make the class shareable, and is never contended.
    stream: Mutex<FioJobs>,
}

impl PyFioTrace {
    fn new(source: String, stream: FioJobs) -> Self {
        Self { source, note: stream.note().to_owned(), requests_generated: 0, stream: Mutex::new(stream) }
    }
}

#[pymethods]
impl PyFioTrace {
    /// The requests that fio would issue for a job file, at most `requests`.
    #[staticmethod]
    #[pyo3(signature = (path, *, seed=0, requests=None))]
    fn job_file(py: Python<'_>, path: PathBuf, seed: u64, requests: Option<u64>) -> PyResult<Self> {
        run(py, || {
            let text = read_settings(&path)?;
            let variable = |name: &str| std::env::var(name).ok();
            let stream = FioJobs::new(&text, seed, requests, &variable).map_err(|error| error.in_file(&path))?;
            Ok(Self::new(format!("fio job file {}", path.display()), stream))
        })
    }

    /// A workload of this share of reads, size, span, skew and rate.
    #[staticmethod]
    #[pyo3(signature = (requests, *, seed, read_pct, bytes, span, random_pct, zipf, iops, poisson, flush_every))]
    #[expect(clippy::too_many_arguments, reason = "keywords, each a figure of the workload")]
    fn pattern(
        py: Python<'_>,
        requests: u64,
        seed: u64,
        read_pct: u64,
        bytes: u64,
        span: u64,
        random_pct: u64,
        zipf: Option<f64>,
        iops: f64,
        poisson: bool,
        flush_every: u64,
    ) -> PyResult<Self> {
        let pattern = WorkloadPattern { read_pct, bytes, span, random_pct, zipf, iops, poisson, flush_every };
        run(py, || Ok(Self::new("a pattern".to_owned(), pattern.trace(seed, requests)?)))
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let batch = py.detach(|| stream.next());
        self.requests_generated += batch.as_ref().map_or(0, |batch| batch.len() as u64);
        Ok(batch.map(PyBatch))
    }

    /// The requests made so far.
    fn ledger<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(
            py,
            &Ledger { seen: self.requests_generated, kept: self.requests_generated, ..Ledger::default() },
        )
    }

    /// The header, with the source of the trace and remarks for its users.
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let header = TraceHeader {
            source: self.source.clone(),
            format: "synthetic".to_owned(),
            recorded: Some(RecordedFeatures::ALL),
            clock: "relative".to_owned(),
            note: Some(self.note.clone()),
            ..TraceHeader::default()
        };
        header_to_python(py, &header)
    }

    /// Number of requests made so far; the total is not known.
    fn progress(&self) -> (u64, Option<u64>) {
        (self.requests_generated, None)
    }

    /// Refuses to repeat a made trace, which is not a recording.
    fn repeat(&mut self, py: Python<'_>, passes: u32) -> PyResult<Self> {
        run(py, || {
            Err(Error::new(ErrorClass::Unsupported, format!("a made trace cannot be repeated {passes} times"))
                .hint("make a longer one: loops= in the job file, or more requests"))
        })
    }
}
