//! A simulated device as a block device of this machine.

use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use emmclab_device::{CHANGEABLE, DeviceCapabilities, InterfaceKind};
use emmclab_live::{ClockPace, LiveDevice, LiveOptions};
use emmclab_replay::ReplayOptions;
use emmclab_serve::nbd::{ListenAddress, NbdExportOptions, NbdServer};
use emmclab_serve::{
    BlockDevice, CardSettings, FuseFile, HostDisk, LinuxFileSystem, LinuxMountOptions, LoopOptions, MkfsOptions, SdhciExport,
    SessionEvent, UblkOptions, delete_left_ublk,
};
use emmclab_trace::{Error, ErrorClass};
use pyo3::prelude::*;

use crate::errors::run;
use crate::options::{OptionsFromPython, run_to_python};
use crate::simulate::{LayerOptionList, PyDeviceConfig, layer, store};

/// The key that changes the clock in [`PyLive::set`]; all other keys are settings of the device.
const CLOCK: &str = "clock";

/// The exports through which other software accesses a device. They are ended before the device, the last one first.
#[derive(Default)]
struct LiveExports {
    servers: Vec<NbdServer>,
    card: Option<SdhciExport>,
    file: Option<FuseFile>,
    disk: Option<HostDisk>,
}

impl LiveExports {
    /// Returns an error if the device is already exported as a block device of this host.
    fn check_free(&self) -> Result<(), Error> {
        match &self.disk {
            Some(disk) => Err(Error::new(ErrorClass::Config, "the device already is a block device").in_file(disk.path())),
            None => Ok(()),
        }
    }
}

/// Deletes the ublk devices that a killed process left behind. The process had marked its devices with the number `token`.
#[pyfunction]
#[pyo3(name = "delete_left_ublk")]
pub(crate) fn delete_left(py: Python<'_>, token: u64) -> PyResult<()> {
    run(py, || delete_left_ublk(token))
}

/// A block device and its exports: the base class of devices that are served.
#[pyclass(name = "Exports", module = "emmclab._core", frozen, subclass)]
pub(crate) struct PyExports {
    device: Arc<dyn BlockDevice>,
    exports: Mutex<LiveExports>,
    /// Name and description for clients of an NBD server.
    name: String,
    description: String,
    /// What the device is, such as `a UFS`.
    kind: &'static str,
    /// Properties that the device reports when it is exported as an eMMC card; `None` for a device that is not an eMMC.
    card: Option<CardSettings>,
    /// Messages of the exports that `news` has not returned yet.
    news: Arc<Mutex<Vec<String>>>,
}

impl PyExports {
    /// Creates the base of a served device that has no exports yet.
    pub(crate) fn of(
        device: Arc<dyn BlockDevice>, name: &str, (kind, card): (&'static str, Option<CardSettings>), description: String,
    ) -> Self {
        Self { device, exports: Mutex::default(), name: name.to_owned(), description, kind, card, news: Arc::default() }
    }

    fn exports(&self) -> MutexGuard<'_, LiveExports> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the exports. All are ended before the first error is returned.
    pub(crate) fn end_exports(&self) -> Result<(), Error> {
        let LiveExports { servers, card, file, disk } = std::mem::take(&mut *self.exports());
        let detached = disk.map_or(Ok(()), HostDisk::stop);
        let unmounted = file.map_or(Ok(()), FuseFile::stop);
        servers.into_iter().for_each(NbdServer::stop);
        if let Some(card) = card {
            card.stop();
        }
        detached.and(unmounted)
    }

    fn with_disk<T>(&self, work: impl FnOnce(&mut HostDisk) -> Result<T, Error>) -> Result<T, Error> {
        let mut exports = self.exports();
        let disk = exports.disk.as_mut().ok_or_else(|| {
            Error::new(ErrorClass::Config, "the device is not served as a loop or ublk device")
                .hint("serve the device as a loop device or a ublk device first")
        })?;
        work(disk)
    }
}

#[pymethods]
impl PyExports {
    /// Capacity that clients of the device see, in bytes.
    #[getter]
    fn capacity(&self) -> u64 {
        self.device.limits().sectors * emmclab_trace::SECTOR_BYTES
    }

