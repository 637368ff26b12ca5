//! A disk of this machine: a block device, or a regular file that is the image of a disk, opened for direct I/O.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use emmclab_trace::{ByteCount, Error, ErrorClass, Result};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, ioctl_blksszget, major, minor, seek};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::ioctl::{Opcode, Setter, ioctl};
use schemars::JsonSchema;
use serde::Serialize;

/// Alignment of memory for direct I/O, in bytes.
const ALIGNMENT: usize = 4096;
/// The requests of `<linux/fs.h>` that discard a range of a block device, in general and so that old data cannot be recovered.
const BLKDISCARD: Opcode = 0x1277;
const BLKSECDISCARD: Opcode = 0x127d;

/// What is known about a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiskFacts {
    /// Path by which the disk was opened.
    pub path: String,
    /// Model that the disk reports; null if it reports none, or for a file.
    pub model: Option<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Size of a logical block in bytes, to which requests must be aligned.
    pub block_bytes: u32,
    /// Whether the disk supports discards.
    pub discards: bool,
    /// Whether the disk is a block device; false for a file.
    pub block_device: bool,
    /// Names of the partitions on the disk.
    pub partitions: Vec<String>,
}

impl DiskFacts {
    /// Path, model, size and partitions as text, for a question to the user.
    pub fn describe(&self) -> String {
        let model = self.model.as_ref().map_or_else(String::new, |model| format!("{model}, "));
        let partitions = if self.partitions.is_empty() {
            String::new()
        } else {
            format!(", with the partitions {}", self.partitions.join(", "))
        };
        format!("{} ({model}{}{partitions})", self.path, ByteCount(self.bytes))
    }
}

/// What a [`DiskFile`] is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAccess {
    /// Reads only; other programs may use the disk.
    Read,
    /// Reads and writes. No other program may use the disk: neither mounts, nor device mappers, nor other writers that open it exclusively.
    Exclusive,
}

/// A disk that is open for direct I/O.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    facts: DiskFacts,
}

