//! Records from the ring buffers of this host in a private tracefs instance, which is removed at the end of the recording in any case.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use emmclab_trace::{Error, ErrorClass, KernelEvent, Result};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, mount};

use super::{ReadRound, RecordSetup, RecordTransport};
use crate::disks::TargetDisks;
use crate::event_format::KernelByteOrder;
use crate::helper_stream::HelperStream;
use crate::kernel_format::Files;

const MOUNTS: &str = "/proc/mounts";

/// Maximum number of pages that are read from one CPU before the next CPU: 1 MB with pages of 4 KB.
const PAGES_PER_TURN: usize = 256;

pub(crate) struct LocalTransport {
    // The pipes must be closed before the tracefs instance is removed, so this field is declared before `instance` and dropped first.
    pipes: Vec<(usize, File)>,
    instance: TracefsInstance,
    files: Files,
    page: Vec<u8>,
    interval: Duration,
    /// Whether the last round over the CPUs found no more data to read.
    idle: bool,
    stopping: bool,
}

impl LocalTransport {
    /// Creates the tracefs instance and reads the texts of the kernel.
    pub(crate) fn open() -> Result<Self> {
        let instance = TracefsInstance::create()?;
        // Kernels before 3.17 have no monotonic trace clock.
        instance.write("trace_clock", "mono").or_else(|_| instance.write("trace_clock", "global"))?;
        let mut files = Files::new();
        for name in ["trace_clock", "events/header_page", "events/header_event"] {
            files.insert(name.to_owned(), instance.read(name)?);
        }
        // Events that the kernel does not have are skipped here. `KernelFormat::from_files` checks that the required events are present.
        let block = fs::read_dir(instance.file("events/block")).into_iter().flatten().flatten();
        let block = block.map(|entry| format!("block/{}", entry.file_name().to_string_lossy()));
        let extra = KernelEvent::ALL.into_iter().map(|(event, _)| event.to_owned());
        for event in block.chain(extra) {
            let name = format!("events/{event}/format");
            if let Ok(text) = instance.read(&name) {
                files.insert(name, text);
            }
        }
        let order = if KernelByteOrder::NATIVE == KernelByteOrder::Little { "\u{1}" } else { "\u{2}" };
        files.insert("byte_order".to_owned(), order.to_owned());
        for (name, path) in [("release", "/proc/sys/kernel/osrelease"), ("host", "/proc/sys/kernel/hostname"), ("mounts", MOUNTS)]
        {
            files.insert(name.to_owned(), fs::read_to_string(path).unwrap_or_default());
        }
        files.insert("disks".to_owned(), disks());
        Ok(Self { pipes: Vec::new(), instance, files, page: Vec::new(), interval: Duration::ZERO, idle: false, stopping: false })
    }

    fn cpus(&self) -> Result<Vec<usize>> {
        let path = self.instance.file("per_cpu");
        let entries = fs::read_dir(&path).map_err(|error| denied(&path, &error))?;
        let mut cpus: Vec<usize> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }
}

impl RecordTransport for LocalTransport {
    fn files(&self) -> &Files {
        &self.files
    }