    /// Serves NBD at a unix socket, or at an address of the loopback interface. Returns the URI.
    #[pyo3(signature = (*, path=None, tcp=None))]
    fn serve_nbd(&self, py: Python<'_>, path: Option<PathBuf>, tcp: Option<&str>) -> PyResult<String> {
        run(py, || {
            let listen = match (path, tcp) {
                (Some(path), None) => ListenAddress::Unix(path),
                (None, Some(text)) => ListenAddress::tcp(text)?,
                _ => {
                    return Err(Error::new(ErrorClass::Config, "an NBD server needs either a socket or an address, not both"));
                }
            };
            let options = NbdExportOptions { name: self.name.clone(), description: self.description.clone(), read_only: false };
            let server = NbdServer::start(self.device.clone(), &listen, options)?;
            let uri = server.uri();
            self.exports().servers.push(server);
            Ok(uri)
        })
    }

    /// Provides the device to QEMU as an eMMC card behind an SD host controller, over vfio-user at a unix socket.
    fn serve_sdhci(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        run(py, || {
            let Some(card) = &self.card else {
                return Err(Error::new(ErrorClass::Config, format!("`{}` is {}, not an eMMC card", self.name, self.kind))
                    .hint("serve the device as a file, over NBD or by ublk; an SD host controller supports only an eMMC"));
            };
            let (news, strangers) = (self.news.clone(), AtomicU64::new(0));
            let tell = move |event: SessionEvent| {
                let mut text = event.to_string();
                if matches!(event, SessionEvent::Stranger | SessionEvent::Refused(_)) {
                    // A program may connect repeatedly. Only connections 1, 2, 4, 8 and so on are reported.
                    let count = strangers.fetch_add(1, Ordering::Relaxed) + 1;
                    if !count.is_power_of_two() {
                        return;
                    }
                    if count > 2 {
                        text = format!("{text} ({count} such connections so far)");
                    }
                }
                news.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            };
            let card = SdhciExport::start(self.device.clone(), card, &path, tell)?;
            self.exports().card = Some(card);
            Ok(())
        })
    }

    /// Messages of the exports since the last call, each a sentence.
    fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Provides the device as a file of a FUSE file system. Returns its path.
    fn serve_file(&self, py: Python<'_>) -> PyResult<PathBuf> {
        run(py, || {
            let mut exports = self.exports();
            if exports.file.is_some() {
                return Err(Error::new(ErrorClass::Config, "the device is already served as a file"));
            }
            let file = FuseFile::start(self.device.clone())?;
            let path = file.path();
            exports.file = Some(file);
            Ok(path)
        })
    }

    /// Provides the device as a loop device, for which the page cache of the host may contain at most `dirty_bytes` of dirty data. The
    /// kernel reads at most `readahead_kb` ahead. Returns its path.
    #[pyo3(signature = (*, block_bytes=512, partitions=false, dirty_bytes=None, readahead_kb=None))]
    fn serve_loop(
        &self, py: Python<'_>, block_bytes: u32, partitions: bool, dirty_bytes: Option<u64>, readahead_kb: Option<u32>,
    ) -> PyResult<PathBuf> {
        run(py, || {
            let mut exports = self.exports();
            exports.check_free()?;
            let file = match exports.file.take() {
                Some(file) => file,
                None => FuseFile::start(self.device.clone())?,
            };
            let default = LoopOptions::default();
            let readahead_kb = readahead_kb.unwrap_or(default.readahead_kb);
            let options = LoopOptions { block_bytes, partitions, dirty_bytes, readahead_kb, ..default };
            let disk = HostDisk::on_loop(file, &options)?;
            let path = disk.path().to_owned();
            exports.disk = Some(disk);
            Ok(path)
        })
    }

    /// Provides the device as a ublk device, and returns its path. `cleaner` is a command that runs if this process is killed. A number is
    /// appended as its last argument; the command calls `delete_left_ublk` with this number.
    #[pyo3(signature = (*, cleaner))]
    fn serve_ublk(&self, py: Python<'_>, cleaner: Vec<String>) -> PyResult<PathBuf> {
        run(py, || {
            let mut exports = self.exports();
            exports.check_free()?;
            let cleaner = cleaner.into_iter().map(Into::into).collect();
            let disk = HostDisk::on_ublk(&self.device, &UblkOptions { cleaner, ..UblkOptions::default() })?;
            let path = disk.path().to_owned();
            exports.disk = Some(disk);
            Ok(path)
        })
    }

