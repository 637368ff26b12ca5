//! A device with a card beside it: a run through the layer `pair`, with a result of its own.

use std::sync::{Mutex, PoisonError};

use emmclab_device::{Device, DeviceConfig};
use emmclab_layers::LayerConfig;
use emmclab_replay::{Recorder, ReplayOptions, Simulation, SimulationResult, Times};
use emmclab_trace::{Error, Kind, Result};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::batch::PyBatch;
use crate::errors::run;
use crate::json::{from_json, to_json};
use crate::simulate::PyDeviceConfig;

/// How requests are shared between the two devices, as Python says it.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Routing {
    Internal,
    Striping { chunk_kb: u32 },
    ByFile { from_mb: u64 },
    BySize { max_kb: u32 },
}

impl Routing {
    /// The layer that shares them so. Addresses beyond a device are wrapped into it.
    fn layer(self) -> LayerConfig {
        let layer = LayerConfig::named("pair").with("wrap_addresses", "true");
        match self {
            Self::Internal => layer.with("routing", "internal"),
            Self::Striping { chunk_kb } => layer.with("routing", "striping").with("chunk", &kb(chunk_kb)),
            Self::ByFile { from_mb } => {
                layer.with("routing", "by_file").with("border", &format!("{from_mb}MB"))
            }
            Self::BySize { max_kb } => layer.with("routing", "by_size").with("longest", &kb(max_kb)),
        }
    }
}

fn kb(kb: u32) -> String {
    format!("{kb}KB")
}

/// The result of a run on two devices.
#[derive(Serialize)]
struct PairResult {
    requests: u64,
    response: Times,
    /// Requests of which the device or the card had a part, and bytes to and from each.
    internal_requests: u64,
    card_requests: u64,
    internal_bytes: u64,
    card_bytes: u64,
    /// Why the run ended early, where it did.
    stopped: Option<String>,
}

impl From<SimulationResult> for PairResult {
    fn from(result: SimulationResult) -> Self {
        let count = |name: &str| {
            result.layers.first().and_then(|layer| layer.counters.get(name)).copied().unwrap_or_default()
        };
        Self {
            requests: result.requests.total,
            response: result.response.all(),
            internal_requests: count("internal_requests"),
            card_requests: count("card_requests"),
            internal_bytes: count("internal_bytes"),
            card_bytes: count("card_bytes"),
            stopped: result.run.stopped,
        }
    }
}

fn simulation(internal: &DeviceConfig, card: &DeviceConfig, routing: Routing) -> Result<Simulation> {
    // A pair of which only one is used has no second device.
    let beside = match routing {
        Routing::Internal => None,
        _ => Some((card, Device::new(card))),
    };
    Simulation::new(internal, &ReplayOptions::default(), None)?.with_layers(&[routing.layer()], beside)
}

/// Two devices being driven by batches of requests.
#[pyclass(name = "Pair", module = "emmclab._core")]
pub(crate) struct PyPair(Mutex<Option<Simulation>>);

impl PyPair {
    /// The run; the mutex is there only to make the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Option<Simulation> {
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
        run(py, || Ok(Self(Mutex::new(Some(simulation(&internal.0, &card.0, from_json(routing)?)?)))))
    }

    /// Drives a batch; false once a device has stopped.
    fn feed(&mut self, py: Python<'_>, batch: &PyBatch) -> PyResult<bool> {
        py.check_signals()?;
        run(py, || {
            let simulation = self.inner().as_mut().ok_or_else(ended)?;
            Recorder::default().feed(simulation, &batch.0)
        })
    }

    /// Ends the run: the result as JSON.
    fn finish(&mut self, py: Python<'_>) -> PyResult<String> {
        run(py, || {
            let result = Recorder::default().end(self.inner().take().ok_or_else(ended)?, None)?;
            to_json(&PairResult::from(result))
        })
    }
}