    fn begin(&mut self, setup: &RecordSetup) -> Result<Files> {
        let registers = registers(&setup.registers);
        self.instance.write("buffer_size_kb", &setup.buffer_kb.to_string())?;
        for event in &setup.events {
            if setup.filters(event) {
                self.instance.write(&format!("events/{event}/filter"), &setup.filter)?;
            }
            self.instance.write(&format!("events/{event}/enable"), "1")?;
        }
        for cpu in self.cpus()? {
            let path = self.instance.file(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let flags = OFlags::NONBLOCK.bits() as i32;
            let pipe = OpenOptions::new().read(true).custom_flags(flags).open(&path);
            self.pipes.push((cpu, pipe.map_err(|error| denied(&path, &error))?));
        }
        self.page = vec![0; setup.page_bytes];
        self.interval = setup.interval;
        self.instance.write("tracing_on", "1")?;
        Ok(registers)
    }

    fn round(&mut self, page: &mut dyn FnMut(usize, &[u8])) -> Result<ReadRound> {
        if self.idle && !self.stopping {
            std::thread::sleep(self.interval);
        }
        let mut round = ReadRound::default();
        for (cpu, pipe) in &mut self.pipes {
            let mut turns = 0;
            loop {
                if turns == PAGES_PER_TURN {
                    round.behind.push(*cpu);
                    break;
                }
                match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(read) => page(*cpu, &self.page[..read]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => {
                        let problem = format!("reading the ring buffer of CPU {cpu} failed: {error}");
                        return Err(Error::new(ErrorClass::Io, problem));
                    }
                }
                turns += 1;
            }
        }
        self.idle = round.behind.is_empty();
        round.ended = self.stopping && self.idle;
        Ok(round)
    }

    fn stop(&mut self) {
        self.stopping = true;
        // If this fails, recording still ends: the remaining pages are read, and removing the instance stops its events.
        let _ = self.instance.write("tracing_on", "0");
    }

    fn counters(&self) -> Vec<(usize, String)> {
        let read = |cpu| self.instance.read(&format!("per_cpu/cpu{cpu}/stats")).unwrap_or_default();
        self.pipes.iter().map(|(cpu, _)| (*cpu, read(*cpu))).collect()
    }

    fn saved_names(&self) -> String {
        self.instance.read("../../saved_cmdlines").unwrap_or_default()
    }

    fn disks_now(&self) -> Option<TargetDisks> {
        Some(TargetDisks::parse(&disks(), &fs::read_to_string(MOUNTS).unwrap_or_default()))
    }

    fn is_own(&self, task: i32) -> bool {
        Path::new(&format!("/proc/self/task/{task}")).exists()
    }
}

/// Runs the commands that print the registers of devices; empty if no shell can be run.
fn registers(commands: &str) -> Files {
    let shell = Command::new("sh").args(["-c", commands]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let printed = shell.map_or_else(|_| Vec::new(), |output| output.stdout);
    let whole = [&printed[..], b"@@end\n"].concat();
    HelperStream::new(&whole[..]).texts("end").unwrap_or_default()
}

/// The block devices of this host, as lines for [`crate::TargetDisks::parse`].
fn disks() -> String {
    let mut out = String::new();
    let entries = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).into_iter().flatten().flatten().collect();
        names.sort_by_key(std::fs::DirEntry::file_name);
        names.into_iter().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
    };
    let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    for (name, path) in entries(Path::new("/sys/block")) {
        let (Some(number), Some(sectors)) = (text(&path.join("dev")), text(&path.join("size"))) else {
            continue;
        };
        let _ = writeln!(out, "disk {name} {number} {sectors}");
        for (part, path) in entries(&path) {
            if let (true, Some(number)) = (part.starts_with(&name), text(&path.join("dev"))) {
                let _ = writeln!(out, "part {part} {number} {name}");
            }
        }
        for (below, _) in entries(&path.join("slaves")) {
            let _ = writeln!(out, "slave {below} {name}");
        }
        for (kind, file) in [("back", "loop/backing_file"), ("model", "device/name"), ("seq", "diskseq")] {
            if let Some(about) = text(&path.join(file)) {
                let _ = writeln!(out, "{kind} {name} {about}");
            }
        }
    }
    out
}

/// Prefix of the names of tracefs instances, which are `emmclab[N]-PID-AGE`. AGE is the start time of the process, because the kernel
/// reuses process ids.
const PREFIX: &str = "emmclab";

/// A tracefs instance with its own buffers, events and filters, so that no global settings change. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct TracefsInstance {
    path: PathBuf,
}

/// Maximum number of attempts to remove an instance that is in use, 10 ms apart.
const TRIES: u32 = 100;

/// The usual mount point of tracefs.
const TRACEFS: &str = "/sys/kernel/tracing";

/// The folder of tracefs: its own mount point, or in debugfs on kernels before 4.1. It is mounted if necessary.
pub(crate) fn tracefs() -> Result<&'static Path> {
    let mounted =
        || [TRACEFS, "/sys/kernel/debug/tracing"].map(Path::new).into_iter().find(|path| path.join("instances").is_dir());
    if let Some(path) = mounted() {
        return Ok(path);
    }
    let root = rustix::process::geteuid().is_root();
    if root {
        // Without systemd, tracefs may not be mounted yet. If mounting fails, the check below reports it.
        let _ = mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None);
    }
    mounted().ok_or_else(|| {
        let hint = if root { "the kernel needs CONFIG_FTRACE" } else { "recording needs root: run it with sudo" };
        Error::new(ErrorClass::Io, "tracefs is not mounted, or this user cannot read it").hint(hint)
    })
}

/// Start time of a process in clock ticks since boot: the 22nd field of its `stat`.
fn age(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain any character.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19).map(str::to_owned)
}

/// Removes tracefs instances whose process has ended without removing them. Instances in use cannot be removed.
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
    /// Creates a tracefs instance with tracing off; first removes instances that earlier runs left behind.
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
            .hint("end some of the recordings that this process has open"))
    }

    /// Reads a file in the folder of the tracefs instance.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path.join(name);
        // The kernel returns `header_page` only to the first read call, so the buffer must be large enough for every file that is read here.
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

    /// Writes a file in the folder of the tracefs instance.
    pub(crate) fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).map_err(|error| denied(&path, &error).of_field(name, 0, value.as_bytes()))
    }

    /// Returns the path of a file in the folder of the tracefs instance.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TracefsInstance {
    fn drop(&mut self) {
        // Removing the instance disables its events. The removal fails while another process has the instance open, so it is tried several
        // times. If it still fails, the next run tries again.
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
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => "recording needs root: run it with sudo",
        io::ErrorKind::PermissionDenied => {
            "the kernel forbids tracing: /sys/kernel/security/lockdown must not be [confidentiality], and a container needs tracefs writable"
        }
        io::ErrorKind::OutOfMemory => "give a smaller --buffer-kb",
        _ => "check that no other recorder uses this instance, which the kernel refused",
    };
    Error::new(ErrorClass::Io, error.to_string()).in_file(path).hint(hint)
}
