//! Exports the device as a file in a private folder, by FUSE, without root privileges. Loop devices are attached to this file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use emmclab_base::{CommandFlags, Error, ErrorClass};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use crate::device::{
    AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits, CompletionReceiver, RequestFailure, ServedCompletion,
    ServedRequest,
};
use crate::host_programs::Supervisor;
use crate::{SECTOR, host_programs};

/// Time for which [`FuseFile::stop`] waits until other processes have closed the file.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time limit for the threads of an aborted connection to end.
const ABORTED: Duration = Duration::from_secs(5);

/// A block device as a file of the same size, which only this user can open. Needs no root.
///
/// Reads and writes are passed directly to the device (direct I/O, nothing is cached), in requests of at most 1 MiB. `fsync` flushes,
/// `O_DSYNC` writes are durable (FUA), `fallocate` discards (`PUNCH_HOLE | KEEP_SIZE`) and zeroes (`ZERO_RANGE`), `SEEK_DATA` and
/// `SEEK_HOLE` report what is allocated. A write that is not aligned to sectors of 512 bytes first reads the sectors around it; discards
/// and zeroes of unaligned ranges fail with EINVAL.
///
/// The file is unmounted and its folder removed by [`Self::stop`], when this is dropped, and when the process ends, also by SIGKILL.
///
/// A thread of the serving process may use the file only while it holds no lock that the device needs (in Python: the interpreter
/// lock). If the process forked a child without exec, the folder is removed when the child has ended.
pub struct FuseFile {
    pub(crate) supervisor: Supervisor,
    session: Option<BackgroundSession>,
    pending: Arc<PendingFuseReplies>,
    limits: BlockDeviceLimits,
}

impl FuseFile {
    /// Serves the device as a file.
    /// Errors: if the host has no FUSE, or if there is no `fusermount3` and the user is not root.
    pub fn start(device: Arc<dyn BlockDevice>) -> emmclab_base::Result<Self> {
        if !Path::new("/dev/fuse").exists() {
            return Err(Error::new(ErrorClass::Unsupported, "there is no /dev/fuse").hint("run `modprobe fuse` as root"));
        }
        let root = rustix::process::geteuid().is_root();
        if !root && host_programs::find("fusermount3").or_else(|| host_programs::find("fusermount")).is_none() {
            return Err(host_programs::missing("fusermount3", "fuse3"));
        }
        let limits = device.limits();
        let supervisor = Supervisor::start(&[])?;
        let pending = Arc::<PendingFuseReplies>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("emmclab".to_owned())];
        let file_system = FuseFileSystem::new(device, Arc::clone(&pending));
        let session = Session::new(file_system, &supervisor.folder, &config)
            .and_then(Session::spawn)
            .map_err(|error| Error::io(&supervisor.folder, error))?;
        Ok(Self { supervisor, session: Some(session), pending, limits })
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.supervisor.folder.join(NAME)
    }

    /// Size and capabilities of the device.
    pub fn limits(&self) -> BlockDeviceLimits {
        self.limits
    }

    /// Maximum length of a read or write that reaches the device, in bytes.
    pub(crate) fn longest_request(&self) -> u32 {
        longest_request(&self.limits)
    }

    /// Unmounts the file and removes its folder, even if other processes have the file open; their later operations fail.
    /// Errors: if processes had the file open, with their names. The file and its folder are removed in this case, too.
    pub fn stop(mut self) -> emmclab_base::Result<()> {
        self.end()
    }

    pub(crate) fn end(&mut self) -> emmclab_base::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        let folder = self.supervisor.folder.clone();
        let until = Instant::now() + PATIENCE;
        let mut outcome = host_programs::unmount_fuse(&folder);
        while outcome.is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            outcome = host_programs::unmount_fuse(&folder);
        }
        let outcome = outcome.map_err(|error| host_programs::name_holders_in(error, &folder));
        // The supervisor process aborts the FUSE connection if the file system could not be unmounted.
        self.supervisor.end();
        self.pending.close();
        let until = Instant::now() + ABORTED;
        while !session.guard.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        outcome
    }
}

