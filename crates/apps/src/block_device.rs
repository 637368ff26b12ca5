//! The interface between the engine and a simulated block device, and a counter of requests by operation, file class, block role and cause.

use std::collections::BTreeMap;

use emmclab_base::{BlockNote, BlockRole, Nanos, Op, Request, RequestFlags, Result, SECTOR_BYTES};
use emmclab_host::{FileClass, HostBlockRequest};
use emmclab_replay::ClosedLoop;
use schemars::JsonSchema;
use serde::Serialize;

/// A block device in simulated time.
pub trait SimulatedBlockDevice {
    /// Size in sectors.
    fn sectors(&self) -> u64;

    /// Submits a request with a unique number. `at` must not be earlier than in the previous call; `notes` are the roles of written blocks.
    /// Errors: for a request beyond the end of the device, and if the device has stopped.
    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()>;

    /// The time of the next event of the device, which may complete a request; `None` if there is none.
    fn next_event(&self) -> Option<Nanos>;

    /// Simulates all events up to and including the time `until`.
    /// Errors: as [`SimulatedBlockDevice::submit`].
    fn advance(&mut self, until: Nanos) -> Result<()>;

    /// Appends numbers and completion times of requests whose completion has become known. The times may be in the future.
    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>);
}

impl SimulatedBlockDevice for ClosedLoop {
    fn sectors(&self) -> u64 {
        Self::sectors(self)
    }

    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()> {
        Self::submit(self, at, number, request, notes)
    }

    fn next_event(&self) -> Option<Nanos> {
        Self::next_event(self)
    }

    fn advance(&mut self, until: Nanos) -> Result<()> {
        Self::advance(self, until)
    }

    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>) {
        Self::take_completed(self, out);
    }
}

/// Counts and total times of a group of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestGroup {
    /// Number of requests.
    pub requests: u64,
    /// Total size of the requests in bytes.
    pub bytes: u64,
    /// Number of sequential requests, which begin where the previous request of the same operation ended.
    pub sequential: u64,
    /// Total size of the sequential requests in bytes.
    pub sequential_bytes: u64,
    /// Sum of the times from submission to completion, in ns.
    pub device_ns: i64,
    /// Sum of the times from submission to completion of the sequential requests, in ns.
    pub sequential_device_ns: i64,
}

impl RequestGroup {
    fn add(&mut self, request: &Request, sequential: bool) {
        self.requests += 1;
        self.bytes += request.bytes().0;
        self.sequential += u64::from(sequential);
        self.sequential_bytes += if sequential { request.bytes().0 } else { 0 };
    }

    fn complete(&mut self, took: Nanos, sequential: bool) {
        self.device_ns += took.0;
        self.sequential_device_ns += if sequential { took.0 } else { 0 };
    }
}

/// Reads and writes of one class of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReadWriteCounts {
    /// The reads.
    pub read: RequestGroup,
    /// The writes.
    pub write: RequestGroup,
}

/// Number of bytes written to blocks of one role, such as the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RoleBytes {
    /// Name of the block role, as it is written in traces.
    pub role: &'static str,
    /// Number of bytes written.
    pub bytes: u64,
}

/// Writes of the data of a set of files, a database, or the journal of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileWrites {
    /// Name of the set of files or of the database.
    pub name: String,
    /// Class of the files.
    pub class: &'static str,
    /// Number of writes.
    pub requests: u64,
    /// Total size of the writes in bytes.
    pub bytes: u64,
    /// Number of writes of less than a page of flash of 16 KB.
    pub small: u64,
    /// Number of writes that begin where the previous one of these files ended.
    pub sequential: u64,
}

/// Size in bytes of a usual page of flash.
const FLASH_PAGE: u64 = 16_384;

/// Counts of the requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestCounts {
    /// All reads and writes.
    pub all: ReadWriteCounts,
    /// Number of discards.
    pub discards: u64,
    /// Number of flushes without data.
    pub flushes: u64,
    /// Number of requests that order writes or make them durable: flushes, and writes with preflush or FUA.
    pub sync_points: u64,
    /// Reads and writes by class of the file. Metadata blocks of the file system have classes of their own.
    pub classes: BTreeMap<&'static str, ReadWriteCounts>,
    /// Writes by set of files and database.
    pub files: Vec<FileWrites>,
    /// Number of requests by their cause in the host model.
    pub causes: BTreeMap<&'static str, u64>,
    /// Bytes written by role of the blocks; empty if the file system does not assign roles to blocks.
    pub roles: Vec<RoleBytes>,
}

