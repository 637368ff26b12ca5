//! Explores the disk states that a power cut may leave.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use emmclab_crash::log::{CommandPort, dm_log_writes};
use emmclab_crash::{
    ChoiceMethods, CrashLogIndex, CrashState, CutLines, DevicePromise, ExploreOptions, Explorer, HostView, PromiseLevel,
    PromiseViolation, RecoveredState, RecoveryReadCache, RunEvent, StateJudge, StateViolation, annotate, journal_rules,
};
use emmclab_trace::{AtomicFile, Error, ErrorClass, SECTOR_BYTES, open_seekable};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pythonize::pythonize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::errors::{run, to_python};
use crate::options::{OptionsFromPython, run_to_python};

/// Path, kind, inode number, number of links, contents, extended attributes (by name) and status of each file-system entry below a folder.
type TreeRead<'py> = Option<Vec<NodeRead<'py>>>;
type NodeRead<'py> = (
    Bound<'py, PyBytes>,
    &'static str,
    u32,
    u16,
    Bound<'py, PyBytes>,
    Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
    StatusRead,
);
/// Permissions, owner, group, time of the last change of the contents in seconds, and allocated sectors of a file-system entry.
type StatusRead = (u16, u32, u32, i64, u64);
/// Role of a part of a write, its length in sectors, and for a part of ext4's journal: transaction and home of its blocks.
type MeaningRead = (&'static str, u32, Option<u32>, Option<u64>);
/// The contents of the requested files; `None` for a file that does not exist.
type FilesRead<'py> = Vec<Option<Bound<'py, PyBytes>>>;

/// An indexed log of the commands that a device received while a workload ran.
#[pyclass(name = "CrashRun", module = "emmclab._core", frozen)]
pub(crate) struct PyCrashRun {
    run: Arc<CrashLogIndex>,
}

/// The options of an exploration of crash states, as passed by Python.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExploreOptionsInput {
    cuts: usize,
    states: String,
    seed: u64,
    tear: String,
    from_mark: Option<String>,
    only: Option<(usize, Option<u32>)>,
    share: (u64, u64),
    lines: Option<WorkloadLineInput>,
    #[serde(default)]
    in_passes: bool,
}

/// Lines of a workload's output, as passed by Python. Power cuts are preferred at the lines in `first`. After the lines in `idle`, the
/// workload is idle.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadLineInput {
    first: Vec<Vec<usize>>,
    idle: Vec<usize>,
}

/// Properties of a crash log.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CrashLogFacts {
    acknowledgements: usize,
    /// Size of the device in bytes, or of all devices together.
    bytes: u64,
    commands: usize,
    device: String,
    identity: String,
    layers: Vec<String>,
    lies: String,
    moments: usize,
    truncated: bool,
    writer: String,
}

/// A disk state that a power cut may leave. `index` is its number among the states of all power cuts, `number` its number among the states
/// of its power cut.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExploredState {
    acknowledged: usize,
    at_ns: i64,
    cut: usize,
    index: u64,
    number: u32,
    /// The first durability promise of the device that this state breaks.
    problem: Option<PromiseBreach>,
    way: &'static str,
}

/// A durability promise of the device that an explored disk state breaks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PromiseBreach {
    level: &'static str,
    promise: &'static str,
    detail: String,
}

impl From<StateViolation> for PromiseBreach {
    fn from(problem: StateViolation) -> Self {
        Self { level: problem.level.name(), promise: problem.promise, detail: problem.detail }
    }
}

impl PromiseBreach {
    fn of_device(broken: &PromiseViolation, run: &CrashLogIndex) -> Self {
        let PromiseViolation { promise, sector, sectors, version, present } = broken;
        let number = |version: u64| run.commands(CommandPort::Device)[version as usize - 1].number;
        let contents = match present {
            0 => "no data of the run".to_owned(),
            present => format!("the data of command {}", number(*present)),
        };
        let detail = if *promise == DevicePromise::Paired {
            let damaged = if *present == 0 { "data from before the run".to_owned() } else { contents };
            format!(
                "{sectors} sectors from {sector} on, which were durable, are damaged by the interrupted program of another page of their \
                 word line; if the device protects paired pages, the same cut leaves {damaged} there"
            )
        } else {
            let promised = number(*version);
            format!("{sectors} sectors from {sector} on contain {contents}; the data of command {promised} is promised")
        };
        Self { level: PromiseLevel::Device.name(), promise: promise.name(), detail }
    }
}