impl Drop for FuseFile {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Name of the exported file.
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
/// Time for which the kernel may cache attributes of the file; size and owner never change.
const KEPT: Duration = Duration::from_hours(1);
/// Maximum length of a request in bytes: 256 pages, the limit of the kernel (`fs.fuse.max_pages_limit`).
const MOST_BYTES: u32 = 1 << 20;
const PAGE: u32 = 4096;
/// Maximum number of requests in flight; a loop device sends at most 128 by default.
const IN_FLIGHT: u16 = 512;
/// `lseek` flags `SEEK_DATA` and `SEEK_HOLE` (linux/fs.h).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Maximum length of a read or write that the kernel sends, in bytes.
fn longest_request(limits: &BlockDeviceLimits) -> u32 {
    let device = u64::from(limits.max_sectors) * SECTOR as u64;
    (device.min(u64::from(MOST_BYTES)) as u32 / PAGE * PAGE).max(PAGE)
}

/// The file system: one folder with one file.
struct FuseFileSystem {
    requests: Arc<FuseRequestSender>,
    limits: BlockDeviceLimits,
    /// Attributes of the exported file.
    attributes: FileAttr,
}

impl FuseFileSystem {
    fn new(device: Arc<dyn BlockDevice>, pending: Arc<PendingFuseReplies>) -> Self {
        let limits = device.limits();
        let now = SystemTime::now();
        let attributes = FileAttr {
            ino: FILE,
            size: limits.sectors * SECTOR as u64,
            blocks: limits.sectors,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: PAGE,
            flags: 0,
        };
        Self { requests: Arc::new(FuseRequestSender::new(device, pending)), limits, attributes }
    }

    fn attributes_of(&self, inode: INodeNo) -> Option<FileAttr> {
        match inode {
            FILE => Some(self.attributes),
            INodeNo::ROOT => Some(FileAttr {
                ino: INodeNo::ROOT,
                size: 0,
                blocks: 0,
                kind: FileType::Directory,
                perm: 0o700,
                nlink: 2,
                ..self.attributes
            }),
            _ => None,
        }
    }

