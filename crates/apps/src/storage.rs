//! Executes the file operations of a program, either in the host model with a simulated device or with the kernel of this machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Nanos, Result, interrupt};
use emmclab_host::{
    BlockRequestId, CallerId, FileId, FileOp, FileSpec, FinishedOperation, FinishedOperations, FolderId, HostBlockRequests,
    MountId, SimulatedHost, WaitBreakdown, WaitReason,
};
use rustc_hash::FxHashMap;

use crate::block_device::{CountedRequest, RequestCounter, RequestCounts, SimulatedBlockDevice};
use crate::result::WhatIfTarget;

/// Creates the initial files of a program.
pub(crate) trait FileStore {
    /// Declares the location and the class of a file. The file need not exist.
    /// Errors: if the mount is unknown.
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()>;

    /// Creates a declared file with a length of `bytes` before the run begins.
    /// Errors: if the file system is full.
    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()>;
}

/// Executes the file operations of a program. A backend has its own clock.
pub(crate) trait StorageBackend {
    /// Begins an operation of a caller. It may already have ended when this function returns.
    /// Errors: if the operation is not possible.
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()>;

    /// The time of the backend's next event; `None` if it is not known in advance.
    fn next_event(&self) -> Option<Nanos>;

    /// Waits for the next event of the backend or of the engine; `next` is the time of the engine's next event. Returns the time of the
    /// event that comes first; `None` if neither has an event.
    /// Errors: if the user interrupts the run.
    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>>;

    /// Processes all events up to and including the time `now`.
    /// Errors: if an operation failed, or the device has stopped.
    fn advance(&mut self, now: Nanos) -> Result<()>;

    /// Appends the operations that have ended. For each operation, the waits add up to the time from its begin until now.
    fn take_finished(&mut self, out: &mut FinishedOperations);
}

/// Returns the likely cause of the wait for an operation, for backends that do not know the causes of waits.
pub(crate) const fn likely_wait(operation: &FileOp) -> WaitReason {
    match operation {
        FileOp::Read { .. } => WaitReason::Read,
        _ if operation.is_sync() => WaitReason::SyncData,
        _ => WaitReason::DirtyLimit,
    }
}

impl FileStore for SimulatedHost {
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()> {
        Self::declare(self, file, spec)
    }

    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()> {
        Self::preload(self, file, bytes)
    }
}

/// The host model with a simulated device that completes its block requests.
pub(crate) struct SimulatedStorage<'a, D> {
    host: SimulatedHost,
    device: &'a mut D,
    /// Names of the mounts.
    partitions: Vec<&'a str>,
    what_if: &'a [WhatIfTarget],
    now: Nanos,
    /// Requests that the device has not completed, by number.
    under_way: FxHashMap<u64, CountedRequest>,
    /// Completions in the future that are already known, ordered by time, then by the order in which they became known.
    completions: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    completions_known: u64,
    counter: RequestCounter,
    /// Buffer for new block requests, reused for each event.
    blocks: HostBlockRequests,
    known_completions: Vec<(u64, Nanos)>,
    free: Vec<(BlockRequestId, CountedRequest)>,
}

impl<'a, D: SimulatedBlockDevice> SimulatedStorage<'a, D> {
    pub fn new(host: SimulatedHost, device: &'a mut D, partitions: Vec<&'a str>, what_if: &'a [WhatIfTarget]) -> Self {
        Self {
            host,
            device,
            partitions,
            what_if,
            now: Nanos::ZERO,
            under_way: FxHashMap::default(),
            completions: BinaryHeap::new(),
            completions_known: 0,
            counter: RequestCounter::default(),
            blocks: HostBlockRequests::default(),
            known_completions: Vec::new(),
            free: Vec::new(),
        }
    }

    pub fn counts(&self, names: &[&str]) -> RequestCounts {
        self.counter.counts(names)
    }

    /// CPU work of the kernel's own threads, in ns on a core of CPU factor 1.
    pub fn kernel_cpu_ns(&self) -> u64 {
        self.host.kernel_cpu_ns()
    }

