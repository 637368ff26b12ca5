//! Simulated devices, their contents, runs, and synchronous direct I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use emmclab_base::ByteSize;
use emmclab_device::{AnnouncedCapabilities, DeviceConfig, presets};
use emmclab_layers::LayerConfig;
use emmclab_replay::{
    DirectIo, FioHostCost, FioRun, ImageStore, Precondition, ReplayOptions, RequestRows, RunOverTime, RunRecorder, RunTracks,
    Simulation, age_by_traces, bandwidth, fitted_figures as figures, preflight, prepare, prepare_by_traces,
};
use emmclab_synth::fio::{FioLoad, environment, read_job_file};
use emmclab_trace::{ByteCount, Error, ErrorClass, Op, Result, SECTOR_BYTES};
use pyo3::prelude::*;
use serde_json::json;

use crate::apps::PyHostSetup;
use crate::batch::PyBatch;
use crate::errors::{run, to_python};
use crate::options::{OptionsFromPython, run_to_python};
use crate::profile::bin_width;
use crate::reader::PyReader;
use crate::victim_policy::{PolicyException, PyPolicy};
use crate::writer::{PyHeader, PyLedger, header_from_python, ledger_from_python};

/// The settings of a simulated device.
#[pyclass(name = "DeviceConfig", module = "emmclab._core", frozen)]
pub(crate) struct PyDeviceConfig(pub(crate) DeviceConfig);

impl PyDeviceConfig {
    pub(crate) fn settings(&self) -> &DeviceConfig {
        &self.0
    }
}

#[pymethods]
impl PyDeviceConfig {
    /// A device that comes with emmclab.
    #[staticmethod]
    fn preset(py: Python<'_>, name: &str) -> PyResult<Self> {
        run(py, || DeviceConfig::preset(name)).map(Self)
    }

    /// A device from a TOML file.
    #[staticmethod]
    fn file(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        run(py, || DeviceConfig::from_file(&path)).map(Self)
    }

    /// A device from the text of a TOML file.
    #[staticmethod]
    fn from_toml(py: Python<'_>, text: &str) -> PyResult<Self> {
        run(py, || DeviceConfig::from_toml(text)).map(Self)
    }

    /// Returns this device with some settings changed. `pairs` are dotted keys and values in TOML.
    fn with_values(&self, py: Python<'_>, pairs: Vec<(String, String)>) -> PyResult<Self> {
        run(py, || {
            let mut config = self.0.clone();
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            config.set_all(&pairs)?;
            Ok(Self(config))
        })
    }

    /// This device scaled to a capacity such as `128GB`.
    fn with_capacity(&self, py: Python<'_>, capacity: &str) -> PyResult<Self> {
        run(py, || {
            let bytes = capacity.parse::<ByteSize>().map_err(|problem| {
                Error::new(ErrorClass::Config, problem).hint("write the capacity as 128GB; 1 GB is 1,024 MB (GiB)")
            })?;
            self.0.with_capacity(bytes.0, capacity).map(Self)
        })
    }

    /// Returns the settings that determine the contents of the device after preconditioning, as text. `pauses` is whether the device was
    /// idle between the preconditioning commands. Devices with the same text share an image.
    fn deciding_contents(&self, py: Python<'_>, pauses: bool) -> PyResult<String> {
        run(py, || self.0.deciding_contents(pauses))
    }

    /// Returns this device with a capacity of exactly `bytes`, and with `slc_bytes` in blocks in SLC mode. With `preserves`, these blocks
    /// do not reduce the capacity.
    #[pyo3(signature = (bytes, slc_bytes = None, preserves = None))]
    fn sized(&self, py: Python<'_>, bytes: u64, slc_bytes: Option<u64>, preserves: Option<bool>) -> PyResult<Self> {
        run(py, || self.0.sized(bytes, slc_bytes, preserves).map(Self))
    }