fn breach_to_python(py: Python<'_>, problem: Option<StateViolation>) -> PyResult<Option<Bound<'_, PyAny>>> {
    Ok(problem.map(|problem| pythonize(py, &PromiseBreach::from(problem))).transpose()?)
}

#[pymethods]
impl PyCrashRun {
    /// Opens a log of a served device, or a log of dm-log-writes. For dm-log-writes, `base` is the image of the device before the log, and
    /// `sectors` the size of the device if it differs from the image.
    #[new]
    #[pyo3(signature = (path, *, sectors=None, base=None))]
    fn new(py: Python<'_>, path: PathBuf, sectors: Option<u64>, base: Option<PathBuf>) -> PyResult<Self> {
        run(py, || {
            let read = if CrashLogIndex::is_dm(&path)? {
                let sectors = match (sectors, &base) {
                    (Some(sectors), _) => sectors,
                    (None, Some(base)) => {
                        let fail = |error| Error::io(base, error);
                        File::open(base).and_then(|file| file.metadata()).map_err(fail)?.len() / SECTOR_BYTES
                    }
                    (None, None) => {
                        return Err(Error::new(
                            ErrorClass::Config,
                            "a log of dm-log-writes does not contain the size of the device",
                        )
                        .in_file(&path)
                        .hint("give the image of the disk as it was before the log: --base IMAGE"));
                    }
                };
                CrashLogIndex::open_dm(&path, sectors, base.as_deref())?
            } else {
                CrashLogIndex::open(&path)?
            };
            Ok(Self { run: Arc::new(read) })
        })
    }

    /// Returns properties of the log.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        run_to_python(py, || {
            let header = self.run.header();
            Ok(CrashLogFacts {
                acknowledgements: self.run.acknowledgements().len(),
                bytes: header.all_sectors().saturating_mul(SECTOR_BYTES),
                commands: self.run.commands(CommandPort::Device).len(),
                device: header.device.name.clone(),
                identity: format!("{:016x}", self.run.identity()),
                layers: header.layers.iter().map(|layer| layer.name.clone()).collect(),
                lies: header.device.lies.clone(),
                moments: self.run.moments().len(),
                truncated: self.run.truncated(),
                writer: header.writer.clone(),
            })
        })
    }

    /// Returns the lines by which the workload acknowledged data as safe.
    fn acknowledgements(&self) -> Vec<String> {
        self.run.acknowledgements().iter().map(ToString::to_string).collect()
    }

    /// Returns the commands that arrived at the device between two events of the log, in order: number, operation, first sector, sectors,
    /// flags as words, arrival and completion in nanoseconds. `from` and `to` are indices of events.
    #[expect(clippy::type_complexity, reason = "a row of a table for Python")]
    fn commands(&self, from: usize, to: usize) -> Vec<(u64, &'static str, u64, u32, Vec<&'static str>, i64, Option<i64>)> {
        let commands = self.run.commands(CommandPort::Device);
        let moments = self.run.moments().get(from..to.min(self.run.moments().len())).unwrap_or_default();
        let mut rows = Vec::new();
        let mut places = rustc_hash::FxHashMap::default();
        for moment in moments {
            match moment.event {
                RunEvent::Arrives(CommandPort::Device, place) => {
                    let logged = &commands[place as usize];
                    let command = &logged.command;
                    let flags = command.modifiers.iter_names().map(|(name, _)| name).collect();
                    places.insert(place, rows.len());
                    let (sector, sectors) = (command.sector, command.sectors);
                    rows.push((logged.number, command.op.name(), sector, sectors, flags, moment.at.0, None));
                }
                RunEvent::Completes(CommandPort::Device, place) => {
                    if let Some(row) = places.get(&place) {
                        rows[*row].6 = Some(moment.at.0);
                    }
                }
                _ => {}
            }
        }
        rows
    }

    /// Returns the roles of the parts of logged writes in ext4, by the numbers of the commands; empty below layers.
    fn meanings(&self, py: Python<'_>, numbers: Vec<u64>) -> PyResult<Vec<(u64, Vec<MeaningRead>)>> {
        run(py, || {
            let mut found = Vec::new();
            if self.run.header().layers.is_empty() {
                annotate(&self.run, CommandPort::Device, |logged, notes| {
                    if numbers.contains(&logged.number) && !notes.is_empty() {
                        let parts = notes.iter().map(|note| (note.role.name(), note.sectors, note.transaction, note.home));
                        found.push((logged.number, parts.collect()));
                    }
                })?;
            }
            Ok(found)
        })
    }

    /// Returns the violations of journal rules by the logged commands: (index of the event in the log, rule, transaction, detail).
    #[pyo3(signature = (from_mark=None))]
    fn journal_rules(&self, py: Python<'_>, from_mark: Option<&str>) -> PyResult<Vec<(usize, &'static str, u32, String)>> {
        run(py, || {
            let from = from_mark.map_or(0, |mark| self.run.after_mark(mark));
            let breaks = journal_rules(&self.run, from)?;
            Ok(breaks
                .into_iter()
                .map(|violation| (violation.moment, violation.rule, violation.transaction, violation.detail))
                .collect())
        })
    }

    /// Returns the index of the log event after a mark; 0 if the mark does not exist.
    fn after_mark(&self, name: &str) -> usize {
        self.run.after_mark(name)
    }

    /// Writes the logged commands as a log of dm-log-writes.
    fn write_dm(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        run(py, || {
            let mut file = AtomicFile::create(&path)?;
            dm_log_writes::write(&self.run, &mut file).map_err(|error| Error::io(&path, error))?;
            file.commit()
        })
    }
}

