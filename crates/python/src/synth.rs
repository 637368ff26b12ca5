//! Workload models and traces made from them.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_synth::{SynthOptions, Synthesizer, WorkloadFitter, WorkloadModel, presets};
use emmclab_trace::{Error, ErrorClass, Ledger, Nanos, RecordedFeatures, RequestFlags, TraceHeader, read_settings};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::reader::{header_to_python, ledger_to_python};

/// The demands of an application on its storage.
#[pyclass(name = "WorkloadModel", module = "emmclab._core", frozen)]
pub(crate) struct PyWorkloadModel(WorkloadModel);

#[pymethods]
impl PyWorkloadModel {
    /// A workload that comes with emmclab; case does not matter.
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

    /// The workload's name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Every value in full; the same model gives the same text.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        run(py, || self.0.to_toml())
    }
}

/// Groups of the workloads that come with emmclab, each with the names of its workloads.
#[pyfunction]
pub(crate) fn workload_presets() -> Vec<(&'static str, Vec<&'static str>)> {
    presets::groups().collect()
}

/// A synthetic trace as a stream of batches in order of arrival, with the methods of a reader.
#[pyclass(name = "Synthesis", module = "emmclab._core")]
pub(crate) struct PySynthesis {
    header: TraceHeader,
    requests_generated: u64,
    /// The mutex is there only to make the class shareable, and is never contended.
    stream: Mutex<Synthesizer>,
}

impl PySynthesis {
    fn inner(&mut self) -> &mut Synthesizer {
        self.stream.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PySynthesis {
    /// Plans a trace: its length in requests or nanoseconds, its rate in percent of the model's own.
    #[new]
    #[pyo3(signature = (model, *, seed=0, requests=None, duration_ns=None, rate_pct=100))]
    fn new(
        py: Python<'_>,
        model: &PyWorkloadModel,
        seed: u64,
        requests: Option<u64>,
        duration_ns: Option<i64>,
        rate_pct: u64,
    ) -> PyResult<Self> {
        let options =
            SynthOptions { seed, requests, duration: duration_ns.map(Nanos), rate_pct, ..SynthOptions::default() };
        let stream = run(py, || Synthesizer::new(&model.0, &options))?;
        let header = TraceHeader {
            source: model.0.source.clone(),
            format: "synthetic".to_owned(),
            // A model states sizes, places, times and which writes are those of a journal, but not what the application wanted to
            // be durable.
            recorded: Some(RecordedFeatures::of(&[], RequestFlags::SYNC.union(RequestFlags::META))),
            clock: "relative".to_owned(),
            note: model.0.note.clone(),
            ..TraceHeader::default()
        };
        Ok(Self { header, requests_generated: 0, stream: Mutex::new(stream) })
    }

    /// The next batch, or None at the end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        let batch = py.detach(|| self.inner().next());
        self.requests_generated += batch.as_ref().map_or(0, |batch| batch.len() as u64);
        Ok(batch.map(PyBatch))
    }

    /// The ledger of the trace made so far: every request that was planned is there.
    fn ledger<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        ledger_to_python(
            py,
            &Ledger { seen: self.requests_generated, kept: self.requests_generated, ..Ledger::default() },
        )
    }

    /// Where the model comes from.
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        header_to_python(py, &self.header)
    }

    /// Number of requests made so far, and in total.
    fn progress(&mut self) -> (u64, Option<u64>) {
        (self.requests_generated, Some(self.inner().requests()))
    }

    /// Refuses to repeat a synthesis, which is not a recording: a longer one can be made instead.
    fn repeat(&mut self, py: Python<'_>, passes: u32) -> PyResult<Self> {
        run(py, || {
            let requests = self.inner().requests();
            let problem = format!("a synthetic trace of {requests} requests cannot be repeated {passes} times");
            Err(Error::new(ErrorClass::Unsupported, problem)
                .hint("synthesise a longer one: `--requests` or `--duration`"))
        })
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

    /// Adds a batch; batches must be added in order of arrival.
    fn update(&mut self, py: Python<'_>, batch: &PyBatch) {
        if let Some(fitter) = self.0.get_mut().unwrap_or_else(PoisonError::into_inner) {
            py.detach(|| fitter.push(&batch.0));
        }
    }

    /// The model of all batches added.
    fn finish(&mut self, py: Python<'_>) -> PyResult<PyWorkloadModel> {
        let fitter = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        run(py, || fitter.ok_or_else(|| Error::new(ErrorClass::Config, "this fit has ended"))?.finish())
            .map(PyWorkloadModel)
    }
}