    /// The capacity that the host sees, in bytes.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity().0
    }

    /// Name of the device.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// All settings as TOML. Equal settings give equal text.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        run(py, || self.0.to_toml())
    }

    /// Returns the capabilities of the device, and the fields of the `EXT_CSD` register that report them.
    fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(AnnouncedCapabilities::of(self.0.settings())))
    }

    /// Returns all settings of the device with value, unit, origin and meaning.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.0.explain()))
    }
}

/// Names of the devices that come with emmclab.
#[pyfunction]
pub(crate) fn device_presets() -> Vec<&'static str> {
    presets().iter().map(|preset| preset.name).collect()
}

/// The JSON Schema of a device file.
#[pyfunction]
pub(crate) fn device_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || Ok(emmclab_device::json_schema()))
}

/// The options of a replay with their defaults.
#[pyfunction]
pub(crate) fn replay_defaults(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    Ok(pythonize::pythonize(py, &ReplayOptions::default())?)
}

/// Checks the traces of `readers` for a run with `options` (those of `Simulation`). An error lists all faults. Returns the replay mode and
/// the reason for it. If the mode in the options is `auto`, the mode is derived from the traces.
#[pyfunction]
pub(crate) fn check_traces<'py>(
    py: Python<'py>, config: &PyDeviceConfig, options: OptionsFromPython<ReplayOptions>, readers: Vec<PyRef<'_, PyReader>>,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = PyReader::inputs(&readers);
    run_to_python(py, || preflight(&config.0, &options.0, &inputs))
}

/// Opens a folder of device images. If `limit` is set, the folder is a cache of at most `limit` bytes.
pub(crate) fn store(folder: PathBuf, limit: Option<u64>) -> Result<ImageStore> {
    let store = ImageStore::open(folder)?;
    Ok(limit.map_or(store.clone(), |limit| store.limited(limit)))
}

/// All kinds of layers: name, description, and settings with default, unit and meaning.
#[pyfunction]
pub(crate) fn layer_kinds(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    run_to_python(py, || {
        let kinds: Vec<_> = emmclab_layers::layers()
            .iter()
            .map(|kind| json!({ "name": kind.name, "about": kind.about, "settings": (kind.settings)() }))
            .collect();
        Ok(kinds)
    })
}

/// Names of layers with their settings as text, in the form of `DeviceConfig.with_values`.
pub(crate) type LayerOptionList = Vec<(String, Vec<(String, String)>)>;

/// A simulation, the recorder of its optional outputs, and the exception that a victim policy in Python may have raised.
struct RunningSimulation {
    simulation: Simulation,
    recorder: RunRecorder,
    fault: PolicyException,
}

/// A run of a device, which is fed with batches of requests.
#[pyclass(name = "Simulation", module = "emmclab._core")]
pub(crate) struct PySimulation(Mutex<Option<RunningSimulation>>);

