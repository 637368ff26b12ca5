//! Workload models, and traces generated from models, benchmarks, fio job files or a few parameters (size, rate, share of reads).

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_synth::benchmarks::{BENCHMARKS, Benchmark};
use emmclab_synth::fio::{FioJobs, WorkloadPattern, environment, read_job_file};
use emmclab_synth::{SynthOptions, Synthesizer, WorkloadFitter, WorkloadModel, presets};
use emmclab_trace::{Batch, Error, ErrorClass, Ledger, Nanos, RecordedFeatures, RequestFlags, TraceHeader, read_settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::reader::{header_to_python, ledger_to_python};

/// A model of the requests of an application.
#[pyclass(name = "WorkloadModel", module = "emmclab._core", frozen)]
pub(crate) struct PyWorkloadModel(WorkloadModel);

#[pymethods]
impl PyWorkloadModel {
    /// A workload that comes with emmclab. The case of `name` does not matter.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Self> {
        run(py, || presets::model(name)).map(Self)
    }

    /// A workload from a TOML file.
    #[staticmethod]
    fn file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        run(py, || {
            let text = read_settings(&path)?;
            WorkloadModel::from_toml(&text).map_err(|error| error.in_file(&path))
        })
        .map(Self)
    }

    /// Name of the workload.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// All values as TOML. Equal models give equal text.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        run(py, || self.0.to_toml())
    }
}

/// Groups of the workloads that come with emmclab, each with the names of its workloads.
#[pyfunction]
pub(crate) fn workload_presets() -> Vec<(&'static str, Vec<&'static str>)> {
    presets::groups().collect()
}

/// The benchmarks: name, description, and the published statements and figures on which each benchmark is based.
#[pyfunction]
pub(crate) fn benchmark_names() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    BENCHMARKS.iter().map(|entry| (entry.name, entry.about, entry.made_from.to_vec())).collect()
}

/// A generated trace as a stream of batches in order of arrival, with the methods of a reader.
#[pyclass(name = "GeneratedTrace", module = "emmclab._core")]
pub(crate) struct PyGeneratedTrace {
    header: TraceHeader,
    generated: u64,
    /// Total number of requests of the trace; `None` if unknown.
    total: Option<u64>,
    /// The generated batches. The mutex only makes the class shareable, and is never contended.
    stream: Mutex<Box<dyn Iterator<Item = Batch> + Send>>,
    /// Name of this kind of trace and a hint. Both are used in the error message if a caller wants to repeat the trace.
    unrepeatable: (String, &'static str),
}

impl PyGeneratedTrace {
    fn new(stream: impl Iterator<Item = Batch> + Send + 'static, what: &str, instead: &'static str) -> Self {
        let header = TraceHeader {
            format: emmclab_trace::formats::GENERATED.to_owned(),
            recorded: Some(RecordedFeatures::ALL),
            clock: "relative".to_owned(),
            ..TraceHeader::default()
        };
        let unrepeatable = (what.to_owned(), instead);
        Self { header, generated: 0, total: None, stream: Mutex::new(Box::new(stream)), unrepeatable }
    }

    /// A trace of fio jobs, with its origin and remarks for users.
    fn of_jobs(source: String, jobs: FioJobs) -> Self {
        let note = Some(jobs.note().to_owned());
        let mut trace = Self::new(jobs, "a generated trace", "generate a longer one: loops= in the job file, or more requests");
        trace.header = TraceHeader { source, note, ..trace.header };
        trace
    }
}

#[pymethods]
impl PyGeneratedTrace {
    /// A benchmark trace with this name, truncated after `requests` requests.
    #[staticmethod]
    #[pyo3(signature = (name, *, seed=0, requests=None))]
    fn benchmark(py: Python<'_>, name: &str, seed: u64, requests: Option<u64>) -> PyResult<Self> {
        let stream = run(py, || Benchmark::new(name, seed, requests))?;
        Ok(Self::new(stream, "a benchmark", "use another one, or record a trace"))
    }

    /// The requests that fio would issue for a job file; at most the first `requests` requests.
    #[staticmethod]
    #[pyo3(signature = (path, *, seed=0, requests=None))]
    fn job_file(py: Python<'_>, path: PathBuf, seed: u64, requests: Option<u64>) -> PyResult<Self> {
        run(py, || {
            let text = read_job_file(&path)?;
            let stream = FioJobs::new(&text, seed, requests, &environment).map_err(|error| error.in_file(&path))?;
            Ok(Self::of_jobs(format!("fio job file {}", path.display()), stream))
        })
    }

