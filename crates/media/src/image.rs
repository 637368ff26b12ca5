//! The durable contents of a device: a sparse file of raw sectors.
//!
//! The file is never mapped into memory, so that a full disk causes an error that can be reported, and not a signal.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmclab_base::{ByteCount, Error, ErrorClass, Result, SECTOR_BYTES};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

/// Number of attempts to lock an image, over half a second: a process that has just ended, or a forked child that has not started
/// its program yet, may hold the lock a little longer.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Zeros that are written in pieces if the file system cannot punch holes.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Consecutive sectors of an image that all contain data or are all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRun {
    /// Length in sectors.
    pub sectors: u64,
    /// Whether the sectors contain data; false if they are a hole, which reads as zeros.
    pub data: bool,
}

/// A raw image file, locked exclusively while it is open.
#[derive(Debug)]
pub struct RawImage {
    file: File,
    sectors: u64,
    path: Option<PathBuf>,
}

impl RawImage {
    /// Creates an image without a name, which is deleted when it is closed.
    /// Errors: if no temporary file can be created.
    pub fn temporary(sectors: u64) -> Result<Self> {
        let folder = std::env::temp_dir();
        let fail = |error| Error::io(&folder, error).hint("set TMPDIR to another folder, or name an image file");
        let file = tempfile::tempfile_in(&folder).map_err(fail)?;
        file.set_len(sectors * SECTOR_BYTES).map_err(fail)?;
        Ok(Self { file, sectors, path: None })
    }

    /// Opens the image at `path`, or creates it; also returns whether it was created.
    /// Errors: if it cannot be opened, has another size than the device, or is open in another process.
    pub fn open(path: &Path, sectors: u64) -> Result<(Self, bool)> {
        let fail = |error| Error::io(path, error);
        let (mut file, mut created) = (OpenOptions::new().read(true).write(true).open(path).map_err(fail), false);
        if !path.exists() {
            created = true;
            file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(fail);
        }
        let file = file?;
        let mut locked = file.try_lock();
        for _ in 0..LOCK_TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(LOCK_PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new(ErrorClass::Config, "another process serves this image")
                    .in_file(path)
                    .hint("end the other process, or name another image"));
            }
            // If the file system does not support locks, the image is not protected against other processes.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let (size, needed) = (file.metadata().map_err(fail)?.len(), sectors * SECTOR_BYTES);
        if created || size == 0 {
            file.set_len(needed).map_err(fail)?;
            created = true;
        } else if size != needed {
            let size = ByteCount(size);
            return Err(Error::new(ErrorClass::Config, format!("the image has {size}, but the device {}", ByteCount(needed)))
                .in_file(path)
                .hint("name the device that the image was created with, or another image"));
        }
        Ok((Self { file, sectors, path: Some(path.to_owned()) }, created))
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Path of the image; `None` for a temporary one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Fills `buffer` from `sector` on.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, sector * SECTOR_BYTES)
    }

    /// Writes whole sectors from `sector` on.
    /// Errors: Errors of the file; [`ErrorKind::StorageFull`] on a full disk.
    pub fn write(&self, sector: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, sector * SECTOR_BYTES)
    }

    /// Punches a hole: the sectors read as zeros from now on and occupy no space.
    pub fn discard(&self, sector: u64, sectors: u64) -> io::Result<()> {
        let (from, length) = (sector * SECTOR_BYTES, sectors * SECTOR_BYTES);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, from, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                let mut at = from;
                while at < from + length {
                    let part = (from + length - at).min(ZEROS.len() as u64);
                    self.file.write_all_at(&ZEROS[..part as usize], at)?;
                    at += part;
                }
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// Calls `visit` with each run of data or hole in `sector..end`, in order, until it returns false. If the file system does
    /// not support holes, all sectors are data.
    pub fn runs(&self, sector: u64, end: u64, mut visit: impl FnMut(DataRun) -> bool) -> io::Result<()> {
        let end = end.min(self.sectors);
        let mut at = sector;
        while at < end {
            let data = match seek(&self.file, SeekFrom::Data(at * SECTOR_BYTES)) {
                Ok(data) => (data / SECTOR_BYTES).clamp(at, end),
                Err(Errno::NXIO) => end,
                Err(Errno::INVAL) => at,
                Err(error) => return Err(error.into()),
            };
            if data > at {
                if !visit(DataRun { sectors: data - at, data: false }) {
                    return Ok(());
                }
                at = data;
                continue;
            }
            let hole = match seek(&self.file, SeekFrom::Hole(at * SECTOR_BYTES)) {
                Ok(hole) => hole.div_ceil(SECTOR_BYTES).clamp(at + 1, end),
                Err(Errno::INVAL | Errno::NXIO) => end,
                Err(error) => return Err(error.into()),
            };
            if !visit(DataRun { sectors: hole - at, data: true }) {
                return Ok(());
            }
            at = hole;
        }
        Ok(())
    }

    /// Unlocks the image for other processes. Nothing may be written afterwards.
    pub fn release(&self) {
        // If the file system has no locks, there is nothing to unlock.
        let _ = self.file.unlock();
    }

    /// Syncs the file, so that its contents survive a power failure of this machine.
    pub fn sync(&self) -> io::Result<()> {
        match self.file.sync_data() {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            result => result,
        }
    }
}