    /// Makes the kernel show a part of the block device as a partition.
    fn add_partition(&self, py: Python<'_>, number: u32, first_sector: u64, sectors: u64) -> PyResult<()> {
        run(py, || self.with_disk(|disk| disk.add_partition(number, first_sector, sectors)))
    }

    /// Creates a file system on the block device, or on a partition of it. `overwrite` permits the loss of existing contents.
    #[pyo3(signature = (name, *, options=None, overwrite=false, partition=None))]
    fn mkfs(
        &self, py: Python<'_>, name: &str, options: Option<Vec<String>>, overwrite: bool, partition: Option<u32>,
    ) -> PyResult<()> {
        run(py, || {
            let options = options.unwrap_or_default().into_iter().map(Into::into).collect();
            let mkfs = MkfsOptions { options, overwrite, partition, ..MkfsOptions::new(LinuxFileSystem::named(name)?) };
            self.with_disk(|disk| disk.mkfs(&mkfs))
        })
    }

    /// Mounts the block device, or a partition of it, at a folder.
    #[pyo3(signature = (folder, *, options=None, partition=None))]
    fn mount(&self, py: Python<'_>, folder: PathBuf, options: Option<String>, partition: Option<u32>) -> PyResult<()> {
        run(py, || {
            let mount = LinuxMountOptions { options, partition, ..LinuxMountOptions::at(folder) };
            self.with_disk(|disk| disk.mount(&mount))
        })
    }

    /// Unmounts the mounted file system.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.with_disk(HostDisk::unmount))
    }

    /// Executes a command while the device is served. Returns its exit status, or 128 plus the number of the signal that ended it.
    fn run(&self, py: Python<'_>, command: Vec<String>) -> PyResult<i32> {
        use std::os::unix::process::ExitStatusExt;
        run(py, || {
            let (program, arguments) =
                command.split_first().ok_or_else(|| Error::new(ErrorClass::Config, "the command to run is empty"))?;
            let status = self.with_disk(|disk| disk.run(Command::new(program).args(arguments)))?;
            Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
        })
    }
}

/// A live device with its exports.
#[pyclass(name = "Live", module = "emmclab._core", frozen, extends = PyExports)]
pub(crate) struct PyLive {
    device: Arc<LiveDevice>,
}

#[pymethods]
impl PyLive {
    /// Creates a device. `clock` is `real`, `free`, or `x` with a factor, such as `x0.5`. Of the replay `options`, only preconditioning and
    /// its seed are used. `image` is the file of the device's contents; the state of the device is stored next to it. `second` is a second
    /// device for layers that use one, and `second_image` the file of its contents. `record` is a trace to write. `images` is a folder with
    /// preconditioned devices.
    #[new]
    #[pyo3(signature = (config, options, *, clock, think=false, layers=None, image=None, second=None, second_image=None, record=None, log=None, check=false, images=None, images_limit=None))]
    #[expect(clippy::too_many_arguments, reason = "named arguments in Python")]
    fn new(
        py: Python<'_>, config: &PyDeviceConfig, options: OptionsFromPython<ReplayOptions>, clock: &str, think: bool,
        layers: Option<LayerOptionList>, image: Option<PathBuf>, second: Option<&PyDeviceConfig>, second_image: Option<PathBuf>,
        record: Option<PathBuf>, log: Option<PathBuf>, check: bool, images: Option<PathBuf>, images_limit: Option<u64>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let second = second.map(|second| second.settings().clone());
        let (live, exports) = run(py, || {
            let config = config.settings();
            let replay = options.0;
            let layers = layers.unwrap_or_default().iter().map(layer).collect();
            let pace = clock.parse()?;
            let options = LiveOptions { layers, second, pace, think, image, second_image, replay, check, record, log };
            let store = images.map(|folder| store(folder, images_limit)).transpose()?;
            let device = Arc::new(LiveDevice::new(config, &options, store.as_ref())?);
            let kind = config.settings().interface.kind;
            let DeviceCapabilities { cache_kb, cache_in_order, barrier, reliable_write, .. } =
                DeviceCapabilities::of(config.settings());
            let cache_bytes = u64::from(cache_kb) * 1024;
            let card = CardSettings { cache_bytes, cache_in_order, barrier, reliable_write, ..CardSettings::default() };
            let card = (kind == InterfaceKind::Emmc).then_some(card);
            let exports =
                PyExports::of(device.clone(), config.name(), (kind.device(), card), format!("a simulated {}", config.name()));
            Ok((Self { device }, exports))
        })?;
        Ok(PyClassInitializer::from(exports).add_subclass(live))
    }