/// A missing or garbled write of a crash state: (number of the command, arrival time, first sector, sectors, whether it is garbled).
type OmittedRow = (u64, i64, u64, u64, bool);

/// Steps through a run and produces the states that power cuts may leave.
#[pyclass(name = "Explorer", module = "emmclab._core")]
pub(crate) struct PyExplorer {
    explorer: Explorer,
    judge: StateJudge,
    reads: RecoveryReadCache,
    /// The crash state that the explorer chose. `state` is the state that is tested; it may have fewer missing writes than the chosen one.
    chosen: Option<CrashState>,
    state: Option<CrashState>,
    /// The data that the host would read from the disk in the tested state; `None` until it is requested.
    host: Mutex<Option<io::Result<HostView>>>,
}

impl PyExplorer {
    fn state(&self) -> Result<&CrashState, Error> {
        self.state.as_ref().ok_or_else(no_state)
    }

    fn set_state(&mut self, state: Option<CrashState>) {
        self.state = state;
        *self.host.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the disk of the tested state as a host sees it, and the cache of the reads of earlier recoveries. The disk is an error if
    /// the layers cannot recover.
    fn host_view(&mut self) -> Result<(&io::Result<HostView>, &mut RecoveryReadCache), Error> {
        let host = self.host.get_mut().unwrap_or_else(PoisonError::into_inner);
        let host = if let Some(known) = host.take() {
            host.insert(known)
        } else {
            let header = self.explorer.run().header();
            let state = self.state.as_ref().ok_or_else(no_state)?;
            let view = self.explorer.view(state);
            let layers = (header.layers.as_slice(), &header.below());
            host.insert(HostView::recover(view, layers, header.sectors, None)?)
        };
        Ok((host, &mut self.reads))
    }
}

fn no_state() -> Error {
    Error::new(ErrorClass::Config, "there is no current crash state: call next_state first")
}

#[pymethods]
impl PyExplorer {
    #[new]
    fn new(run_: &PyCrashRun, options: OptionsFromPython<ExploreOptionsInput>) -> PyResult<Self> {
        Python::attach(|py| {
            let log = run_.run.clone();
            run(py, || {
                let options = options.0;
                let options = ExploreOptions {
                    cuts: options.cuts,
                    ways: options.states.parse()?,
                    seed: options.seed,
                    tear: options.tear.parse()?,
                    from: options.from_mark,
                    only: options.only,
                    share: options.share,
                    lines: options.lines.map(|WorkloadLineInput { first, idle }| CutLines { first, idle }),
                    in_passes: options.in_passes,
                };
                Explorer::new(&log, &options)
            })
        })
        .map(|explorer| Self {
            explorer,
            judge: StateJudge::default(),
            reads: RecoveryReadCache::default(),
            chosen: None,
            state: None,
            host: Mutex::default(),
        })
    }

    /// Returns the next disk state that this process explores; `None` at the end.
    fn next_state<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.chosen = self.explorer.next_state();
        self.set_state(self.chosen.clone());
        let Some(state) = &self.state else { return Ok(None) };
        let explored = ExploredState {
            acknowledged: state.acknowledged,
            at_ns: state.at.0,
            cut: state.cut,
            index: state.index,
            number: state.number,
            problem: state.broken.first().map(|broken| PromiseBreach::of_device(broken, self.explorer.run())),
            way: state.way.name(),
        };
        Ok(Some(pythonize(py, &explored)?))
    }

