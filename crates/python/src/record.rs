//! Records the block requests of a running machine.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder};
use emmclab_trace::{Error, ErrorClass};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::options::run_to_python;
use crate::reader::{header_to_python, ledger_to_python};

/// A recording in progress. What it has set up on the recorded machine is removed when it stops or is dropped.
#[pyclass(name = "Recorder", module = "emmclab._core")]
pub(crate) struct PyRecorder(Mutex<Option<TracefsRecorder>>);

/// Result of a recording: last batches, ledger (counts of records), header, error if it ended unexpectedly, and remarks on problems.
type RecordingEnd<'py> = (Vec<PyBatch>, Bound<'py, PyDict>, Bound<'py, PyDict>, Option<String>, Vec<String>);

fn stopped_error() -> Error {
    Error::new(ErrorClass::Config, "the recording has been stopped")
}

impl PyRecorder {
    /// The recorder. The mutex only makes the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Option<TracefsRecorder> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyRecorder {
    /// Records this host, a machine over ssh (`ssh`: destination and options of the client), or a phone over adb (`adb`: serial number, or
    /// an empty string for the only phone).
    #[new]
    #[pyo3(signature = (devices, *, ssh=None, adb=None, buffer_kb=None))]
    fn new(
        py: Python<'_>, devices: Vec<String>, ssh: Option<(String, Vec<String>)>, adb: Option<String>, buffer_kb: Option<u32>,
    ) -> PyResult<Self> {
        let target = match (ssh, adb) {
            (Some((destination, options)), _) => RecordTarget::Ssh { destination, options },
            (None, Some(serial)) => RecordTarget::Adb { serial: Some(serial).filter(|it| !it.is_empty()), port: None },
            (None, None) => RecordTarget::Local,
        };
        let options = RecordOptions { target, devices, buffer_kb, ..RecordOptions::default() };
        run(py, || TracefsRecorder::start(&options)).map(|recorder| Self(Mutex::new(Some(recorder))))
    }

    /// Names of the disks that are recorded.
    fn disks(&mut self) -> Vec<String> {
        self.inner().iter().flat_map(|recorder| &recorder.disks).map(|disk| disk.name.clone()).collect()
    }

    /// The reason for recording these disks, if no device was specified.
    fn chosen(&mut self) -> Option<String> {
        self.inner().as_ref().and_then(|recorder| recorder.choice_reason.clone())
    }

    /// Returns the trace's header, which describes its origin.
    fn header<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let header = self.inner().as_ref().map(|recorder| recorder.header.clone());
        let header = run(py, || header.ok_or_else(stopped_error))?;
        header_to_python(py, &header)
    }

    /// The next batch, or None if none arrives within `timeout_s` seconds.
    fn next(&mut self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<PyBatch>> {
        py.check_signals()?;
        let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
        let recorder = self.inner().as_mut().ok_or_else(stopped_error);
        run(py, || Ok(recorder?.next_batch(timeout).map(PyBatch)))
    }

    /// Whether the recording has ended because the connection was lost or the device was removed.
    fn has_ended(&mut self) -> bool {
        self.inner().as_ref().is_none_or(TracefsRecorder::has_ended)
    }

    /// Rates and counts since the last call, and the requests kept and dropped since the start (the ledger).
    fn stats<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let recorder = self.inner().as_mut().ok_or_else(stopped_error);
        run_to_python(py, || Ok(recorder?.stats()))
    }

    /// Drops a recording that was not stopped, and removes what it has set up on the recorded machine.
    fn close(&mut self, py: Python<'_>) {
        let recorder = self.inner().take();
        py.detach(|| drop(recorder));
    }

    /// Ends the recording.
    fn stop<'py>(&mut self, py: Python<'py>) -> PyResult<RecordingEnd<'py>> {
        let recorder = self.inner().take().ok_or_else(stopped_error);
        let (batches, outcome) = run(py, || {
            let mut batches = Vec::new();
            let outcome = recorder?.stop(|batch| {
                batches.push(PyBatch(batch.clone()));
                Ok(())
            })?;
            Ok((batches, outcome))
        })?;
        let RecordOutcome { ledger, header, interrupted, remarks, .. } = outcome;
        let ledger = ledger_to_python(py, &ledger)?;
        let early = interrupted.map(|error| error.to_string());
        Ok((batches, ledger, header_to_python(py, &header)?, early, remarks))
    }
}
