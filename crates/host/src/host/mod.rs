//! The host: executes file operations of callers step by step, using the page cache, the file systems and the block layer.

mod operations;

use emmclab_base::{Error, ErrorClass, Nanos, Result};
use rustc_hash::FxHashSet;

use crate::block::BlockLayer;
use crate::cache::{PAGE_BYTES, PageCache};
use crate::config::HostConfig;
use crate::config::{FileExtent, Mount};
use crate::core::HostCore;
use crate::core::{StepOutcome, TaskId, TaskTable, TaskWork};
use crate::filesystem::{self, FilesystemModel};
use crate::operation::{CallerId, FileClass, FileId, FileOp, FileSpec, FolderId, MountId};
use crate::operation::{FinishedOperation, FinishedOperations};
use crate::request::{BlockRequestId, HostBlockRequests};
use crate::writeback::Flusher;

/// A simulated host above a block device: page cache, file systems and block layer, in simulated time.
///
/// The user of this type reports the operations of callers ([`SimulatedHost::begin`]), the completions of requests
/// ([`SimulatedHost::completed`]) and the passage of time ([`SimulatedHost::advance`]), in order of time. After each of these calls, it
/// takes the requests for the device ([`SimulatedHost::take_requests`]) and the finished operations ([`SimulatedHost::take_finished`]).
pub struct SimulatedHost {
    core: HostCore,
    mounts: Vec<Box<dyn FilesystemModel>>,
    /// For each mount, whether syncs of its files return at once.
    unsynced_mounts: Vec<bool>,
    names: PathTable,
    busy: FxHashSet<CallerId>,
    flusher: Flusher,
    /// Writing tasks that wait until there are fewer dirty pages.
    throttled: Vec<TaskId>,
    /// Pairs of a file and a task that waits for the file's lock, in order of arrival.
    lock_waiters: Vec<(u32, TaskId)>,
    finished: FinishedOperations,
    kernel_cpu_ns: u64,
}

impl SimulatedHost {
    /// Creates a host with an empty page cache and new file systems.
    /// Errors: if settings or mounts are invalid.
    pub fn new(config: HostConfig, mounts: &[Mount]) -> Result<Self> {
        config.validate()?;
        check_mounts(mounts)?;
        let built: Result<Vec<_>> = (0..).zip(mounts).map(|(number, mount)| filesystem::build(number, mount, &config)).collect();
        let queue = BlockLayer::new(&config, mounts.iter().map(|mount| mount.first_sector).collect());
        let cache = PageCache::new(config.cache_pages());
        let core = HostCore { config, now: Nanos::ZERO, cache, queue, tasks: TaskTable::default() };
        Ok(Self {
            core,
            mounts: built?,
            unsynced_mounts: mounts.iter().map(|mount| mount.options.no_sync).collect(),
            names: PathTable::default(),
            busy: FxHashSet::default(),
            flusher: Flusher::default(),
            throttled: Vec::new(),
            lock_waiters: Vec::new(),
            finished: FinishedOperations::default(),
            kernel_cpu_ns: 0,
        })
    }

    /// Declares the location of a path and the class of its contents. The file need not exist.
    /// Errors: if the mount is unknown, or the path was already declared.
    pub fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()> {
        self.names.declare(file, spec, self.mounts.len())?;
        self.mounts[usize::from(spec.mount.0)].make_folder(spec.folder);
        Ok(())
    }

    /// Creates a declared file that exists from the start of the simulation, with `bytes` bytes on the device and no page in memory.
    /// Errors: if the path is undeclared, the file exists, or the file system is full.
    pub fn preload(&mut self, file: FileId, bytes: u64) -> Result<()> {
        let name = self.names.get(file)?;
        if name.inode.is_some() {
            return Err(Error::new(ErrorClass::Value, "the file exists").of_field("file", 0, file.0.to_string().as_bytes()));
        }
        let mount = usize::from(name.spec.mount.0);
        self.check_room(mount, bytes.div_ceil(PAGE_BYTES))?;
        self.check_files(mount)?;
        let inode = self.core.cache.add_inode(name.spec.mount.0, name.spec.folder, name.spec.class);
        let pages = bytes.div_ceil(PAGE_BYTES);
        self.core.cache.inode_mut(inode).end = bytes;
        if !self.mounts[mount].preload(&mut self.core, inode, pages) {
            self.core.cache.remove_inode(inode);
            return Err(self.full(mount, pages));
        }
        self.core.cache.inode_mut(inode).size = bytes;
        self.names.set(file, Some(inode));
        Ok(())
    }