    /// Passes block requests of the host model to the device. Requests to a storage part simulated as infinitely fast complete at once.
    fn pump(&mut self) -> Result<()> {
        loop {
            let mut blocks = std::mem::take(&mut self.blocks);
            self.host.take_requests(&mut blocks);
            let sent = blocks.requests.iter().try_for_each(|block| {
                let counted = self.counter.submit(block, blocks.notes(block), self.now);
                let partition = self.partitions[usize::from(block.mount.0)];
                if self.what_if.iter().any(|part| part.takes(block, partition)) {
                    self.free.push((block.id, counted));
                    return Ok(());
                }
                self.under_way.insert(block.id.0, counted);
                self.device.submit(self.now, block.id.0, &block.request, blocks.notes(block))
            });
            blocks.clear();
            self.blocks = blocks;
            sent?;
            self.learn();
            if self.free.is_empty() {
                return Ok(());
            }
            let mut free = std::mem::take(&mut self.free);
            for (id, counted) in free.drain(..) {
                self.counter.complete(counted, self.now);
                self.host.completed(id, self.now);
            }
            self.free = free;
        }
    }

    /// Collects the completions that the device has newly determined. Their times may be in the future.
    fn learn(&mut self) {
        self.device.take_completed(&mut self.known_completions);
        for (number, at) in self.known_completions.drain(..) {
            self.completions_known += 1;
            self.completions.push(Reverse((at.max(self.now), self.completions_known, number)));
        }
    }
}

impl<D: SimulatedBlockDevice> StorageBackend for SimulatedStorage<'_, D> {
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()> {
        self.now = now;
        self.host.begin(caller, now, operation)?;
        self.pump()
    }

    fn next_event(&self) -> Option<Nanos> {
        let completion = self.completions.peek().map(|Reverse((at, ..))| *at);
        [completion, self.host.next_event(), self.device.next_event()].into_iter().flatten().min()
    }

    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>> {
        Ok(next)
    }

    fn advance(&mut self, now: Nanos) -> Result<()> {
        self.now = now;
        self.device.advance(now)?;
        self.learn();
        while let Some(Reverse((at, _, number))) = self.completions.peek().copied()
            && at <= now
        {
            self.completions.pop();
            if let Some(counted) = self.under_way.remove(&number) {
                self.counter.complete(counted, now);
                self.host.completed(BlockRequestId(number), now);
                self.pump()?;
            }
        }
        if self.host.next_event().is_some_and(|at| at <= now) {
            self.host.advance(now);
            self.pump()?;
        }
        Ok(())
    }

    fn take_finished(&mut self, out: &mut FinishedOperations) {
        self.host.take_finished(out);
    }
}

/// Maximum time between two checks for an interruption by the user.
const LOOK: Duration = Duration::from_millis(50);
/// Maximum number of bytes that one system call reads or writes. It is also the period of the generated file contents.
const BUFFER: usize = 1 << 20;

/// The files of a program on this machine, with one folder for each mount.
#[derive(Debug)]
pub(crate) struct RealFiles {
    roots: Vec<PathBuf>,
    specs: RwLock<Vec<FileSpec>>,
    open: Mutex<FxHashMap<FileId, Arc<File>>>,
    contents: Vec<u8>,
    /// Whether initial files are written. If not, they must exist.
    writes: bool,
}