    /// Checks the clock and the address of an NBD server before a device is prepared.
    #[staticmethod]
    #[pyo3(signature = (*, clock, tcp=None))]
    fn require(py: Python<'_>, clock: &str, tcp: Option<&str>) -> PyResult<()> {
        run(py, || {
            clock.parse::<ClockPace>()?;
            tcp.map_or(Ok(()), |text| ListenAddress::tcp(text).map(|_| ()))
        })
    }

    /// Returns the description of an earlier run that is stored with the image.
    fn found<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.device.previous_run()))
    }

    /// Returns the status of the device: totals so far, and figures for the time since the last call.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.device.status()))
    }

    /// The result of the run so far, in the form of a simulation's result.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || Ok(self.device.result()))
    }

    /// Cuts the power.
    fn cut(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.device.cut())
    }

    /// Logs a line by which the workload acknowledges data as safe.
    fn acknowledge(&self, py: Python<'_>, text: &str) {
        py.detach(|| self.device.acknowledge(text));
    }

    /// Logs each output line of a workload before the next request is processed. Reads the lines from the file descriptor `input`, and
    /// writes one byte for each line to `answers`.
    #[pyo3(signature = (input, answers=None))]
    fn follow(&self, py: Python<'_>, input: RawFd, answers: Option<RawFd>) -> PyResult<()> {
        run(py, || {
            let own = |number: RawFd| {
                #[expect(unsafe_code, reason = "Python passes file descriptors as numbers")]
                // SAFETY: the caller keeps the descriptor open during this call, in which it is duplicated.
                let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
                borrowed.try_clone_to_owned().map_err(|error| Error::new(ErrorClass::Io, error.to_string()))
            };
            self.device.follow(own(input)?, answers.map(own).transpose()?)
        })
    }

    /// Output lines of the workload that were logged since the last call.
    fn new_lines(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.device.new_lines())
    }

    /// Adds a mark with this name to the log.
    fn mark(&self, py: Python<'_>, text: &str) {
        py.detach(|| self.device.mark(text));
    }

    /// Ends the log. The device continues to run.
    fn end_log(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.device.end_log())
    }

    /// Restores the power.
    fn restore(&self, py: Python<'_>) {
        py.detach(|| self.device.restore());
    }

    /// Returns the settings that [`PyLive::set`] accepts; `*` in a key stands for the number of a block group.
    #[staticmethod]
    fn changing() -> Vec<&'static str> {
        [CLOCK].into_iter().chain(CHANGEABLE.iter().copied()).collect()
    }

    /// Changes a setting of the running device, or the clock. Values of the clock are `real`, `free`, or `x` and a factor.
    fn set(&self, py: Python<'_>, key: &str, value: &str) -> PyResult<()> {
        run(py, || {
            if key != CLOCK {
                return self.device.set(key, value);
            }
            self.device.set_pace(value.parse()?);
            Ok(())
        })
    }

    /// Resets the results of the run, which then exclude earlier requests.
    fn clear_counters(&self, py: Python<'_>) {
        py.detach(|| self.device.clear_counters());
    }

    /// Makes the layers move all data to its final location, and removes the layers. The image then belongs to a device without layers.
    fn make_plain(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.device.make_plain())
    }

    /// Makes the layers move all logged data to its final location, and returns the result. The device must have the clock `free` and no
    /// requests in progress.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || self.device.drain())
    }

    /// Raises the error that stopped serving the device, if any.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        run(py, || self.device.broken().map_or(Ok(()), Err))
    }

    /// Ends the exports, then the device. Returns the result.
    fn stop<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (device, exports) = (&slf.get().device, slf.as_super().get());
        run_to_python(slf.py(), || {
            let ended = exports.end_exports();
            let result = device.stop();
            ended?;
            result
        })
    }

    /// Ends a run whose start failed, without changes to files.
    fn abort(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (device, exports) = (&slf.get().device, slf.as_super().get());
        run(slf.py(), || exports.end_exports().and(device.abort()))
    }

    /// Whether the trace of the run was written. A trace without requests does not replace a file.
    fn is_recorded(&self) -> bool {
        self.device.is_recorded()
    }
}
