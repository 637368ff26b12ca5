//! A device with a card beside it.

use std::sync::{Mutex, PoisonError};

use emmclab_device::Quiet;
use emmclab_replay::{Pair, Routing};
use emmclab_trace::{Error, Kind};
use pyo3::prelude::*;

use crate::batch::PyBatch;
use crate::errors::run;
use crate::json::{from_json, to_json};
use crate::simulate::PyDeviceConfig;

/// Two devices being driven by batches of requests.
#[pyclass(name = "Pair", module = "emmclab._core")]
pub(crate) struct PyPair(Mutex<Option<Pair>>);

impl PyPair {
    /// The pair; the mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Option<Pair> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> Error {
    Error::new(Kind::Config, "this run has ended")
}

#[pymethods]
impl PyPair {
    /// Two new devices and how requests are shared (JSON of the routing).
    #[new]
    fn new(
        py: Python<'_>,
        internal: &PyDeviceConfig,
        card: &PyDeviceConfig,
        routing: &str,
    ) -> PyResult<Self> {
        run(py, || {
            let routing: Routing = from_json(routing)?;
            Ok(Self(Mutex::new(Some(Pair::new(&internal.0, &card.0, routing)?))))
        })
    }

    /// Drives a batch; false once a device has stopped.
    fn feed(&mut self, py: Python<'_>, batch: &PyBatch) -> PyResult<bool> {
        py.check_signals()?;
        run(py, || {
            let pair = self.inner().as_mut().ok_or_else(ended)?;
            for request in &batch.0 {
                if !pair.push(&request, &mut Quiet)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Ends the run: the result as JSON.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        run(py, || to_json(&self.inner().take().ok_or_else(ended)?.finish()))
    }
}