impl RealFiles {
    /// Uses files in the folders `roots`, one for each mount in order.
    pub fn new(roots: Vec<PathBuf>, writes: bool) -> Self {
        // All bytes are non-zero, because a device or a file system might handle zeros specially.
        let contents = (0..BUFFER).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] | 1).collect();
        Self { roots, specs: RwLock::default(), open: Mutex::default(), contents, writes }
    }

    fn folder(&self, mount: MountId, folder: FolderId) -> PathBuf {
        self.roots[usize::from(mount.0)].join(format!("folder{}", folder.0))
    }

    fn path(&self, file: FileId) -> PathBuf {
        let specs = self.specs.read().unwrap_or_else(PoisonError::into_inner);
        let spec = specs[file.0 as usize];
        drop(specs);
        self.folder(spec.mount, spec.folder).join(format!("file{}", file.0))
    }

    fn lock_open_files(&self) -> MutexGuard<'_, FxHashMap<FileId, Arc<File>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file, and opens it if it is not open.
    fn file(&self, file: FileId, create: bool) -> Result<Arc<File>> {
        if let Some(known) = self.lock_open_files().get(&file) {
            return Ok(known.clone());
        }
        let path = self.path(file);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .open(&path)
            .map_err(|error| Error::io(&path, error))?;
        Ok(self.lock_open_files().entry(file).or_insert_with(|| Arc::new(opened)).clone())
    }

    /// Executes an operation. Returns the number of bytes read or written.
    fn operate(&self, operation: &FileOp, scratch: &mut Vec<u8>) -> Result<u64> {
        let at = |file: FileId| move |error: std::io::Error| Error::io(&self.path(file), error);
        match *operation {
            FileOp::Open { file, create } => self.file(file, create).map(|_| 0),
            FileOp::Close { file } => {
                self.lock_open_files().remove(&file);
                Ok(0)
            }
            FileOp::Read { file, offset, bytes } => {
                scratch.resize(BUFFER.min(bytes as usize), 0);
                let handle = self.file(file, false)?;
                let mut done = 0;
                while done < bytes {
                    let length = scratch.len().min((bytes - done) as usize);
                    match handle.read_at(&mut scratch[..length], offset + done) {
                        Ok(0) => break,
                        Ok(read) => done += read as u64,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(at(file)(error)),
                    }
                }
                Ok(done)
            }
            FileOp::Write { file, offset, bytes } => {
                let handle = self.file(file, false)?;
                self.pieces(offset, bytes, |piece, offset| handle.write_all_at(piece, offset)).map_err(at(file))
            }
            FileOp::Append { file, bytes } => {
                let path = self.path(file);
                let mut end = OpenOptions::new().append(true).open(&path).map_err(at(file))?;
                self.pieces(0, bytes, |piece, _| end.write_all(piece)).map_err(at(file))
            }
            FileOp::Fsync { file, data_only } => {
                let handle = self.file(file, false)?;
                if data_only { handle.sync_data() } else { handle.sync_all() }.map_err(at(file)).map(|()| 0)
            }
            FileOp::FsyncFolder { mount, folder } => {
                let path = self.folder(mount, folder);
                let synced = File::open(&path).and_then(|folder| folder.sync_all());
                synced.map_err(|error| Error::io(&path, error)).map(|()| 0)
            }
            FileOp::Truncate { file, bytes } => self.file(file, false)?.set_len(bytes).map_err(at(file)).map(|()| 0),
            FileOp::Unlink { file } => {
                self.lock_open_files().remove(&file);
                std::fs::remove_file(self.path(file)).map_err(at(file)).map(|()| 0)
            }
            FileOp::Rename { from, to } => {
                let mut open = self.lock_open_files();
                open.remove(&to);
                if let Some(handle) = open.remove(&from) {
                    open.insert(to, handle);
                }
                drop(open);
                std::fs::rename(self.path(from), self.path(to)).map_err(at(from)).map(|()| 0)
            }
            FileOp::Sync => {
                for root in &self.roots {
                    let synced = File::open(root).and_then(|root| Ok(rustix::fs::syncfs(&root)?));
                    synced.map_err(|error| Error::io(root, error))?;
                }
                Ok(0)
            }
        }
    }

    /// Writes `bytes` in pieces that are at most as long as the buffer. The written contents depend on the offset in the file.
    fn pieces(&self, offset: u64, bytes: u64, mut write: impl FnMut(&[u8], u64) -> std::io::Result<()>) -> std::io::Result<u64> {
        let mut done = 0;
        while done < bytes {
            let from = ((offset + done) % BUFFER as u64) as usize;
            let length = (BUFFER - from).min((bytes - done) as usize);
            write(&self.contents[from..from + length], offset + done)?;
            done += length as u64;
        }
        Ok(bytes)
    }
}

impl FileStore for RealFiles {
    fn declare(&mut self, file: FileId, spec: FileSpec) -> Result<()> {
        if self.roots.len() <= usize::from(spec.mount.0) {
            return Err(Error::new(ErrorClass::Value, "the file is on a partition for which no folder was given"));
        }
        let folder = self.folder(spec.mount, spec.folder);
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let specs = self.specs.get_mut().unwrap_or_else(PoisonError::into_inner);
        debug_assert_eq!(specs.len(), file.0 as usize, "files are declared in the order of their numbers");
        specs.push(spec);
        Ok(())
    }

    fn preload(&mut self, file: FileId, bytes: u64) -> Result<()> {
        let path = self.path(file);
        if self.writes {
            interrupt::check()?;
            let handle = File::create_new(&path).map_err(|error| Error::io(&path, error))?;
            let written = self.pieces(0, bytes, |piece, offset| handle.write_all_at(piece, offset));
            return written.map_err(|error| Error::io(&path, error)).map(drop);
        }
        let length = path.metadata().map_err(|error| Error::io(&path, error))?.len();
        if length == bytes {
            return Ok(());
        }
        Err(Error::new(ErrorClass::Value, format!("the file has {length} bytes, but this program and seed need {bytes}"))
            .in_file(&path)
            .hint("prepare the files again for this program and seed"))
    }
}