impl DiskFile {
    /// Opens a disk.
    /// Errors: if the path is no block device or file, cannot be opened for direct I/O, or is in use although the access is exclusive.
    pub fn open(path: &Path, access: DiskAccess) -> Result<Self> {
        let metadata = fs::metadata(path)
            .map_err(|error| Error::io(path, error).hint("give a block device, such as /dev/sdX, or a file"))?;
        let kind = metadata.file_type();
        let is_block = kind.is_block_device();
        if !is_block && !kind.is_file() {
            return Err(Error::new(ErrorClass::Config, "this is neither a block device nor a file")
                .in_file(path)
                .hint("give a block device, such as /dev/sdX, or a file that is the image of a disk"));
        }
        let exclusive = access == DiskAccess::Exclusive;
        let mut flags = OFlags::DIRECT;
        flags.set(OFlags::EXCL, exclusive && is_block);
        let users = || users_of(&metadata, path, is_block);
        let in_use = |by: Vec<String>| {
            let by = if by.is_empty() { "by another program".to_owned() } else { by.join(", ") };
            Error::new(ErrorClass::Config, format!("the disk is in use: {by}")).in_file(path).hint(
                "end that use first, for example with `umount`, `swapoff` or `losetup -d`; only an unused disk is overwritten",
            )
        };
        let file = OpenOptions::new().read(true).write(exclusive).custom_flags(flags.bits().cast_signed()).open(path);
        let file = file.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::BUSY) => in_use(users()),
            Some(Errno::INVAL) => Error::io(path, error).hint("use a file outside of tmpfs, which has no direct I/O"),
            _ => Error::io(path, error).hint("run as root, or give the user access to the block device"),
        })?;
        if exclusive {
            // O_EXCL finds mounts, swap and device mappers. The lists also find what does not claim the device.
            let by = users();
            if !by.is_empty() {
                return Err(in_use(by));
            }
            if !is_block && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
                return Err(in_use(vec!["another process has locked it".to_owned()]));
            }
        }
        let facts = facts(path, &file, &metadata, is_block).map_err(|error| Error::io(path, error))?;
        Ok(Self { file, facts })
    }

    /// What is known about the disk.
    pub fn facts(&self) -> &DiskFacts {
        &self.facts
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Discards a range in bytes, so that its contents are undefined. With `secure`, the old data cannot be recovered. A file gets a hole.
    pub(crate) fn discard(&self, start: u64, bytes: u64, secure: bool) -> io::Result<()> {
        if !self.facts.block_device {
            let done = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, bytes);
            return done.map_err(io::Error::from);
        }
        // SAFETY: both requests read a pair of 64-bit numbers, the first byte and the length.
        #[expect(unsafe_code, reason = "the opcodes take this argument")]
        let done = unsafe {
            if secure {
                ioctl(&self.file, Setter::<BLKSECDISCARD, [u64; 2]>::new([start, bytes]))
            } else {
                ioctl(&self.file, Setter::<BLKDISCARD, [u64; 2]>::new([start, bytes]))
            }
        };
        done.map_err(io::Error::from)
    }

    /// Makes a range in bytes read as zeros. Blocks that the disk can free are freed.
    pub(crate) fn zero(&self, start: u64, bytes: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => {
                let zeros = AlignedBuffer::new(bytes.min(1 << 20) as usize);
                let mut at = 0;
                while at < bytes {
                    let part = (bytes - at).min(1 << 20) as usize;
                    self.write(start + at, &zeros.bytes()[..part], false)?;
                    at += part as u64;
                }
                Ok(())
            }
            done => done.map_err(io::Error::from),
        }
    }

    /// Writes aligned memory; with `durable`, the data is durable on return.
    pub(crate) fn write(&self, start: u64, data: &[u8], durable: bool) -> io::Result<()> {
        let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let mut written = 0;
        while written < data.len() {
            match pwritev2(&self.file, &[IoSlice::new(&data[written..])], start + written as u64, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => written += moved,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Fills aligned memory.
    pub(crate) fn read(&self, start: u64, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, start)
    }

    /// Makes all written data durable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Memory whose start is aligned for direct I/O.
#[derive(Debug, Default)]
pub(crate) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    pub fn new(length: usize) -> Self {
        let mut buffer = Self::default();
        buffer.resize(length);
        buffer
    }

    /// Sets the length. The memory moves only if it must grow.
    pub fn resize(&mut self, length: usize) {
        if self.memory.len() < length + ALIGNMENT {
            self.memory = vec![0; length + ALIGNMENT];
            self.start = self.memory.as_ptr().addr().next_multiple_of(ALIGNMENT) - self.memory.as_ptr().addr();
        }
        self.length = length;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

fn facts(path: &Path, file: &File, metadata: &fs::Metadata, is_block: bool) -> io::Result<DiskFacts> {
    let bytes = seek(file, SeekFrom::End(0))?;
    let folder = attributes(metadata);
    let whole = if folder.join("partition").exists() { folder.join("..") } else { folder.clone() };
    let number = |name: &str| fs::read_to_string(whole.join("queue").join(name)).ok()?.trim().parse::<u64>().ok();
    let model = ["device/model", "device/name"].iter().find_map(|name| fs::read_to_string(whole.join(name)).ok());
    Ok(DiskFacts {
        path: path.display().to_string(),
        model: model.filter(|_| is_block).map(|model| model.trim().to_owned()),
        bytes,
        block_bytes: if is_block { ioctl_blksszget(file)? } else { least_block(file) },
        discards: !is_block || number("discard_max_bytes").is_some_and(|most| most > 0),
        block_device: is_block,
        partitions: if is_block { partitions(&folder) } else { Vec::new() },
    })
}

/// The smallest block size for direct I/O on a file, as tried: 512 or 4096 bytes.
fn least_block(file: &File) -> u32 {
    let mut block = AlignedBuffer::new(512);
    if file.read_at(block.bytes_mut(), 0).is_ok() { 512 } else { 4096 }
}

/// The folder of a block device in sysfs.
fn attributes(metadata: &fs::Metadata) -> PathBuf {
    numbered(metadata.rdev())
}

fn numbered(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// Names of the partitions of a block device, given by its folder in sysfs.
fn partitions(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = entries(folder).into_iter().filter(|name| folder.join(name).join("partition").exists()).collect();
    names.sort();
    names
}

fn entries(folder: &Path) -> Vec<String> {
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    fs::read_dir(folder).into_iter().flatten().filter_map(name).collect()
}

/// What uses a disk, its partitions, or the disk of which it is a partition: mounts, swap, device mappers, loop devices.
fn users_of(metadata: &fs::Metadata, path: &Path, is_block: bool) -> Vec<String> {
    let mut users = Vec::new();
    let canonical = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if !is_block {
        for name in entries(Path::new("/sys/block")) {
            let backing = fs::read_to_string(Path::new("/sys/block").join(&name).join("loop/backing_file"));
            if backing.is_ok_and(|file| Path::new(file.trim_end()) == canonical) {
                users.push(format!("attached to /dev/{name}"));
            }
        }
        return users;
    }
    let folder = attributes(metadata);
    let mut folders = vec![folder.clone()];
    folders.extend(partitions(&folder).into_iter().map(|name| folder.join(name)));
    if folder.join("partition").exists() {
        folders.push(folder.join(".."));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    for folder in folders {
        let Ok(device) = fs::read_to_string(folder.join("dev")) else { continue };
        let name = fs::canonicalize(&folder).ok();
        let name = name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or("it").to_owned();
        let mounted = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next() == Some(device.trim())).then(|| fields.nth(1)).flatten()
        });
        users.extend(mounted.map(|at| format!("{name} is mounted at {at}")));
        users.extend(entries(&folder.join("holders")).into_iter().map(|holder| format!("{holder} uses {name}")));
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&format!("/dev/{name}"))) {
            users.push(format!("{name} is swap"));
        }
    }
    users
}
