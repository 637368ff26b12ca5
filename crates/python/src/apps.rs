//! Programs that represent applications: each issues its next requests when earlier ones have completed on the simulated device.

use std::io::BufReader;
use std::path::PathBuf;

use emmclab_apps::{
    AppProgram, HostSetup, LearnOptions, ProgramRunOptions, RecordedArgument, ThreadState, WhatIfTarget, learn, prepare_live,
    preset_names, preset_text, run_live, run_simulated, strace_calls,
};
use emmclab_replay::{ClosedLoop, ReplayOptions, RequestRows, RunRecorder, RunTracks, Simulation};
use emmclab_trace::{Error, InputFile, Nanos, SECTOR_BYTES};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde::Deserialize;
use serde_json::json;

use crate::errors::run;
use crate::options::{OptionsFromPython, run_to_python};
use crate::simulate::{LayerOptionList, PyDeviceConfig, store, under_layers};

/// A program that represents an application.
#[pyclass(name = "Program", module = "emmclab._core", frozen)]
pub(crate) struct PyProgram(AppProgram);

#[pymethods]
impl PyProgram {
    /// An application that comes with emmclab.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Self> {
        run(py, || AppProgram::preset(name)).map(Self)
    }

    /// An application from a TOML file.
    #[staticmethod]
    fn file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        run(py, || AppProgram::from_file(&path)).map(Self)
    }

    /// Combines this application with others that run at the same time. The simulated user waits only for this application.
    fn beside(&self, py: Python<'_>, others: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let others: Vec<AppProgram> = others.iter().map(|other| other.0.clone()).collect();
        run(py, || self.0.clone().combined_with(&others)).map(Self)
    }

    /// Name of the application.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the program represents an activity of a user.
    #[getter]
    fn is_activity(&self) -> bool {
        self.0.is_activity
    }

    #[getter]
    fn about(&self) -> &str {
        &self.0.about
    }

    /// Returns where the numbers in the program come from, and which assumptions were made.
    #[getter]
    fn source(&self) -> &str {
        &self.0.source
    }

    /// Returns the whole program as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(&self.0))
    }
}

/// A simulated host (kernel, page cache, partitions, networks) on which programs run.
#[pyclass(name = "HostSetup", module = "emmclab._core", frozen)]
pub(crate) struct PyHostSetup(pub(crate) HostSetup);

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

    /// Mounted partitions on a device of `capacity` bytes: name, file system, first sector and sectors.
    fn places<'py>(&self, py: Python<'py>, capacity: u64) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || self.0.partition_extents(capacity / SECTOR_BYTES))
    }

    /// Maximum number of dirty bytes in the page cache.
    fn dirty_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        run(py, || {
            let kernel = self.0.kernel()?;
            Ok((kernel.page_cache_mb << 20) * u64::from(kernel.dirty_pct) / 100)
        })
    }

    /// Largest window of read-ahead, in KB.
    fn readahead_kb(&self, py: Python<'_>) -> PyResult<u32> {
        run(py, || Ok(self.0.kernel()?.readahead_kb))
    }

    /// Whether the kernel flushes the cache of a device.
    fn sends_flushes(&self, py: Python<'_>) -> PyResult<bool> {
        run(py, || self.0.sends_flushes())
    }

    /// Returns an error if the host has no network with this name.
    fn check_network(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        run(py, || self.0.network(name).map(|_| ()))
    }

    /// Returns all settings of the host as a dictionary.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(&self.0))
    }
}

/// Names of the applications that come with emmclab.
#[pyfunction]
pub(crate) fn app_presets() -> Vec<&'static str> {
    preset_names().collect()
}

/// The states of a thread, as (name in results, description).
#[pyfunction]
pub(crate) fn app_states() -> Vec<(&'static str, &'static str)> {
    ThreadState::ALL.into_iter().map(|state| (state.name(), state.description())).collect()
}

/// Returns the text of the program file of an application that comes with emmclab.
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
pub(crate) fn app_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || Ok(AppProgram::json_schema()))
}

/// Options for the run of a program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunOptionsInput {
    network: String,
    seed: u64,
    limit_s: u32,
    what_if: Vec<String>,
    /// File systems that replace those of the host, as `PARTITION=NAME` or `NAME`.
    filesystems: Vec<String>,
    /// Classes of files whose syncs are executed; `None` for the classes in the settings of the host.
    synced: Option<Vec<String>>,
}

impl RunOptionsInput {
    /// Returns a host with the selected file systems, on which only syncs of the selected file classes are kept, and the options of the
    /// run.
    fn checked(self, host: &HostSetup) -> Result<(HostSetup, ProgramRunOptions), Error> {
        let mut host = host.clone();
        for choice in &self.filesystems {
            host.set_filesystem(choice)?;
        }
        if let Some(classes) = &self.synced {
            host.keep_syncs(classes)?;
        }
        let options = ProgramRunOptions {
            network: self.network,
            seed: self.seed,
            limit: Nanos::from_secs(self.limit_s.into()),
            what_if: self.what_if.iter().map(|part| part.parse()).collect::<Result<Vec<WhatIfTarget>, _>>()?,
        };
        Ok((host, options))
    }
}