    /// A trace of a random workload pattern with a given share of reads, size, span, skew and rate.
    #[staticmethod]
    #[pyo3(signature = (requests, *, seed, read_pct, bytes, span, random_pct, zipf, iops, poisson, flush_every))]
    #[expect(clippy::too_many_arguments, reason = "keywords, each a figure of the workload")]
    fn pattern(
        py: Python<'_>, requests: u64, seed: u64, read_pct: u64, bytes: u64, span: u64, random_pct: u64, zipf: Option<f64>,
        iops: f64, poisson: bool, flush_every: u64,
    ) -> PyResult<Self> {
        let pattern = WorkloadPattern { read_pct, bytes, span, random_pct, zipf, iops, poisson, flush_every };
        run(py, || Ok(Self::of_jobs("a pattern".to_owned(), pattern.trace(seed, requests)?)))
    }

    /// A trace of a workload model, with its length in requests or ns. `rate_pct` is the request rate as a percentage of the model's
    /// request rate.
    #[staticmethod]
    #[pyo3(signature = (model, *, seed=0, requests=None, duration_ns=None, rate_pct=100))]
    fn synthesis(
        py: Python<'_>, model: &PyWorkloadModel, seed: u64, requests: Option<u64>, duration_ns: Option<i64>, rate_pct: u64,
    ) -> PyResult<Self> {
        let options = SynthOptions { seed, requests, duration: duration_ns.map(Nanos), rate_pct, ..SynthOptions::default() };
        let stream = run(py, || Synthesizer::new(&model.0, &options))?;
        let total = stream.requests();
        let what = format!("a synthetic trace of {total} requests");
        let mut trace = Self::new(stream, &what, "generate a longer one: `--requests` or `--duration`");
        trace.total = Some(total);
        trace.header.source.clone_from(&model.0.source);
        trace.header.note.clone_from(&model.0.note);
        // Only flags for syncs and metadata are known. A model does not describe which data the application wanted to be durable.
        trace.header.recorded = Some(RecordedFeatures::of(&[], RequestFlags::SYNC.union(RequestFlags::META)));
        Ok(trace)
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let batch = py.detach(|| stream.next());
        self.generated += batch.as_ref().map_or(0, |batch| batch.len() as u64);
        Ok(batch.map(PyBatch))
    }

    /// Returns the ledger of the trace so far: every generated request counts as seen and kept.
    fn ledger<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(py, &Ledger { seen: self.generated, kept: self.generated, ..Ledger::default() })
    }

    /// Returns the trace's header, which describes its origin.
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.header)
    }

    /// Number of generated requests so far, and in total if known.
    fn progress(&self) -> (u64, Option<u64>) {
        (self.generated, self.total)
    }

    /// Refuses to repeat the trace, because it is no recording and a longer one can be generated.
    fn repeat(&mut self, py: Python<'_>, passes: u32) -> PyResult<Self> {
        let (what, instead) = &self.unrepeatable;
        let problem = format!("{what} cannot be repeated {passes} times");
        run(py, || Err(Error::new(ErrorClass::Unsupported, problem).hint(*instead)))
    }
}

/// Fits a model to the batches of a trace.
#[pyclass(name = "Fitter", module = "emmclab._core")]
pub(crate) struct PyFitter(Mutex<Option<WorkloadFitter>>);

#[pymethods]
impl PyFitter {
    #[new]
    fn new(name: &str) -> Self {
        Self(Mutex::new(Some(WorkloadFitter::new(name))))
    }

    /// Adds a batch. Batches must be added in order of arrival.
    fn update(&mut self, py: Python<'_>, batch: &PyBatch) {
        if let Some(fitter) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            py.detach(|| fitter.push(&batch.0));
        }
    }

    /// Returns the model that was fitted to all batches added.
    fn finish(&mut self, py: Python<'_>) -> PyResult<PyWorkloadModel> {
        let fitter = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        run(py, || fitter.ok_or_else(|| Error::new(ErrorClass::Config, "the fit is finished"))?.finish()).map(PyWorkloadModel)
    }
}