impl PySimulation {
    /// The run. The mutex only makes the class shareable, and is never contended.
    fn inner(&mut self) -> &mut Option<RunningSimulation> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn layer((name, settings): &(String, Vec<(String, String)>)) -> LayerConfig {
    settings.iter().fold(LayerConfig::named(name), |layer, (key, value)| layer.with(key, value))
}

/// Adds layers above the device of a simulation, from top to bottom. The second device, if there is one, is prepared with the same options
/// as the first device.
pub(crate) fn under_layers(
    simulation: Simulation, layers: Option<LayerOptionList>, second: Option<&DeviceConfig>, options: &ReplayOptions,
    images: Option<&ImageStore>,
) -> emmclab_trace::Result<Simulation> {
    let second = match second {
        Some(second) => Some((second, Simulation::new(second, options, images)?.into_device())),
        None => None,
    };
    let layers: Vec<_> = layers.unwrap_or_default().iter().map(layer).collect();
    simulation.with_layers(&layers, second)
}

fn ended() -> Error {
    Error::new(ErrorClass::Config, "this run has ended")
}

#[pymethods]
impl PySimulation {
    /// Creates a run with `options` on a new or preconditioned device, which the traces of the readers in `aged_by` age further.
    /// `images` is a folder with aged devices of at most `images_limit` bytes. `rows` is a Parquet file for one row per request. `layers`
    /// are above the device, from top to bottom, and `second` is a second device that is prepared in the same way. `victim` chooses the
    /// blocks to collect: a callable that takes a `VictimView` and returns a block or None. `over_time` adds figures over time, in bins of
    /// this many ns, or 0 for automatic width. `perfetto` is a file for a Perfetto trace of the run.
    #[new]
    #[pyo3(signature = (config, options, *, images=None, images_limit=None, rows=None, aged_by=None, layers=None, second=None, victim=None, over_time=None, perfetto=None))]
    #[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
    fn new(
        py: Python<'_>, config: &PyDeviceConfig, options: OptionsFromPython<ReplayOptions>, images: Option<PathBuf>,
        images_limit: Option<u64>, rows: Option<PathBuf>, aged_by: Option<Vec<PyRef<'_, PyReader>>>,
        layers: Option<LayerOptionList>, second: Option<&PyDeviceConfig>, victim: Option<Py<PyAny>>, over_time: Option<i64>,
        perfetto: Option<PathBuf>,
    ) -> PyResult<Self> {
        let over_time = over_time.map(|ns| RunOverTime::new(bin_width(ns)));
        let second = second.map(|second| &second.0);
        let aging = aged_by.map(|readers| PyReader::inputs_of_one_device(&readers));
        run(py, || {
            let options = options.0;
            let rows = rows.map(|path| RequestRows::create(&path)).transpose()?;
            let mut tracks = perfetto.map(RunTracks::create).transpose()?;
            let store = images.map(|folder| store(folder, images_limit)).transpose()?;
            let simulation = match aging {
                Some(traces) => Simulation::on(&config.0, &options, age_by_traces(&config.0, &options, traces, store.as_ref())?),
                None => Simulation::new(&config.0, &options, store.as_ref())?,
            };
            let mut simulation = under_layers(simulation, layers, second, &options, store.as_ref())?;
            let mut fault = PolicyException::default();
            if let Some(victim) = victim {
                let policy;
                (policy, fault) = PyPolicy::new(victim);
                simulation = simulation.with_victim_policy(Box::new(policy))?;
            }
            if let Some(tracks) = &mut tracks {
                tracks.begin(config.0.name(), simulation.device(), options.start_offset)?;
            }
            let recorder = RunRecorder { rows, over_time, tracks };
            Ok(Self(Mutex::new(Some(RunningSimulation { simulation, recorder, fault }))))
        })
    }

    /// Replays a batch. Returns false if the device has stopped.
    fn feed(&mut self, py: Python<'_>, batch: &PyBatch) -> PyResult<bool> {
        py.check_signals()?;
        let goes_on = run(py, || {
            let RunningSimulation { simulation, recorder, .. } = self.inner().as_mut().ok_or_else(ended)?;
            recorder.feed(simulation, &batch.0)
        });
        if let Some(fault) = self.inner().as_ref().and_then(|running| running.fault.take()) {
            // The Python policy raised an exception. Since then the device has collected no block, so the result of the run would be
            // invalid.
            *self.inner() = None;
            return Err(fault);
        }
        goes_on
    }

    /// Simulated time so far, in ns.
    fn simulated_ns(&mut self) -> i64 {
        self.inner().as_ref().map_or(0, |running| running.simulation.simulated().0)
    }

    /// Ends the run and returns the result. Moves the temporary files of the request rows and of the Perfetto trace to their final paths.
    /// `about` is a description of the run that is stored in the file of rows.
    #[pyo3(signature = (ledger, header, about=None))]
    fn finish<'py>(
        &mut self, py: Python<'py>, ledger: PyLedger, header: PyHeader, about: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let RunningSimulation { mut simulation, mut recorder, fault } =
            self.inner().take().ok_or_else(|| to_python(py, &ended()))?;
        let result = run(py, || {
            simulation.of_trace(header_from_python(&header)?);
            recorder.end(simulation, Some(&ledger_from_python(&ledger)?))
        });
        if let Some(fault) = fault.take() {
            return Err(fault);
        }
        let mut result = result?;
        run_to_python(py, || {
            recorder.finish(&mut result, about.as_deref())?;
            Ok(result)
        })
    }
}