    /// The length of a file in bytes; `None` if there is no file at the path.
    pub fn size(&self, file: FileId) -> Option<u64> {
        self.names.inode(file).ok().map(|inode| self.core.cache.inode(inode).size)
    }

    /// The location of a file: the runs of its 4 KB pages that are allocated on the device, in order.
    pub fn extents(&self, file: FileId) -> Vec<FileExtent> {
        let Ok(inode) = self.names.inode(file) else { return Vec::new() };
        let known = self.core.cache.inode(inode);
        let mount = usize::from(known.mount);
        let (mut extents, mut page, end) = (Vec::new(), 0, known.end.div_ceil(PAGE_BYTES));
        while page < end {
            if let Some((sector, run)) = self.mounts[mount].map(inode, page) {
                let (sector, pages) = (self.core.queue.device_sector(known.mount, sector), run.min(end - page));
                extents.push(FileExtent { page, sector, pages });
                page += pages;
            } else {
                page += 1;
            }
        }
        extents
    }

    /// Begins an operation of a caller. The operation may end within this call.
    /// Errors: if the caller already has an operation in progress, if a file is undeclared or missing, or if there is not enough space.
    /// Nothing changes in these cases.
    pub fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()> {
        if self.busy.contains(&caller) {
            return Err(Error::new(ErrorClass::Value, "the caller has an operation in progress")
                .of_field("caller", 0, caller.0.to_string().as_bytes())
                .hint("wait until the operation has finished before the caller begins another"));
        }
        self.set_time(now);
        let prepared = self.check(operation)?;
        self.busy.insert(caller);
        let task = self.core.tasks.begin(TaskWork::Operation(caller, *operation), now);
        self.start(task, operation, prepared);
        self.run();
        Ok(())
    }

    /// The time at which [`SimulatedHost::advance`] has work to do: a commit, write-back, or the expiry of dirty data.
    pub fn next_event(&self) -> Option<Nanos> {
        self.mounts.iter().filter_map(|fs| fs.next_event()).chain(self.flusher.next_event()).min()
    }

    /// Starts the work that is due. Time must never decrease between calls of any methods.
    pub fn advance(&mut self, now: Nanos) {
        while let Some(due) = self.next_event()
            && due <= now
        {
            self.set_time(due);
            for fs in &mut self.mounts {
                fs.advance(&mut self.core);
            }
            self.flusher.advance(&mut self.core, &mut self.mounts);
            self.run();
        }
        self.set_time(now);
    }

    /// Appends the requests that the host issues to the device now to `out`.
    pub fn take_requests(&mut self, out: &mut HostBlockRequests) {
        self.core.queue.dispatch(self.core.now, out);
    }

    /// Handles the completion of a request.
    ///
    /// # Panics
    /// If the request is not at the device.
    pub fn completed(&mut self, id: BlockRequestId, now: Nanos) {
        self.set_time(now);
        let completed = self.core.queue.complete(id, &mut self.core.tasks, now);
        assert!(completed.is_some(), "{id:?} is not at the device");
        if let Some(completed) = completed {
            self.core.finish(completed);
        }
        self.run();
    }

    /// Appends the operations that have finished to `out`.
    pub fn take_finished(&mut self, out: &mut FinishedOperations) {
        let base = out.requests.len() as u32;
        out.requests.append(&mut self.finished.requests);
        out.operations.extend(self.finished.operations.drain(..).map(|mut one| {
            one.requests = one.requests.start + base..one.requests.end + base;
            one
        }));
    }

    /// Processor time of the kernel's background work so far, in ns: write-back, commits, checkpoints, and the polling of the driver for
    /// the end of writes.
    pub fn kernel_cpu_ns(&self) -> u64 {
        self.kernel_cpu_ns + self.polling_cpu_ns()
    }

