//! Attaching and detaching loop devices, and the limits of their queue.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};

use crate::fuse::FuseFile;
use crate::{SECTOR, host_programs};

/// Maximum number of attempts to get a free loop device, since another process may be faster.
const ATTEMPTS: u32 = 200;
/// Time limit for a loop device to release its file.
const DETACH: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(20);
/// A request of a loop device has at most 128 segments, each a page of 4096 bytes in the worst case. Longer ones would be split
/// at offsets that depend on the location of the pages.
const LONGEST_BYTES: u32 = 512 << 10;

/// Properties of the loop device.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// Logical block size: 512, 1024, 2048 or 4096 bytes.
    pub block_bytes: u32,
    /// Whether the kernel looks for partitions (`/dev/loopNp1` ...).
    pub partitions: bool,
    /// Limit of dirty data for it in the host's page cache; without it the limit of the host applies.
    pub dirty_bytes: Option<u64>,
    /// How long unmounting waits for processes that use a file system before it fails.
    pub patience: Duration,
}

impl Default for LoopOptions {
    fn default() -> Self {
        Self { block_bytes: 512, partitions: false, dirty_bytes: None, patience: Duration::from_secs(10) }
    }
}

/// The folder of a loop device in `/sys/block`.
fn attributes(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Sets an attribute of a block device.
fn set(device: &Path, attribute: &str, value: &str) -> Result<()> {
    let path = attributes(device).join(attribute);
    fs::write(&path, value).map_err(|error| Error::io(&path, error))
}

/// Returns an error for properties that a loop device cannot have.
pub(super) fn check(file: &FuseFile, options: &LoopOptions) -> Result<()> {
    let block = options.block_bytes;
    if !rustix::process::geteuid().is_root() {
        return Err(Error::new(ErrorClass::Unsupported, "a loop device needs root")
            .hint("run it as root, or use the FUSE file without a loop device"));
    }
    if !matches!(block, 512 | 1024 | 2048 | 4096) {
        return Err(Error::new(ErrorClass::Config, format!("a loop device cannot have blocks of {block} bytes"))
            .hint("choose 512, 1024, 2048 or 4096 bytes"));
    }
    let sectors = file.limits().sectors;
    if sectors == 0 || !sectors.is_multiple_of(u64::from(block) / SECTOR as u64) {
        let problem = format!("{sectors} sectors of 512 bytes are not a whole number of blocks of {block} bytes");
        return Err(Error::new(ErrorClass::Config, problem).hint("choose another size or smaller blocks"));
    }
    Ok(())
}

/// Attaches a free loop device to the file, with direct I/O.
pub(super) fn attach(file: &Path, block_bytes: u32, partitions: bool) -> Result<PathBuf> {
    let mut attempt = 1;
    loop {
        let mut command = host_programs::tool("losetup", "mount")?;
        command.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
        if partitions {
            command.arg("--partscan");
        }
        command.arg("--").arg(file);
        match host_programs::finish(command) {
            Ok(device) => return Ok(PathBuf::from(device)),
            Err(error) if attempt < ATTEMPTS && is_attach_race(&error) => std::thread::sleep(BETWEEN),
            Err(error) => return Err(error.hint("use a kernel with loop devices (CONFIG_BLK_DEV_LOOP)")),
        }
        attempt += 1;
    }
}

/// Whether another process took the free device, or the device node of a new one does not exist yet.
fn is_attach_race(error: &Error) -> bool {
    let said = error.to_string();
    ["busy", "temporarily unavailable", "No such device", "No such file"].iter().any(|why| said.contains(why))
}

/// Limits the queue of the device: requests of at most `longest_bytes`, and flushes only with a volatile cache. Both
/// are always set, because the kernel keeps the values of the last user of the device.
pub(super) fn limit(device: &Path, longest_bytes: u32, write_cache: bool) -> Result<()> {
    let longest = longest_bytes.min(LONGEST_BYTES) / 1024;
    set(device, "queue/max_sectors_kb", &longest.to_string())?;
    set(device, "queue/write_cache", if write_cache { "write back" } else { "write through" })
}

/// Returns an error if reads and writes of the loop device go through the page cache of the file.
pub(super) fn check_direct(device: &Path) -> Result<()> {
    let direct = fs::read_to_string(attributes(device).join("loop/dio")).is_ok_and(|value| value.trim() == "1");
    if direct {
        return Ok(());
    }
    Err(Error::new(ErrorClass::Unsupported, "the kernel refuses direct I/O on the loop device")
        .in_file(device)
        .hint("try blocks of 4096 bytes"))
}

/// Limits the dirty data of the device in the host's page cache.
pub(super) fn limit_dirty(device: &Path, most_bytes: u64) -> Result<()> {
    let refused = |error: Error| error.hint("use Linux 6.2 or later for this limit");
    set(device, "bdi/strict_limit", "1").map_err(refused)?;
    set(device, "bdi/max_bytes", &most_bytes.to_string()).map_err(refused)
}

/// Detaches the device from the file and waits until the file is released.
pub(super) fn detach(device: &Path, file: &Path) -> Result<()> {
    let backing = attributes(device).join("loop/backing_file");
    let held = || fs::read_to_string(&backing).is_ok_and(|path| Path::new(path.trim_end_matches('\n')) == file);
    if !held() {
        return Ok(());
    }
    // Restores the defaults for other users of loop devices, because the kernel keeps the values.
    set(device, "queue/write_cache", "write back")?;
    set(device, "queue/max_sectors_kb", "0")?;
    if attributes(device).join("bdi/strict_limit").exists() {
        set(device, "bdi/strict_limit", "0")?;
        set(device, "bdi/max_ratio", "100")?;
    }
    let mut command = host_programs::tool("losetup", "mount")?;
    command.arg("-d").arg(device);
    host_programs::finish(command)?;
    // A busy device detaches later by itself. A second request could detach a device that another process uses by then.
    let until = Instant::now() + DETACH;
    while held() {
        if Instant::now() > until {
            return Err(Error::new(ErrorClass::Io, "the loop device is in use by another process")
                .in_file(device)
                .hint("end that process, then detach it: `losetup -d`"));
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(())
}