    /// Recovers the tested disk state: first its layers, then its journal. Then reads files. Returns the problem, the files, the nodes of
    /// the folder `tree`, and the number of writes by the layers' recovery.
    #[pyo3(signature = (wanted, *, tree=None, cut_after=None))]
    fn recover<'py>(
        &mut self, py: Python<'py>, wanted: Vec<String>, tree: Option<&str>, cut_after: Option<usize>,
    ) -> PyResult<(Option<Bound<'py, PyAny>>, FilesRead<'py>, TreeRead<'py>, usize)> {
        let Self { explorer, judge, state, .. } = self;
        let Some(state) = state else { return Ok((None, Vec::new(), None, 0)) };
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        let recovered = judge.recover(explorer, state, &wanted, tree, cut_after).map_err(|error| to_python(py, &error))?;
        let problem = breach_to_python(py, recovered.problem)?;
        let files = recovered.files.into_iter().map(|file| file.map(|data| PyBytes::new(py, &data)));
        let tree = recovered.tree.map(|nodes| nodes.iter().map(|node| node_of(py, node)).collect());
        Ok((problem, files.collect(), tree, recovered.layer_writes))
    }

    /// The writes that are missing in the tested state: (number of the command, arrival time, first sector, sectors, whether they are
    /// garbled).
    fn omitted(&self, py: Python<'_>) -> PyResult<Vec<OmittedRow>> {
        let state = self.state().map_err(|error| to_python(py, &error))?;
        let commands = self.explorer.run().commands(CommandPort::Device);
        let row = |omitted: &emmclab_crash::OmittedWrite| {
            let logged = &commands[omitted.command as usize];
            (logged.number, logged.command.arrival.0, omitted.sector, omitted.sectors, omitted.garbled)
        };
        Ok(self.explorer.omitted(state).iter().map(row).collect())
    }

    /// Reduces the missing writes of the chosen disk state to those at the indexes `places`.
    fn keep_omitted(&mut self, places: Vec<usize>) {
        self.set_state(self.chosen.as_ref().map(|chosen| self.explorer.with_omitted(chosen, &places)));
    }

    /// Writes the disk in the tested state as seen by a host to a new image. With `replayed`, its ext4 journal is replayed, so that the
    /// kernel has nothing to recover. Returns the problem if ext4 cannot be recovered.
    #[pyo3(signature = (path, *, replayed=false))]
    fn write_image<'py>(&mut self, py: Python<'py>, path: PathBuf, replayed: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut write = || {
            let fail = |error| Error::io(&path, error);
            let (host, _) = self.host_view()?;
            let host = host.as_ref().map_err(|error| fail(io::Error::new(error.kind(), error.to_string())))?;
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(true).open(&path).map_err(fail)?;
            host.write_to(&file).map_err(fail)?;
            if replayed { replay(&file) } else { Ok(None) }
        };
        // The state is not shared between threads, so the GIL is not released.
        breach_to_python(py, write().map_err(|error| to_python(py, &error))?)
    }

    /// Size of the host's disk in bytes.
    fn host_bytes(&self) -> u64 {
        self.explorer.run().header().sectors * SECTOR_BYTES
    }

    /// Looks for an earlier disk state whose recovery read only data that is equal in the tested state. Returns the outcome that was passed
    /// to `learn_reads` for the earlier state; `None` if there is no such state.
    fn known_outcome(&mut self, py: Python<'_>, request: &str) -> PyResult<Option<usize>> {
        let (host, reads) = self.host_view().map_err(|error| to_python(py, &error))?;
        Ok(host.as_ref().ok().and_then(|host| reads.outcome(request, host)))
    }

    /// Stores the numbers of the 4 KiB blocks that the recovery of the tested state read from the host's disk. `outcome` is the number of
    /// the outcome of this test.
    fn learn_reads(&mut self, py: Python<'_>, request: &str, blocks: Vec<u64>, outcome: usize) -> PyResult<()> {
        let (host, reads) = self.host_view().map_err(|error| to_python(py, &error))?;
        if let Ok(host) = host {
            reads.learn(request, host, blocks, outcome);
        }
        Ok(())
    }

    /// Removes everything that `learn_reads` has recorded.
    fn forget_reads(&mut self) {
        self.reads = RecoveryReadCache::default();
    }

    /// Returns the coverage so far:
    ///
    /// 1. points of the log at which power could be cut
    /// 2. power cuts tested
    /// 3. decimal logarithm of the number of disk states that the device may leave (an upper bound)
    /// 4. states chosen
    /// 5. states equal to an earlier one
    /// 6. maximum number of unpromised writes at a cut
    /// 7. output lines of the workload after which power is cut first
    /// 8. lines among these whose cut was tested
    fn covered(&self) -> (u64, u64, f64, u64, u64, u64, u64, u64) {
        let covered = self.explorer.covered();
        (
            covered.moments, covered.cuts, covered.legal_log10, covered.chosen, covered.equal, covered.most_unpromised,
            covered.lines, covered.lines_cut,
        )
    }
}