    /// The part of [`Self::kernel_cpu_ns`] that the driver spends on polling, in ns.
    fn polling_cpu_ns(&self) -> u64 {
        let cpu = &self.core.config.cpu;
        self.core.queue.written_for().0 as u64 / cpu.poll_interval_ns * cpu.poll_ns
    }

    fn set_time(&mut self, now: Nanos) {
        debug_assert!(now >= self.core.now, "time goes back from {} to {now}", self.core.now);
        self.core.now = self.core.now.max(now);
    }

    /// Runs tasks until all of them wait.
    fn run(&mut self) {
        self.flusher.wake();
        loop {
            while let Some(task) = self.core.tasks.next_ready(self.core.now) {
                self.step(task);
            }
            let requests = self.core.queue.unplug(&mut self.core.tasks, self.core.now);
            self.kernel_cpu_ns += requests * self.core.config.cpu.request_ns;
            while let Some(completed) = self.core.queue.finish_drained_barrier(&mut self.core.tasks, self.core.now) {
                self.core.finish(completed);
            }
            if !self.throttled.is_empty() && self.core.cache.unwritten() < self.core.config.dirty_pages() * 15 / 16 {
                for task in self.throttled.drain(..) {
                    self.core.tasks.completion_arrived(task, None);
                }
            }
            self.flusher.look(&mut self.core, &self.mounts);
            if !self.core.tasks.any_ready() {
                return;
            }
        }
    }

    fn step(&mut self, task: TaskId) {
        let work = self.core.tasks[task].work;
        let step = match work {
            TaskWork::Operation(_, operation) => self.operation_step(task, &operation),
            TaskWork::Flusher => self.flusher.step(&mut self.core, task, &mut self.mounts),
            TaskWork::Filesystem(mount, job) => self.mounts[usize::from(mount)].step(&mut self.core, task, job),
            TaskWork::Idle => StepOutcome::Done,
        };
        let requests = self.core.queue.unplug(&mut self.core.tasks, self.core.now);
        let cpu_ns = requests * self.core.config.cpu.request_ns;
        if matches!(work, TaskWork::Operation(..)) {
            self.core.tasks[task].cpu_ns += cpu_ns;
        } else {
            self.kernel_cpu_ns += cpu_ns;
        }
        match step {
            StepOutcome::Wait(wait) => self.core.tasks.wait(task, wait),
            StepOutcome::Done => {
                if let TaskWork::Operation(caller, _) = work {
                    self.finish(task, caller);
                }
                self.core.tasks.end(task);
            }
        }
    }

    fn finish(&mut self, id: TaskId, caller: CallerId) {
        self.busy.remove(&caller);
        let cpu = self.core.config.cpu;
        let task = &self.core.tasks[id];
        let from = self.finished.requests.len() as u32;
        self.finished.requests.extend_from_slice(&task.requests);
        let pages = task.bytes.div_ceil(PAGE_BYTES);
        self.finished.operations.push(FinishedOperation {
            caller,
            begun: task.begun,
            at: self.core.now,
            cpu_ns: task.cpu_ns + cpu.operation_ns + pages * cpu.page_ns,
            bytes: task.bytes,
            waits: task.waits(),
            requests: from..self.finished.requests.len() as u32,
        });
    }

    fn check_files(&self, mount: usize) -> Result<()> {
        // Each operation in progress may still create a file, which needs an inode.
        if self.mounts[mount].free_files() > self.busy.len() as u64 {
            return Ok(());
        }
        let problem = format!("no space: mount {mount} has no inode left");
        Err(Error::new(ErrorClass::Value, problem).hint("use a larger partition, or fewer files"))
    }

    fn check_room(&self, mount: usize, pages: u64) -> Result<()> {
        if self.mounts[mount].free_pages() < pages { Err(self.full(mount, pages)) } else { Ok(()) }
    }

    fn full(&self, mount: usize, pages: u64) -> Error {
        let free = self.mounts[mount].free_pages() * 4;
        Error::new(ErrorClass::Value, format!("no space: mount {mount} has {free} KB free, and {} KB are needed", pages * 4))
            .hint("use a larger partition, or less data")
    }
}

