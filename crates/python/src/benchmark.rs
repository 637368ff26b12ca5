//! Benchmarks as streams of batches.

use std::sync::{Mutex, PoisonError};

use emmclab_synth::benchmarks::{BENCHMARKS, Benchmark};
use emmclab_trace::{Error, ErrorClass, Ledger, RecordedFeatures, TraceHeader};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::reader::{header_to_python, ledger_to_python};

/// The benchmarks: name, description, and the claims and figures that each was made from.
#[pyfunction]
pub(crate) fn benchmark_names() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    BENCHMARKS.iter().map(|entry| (entry.name, entry.about, entry.made_from.to_vec())).collect()
}

/// A benchmark as a stream of batches, with the methods of a reader.
#[pyclass(name = "Benchmark", module = "emmclab._core")]
pub(crate) struct PyBenchmark {
    requests_generated: u64,
    /// The mutex is there only to make the class shareable, and is never contended.
    stream: Mutex<Benchmark>,
}

#[pymethods]
impl PyBenchmark {
    /// A benchmark by name, cut after `requests`.
    #[new]
    #[pyo3(signature = (name, *, seed=0, requests=None))]
    fn new(py: Python<'_>, name: &str, seed: u64, requests: Option<u64>) -> PyResult<Self> {
        let stream = run(py, || Benchmark::new(name, seed, requests))?;
        Ok(Self { requests_generated: 0, stream: Mutex::new(stream) })
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

    /// The header, which states that the trace is synthetic.
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let header = TraceHeader {
            format: "synthetic".to_owned(),
            recorded: Some(RecordedFeatures::ALL),
            clock: "relative".to_owned(),
            ..TraceHeader::default()
        };
        header_to_python(py, &header)
    }

    /// Number of requests made so far; the total is not known.
    fn progress(&self) -> (u64, Option<u64>) {
        (self.requests_generated, None)
    }

    /// Refuses to repeat a benchmark, which is not a recording.
    fn repeat(&mut self, py: Python<'_>, passes: u32) -> PyResult<Self> {
        run(py, || {
            Err(Error::new(ErrorClass::Unsupported, format!("a benchmark cannot be repeated {passes} times"))
                .hint("take another one, or record a trace"))
        })
    }
}