/// The jobs of a fio job file on a simulated device.
#[pyclass(name = "FioRun", module = "emmclab._core")]
pub(crate) struct PyFioRun(Mutex<Option<(FioRun, PolicyException)>>);

impl PyFioRun {
    fn inner(&mut self) -> &mut Option<(FioRun, PolicyException)> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyFioRun {
    /// Prepares the jobs of a file for a run that has not started, which ends. `seed` is that of the offsets, and `host` the host whose
    /// processor issues the requests; with None, issuing takes no time. With `wrap`, addresses may be beyond the
    /// device. `replaced` are options of fio, with values, that replace those of every job.
    #[new]
    fn new(
        py: Python<'_>, simulation: &mut PySimulation, path: PathBuf, seed: u64, host: Option<&PyHostSetup>, wrap: bool,
        replaced: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let RunningSimulation { simulation, recorder, fault } =
            simulation.inner().take().ok_or_else(|| to_python(py, &ended()))?;
        run(py, || {
            let text = read_job_file(&path)?;
            let capacity = simulation.sectors().saturating_mul(SECTOR_BYTES);
            let load = FioLoad::new(&text, seed, capacity, &environment, &replaced).map_err(|error| error.in_file(&path))?;
            let end = load.end.saturating_mul(SECTOR_BYTES);
            if end > capacity && !wrap {
                let problem =
                    format!("the files of the jobs need {}, more than the {} of the device", ByteCount(end), ByteCount(capacity));
                return Err(Error::new(ErrorClass::Config, problem)
                    .in_file(&path)
                    .hint("make size= smaller, use a larger device (--capacity), or wrap the addresses (--wrap-addresses)"));
            }
            let cost = host.map_or(Ok(FioHostCost::default()), |host| host.0.fio_cost())?;
            Ok(Self(Mutex::new(Some((FioRun::new(simulation, recorder, load, cost), fault)))))
        })
    }

    /// Simulates until about `requests` more requests are submitted. Returns false at the end.
    fn advance(&mut self, py: Python<'_>, requests: u64) -> PyResult<bool> {
        py.check_signals()?;
        let goes_on = run(py, || self.inner().as_mut().ok_or_else(ended)?.0.advance(requests));
        if let Some(fault) = self.inner().as_ref().and_then(|(_, fault)| fault.take()) {
            *self.inner() = None;
            return Err(fault);
        }
        goes_on
    }

    /// Simulated time so far and in total in ns, and number of requests so far. The total is None if a job ends after a number of requests.
    fn progress(&mut self) -> (i64, Option<i64>, u64) {
        let progress = self.inner().as_ref().map(|(fio, _)| fio.progress());
        progress.map_or((0, None, 0), |(now, duration, requests)| (now.0, duration.map(|duration| duration.0), requests))
    }

    /// Ends the run and returns the result. Moves the files of rows and of the picture to their paths; `about` describes the run in the file
    /// of rows.
    #[pyo3(signature = (about=None))]
    fn finish<'py>(&mut self, py: Python<'py>, about: Option<String>) -> PyResult<Bound<'py, PyAny>> {
        let (fio, fault) = self.inner().take().ok_or_else(|| to_python(py, &ended()))?;
        let finished = run_to_python(py, || {
            let (mut result, recorder) = fio.finish()?;
            recorder.finish(&mut result, about.as_deref())?;
            Ok(result)
        });
        fault.take().map_or(finished, Err)
    }
}

/// A method of preconditioning a device.
#[pyclass(name = "Precondition", module = "emmclab._core", frozen)]
pub(crate) struct PyPrecondition(Precondition);