/// Runs a program on a host with a device that is prepared according to the replay options. Returns the results of the program and of the
/// device. `perfetto` is the path of a Perfetto trace of the run, `events` the path of a file for its requests. `about` describes the run
/// as JSON; it is stored in the `events` file.
#[pyfunction]
#[pyo3(signature = (program, host, config, options, replay, *, images=None, images_limit=None, layers=None, second=None, perfetto=None, events=None, about=None))]
#[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
pub(crate) fn run_app<'py>(
    py: Python<'py>, program: &PyProgram, host: &PyHostSetup, config: &PyDeviceConfig,
    options: OptionsFromPython<RunOptionsInput>, replay: OptionsFromPython<ReplayOptions>, images: Option<PathBuf>,
    images_limit: Option<u64>, layers: Option<LayerOptionList>, second: Option<&PyDeviceConfig>, perfetto: Option<PathBuf>,
    events: Option<PathBuf>, about: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let second = second.map(PyDeviceConfig::settings);
    run_to_python(py, || {
        let (host, options) = options.0.checked(&host.0)?;
        let replay = replay.0;
        let mut tracks = perfetto.map(RunTracks::create).transpose()?;
        let rows = events.map(|path| RequestRows::create(&path)).transpose()?;
        let images = images.map(|folder| store(folder, images_limit)).transpose()?;
        let simulation = Simulation::new(config.settings(), &replay, images.as_ref())?;
        let simulation = under_layers(simulation, layers, second, &replay, images.as_ref())?;
        if let Some(tracks) = &mut tracks {
            tracks.begin(config.settings().name(), simulation.device(), Nanos::ZERO)?;
        }
        let device = ClosedLoop::with_recorder(simulation, RunRecorder { rows, tracks, ..RunRecorder::default() });
        let (app, device) = run_simulated(&program.0, &host, device, &options, about.as_deref())?;
        Ok(json!({ "app": app, "device": device }))
    })
}

/// Writes the files that a program expects before its run. Each of the `folders` stands for one mounted partition of the host on a device
/// of `capacity` bytes.
#[pyfunction]
pub(crate) fn prepare_app(
    py: Python<'_>, program: &PyProgram, host: &PyHostSetup, capacity: u64, folders: Vec<PathBuf>, seed: u64,
) -> PyResult<()> {
    run(py, || prepare_live(&program.0, &host.0, capacity / SECTOR_BYTES, &folders, seed))
}

/// Runs a program on this machine, in folders with the files that `prepare_app` wrote. Returns the result.
#[pyfunction]
pub(crate) fn run_app_live<'py>(
    py: Python<'py>, program: &PyProgram, host: &PyHostSetup, capacity: u64, folders: Vec<PathBuf>,
    options: OptionsFromPython<RunOptionsInput>,
) -> PyResult<Bound<'py, PyAny>> {
    run_to_python(py, || {
        let (host, options) = options.0.checked(&host.0)?;
        run_live(&program.0, &host, capacity / SECTOR_BYTES, &folders, &options)
    })
}

/// Reads the calls of a recording by `strace -f -ttt -y`: thread, start in ns, number of calls that had returned when it began, name,
/// arguments, and result. An argument is bytes (a string or list of buffers), a tuple of descriptor, path and whether the file has been
/// removed, or a text.
#[pyfunction]
pub(crate) fn read_strace_calls(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyList>> {
    let calls = run(py, || {
        let file = InputFile::open(&path).map_err(|error| Error::io(&path, error))?;
        strace_calls(BufReader::new(file)).map_err(|error| error.in_file(&path))
    })?;
    let rows = PyList::empty(py);
    for call in calls {
        let arguments = PyList::empty(py);
        for argument in call.arguments {
            match argument {
                RecordedArgument::Bytes(bytes) => arguments.append(PyBytes::new(py, &bytes))?,
                RecordedArgument::File(descriptor, path, is_removed) => {
                    arguments.append((descriptor, PyBytes::new(py, &path), is_removed))?;
                }
                RecordedArgument::Word(word) => arguments.append(word)?,
            }
        }
        rows.append((call.thread, call.started_ns, call.after, call.name, arguments, call.result))?;
    }
    Ok(rows)
}

/// Derives a program from a recording of system calls; `partitions` are pairs of a name and a folder. Returns the program and a report.
#[pyfunction]
pub(crate) fn learn_app(
    py: Python<'_>, path: PathBuf, name: String, partitions: Vec<(String, String)>, user_waits_for: Option<String>,
    keep_pauses: bool, cpu_factor: f64,
) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || {
        let file = InputFile::open(&path).map_err(|error| Error::io(&path, error))?;
        let options = LearnOptions { name, partitions, user_waits_for, keep_pauses, cpu_factor };
        learn(BufReader::new(file), &options).map_err(|error| error.in_file(&path))
    })
}
