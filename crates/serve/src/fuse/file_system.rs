//! The FUSE file system: a folder with a single file, whose contents are the device.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use emmclab_base::CommandFlags;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use super::pending::{FuseReply, PendingFuseReplies};
use super::requests::{FuseRequestSender, FuseSectorRange};
use crate::SECTOR;
use crate::device::{AllocationExtent, BlockAction, BlockDevice, BlockDeviceLimits};

/// Name of the file.
pub(super) const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);
/// How long the kernel may cache attributes; size and owner never change.
const KEPT: Duration = Duration::from_hours(1);
/// The kernel allows requests of 256 pages (`fs.fuse.max_pages_limit`).
const MOST_BYTES: u32 = 1 << 20;
const PAGE: u32 = 4096;
/// Maximum number of requests in flight; a loop device has 128 by default.
const IN_FLIGHT: u16 = 512;
/// `lseek` flags (linux/fs.h).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Maximum length of a read or write that the kernel sends, in bytes.
pub(super) fn longest_request(limits: &BlockDeviceLimits) -> u32 {
    let device = u64::from(limits.max_sectors) * SECTOR as u64;
    (device.min(u64::from(MOST_BYTES)) as u32 / PAGE * PAGE).max(PAGE)
}

/// The folder and its file.
pub(super) struct FuseFileSystem {
    requests: Arc<FuseRequestSender>,
    limits: BlockDeviceLimits,
    /// Attributes of the file.
    attributes: FileAttr,
}

impl FuseFileSystem {
    pub(super) fn new(device: Arc<dyn BlockDevice>, pending: Arc<PendingFuseReplies>) -> Self {
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
        let mut found: Vec<AllocationExtent> = Vec::new();
        while sector < self.limits.sectors {
            found.clear();
            self.requests.device().extents(sector, self.limits.sectors - sector, 64, &mut found);
            if found.iter().all(|extent| extent.sectors == 0) {
                break;
            }
            for extent in &found {
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
        // If a value is out of range, fuser returns the nearest allowed one as an error, and the kernel's default remains in force.
        let _ = config.set_max_write(longest);
        let _ = config.set_max_readahead(longest);
        let _ = config.set_max_background(IN_FLIGHT);
        let _ = config.set_congestion_threshold(IN_FLIGHT);
        // Without this capability the requests of a loop device arrive one at a time.
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(|_| {
            io::Error::new(io::ErrorKind::Unsupported, "this kernel's FUSE has no asynchronous direct I/O")
        })
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
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
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
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
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
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
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

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        // Loop devices punch holes for discards, and for write-zeroes requests that need not keep the sectors allocated.
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
        // A loop device uses the block size as its discard granularity.
        let discard = self.limits.discard_sectors.saturating_mul(SECTOR as u32);
        let block = discard.clamp(PAGE, 1 << 30);
        reply.statfs(self.attributes.size / u64::from(block), 0, 0, 1, 0, block, 255, block);
    }
}
