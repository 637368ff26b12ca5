//! A private tracefs instance on this host, removed however the recording ends.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use emmclab_trace::{Error, Kind, Result};
use rustix::mount::{MountFlags, mount};

/// Instances are named `emmclab[N]-PID-AGE`, AGE being the start time of that process: a process id alone comes again.
const PREFIX: &str = "emmclab";

/// A tracefs instance with its own buffers, events and filters; nothing global is touched. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    path: PathBuf,
}

/// Attempts to remove an instance that is busy, 10 ms apart.
const TRIES: u32 = 100;

/// Place of the mount of tracefs.
const TRACEFS: &str = "/sys/kernel/tracing";

/// Where tracefs is: its own mount, which is made where there is none, or below debugfs on kernels before 4.1.
pub(crate) fn tracefs() -> Result<&'static Path> {
    let mounted = || {
        [TRACEFS, "/sys/kernel/debug/tracing"]
            .map(Path::new)
            .into_iter()
            .find(|path| path.join("instances").is_dir())
    };
    if let Some(path) = mounted() {
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    if root {
        // A system without systemd mounts it nowhere. A failure shows in the second look.
        let _ = mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None);
    }
    mounted().ok_or_else(|| {
        let hint =
            if root { "the kernel needs CONFIG_FTRACE" } else { "recording needs root: run it with sudo" };
        Error::new(Kind::Io, "tracefs is not there, or not readable by this user").hint(hint)
    })
}

/// Start time of a process in clock ticks since boot, the 22nd field of its `stat`.
fn age(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19).map(str::to_owned)
}

/// Removes instances whose process is gone (it was killed before it could). Those in use refuse to go.
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

impl Instance {
    /// Makes an instance with tracing off, after removing those that earlier runs left.
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
        Err(Error::new(Kind::Io, "this process has 1,000 recordings open")
            .in_file(&instances)
            .hint("end some of them first"))
    }

    /// The text of a file of the instance.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        // `header_page` gives only what the first read asks for, and no file here is larger.
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

    /// Writes a setting.
    pub(crate) fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).map_err(|error| denied(&path, &error).of_field(name, 0, value.as_bytes()))
    }

    /// The path of a file of the instance.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Removing it turns its events off. It cannot be removed while another process looks into it, which takes moments. Nothing
        // more can be done where that fails; the next run tries again.
        for _ in 0..TRIES {
            let removed = fs::remove_dir(&self.path);
            if removed.map_or_else(|error| error.kind() != io::ErrorKind::ResourceBusy, |()| true) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The meaning of the kernel's refusal here.
pub(crate) fn denied(path: &Path, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            "recording needs root: run it with sudo"
        }
        io::ErrorKind::PermissionDenied => {
            "the kernel forbids tracing: /sys/kernel/security/lockdown must not say [confidentiality], and a container needs tracefs writable"
        }
        io::ErrorKind::OutOfMemory => "give a smaller --buffer-kb",
        _ => "check that no other recorder uses this instance, which the kernel refused",
    };
    Error::new(Kind::Io, error.to_string()).in_file(path).hint(hint)
}
