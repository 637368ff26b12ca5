//! A private tracefs instance on this host, which is removed however the recording ends.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmclab_trace::{Error, ErrorClass, Result};
use rustix::mount::{MountFlags, mount};

/// Instances are named `emmclab[N]-PID-AGE`. AGE is the start time of the process, because process ids are reused.
const PREFIX: &str = "emmclab";

/// A tracefs instance with its own buffers, events and filters; no global settings are changed. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct TracefsInstance {
    path: PathBuf,
}

/// Maximum number of attempts to remove a busy instance, 10 ms apart.
const TRIES: u32 = 100;

/// The usual mount point of tracefs.
const TRACEFS: &str = "/sys/kernel/tracing";

/// The folder of tracefs: its own mount point, or below debugfs on kernels before 4.1. If it is not mounted, it is mounted.
pub(crate) fn tracefs() -> Result<&'static Path> {
    let mounted = || {
        [TRACEFS, "/sys/kernel/debug/tracing"].map(Path::new).into_iter().find(|path| path.join("instances").is_dir())
    };
    if let Some(path) = mounted() {
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    if root {
        // Without systemd, tracefs may not be mounted. A failure is detected by the second check.
        let _ = mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None);
    }
    mounted().ok_or_else(|| {
        let hint = if root { "the kernel needs CONFIG_FTRACE" } else { "recording needs root: run it with sudo" };
        Error::new(ErrorClass::Io, "tracefs is not there, or not readable by this user").hint(hint)
    })
}

/// Start time of a process in clock ticks since boot: the 22nd field of its `stat`.
fn age(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain any characters.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19).map(str::to_owned)
}

/// Removes instances whose process has ended without removing them. Those that are in use cannot be removed.
fn remove_stale(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let mut parts = rest.split('-').skip(1);
        if let (Some(pid), Some(born), None) = (parts.next(), parts.next(), parts.next())
            && age(pid).as_deref() != Some(born)
        {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl TracefsInstance {
    /// Makes an instance with tracing off, after removing the instances left by earlier runs.
    pub(crate) fn create() -> Result<Self> {
        let instances = tracefs()?.join("instances");
        remove_stale(&instances);
        let pid = std::process::id().to_string();
        let born = age(&pid).unwrap_or_default();
        for number in 0..1000 {
            let number = if number == 0 { String::new() } else { number.to_string() };
            let path = instances.join(format!("{PREFIX}{number}-{pid}-{born}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let instance = Self { path };
                    instance.write("tracing_on", "0")?;
                    return Ok(instance);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(denied(&path, &error)),
            }
        }
        Err(Error::new(ErrorClass::Io, "this process has 1,000 recordings open")
            .in_file(&instances)
            .hint("end some of them first"))
    }

    /// Reads a file of the instance.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        // The kernel returns `header_page` only to the first read call, so the buffer must be large enough for any file here.
        let mut text = vec![0; 1 << 16];
        let mut used = 0;
        let mut file = fs::File::open(&path).map_err(|error| denied(&path, &error))?;
        while used < text.len() {
            match file.read(&mut text[used..]).map_err(|error| denied(&path, &error))? {
                0 => break,
                read => used += read,
            }
        }
        Ok(String::from_utf8_lossy(&text[..used]).into_owned())
    }

    /// Writes a file of the instance.
    pub(crate) fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).map_err(|error| denied(&path, &error).of_field(name, 0, value.as_bytes()))
    }

    /// The path of a file of the instance.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TracefsInstance {
    fn drop(&mut self) {
        // Removing the instance turns its events off. It cannot be removed while another process has it open, which lasts only moments. If
        // it still fails, the next run tries again.
        for _ in 0..TRIES {
            let removed = fs::remove_dir(&self.path);
            if removed.map_or_else(|error| error.kind() != io::ErrorKind::ResourceBusy, |()| true) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The error if the kernel denies access to a tracefs file, with a hint.
pub(crate) fn denied(path: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            "recording needs root: run it with sudo"
        }
        io::ErrorKind::PermissionDenied => {
            "the kernel forbids tracing: /sys/kernel/security/lockdown must not be [confidentiality], and a container needs tracefs writable"
        }
        io::ErrorKind::OutOfMemory => "give a smaller --buffer-kb",
        _ => "check that no other recorder uses this instance, which the kernel refused",
    };
    Error::new(ErrorClass::Io, error.to_string()).in_file(path).hint(hint)
}