/// Replays the journal of an ext4 in its image: writes the logged blocks to their home locations, and changes the superblocks so that no
/// replay is necessary. Returns the problem if Linux would not mount the image.
fn replay(image: &File) -> Result<Option<StateViolation>, Error> {
    let mut recovery = emmclab_ext4::JournalRecovery::new();
    let replayed = match recovery.replay(image) {
        Ok(replayed) => replayed,
        Err(error) if error.kind() == ErrorClass::Unsupported => return Err(error),
        Err(error) => return Ok(Some(StateViolation::of_file_system(&error))),
    };
    if let Some(refused) = &replayed.replay().refused {
        return Ok(Some(StateViolation::of_file_system(refused)));
    }
    let superblocks = replayed.superblocks_after()?;
    replayed.write_to(|at, bytes| image.write_all_at(bytes, at))?;
    for (offset, superblock) in superblocks {
        image
            .write_all_at(&superblock, offset)
            .map_err(|error| Error::new(ErrorClass::Io, format!("cannot write a recovered superblock: {error}")))?;
    }
    Ok(None)
}

/// Parses the methods of choosing crash states, each with its maximum number of states. The text may omit these numbers.
#[pyfunction]
pub(crate) fn crash_ways(py: Python<'_>, states: &str) -> PyResult<String> {
    run(py, || Ok(states.parse::<ChoiceMethods>()?.to_string()))
}

/// Converts a file-system node for Python.
fn node_of<'py>(py: Python<'py>, node: &emmclab_ext4::TreeNode) -> NodeRead<'py> {
    use emmclab_ext4::Ext4FileKind::{BlockDevice, CharacterDevice, Directory, Fifo, Regular, Socket, Symlink, Unknown};
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let kind = match node.kind {
        Regular => "file",
        Directory => "folder",
        Symlink => "link",
        Fifo => "fifo",
        CharacterDevice => "char",
        BlockDevice => "block",
        Socket => "socket",
        Unknown => "other",
    };
    let attributes = node.attributes.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
    let status = (node.mode & 0o7777, node.owners.0, node.owners.1, node.modified, node.sectors);
    (bytes(&node.path), kind, node.inode, node.links, bytes(&node.data), attributes, status)
}

/// Reads files and a folder of an ext4 image, after its journal was replayed.
fn read_image(image: &Path, wanted: &[String], tree: Option<&str>) -> Result<RecoveredState, Error> {
    let file = open_seekable(image).map_err(|error| Error::io(image, error))?;
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let read = StateJudge::default().files(&file, &wanted, tree)?;
    match read.problem {
        Some(problem) => Err(Error::new(ErrorClass::Value, format!("Linux does not mount the image: {}", problem.detail))),
        None => Ok(read),
    }
}

/// All nodes below a folder of an ext4 image; `None` if there is no such folder.
#[pyfunction]
pub(crate) fn read_ext4_tree<'py>(py: Python<'py>, image: PathBuf, folder: &str) -> PyResult<TreeRead<'py>> {
    let recovered = run(py, || read_image(&image, &[], Some(folder)))?;
    Ok(recovered.tree.map(|nodes| nodes.iter().map(|node| node_of(py, node)).collect()))
}

/// Reads files of an ext4 image, after its journal was replayed.
#[pyfunction]
pub(crate) fn read_ext4(py: Python<'_>, image: PathBuf, wanted: Vec<String>) -> PyResult<FilesRead<'_>> {
    let recovered = run(py, || read_image(&image, &wanted, None))?;
    Ok(recovered.files.into_iter().map(|file| file.map(|data| PyBytes::new(py, &data))).collect())
}
