//! Runs programs of the host that attach devices and create, mount and unmount file systems; lists the processes that keep a mount busy.
//! The supervisor removes mounts, loop devices, ublk devices and folders when the serving process has ended in any way.
//!
//! Each of these programs may wait for the device that this process serves. They are separate processes, so that this process can be
//! killed: if one of its threads waited in the kernel for the process itself, the FUSE connection would stay open forever.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
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

const SCRIPT: &str = include_str!("supervisor.sh");

/// The supervisor process, and the private folder (mode 0700) that it created and will remove. It is a shell script, because a Rust
/// process with threads cannot safely continue after fork. It waits for the end of a pipe, and checks every second whether the serving
/// process was killed but cannot end.
pub(crate) struct Supervisor {
    child: Child,
    input: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) folder: PathBuf,
    /// The control groups of the commands and of this process; `None` if they cannot be used.
    groups: Option<(PathBuf, PathBuf)>,
}

fn failed(error: &std::io::Error) -> Error {
    Error::new(ErrorClass::Io, format!("the shell that cleans up after this process could not be started: {error}"))
}

impl Supervisor {
    /// Starts the supervisor in its own process group, so that Ctrl-C does not reach it. `cleaner` is a command that deletes the
    /// ublk devices of the serving process; it may be empty.
    pub(crate) fn start(cleaner: &[OsString]) -> Result<Self> {
        let base = std::env::temp_dir().canonicalize().map_err(|error| Error::io(&std::env::temp_dir(), error))?;
        // The kernel escapes whitespace and backslashes in the mount table, so this path would not be found there.
        if base.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || *byte == b'\\') {
            return Err(Error::new(ErrorClass::Config, "the temporary folder has a blank or a backslash in its name")
                .in_file(&base)
                .hint("set TMPDIR to a folder without blanks or backslashes in its name"));
        }
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "emmclab-cleanup"])
            .arg(&base)
            .args(cleaner)
            .env("LC_ALL", "C")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let input = child.stdin.take();
        let Some(output) = child.stdout.take() else {
            return Err(Error::new(ErrorClass::Io, "the output of the shell that cleans up after this process cannot be read"));
        };
        let mut supervisor = Self { child, input, answers: BufReader::new(output), folder: PathBuf::new(), groups: None };
        let folder = supervisor.answer()?;
        let groups = (PathBuf::from(supervisor.answer()?), PathBuf::from(supervisor.answer()?));
        supervisor.groups = Some(groups).filter(|(group, _)| !group.as_os_str().is_empty());
        if folder.is_empty() {
            return Err(Error::new(ErrorClass::Io, "no temporary folder could be created in this folder")
                .in_file(&base)
                .hint("set TMPDIR to a folder that you can write"));
        }
        supervisor.folder = PathBuf::from(folder);
        Ok(supervisor)
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| failed(&error))?;
        Ok(line.trim_end_matches('\n').to_owned())
    }

    /// Calls `start`, which starts the command. The command and all processes that it starts are killed together with the serving process.
    /// Without control groups, a process that removes `EMMCLAB_SERVER` from its environment is not killed.
    pub(crate) fn start_supervised<T>(&self, command: &mut Command, start: impl FnOnce(&mut Command) -> T) -> T {
        command.env("EMMCLAB_SERVER", &self.folder);
        // A process starts in the control group of its parent, so this process moves to the new group temporarily (`0` stands for itself).
        // If the move fails, only the environment variable marks the new process.
        let move_to = |group: &Path| std::fs::write(group.join("cgroup.procs"), "0");
        let moved = self.groups.as_ref().filter(|(group, _)| move_to(group).is_ok());
        let started = start(command);
        if let Some((_, home)) = moved {
            let _ = move_to(home);
        }
        started
    }

    /// Creates a folder that the supervisor removes at the end. An existing folder is kept.
    pub(crate) fn make_folder(&mut self, path: &Path) -> Result<()> {
        if path.as_os_str().as_bytes().contains(&b'\n') {
            return Err(Error::new(ErrorClass::Config, "the folder has a line break in its name")
                .in_file(path)
                .hint("rename the folder so that its name has no line break"));
        }
        let mut line = path.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        if let Some(input) = &mut self.input {
            input.write_all(&line).map_err(|error| failed(&error))?;
        }
        match self.answer()?.as_str() {
            "made" | "there" => Ok(()),
            "" => Err(Error::new(ErrorClass::Io, "the shell that cleans up after this process has ended").in_file(path)),
            error => Err(Error::new(ErrorClass::Io, error).in_file(path)),
        }
    }

    /// Makes the supervisor clean up, and waits until it has ended.
    pub(crate) fn end(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.write_all(b"end\n");
            drop(input);
            let _ = self.child.wait();
            // The folder still exists only if the supervising shell was killed. Then the folder is empty.
            let _ = std::fs::remove_dir(&self.folder);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}