/// The properties of a submitted request that are needed to count it when it completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedRequest {
    class: FileClass,
    op: Op,
    sequential: bool,
    submitted: Nanos,
}

#[derive(Debug, Default)]
pub(crate) struct RequestCounter {
    all: ReadWriteCounts,
    discards: u64,
    flushes: u64,
    sync_points: u64,
    classes: [ReadWriteCounts; FileClass::ALL.len()],
    /// Writes by folder and class, each with the end sector of the last one.
    files: BTreeMap<(u32, usize), (FileWrites, u64)>,
    causes: BTreeMap<&'static str, u64>,
    roles: [u64; BlockRole::ALL.len()],
    /// The end sectors of the last read and the last write.
    ends: [u64; 2],
}

impl ReadWriteCounts {
    fn of(&mut self, op: Op) -> Option<&mut RequestGroup> {
        match op {
            Op::Read => Some(&mut self.read),
            Op::Write => Some(&mut self.write),
            _ => None,
        }
    }
}

impl FileWrites {
    const fn new(class: FileClass) -> Self {
        Self { name: String::new(), class: class.name(), requests: 0, bytes: 0, small: 0, sequential: 0 }
    }
}

impl RequestCounter {
    /// Counts a request that is submitted to the device.
    pub fn submit(&mut self, block: &HostBlockRequest, notes: &[BlockNote], now: Nanos) -> CountedRequest {
        let request = &block.request;
        let op = request.op;
        self.sync_points += u64::from(op == Op::Flush || request.flags.intersects(RequestFlags::FUA | RequestFlags::PREFLUSH));
        self.flushes += u64::from(op == Op::Flush);
        self.discards += u64::from(matches!(op, Op::Discard | Op::SecureErase));
        *self.causes.entry(block.cause.name()).or_default() += 1;
        let mut sequential = false;
        if let Some(group) = self.all.of(op) {
            let end = &mut self.ends[usize::from(op == Op::Write)];
            sequential = *end == request.sector.0 && group.requests > 0;
            *end = request.end().0;
            group.add(request, sequential);
            if let Some(group) = self.classes[block.class as usize].of(op) {
                group.add(request, sequential);
            }
        }
        if let (Op::Write, Some(folder)) = (op, block.folder) {
            let class = block.class as usize;
            let (writes, end) = self.files.entry((folder.0, class)).or_insert_with(|| (FileWrites::new(block.class), 0));
            writes.requests += 1;
            writes.bytes += request.bytes().0;
            writes.small += u64::from(request.bytes().0 < FLASH_PAGE);
            writes.sequential += u64::from(*end == request.sector.0);
            *end = request.end().0;
        }
        for note in notes {
            self.roles[note.role as usize] += u64::from(note.sectors) * SECTOR_BYTES;
        }
        CountedRequest { class: block.class, op, sequential, submitted: now }
    }

    pub fn complete(&mut self, counted: CountedRequest, now: Nanos) {
        let CountedRequest { class, op, sequential, submitted } = counted;
        let groups = [self.all.of(op), self.classes[class as usize].of(op)];
        groups.into_iter().flatten().for_each(|group| group.complete(now - submitted, sequential));
    }

    /// The counts so far. `names` are the names of the sets of files and databases; each has a folder, from number 1 on.
    pub fn counts(&self, names: &[&str]) -> RequestCounts {
        let named = |((folder, _), (writes, _)): (&(u32, usize), &(FileWrites, u64))| {
            let name = names.get((*folder as usize).wrapping_sub(1)).map_or_else(String::new, ToString::to_string);
            FileWrites { name, ..writes.clone() }
        };
        let classes = FileClass::ALL.into_iter().zip(self.classes);
        let roles = BlockRole::ALL.into_iter().zip(self.roles).filter(|(_, bytes)| *bytes > 0);
        RequestCounts {
            all: self.all,
            discards: self.discards,
            flushes: self.flushes,
            sync_points: self.sync_points,
            classes: classes
                .filter(|(_, counts)| counts.read.requests + counts.write.requests > 0)
                .map(|(class, counts)| (class.name(), counts))
                .collect(),
            files: self.files.iter().map(named).collect(),
            causes: self.causes.clone(),
            roles: roles.map(|(role, bytes)| RoleBytes { role: role.name(), bytes }).collect(),
        }
    }
}
