//! Disks of this machine: replay of a trace on a disk, and layers whose data is on disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use emmclab_disk::{DiskReplay, DiskReplayOptions, DiskReplayProgress, LayeredDisk};
use emmclab_trace::{Error, ErrorClass};
use pyo3::prelude::*;

use crate::errors::{run, to_python};
use crate::live::PyExports;
use crate::options::{OptionsFromPython, run_to_python};
use crate::reader::PyReader;
use crate::simulate::{LayerOptionList, layer};

/// Interval at which a run reports its progress.
const REPORT: Duration = Duration::from_millis(50);

/// A trace that is ready to be sent to a disk.
#[pyclass(name = "DiskReplay", module = "emmclab._core", frozen)]
pub(crate) struct PyDiskReplay(Arc<DiskReplay>);

#[pymethods]
impl PyDiskReplay {
    /// Reads a trace, from whose reader no batch was taken, and plans its requests. The disk is only read.
    #[new]
    fn new(
        py: Python<'_>, disk: PathBuf, reader: &mut PyReader, options: OptionsFromPython<DiskReplayOptions>,
    ) -> PyResult<Self> {
        let traces = reader.inner();
        run(py, || DiskReplay::prepare(&disk, traces, &options.0)).map(|replay| Self(Arc::new(replay)))
    }

    /// Number of requests to send.
    #[getter]
    fn planned(&self) -> u64 {
        self.0.planned()
    }

    /// Describes the data that the run would destroy; None if it only reads.
    fn destroys(&self) -> Option<String> {
        self.0.destroys()
    }

    /// Sends the requests and returns the result. `output` is a trace to write. `progress` is called about 20 times per second with the
    /// number of completed requests, and ends the run by returning false.
    fn run<'py>(&self, py: Python<'py>, output: Option<PathBuf>, progress: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (replay, state) = (self.0.clone(), Arc::new(DiskReplayProgress::default()));
        let done = state.clone();
        let thread = std::thread::Builder::new()
            .name("emmclab-sender".to_owned())
            .spawn(move || replay.run(output.as_deref(), &done))
            .map_err(|error| to_python(py, &Error::new(ErrorClass::Io, format!("a thread cannot be started: {error}"))))?;
        let mut raised = None;
        while !thread.is_finished() {
            py.detach(|| std::thread::sleep(REPORT));
            let goes_on = py.check_signals().and_then(|()| progress.call1((state.completed(),))?.is_truthy());
            if !matches!(goes_on, Ok(true)) {
                state.stop();
            }
            raised = raised.or(goes_on.err());
        }
        let ended = thread.join();
        if let Some(raised) = raised {
            return Err(raised);
        }
        run_to_python(py, || ended.map_err(|_| Error::new(ErrorClass::Io, "the sending thread has failed"))?)
    }
}

/// Layers whose data is on disks of this machine, with their exports.
#[pyclass(name = "LayeredDisk", module = "emmclab._core", frozen, extends = PyExports)]
pub(crate) struct PyLayeredDisk(Arc<LayeredDisk>);

#[pymethods]
impl PyLayeredDisk {
    /// Opens the disks with the layers above them. Disks without the data of layers are erased if `erase` is true, otherwise refused.
    #[new]
    fn new(py: Python<'_>, disks: Vec<PathBuf>, layers: LayerOptionList, erase: bool) -> PyResult<PyClassInitializer<Self>> {
        let (served, exports) = run(py, || {
            let layers: Vec<_> = layers.iter().map(layer).collect();
            let paths: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
            let disk = Arc::new(LayeredDisk::open(&paths, &layers, erase)?);
            let name = disks[0].display().to_string();
            let exports = PyExports::of(disk.clone(), &name, ("a disk", None), format!("layers above {name}"));
            Ok((Self(disk), exports))
        })?;
        Ok(PyClassInitializer::from(exports).add_subclass(served))
    }

    /// The result so far.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.0.result()))
    }

    /// Ends the exports, then makes all data durable and closes the disks. Returns the result.
    fn stop<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (disk, exports) = (&slf.get().0, slf.as_super().get());
        run_to_python(slf.py(), || {
            let ended = exports.end_exports();
            let result = disk.stop();
            ended?;
            result
        })
    }
}
