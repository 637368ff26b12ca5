//! Attaching and detaching loop devices, and the limits of their queue.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, Kind, Result};

use crate::tools;

/// Attempts at a free loop device, which another process may take first.
const ATTEMPTS: u32 = 50;
/// Time for a loop device to let go of its file.
const DETACH: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(20);

/// Folder of a loop device in `/sys/block`.
fn attributes(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Sets an attribute of a block device.
pub(super) fn set(device: &Path, attribute: &str, value: &str) -> Result<()> {
    let path = attributes(device).join(attribute);
    fs::write(&path, value).map_err(|error| Error::io(&path, error))
}

/// Attaches a free loop device to the file, with direct I/O.
pub(super) fn attach(file: &Path, block_bytes: u32, partitions: bool) -> Result<PathBuf> {
    let mut attempt = 1;
    loop {
        let mut command = tools::tool("losetup", "mount")?;
        command.args(["--find", "--show", "--direct-io=on", "--sector-size", &block_bytes.to_string()]);
        if partitions {
            command.arg("--partscan");
        }
        command.arg("--").arg(file);
        match tools::finish(command) {
            Ok(device) => return Ok(PathBuf::from(device)),
            Err(error) if attempt < ATTEMPTS && taken(&error) => std::thread::sleep(BETWEEN),
            Err(error) => return Err(error.hint("the kernel needs loop devices (CONFIG_BLK_DEV_LOOP)")),
        }
        attempt += 1;
    }
}

/// Whether another process took the device that seemed free.
fn taken(error: &Error) -> bool {
    let said = error.to_string();
    said.contains("busy") || said.contains("temporarily unavailable") || said.contains("No such device")
}

/// Whether reads and writes pass the page cache of the file.
pub(super) fn is_direct(device: &Path) -> bool {
    fs::read_to_string(attributes(device).join("loop/dio")).is_ok_and(|value| value.trim() == "1")
}

/// Detaches the device from the file and waits until it lets go of it.
pub(super) fn detach(device: &Path, file: &Path) -> Result<()> {
    let backing = attributes(device).join("loop/backing_file");
    let held = || fs::read_to_string(&backing).is_ok_and(|path| Path::new(path.trim_end_matches('\n')) == file);
    let until = Instant::now() + DETACH;
    while held() {
        let mut command = tools::tool("losetup", "mount")?;
        command.arg("-d").arg(device);
        let outcome = tools::finish(command);
        if !held() {
            break;
        }
        if Instant::now() > until {
            let busy = Error::new(Kind::Io, "the loop device is in use by another process").in_file(device);
            return Err(outcome.err().unwrap_or(busy));
        }
        std::thread::sleep(BETWEEN);
    }
    Ok(())
}