#[pymethods]
impl PyPrecondition {
    /// Parses a method of preconditioning: none, sequential:PCT, random:PCT, steady:CAPACITIES, or used:AGE with further values.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        run(py, || text.parse()).map(Self)
    }

    /// Returns the method of preconditioning as text with all values, including defaults.
    #[getter]
    fn text(&self) -> String {
        self.0.to_string()
    }

    /// Whether the contents of the device depend on the seed.
    #[getter]
    fn is_random(&self) -> bool {
        self.0.is_random()
    }

    /// Returns the maximum number of bytes that this method writes to a device of `capacity_bytes` bytes; 0 for a new device.
    fn most_bytes(&self, capacity_bytes: f64) -> f64 {
        self.0.most_bytes(capacity_bytes)
    }
}

/// Bytes that preconditioning has written in this process so far.
#[pyfunction]
pub(crate) fn preconditioned_bytes() -> u64 {
    emmclab_replay::preconditioned_bytes()
}

/// Prepares the device of a run with `options`, which the traces of readers age further, and stores it in the folder `images` if it is
/// not there. Returns false if another process is preparing it.
#[pyfunction]
#[pyo3(signature = (config, options, images, *, images_limit=None, aged_by=None))]
pub(crate) fn precondition(
    py: Python<'_>, config: &PyDeviceConfig, options: OptionsFromPython<ReplayOptions>, images: PathBuf,
    images_limit: Option<u64>, aged_by: Option<Vec<PyRef<'_, PyReader>>>,
) -> PyResult<bool> {
    let aging = aged_by.map(|readers| PyReader::inputs_of_one_device(&readers));
    run(py, || {
        let store = store(images, images_limit)?;
        match aging {
            Some(traces) => prepare_by_traces(&config.0, &options.0, traces, &store),
            None => prepare(&config.0, &options.0, &store),
        }
    })
}

/// Returns the bandwidths of a full device for these transfer sizes, one row for each size.
#[pyfunction]
pub(crate) fn bandwidths<'py>(py: Python<'py>, config: &PyDeviceConfig, units_kb: Vec<u64>) -> PyResult<Bound<'py, PyAny>> {
    run_to_python(py, || bandwidth(config.settings(), &units_kb))
}

/// Returns the published figures to which a device preset was fitted, with the corresponding figures of the preset.
#[pyfunction]
pub(crate) fn fitted_figures<'py>(py: Python<'py>, config: &PyDeviceConfig) -> PyResult<Bound<'py, PyAny>> {
    run_to_python(py, || figures(config.settings()))
}

/// Names of the publications with figures of device presets none of which is of reads that were executed one at a time.
#[pyfunction]
pub(crate) fn sources_without_single_reads(py: Python<'_>) -> PyResult<BTreeSet<String>> {
    run(py, || {
        let mut single: BTreeMap<String, bool> = BTreeMap::new();
        for preset in presets() {
            for figure in DeviceConfig::preset(preset.name)?.published() {
                *single.entry(figure.source.clone()).or_default() |= figure.measure.has_single_reads();
            }
        }
        Ok(single.into_iter().filter(|(_, single)| !single).map(|(source, _)| source).collect())
    })
}

/// A new simulated device for single transfers by synchronous direct I/O.
#[pyclass(name = "DirectIo", module = "emmclab._core", frozen)]
pub(crate) struct PyDirectIo(Mutex<DirectIo>);

#[pymethods]
impl PyDirectIo {
    #[new]
    fn new(config: &PyDeviceConfig) -> Self {
        Self(Mutex::new(DirectIo::new(config.settings())))
    }

    /// Number of sectors of the device.
    #[getter]
    fn sectors(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// Reads or writes `length` sectors at each of the addresses `sectors`, one after another. Returns the duration of each transfer in ns.
    fn transfer(&self, py: Python<'_>, write: bool, sectors: Vec<u64>, length: u64) -> PyResult<Vec<i64>> {
        run(py, || {
            let mut io = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let op = if write { Op::Write } else { Op::Read };
            sectors.iter().map(|sector| io.transfer(op, *sector, length).map(|took| took.0)).collect::<Result<Vec<_>>>()
        })
    }
}
