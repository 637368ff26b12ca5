//! Runs programs of the host that attach devices and create, mount and unmount file systems; lists the processes that keep a mount busy.
//!
//! Each of these programs may wait for the device that this process serves. They are separate processes, so that this process can be
//! killed: if one of its threads waited in the kernel for the process itself, the FUSE connection would stay open forever.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, io};

use emmclab_base::{Error, ErrorClass, Result, interrupt};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Time between two checks for an interruption.
const POLL: Duration = Duration::from_millis(50);
/// Maximum time to wait for a process to end after it was sent a signal.
const GRACE: Duration = Duration::from_secs(5);

/// The path of a program. Administration folders such as `/usr/sbin`, which are not in every user's `PATH`, are searched, too.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(tool))
        .find(|path| path.is_file())
}

/// The error for a program that is not installed.
pub(crate) fn missing(tool: &str, package: &str) -> Error {
    Error::new(ErrorClass::Unsupported, format!("`{tool}` is not installed"))
        .hint(format!("install the Debian package {package}"))
}

/// Creates a command that runs a program of this package. The messages of the program are in English and are captured for the error.
pub(crate) fn tool(name: &str, package: &str) -> Result<Command> {
    let path = find(name).ok_or_else(|| missing(name, package))?;
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the standard output of a program. If the program failed, returns an error of class `kind` with its message.
fn check_output(name: &str, output: io::Result<Output>, kind: ErrorClass) -> Result<String> {
    let output = output.map_err(|error| Error::new(ErrorClass::Io, format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    // Tools may print their usage after the error. It does not help the user, so it is omitted.
    let lines = message.lines().map(str::trim).take_while(|line| !line.to_lowercase().starts_with("usage"));
    let message = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let message = if message.is_empty() { output.status.to_string() } else { message };
    let message = message.strip_prefix(&format!("{name}: ")).unwrap_or(&message).to_owned();
    Err(Error::new(kind, format!("{name}: {message}")))
}

/// Runs a program to its end in its own process group, so that Ctrl-C does not interrupt it.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let name = name(&command);
    check_output(&name, command.process_group(0).output(), ErrorClass::Io)
}

/// Waits for a process. If the caller is interrupted ([`interrupt`]), the process receives SIGTERM, and SIGKILL if it does not end.
pub(crate) fn interruptible<T: Send + 'static>(
    child: Child, wait: impl FnOnce(Child) -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>> {
    // The process is not reaped yet, so its id cannot belong to another process.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let signal = |signal| process.as_ref().is_ok_and(|process| pidfd_send_signal(process, signal).is_ok());
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(wait(child)).is_ok());
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => return Ok(Err(io::Error::other("its thread ended"))),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(interrupted) = interrupt::check() {
            for end in [Signal::TERM, Signal::KILL] {
                if !signal(end) || receiver.recv_timeout(GRACE).is_ok() {
                    break;
                }
            }
            return Err(interrupted);
        }
    }
}

/// Runs a program to its end or until the caller is interrupted. The error of a failed program has the class `failure`.
pub(crate) fn run(failure: ErrorClass, mut command: Command) -> Result<String> {
    let name = name(&command);
    let child = command.spawn().map_err(|error| Error::new(ErrorClass::Io, format!("{name}: {error}")))?;
    check_output(&name, interruptible(child, Child::wait_with_output)?, failure)
}

/// Unmounts a FUSE file system of this user.
pub(crate) fn unmount_fuse(folder: &Path) -> Result<()> {
    let (name, package, arguments): (_, _, &[&str]) = match find("fusermount3") {
        _ if rustix::process::geteuid().is_root() => ("umount", "mount", &[]),
        Some(_) => ("fusermount3", "fuse3", &["-u"]),
        None => ("fusermount", "fuse3", &["-u"]),
    };
    let mut command = tool(name, package)?;
    command.args(arguments).arg(folder);
    finish(command).map(drop)
}

/// Maximum number of processes that a message lists by name; the others are counted.
const NAMED: usize = 5;

/// Whether a process uses a file below `folder`. Links and memory maps are compared as text, because accessing the mount could block.
fn uses(process: &Path, folder: &Path) -> bool {
    let below = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(folder));
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
    let links = ["cwd", "root", "exe"].into_iter().map(|name| process.join(name));
    links.chain(files).any(below)
        || fs::read_to_string(process.join("maps")).is_ok_and(|maps| {
            // A line of `/proc/PID/maps` has five fields and then the path, which may contain spaces.
            maps.lines().any(|line| line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(folder)))
        })
}

/// Processes that use the mount at `folder`, as `NAME (pid N)`. Only root finds processes of other users.
pub(crate) fn holders(folder: &Path) -> Vec<String> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if uses(&entry.path(), folder) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            processes.push(format!("{} (pid {pid})", name.trim_end()));
        }
    }
    processes
}

/// Lists other mounts below `folder`, which also keep the file system at `folder` busy.
fn mounts(folder: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points
        .filter(|point| Path::new(point).starts_with(folder) && Path::new(point) != folder)
        .map(|point| format!("the mount {point}"))
        .collect()
}

/// A sentence that lists the first few processes and mounts that keep a mount busy, and counts the others; `None` without any.
pub(crate) fn holder_sentence(mut holders: Vec<String>) -> Option<String> {
    let more = holders.len().saturating_sub(NAMED);
    holders.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!holders.is_empty()).then(|| format!("it is in use by {}{more}", holders.join(", ")))
}

/// Adds the processes and mounts that keep the mount at `folder` busy to an error.
pub(crate) fn name_holders_in(error: Error, folder: &Path) -> Error {
    let mut all = holders(folder);
    all.extend(mounts(folder));
    match holder_sentence(all) {
        None => error,
        Some(problem) => Error::new(error.kind(), problem).in_file(folder).hint("end the processes that use the folder"),
    }
}