/// A file operation that is passed to the thread that executes the operations of one caller.
struct SubmittedFileOp {
    operation: FileOp,
    begun: Nanos,
}

/// A file operation that has ended.
struct CompletedFileOp {
    caller: CallerId,
    operation: FileOp,
    begun: Nanos,
    outcome: Result<u64>,
}

/// Executes file operations with the kernel of this machine, in real time.
pub(crate) struct RealStorage {
    /// Channels to the threads, one for each caller. A thread ends when its channel is closed.
    callers: Vec<Sender<SubmittedFileOp>>,
    completed: Receiver<CompletedFileOp>,
    /// Number of file operations that have not ended.
    under_way: usize,
    ended: Vec<CompletedFileOp>,
    begun: Instant,
    /// The current time of the engine, which is recorded as the end time of operations that have ended.
    now: Nanos,
}

impl RealStorage {
    /// Starts a thread for each caller. The clock of the backend starts at 0.
    /// Errors: [`ErrorClass::Config`] if the machine cannot run that number of threads.
    pub fn start(files: &Arc<RealFiles>, callers: u32) -> Result<Self> {
        let (tell, done) = channel();
        let mut all = Vec::with_capacity(callers as usize);
        for number in 0..callers {
            let (sender, receiver) = channel::<SubmittedFileOp>();
            let (files, tell) = (files.clone(), tell.clone());
            let spawned = thread::Builder::new().name(format!("caller {number}")).spawn(move || {
                let mut scratch = Vec::new();
                for SubmittedFileOp { operation, begun } in receiver {
                    let outcome = files.operate(&operation, &mut scratch);
                    let done = CompletedFileOp { caller: CallerId(number), operation, begun, outcome };
                    if tell.send(done).is_err() {
                        return;
                    }
                }
            });
            spawned.map_err(|error| {
                Error::new(ErrorClass::Config, format!("thread {number} of the program cannot start: {error}"))
                    .hint("raise the limit of threads (`ulimit -u`): a live run needs one for each thread of the program")
            })?;
            all.push(sender);
        }
        Ok(Self { callers: all, completed: done, under_way: 0, ended: Vec::new(), begun: Instant::now(), now: Nanos::ZERO })
    }

    fn clock(&self) -> Nanos {
        Nanos(i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }
}

impl StorageBackend for RealStorage {
    fn begin(&mut self, caller: CallerId, now: Nanos, operation: &FileOp) -> Result<()> {
        let submitted = SubmittedFileOp { operation: *operation, begun: now };
        self.callers[caller.0 as usize].send(submitted).map_err(|_| {
            Error::new(ErrorClass::Value, "a thread of the program has ended unexpectedly")
                .hint("report this defect of emmclab with the program and the seed")
        })?;
        self.under_way += 1;
        Ok(())
    }

    fn next_event(&self) -> Option<Nanos> {
        (!self.ended.is_empty()).then_some(self.now)
    }

    fn wait(&mut self, next: Option<Nanos>) -> Result<Option<Nanos>> {
        loop {
            let now = self.clock();
            while let Ok(done) = self.completed.try_recv() {
                self.ended.push(done);
            }
            if !self.ended.is_empty() || next.is_some_and(|next| next <= now) {
                return Ok(Some(now));
            }
            if next.is_none() && self.under_way == 0 {
                return Ok(None);
            }
            interrupt::check()?;
            let left = next.map_or(LOOK, |next| Duration::from_nanos((next - now).0 as u64).min(LOOK));
            match self.completed.recv_timeout(left) {
                Ok(done) => self.ended.push(done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(ErrorClass::Value, "the threads of the program have ended unexpectedly")
                        .hint("report this defect of emmclab with the program and the seed"));
                }
            }
        }
    }

    fn advance(&mut self, now: Nanos) -> Result<()> {
        self.now = now;
        match self.ended.iter().position(|done| done.outcome.is_err()) {
            Some(at) => self.ended.swap_remove(at).outcome.map(drop),
            None => Ok(()),
        }
    }

    fn take_finished(&mut self, out: &mut FinishedOperations) {
        self.under_way -= self.ended.len();
        for CompletedFileOp { caller, operation, begun, outcome } in self.ended.drain(..) {
            let mut waited = WaitBreakdown::default();
            waited[likely_wait(&operation)] = self.now - begun;
            out.operations.push(FinishedOperation::alone(caller, begun, self.now, outcome.unwrap_or(0), waited));
        }
    }
}