fn check_mounts(mounts: &[Mount]) -> Result<()> {
    let fault = |field: &str, value: u64, problem: String, hint: &str| {
        Err(Error::new(ErrorClass::Config, problem).of_field(field, 0, value.to_string().as_bytes()).hint(hint))
    };
    if mounts.is_empty() || mounts.len() > usize::from(u16::MAX) {
        return Err(Error::new(ErrorClass::Config, "a host needs 1 to 65,535 mounts").hint("give 1 to 65,535 mounts"));
    }
    for (number, mount) in mounts.iter().enumerate() {
        let first = mount.first_sector;
        if !first.is_multiple_of(8) {
            return fault("first_sector", first, format!("mount {number} begins inside a page"), "use a multiple of 8");
        }
        if first.checked_add(mount.sectors).is_none_or(|end| end > 1 << 40 || mount.sectors > 1 << 31) {
            return fault("sectors", mount.sectors, format!("mount {number} is too large"), "use at most 1 TB");
        }
        let meets = |other: &Mount| first < other.first_sector + other.sectors && other.first_sector < first + mount.sectors;
        if let Some(other) = mounts[..number].iter().position(meets) {
            let problem = format!("mount {number} overlaps mount {other}");
            return fault("first_sector", first, problem, "give each mount its own sectors");
        }
    }
    Ok(())
}

/// Maximum number of paths of a host.
const MOST: u32 = 1 << 24;

/// Maximum number of folders of a mount.
const FOLDERS: u32 = 1 << 16;

fn check_folder(folder: FolderId) -> Result<()> {
    if folder.0 < FOLDERS {
        return Ok(());
    }
    Err(Error::new(ErrorClass::Value, "the folder number is too high")
        .of_field("folder", 0, folder.0.to_string().as_bytes())
        .hint(format!("use a folder number below {FOLDERS}")))
}

#[derive(Clone, Copy, Debug)]
struct PathEntry {
    pub spec: FileSpec,
    /// The number of the file at this path. It is kept if the path is removed while the file is open.
    pub inode: Option<u32>,
}

#[derive(Debug, Default)]
struct PathTable(Vec<Option<PathEntry>>);

fn path_fault(problem: &str, file: FileId) -> Error {
    Error::new(ErrorClass::Value, problem).of_field("file", 0, file.0.to_string().as_bytes())
}

impl PathTable {
    pub fn declare(&mut self, file: FileId, spec: FileSpec, mounts: usize) -> Result<()> {
        if usize::from(spec.mount.0) >= mounts {
            let MountId(mount) = spec.mount;
            return Err(Error::new(ErrorClass::Value, "the host has no mount with this number")
                .of_field("mount", 0, mount.to_string().as_bytes())
                .hint(format!("use a mount number below {mounts}; mounts are numbered from 0")));
        }
        if file.0 >= MOST {
            return Err(path_fault("the file number is too high", file).hint(format!("use a file number below {MOST}")));
        }
        check_folder(spec.folder)?;
        let at = file.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        if self.0[at].is_some() {
            return Err(path_fault("the file was declared before", file).hint("declare each file once"));
        }
        self.0[at] = Some(PathEntry { spec, inode: None });
        Ok(())
    }

    pub fn get(&self, file: FileId) -> Result<PathEntry> {
        let name = self.0.get(file.0 as usize).copied().flatten();
        name.ok_or_else(|| path_fault("the file was not declared", file).hint("declare the file before it is used"))
    }

    /// The class of the first file that was declared in a folder; [`FileClass::Other`] if there is none.
    pub fn class_of_folder(&self, mount: MountId, folder: FolderId) -> FileClass {
        let specs = self.0.iter().flatten().map(|name| name.spec);
        let mut inside = specs.filter(|spec| (spec.mount, spec.folder) == (mount, folder));
        inside.next().map_or(FileClass::Other, |spec| spec.class)
    }

    /// The file at a path.
    pub fn inode(&self, file: FileId) -> Result<u32> {
        let missing = || path_fault("the file does not exist", file).hint("open the file with `create`, or preload it");
        self.get(file)?.inode.ok_or_else(missing)
    }

    pub fn set(&mut self, file: FileId, inode: Option<u32>) {
        if let Some(Some(name)) = self.0.get_mut(file.0 as usize) {
            name.inode = inode;
        }
    }
}
