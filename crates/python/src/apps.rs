//! Applications in closed loop over a simulated device.

use std::path::PathBuf;

use emmclab_apps::{HostSetup, Program, RunOptions, WhatIf, preset_names, preset_text, run as run_program};
use emmclab_device::Quiet;
use emmclab_replay::{ClosedLoop, ReplayOptions, Simulation};
use emmclab_trace::{Error, Nanos};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;

use crate::errors::run;
use crate::json::{from_json, to_json};
use crate::simulate::{Layers, PyDeviceConfig, layer, store};

/// An application as a program.
#[pyclass(name = "Program", module = "emmclab._core", frozen)]
pub(crate) struct PyProgram(Program);

#[pymethods]
impl PyProgram {
    /// An application that comes with emmclab.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Self> {
        run(py, || Program::preset(name)).map(Self)
    }

    /// An application from a TOML file.
    #[staticmethod]
    fn file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        run(py, || Program::from_file(&path)).map(Self)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// What its user does.
    #[getter]
    fn about(&self) -> &str {
        &self.0.about
    }

    /// Where its figures come from.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }
}

/// A host that programs run on.
#[pyclass(name = "HostSetup", module = "emmclab._core", frozen)]
pub(crate) struct PyHostSetup(HostSetup);

#[pymethods]
impl PyHostSetup {
    /// A host that comes with emmclab.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Self> {
        run(py, || HostSetup::preset(name)).map(Self)
    }

    /// A host from a TOML file.
    #[staticmethod]
    fn file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        run(py, || HostSetup::from_file(&path)).map(Self)
    }

    /// Every setting, as JSON.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        run(py, || to_json(&self.0))
    }
}

/// Names of the applications that come with emmclab.
#[pyfunction]
pub(crate) fn app_presets() -> Vec<&'static str> {
    preset_names().collect()
}

/// The file of an application that comes with emmclab.
#[pyfunction]
pub(crate) fn app_text(py: Python<'_>, name: &str) -> PyResult<&'static str> {
    run(py, || preset_text(name))
}

/// Names of the hosts that come with emmclab.
#[pyfunction]
pub(crate) fn host_presets() -> Vec<&'static str> {
    HostSetup::preset_names().collect()
}

/// The JSON Schema of a program file.
#[pyfunction]
pub(crate) fn app_schema(py: Python<'_>) -> PyResult<String> {
    run(py, || to_json(&Program::json_schema()))
}

/// How a program is run, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    network: String,
    seed: u64,
    limit_s: u32,
    what_if: Vec<String>,
    /// File systems in place of those of the host, as `PARTITION=NAME` or `NAME`.
    filesystems: Vec<String>,
    /// Classes of files whose syncs are carried out; without it, those of the host.
    synced: Option<Vec<String>>,
}

impl Options {
    /// The host with what is chosen in place of its own, and how the program is run.
    fn checked(self, host: &HostSetup) -> Result<(HostSetup, RunOptions), Error> {
        let mut host = host.clone();
        for choice in &self.filesystems {
            host.set_filesystem(choice)?;
        }
        if let Some(classes) = &self.synced {
            host.keep_syncs(classes)?;
        }
        let options = RunOptions {
            network: self.network,
            seed: self.seed,
            limit: Nanos::from_secs(self.limit_s.into()),
            what_if: self.what_if.iter().map(|part| part.parse()).collect::<Result<Vec<WhatIf>, _>>()?,
        };
        Ok((host, options))
    }
}

/// Runs a program on a host above a device, made ready as the replay options say: the result of the program, and that of the
/// device, as JSON.
#[pyfunction]
#[pyo3(signature = (program, host, config, options, replay, *, images=None, layers=None, second=None))]
#[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
pub(crate) fn run_app(
    py: Python<'_>,
    program: &PyProgram,
    host: &PyHostSetup,
    config: &PyDeviceConfig,
    options: &str,
    replay: &str,
    images: Option<PathBuf>,
    layers: Option<Layers>,
    second: Option<&PyDeviceConfig>,
) -> PyResult<String> {
    let second = second.map(PyDeviceConfig::settings);
    run(py, || {
        let (host, options) = from_json::<Options>(options)?.checked(&host.0)?;
        let replay: ReplayOptions = from_json(replay)?;
        let images = images.map(|folder| store(folder, None)).transpose()?;
        let simulation = Simulation::new(config.settings(), &replay, images.as_ref())?;
        let beside = match second {
            Some(second) => Some((second, Simulation::new(second, &replay, images.as_ref())?.into_device())),
            None => None,
        };
        let layers: Vec<_> = layers.unwrap_or_default().iter().map(layer).collect();
        let mut device = ClosedLoop::new(simulation.with_layers(&layers, beside)?);
        let result = run_program(&program.0, &host, &mut device, &options)?;
        to_json(&json!({ "app": result, "device": device.finish(&mut Quiet)? }))
    })
}