    /// The first offset at or after `offset` that is allocated (or not allocated, if `allocated` is false); `None` if there is none.
    fn seek(&self, offset: u64, allocated: bool) -> Option<u64> {
        let mut sector = offset / SECTOR as u64;
        let mut extents: Vec<AllocationExtent> = Vec::new();
        while sector < self.limits.sectors {
            extents.clear();
            self.requests.device.extents(sector, self.limits.sectors - sector, 64, &mut extents);
            if extents.iter().all(|extent| extent.sectors == 0) {
                break;
            }
            for extent in &extents {
                if extent.allocated == allocated {
                    return Some(offset.max(sector * SECTOR as u64));
                }
                sector += extent.sectors;
            }
        }
        (!allocated).then_some(self.attributes.size)
    }
}

impl Filesystem for FuseFileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let longest = longest_request(&self.limits);
        // If a value is out of range, fuser returns the nearest allowed value as an error, and the kernel's default remains valid.
        let _ = config.set_max_write(longest);
        let _ = config.set_max_readahead(longest);
        let _ = config.set_max_background(IN_FLIGHT);
        let _ = config.set_congestion_threshold(IN_FLIGHT);
        // Without this capability the kernel sends the requests of a loop device one at a time.
        config
            .add_capabilities(InitFlags::FUSE_ASYNC_DIO)
            .map_err(|_| io::Error::new(io::ErrorKind::Unsupported, "this kernel's FUSE has no asynchronous direct I/O"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&KEPT, &self.attributes, Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(inode) {
            Some(attributes) => reply.attr(&KEPT, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self, _: &Request, inode: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
        _: Option<TimeOrNow>, _: Option<TimeOrNow>, _: Option<SystemTime>, handle: Option<FileHandle>, _: Option<SystemTime>,
        _: Option<SystemTime>, _: Option<SystemTime>, _: Option<fuser::BsdFileFlags>, reply: ReplyAttr,
    ) {
        // O_TRUNC arrives as size 0 without a handle; it has no effect on a block device.
        let resized = size.is_some_and(|size| size != self.attributes.size && (size != 0 || handle.is_some()));
        if mode.is_some() || uid.is_some() || gid.is_some() {
            reply.error(Errno::EPERM);
        } else if resized {
            reply.error(Errno::EINVAL);
        } else {
            match self.attributes_of(inode) {
                Some(attributes) => reply.attr(&KEPT, &attributes),
                None => reply.error(Errno::ENOENT),
            }
        }
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, size: u32, _: OpenFlags, _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let bytes = u64::from(size).min(self.attributes.size.saturating_sub(offset));
        if bytes == 0 {
            return reply.data(&[]);
        }
        let (range, skip) = FuseSectorRange::covering(offset, bytes, CommandFlags::empty());
        self.requests.read(FuseReply::Read { reply, skip, bytes: bytes as usize }, range);
    }

    fn write(
        &self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, data: &[u8], _: WriteFlags, flags: OpenFlags,
        _: Option<LockOwner>, reply: ReplyWrite,
    ) {
        let room = self.attributes.size.saturating_sub(offset);
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let durable = self.limits.write_cache && flags.0 as u32 & OFlags::DSYNC.bits() != 0;
        let modifiers = if durable { CommandFlags::RELIABLE } else { CommandFlags::empty() };
        let (range, skip) = FuseSectorRange::covering(offset, data.len() as u64, modifiers);
        if skip == 0 && data.len().is_multiple_of(SECTOR) {
            self.requests.write(FuseReply::Write { reply, bytes: data.len() as u32 }, range, data);
        } else {
            self.requests.write_unaligned(reply, range, skip, data);
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if !self.limits.write_cache {
            return reply.ok();
        }
        self.requests.flush(FuseReply::Done(reply));
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, offset: u64, length: u64, mode: i32, reply: ReplyEmpty) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        // Loop devices punch holes for discards, and for write-zeroes requests that may deallocate the sectors.
        let action = if mode == FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE {
            BlockAction::Discard { secure: false }
        } else if mode.difference(FallocateFlags::KEEP_SIZE) == FallocateFlags::ZERO_RANGE {
            BlockAction::WriteZeroes { keep_allocated: true }
        } else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        match FuseSectorRange::aligned(offset, length) {
            Some(range) if range.sectors > 0 && range.sector + range.sectors <= self.limits.sectors => {
                self.requests.range(reply, range, action);
            }
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let allocated = match whence {
            SEEK_DATA => true,
            SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        match u64::try_from(offset) {
            Ok(offset) if offset < self.attributes.size => match self.seek(offset, allocated) {
                Some(place) => reply.offset(place as i64),
                None => reply.error(Errno::ENXIO),
            },
            _ => reply.error(Errno::ENXIO),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let folder = FileType::Directory;
        let entries = [(inode, folder, "."), (inode, folder, ".."), (FILE, FileType::RegularFile, NAME)];
        for (index, (inode, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(inode, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // A loop device takes the block size as its discard granularity.
        let discard = self.limits.discard_sectors.saturating_mul(SECTOR as u32);
        let block = discard.clamp(PAGE, 1 << 30);
        reply.statfs(self.attributes.size / u64::from(block), 0, 0, 1, 0, block, 255, block);
    }
}

/// What to do when a request is complete.
enum FuseReply {
    /// Replies with the bytes `skip..skip + bytes` of the data that was read.
    Read { reply: ReplyData, skip: usize, bytes: usize },
    /// Replies that this number of bytes was written.
    Write { reply: ReplyWrite, bytes: u32 },
    /// Replies with success, without data.
    Done(ReplyEmpty),
    /// Passes the result to a waiting thread.
    Waiter(Sender<Result<Vec<u8>, RequestFailure>>),
}

/// A request that was split into parts of at most the device's maximum length.
struct SplitFuseRequest {
    answer: FuseReply,
    parts_left: usize,
    /// The data that was read. The data of each part of the request is copied to its position.
    data: Vec<u8>,
    /// Length of each part of the request except the last, in bytes.
    part_bytes: usize,
    failure: Option<RequestFailure>,
}

#[derive(Default)]
struct PendingReplyTable {
    next: u32,
    waiting: HashMap<u32, SplitFuseRequest>,
    closed: bool,
}

/// Replies that wait until their requests are complete.
#[derive(Default)]
struct PendingFuseReplies(Mutex<PendingReplyTable>);

fn errno(failure: RequestFailure) -> Errno {
    Errno::from_i32(failure.errno().raw_os_error())
}

impl FuseReply {
    /// Sends the reply for the outcome of a request.
    fn send(self, outcome: Result<Vec<u8>, RequestFailure>) {
        match (self, outcome) {
            (Self::Waiter(sender), outcome) => drop(sender.send(outcome)),
            (Self::Read { reply, skip, bytes }, Ok(data)) => match data.get(skip..skip + bytes) {
                Some(data) => reply.data(data),
                None => reply.error(Errno::EIO),
            },
            (Self::Write { reply, bytes }, Ok(_)) => reply.written(bytes),
            (Self::Done(reply), Ok(_)) => reply.ok(),
            (Self::Read { reply, .. }, Err(failure)) => reply.error(errno(failure)),
            (Self::Write { reply, .. }, Err(failure)) => reply.error(errno(failure)),
            (Self::Done(reply), Err(failure)) => reply.error(errno(failure)),
        }
    }
}

impl SplitFuseRequest {
    fn take(&mut self, part: usize, outcome: Result<Vec<u8>, RequestFailure>) {
        self.parts_left = self.parts_left.saturating_sub(1);
        match outcome {
            Err(failure) => self.failure = self.failure.or(Some(failure)),
            // Usual case: the request has a single part, whose data need not be copied.
            Ok(data) if part == 0 && self.parts_left == 0 && self.data.is_empty() => self.data = data,
            // Only reads return data, so nothing is copied for parts of other requests.
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                let at = part * self.part_bytes;
                self.data.resize(self.data.len().max(at + data.len()), 0);
                self.data[at..at + data.len()].copy_from_slice(&data);
            }
        }
    }
}

impl PendingFuseReplies {
    fn table(&self) -> MutexGuard<'_, PendingReplyTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the parts of a request to the device; the reply is sent when all parts are complete. `part_sectors` is the length of each part
    /// except the last.
    fn submit(self: &Arc<Self>, device: &dyn BlockDevice, answer: FuseReply, mut parts: Vec<ServedRequest>, part_sectors: u32) {
        let part_bytes = part_sectors as usize * crate::SECTOR;
        let waiting = SplitFuseRequest { answer, parts_left: parts.len(), data: Vec::new(), part_bytes, failure: None };
        {
            let mut table = self.table();
            if table.closed {
                drop(table);
                return waiting.answer.send(Err(RequestFailure::Io));
            }
            let id = table.next;
            table.next = id.wrapping_add(1);
            for (index, part) in parts.iter_mut().enumerate() {
                part.tag = u64::from(id) << 32 | index as u64;
            }
            table.waiting.insert(id, waiting);
        }
        let completions: Arc<dyn CompletionReceiver> = Arc::<Self>::clone(self);
        device.submit(&mut parts, &completions);
    }

    /// Fails all pending and all later requests with EIO.
    fn close(&self) {
        let waiting = {
            let mut table = self.table();
            table.closed = true;
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            waiting.answer.send(Err(RequestFailure::Io));
        }
    }
}

impl CompletionReceiver for PendingFuseReplies {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let mut finished = Vec::with_capacity(completed.len());
        {
            let mut table = self.table();
            for ServedCompletion { tag, outcome } in completed.drain(..) {
                let id = (tag >> 32) as u32;
                let Some(waiting) = table.waiting.get_mut(&id) else { continue };
                waiting.take((tag & u64::from(u32::MAX)) as usize, outcome);
                if waiting.parts_left == 0 {
                    finished.extend(table.waiting.remove(&id));
                }
            }
        }
        for SplitFuseRequest { answer, data, failure, .. } in finished {
            answer.send(failure.map_or(Ok(data), Err));
        }
    }
}

/// Maximum number of parts of a long discard that are in flight, to limit memory.
const PARTS: u64 = 1024;

/// A range of sectors, and the flags of the requests for it.
#[derive(Clone, Copy)]
struct FuseSectorRange {
    sector: u64,
    sectors: u64,
    modifiers: CommandFlags,
}

impl FuseSectorRange {
    /// Returns the sectors that contain a range of bytes, and the offset of these bytes in the first sector.
    fn covering(offset: u64, bytes: u64, modifiers: CommandFlags) -> (Self, usize) {
        let (sector, skip) = (offset / SECTOR as u64, offset as usize % SECTOR);
        let sectors = (offset + bytes).div_ceil(SECTOR as u64) - sector;
        (Self { sector, sectors, modifiers }, skip)
    }

    /// Returns the sectors of a range of bytes; `None` if the range is not aligned to sectors.
    fn aligned(offset: u64, bytes: u64) -> Option<Self> {
        let (range, _) = Self::covering(offset, bytes, CommandFlags::empty());
        (offset.is_multiple_of(SECTOR as u64) && bytes.is_multiple_of(SECTOR as u64)).then_some(range)
    }

    fn end(self) -> u64 {
        self.sector + self.sectors
    }

    /// Splits the range into ranges of at most `most` sectors, in order.
    fn split(self, most: u64) -> impl Iterator<Item = Self> {
        (self.sector..self.end()).step_by(most as usize).map(move |sector| Self {
            sector,
            sectors: most.min(self.end() - sector),
            ..self
        })
    }
}

struct FuseRequestSender {
    device: Arc<dyn BlockDevice>,
    limits: BlockDeviceLimits,
    pending: Arc<PendingFuseReplies>,
    /// Lock that is held during the read-modify-write of an unaligned write.
    edges: Mutex<()>,
}

impl FuseRequestSender {
    fn new(device: Arc<dyn BlockDevice>, pending: Arc<PendingFuseReplies>) -> Self {
        Self { limits: device.limits(), device, pending, edges: Mutex::default() }
    }

    fn part_sectors(&self) -> u32 {
        self.limits.max_sectors.max(1)
    }

    /// Splits the range into requests of at most the allowed length and sends them to the device. The reply is sent when all of them are
    /// complete.
    fn submit(&self, answer: FuseReply, range: FuseSectorRange, mut action: impl FnMut(u32) -> BlockAction) {
        let part = |range: FuseSectorRange| {
            let sectors = range.sectors as u32;
            let (sector, modifiers) = (range.sector, range.modifiers);
            ServedRequest { tag: 0, action: action(sectors), sector, sectors, modifiers }
        };
        let parts = range.split(u64::from(self.part_sectors())).map(part).collect();
        self.pending.submit(&*self.device, answer, parts, self.part_sectors());
    }

    /// Sends requests for the range to the device and waits until they are complete; returns the data that was read.
    fn perform(&self, range: FuseSectorRange, action: impl FnMut(u32) -> BlockAction) -> Result<Vec<u8>, RequestFailure> {
        let (sender, receiver) = channel();
        self.submit(FuseReply::Waiter(sender), range, action);
        receiver.recv().unwrap_or(Err(RequestFailure::Io))
    }

    fn read(&self, answer: FuseReply, range: FuseSectorRange) {
        self.submit(answer, range, |_| BlockAction::Read);
    }

    fn write(&self, answer: FuseReply, range: FuseSectorRange, mut data: &[u8]) {
        self.submit(answer, range, |sectors| {
            let (part, rest) = data.split_at(sectors as usize * SECTOR);
            data = rest;
            BlockAction::Write(part.to_vec())
        });
    }

    fn flush(&self, answer: FuseReply) {
        let modifiers = CommandFlags::empty();
        let flush = ServedRequest { tag: 0, action: BlockAction::Flush, sector: 0, sectors: 0, modifiers };
        self.pending.submit(&*self.device, answer, vec![flush], 0);
    }

    /// Writes bytes that are not aligned to sectors by a read-modify-write of the sectors around them, in a separate thread. The
    /// kernel splits long writes into such parts if the writer's memory is not aligned to pages.
    fn write_unaligned(self: &Arc<Self>, reply: ReplyWrite, range: FuseSectorRange, skip: usize, data: &[u8]) {
        let (this, new) = (Arc::clone(self), data.to_vec());
        std::thread::spawn(move || {
            let _edges = this.edges.lock().unwrap_or_else(PoisonError::into_inner);
            let outcome = this.perform(range, |_| BlockAction::Read).and_then(|mut sectors| {
                sectors.get_mut(skip..skip + new.len()).ok_or(RequestFailure::Io)?.copy_from_slice(&new);
                let mut rest = &sectors[..];
                this.perform(range, |count| {
                    let (part, behind) = rest.split_at(count as usize * SECTOR);
                    rest = behind;
                    BlockAction::Write(part.to_vec())
                })
            });
            FuseReply::Write { reply, bytes: new.len() as u32 }.send(outcome);
        });
    }

    /// Discards or zeroes a range. A range of more than [`PARTS`] parts is processed in a separate thread.
    fn range(self: &Arc<Self>, reply: ReplyEmpty, range: FuseSectorRange, action: BlockAction) {
        let batch = PARTS * u64::from(self.part_sectors());
        if range.sectors <= batch {
            return self.submit(FuseReply::Done(reply), range, |_| action.clone());
        }
        let this = Arc::clone(self);
        std::thread::spawn(move || {
            let outcome = range.split(batch).try_for_each(|range| this.perform(range, |_| action.clone()).map(drop));
            FuseReply::Done(reply).send(outcome.map(|()| Vec::new()));
        });
    }
}
