//! Programs of the host that attach, make, mount and unmount.
//!
//! Each of them may wait for the device that this process serves. As processes of their own they leave this one free to be
//! killed: a thread that waits in the kernel for its own process would keep the FUSE connection open for good.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use emmclab_base::{Error, Kind, Result, interrupt};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Time between two looks at whether the caller wants the work to end.
const POLL: Duration = Duration::from_millis(50);
/// Time for a process to end once it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// The path of a program; folders of administration are searched, too, which are not in every user's `PATH`.
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|folder| folder.join(tool))
        .find(|path| path.is_file())
}

/// The error for a program that is not installed.
pub(crate) fn missing(tool: &str, package: &str) -> Error {
    Error::new(Kind::Unsupported, format!("`{tool}` is not installed"))
        .hint(format!("install the Debian package {package}"))
}

/// The program that mounts FUSE for users who are not root.
pub(crate) fn fusermount() -> Option<PathBuf> {
    find("fusermount3").or_else(|| find("fusermount"))
}

/// A program of the package, ready for arguments, whose messages are English and kept for the error.
pub(crate) fn tool(name: &str, package: &str) -> Result<Command> {
    let path = find(name).ok_or_else(|| missing(name, package))?;
    let mut command = Command::new(path);
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn name(command: &Command) -> String {
    Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The output of a program, or its message as an error of a kind.
fn judged(name: &str, output: io::Result<Output>, kind: Kind) -> Result<String> {
    let output = output.map_err(|error| Error::new(Kind::Io, format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // What it says of its usage, after the error, is not about this call.
    let lines = said.lines().map(str::trim).take_while(|line| !line.to_lowercase().starts_with("usage"));
    let said = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let said = if said.is_empty() { output.status.to_string() } else { said };
    let said = said.strip_prefix(&format!("{name}: ")).unwrap_or(&said).to_owned();
    Err(Error::new(kind, format!("{name}: {said}")))
}

/// Runs a program to its end, in a process group of its own: tearing down is not to be interrupted by Ctrl-C.
pub(crate) fn finish(mut command: Command) -> Result<String> {
    let name = name(&command);
    judged(&name, command.process_group(0).output(), Kind::Io)
}

/// Waits for a process; if the caller wants its work to end ([`interrupt`]), the process is asked to end, and then made to.
fn interruptible<T: Send + 'static>(
    child: Child,
    wait: impl FnOnce(Child) -> io::Result<T> + Send + 'static,
) -> Result<io::Result<T>> {
    // The process is not reaped yet: its number is still its own.
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

/// Runs a program to its end, or until the caller wants its work to end.
pub(crate) fn run(command: Command) -> Result<String> {
    run_or(Kind::Io, command)
}

/// As [`run`], for a program that fails for what it was asked for, such as a wrong option: [`Kind::Config`].
pub(crate) fn run_as_asked(command: Command) -> Result<String> {
    run_or(Kind::Config, command)
}

fn run_or(kind: Kind, mut command: Command) -> Result<String> {
    let name = name(&command);
    let child = command.spawn().map_err(|error| Error::new(Kind::Io, format!("{name}: {error}")))?;
    judged(&name, interruptible(child, Child::wait_with_output)?, kind)
}

/// Runs a command with the streams that it has, to its end or until the caller wants its work to end.
pub(crate) fn run_for_user(command: &mut Command) -> Result<ExitStatus> {
    let program = PathBuf::from(command.get_program());
    let failed = |error| Error::io(&program, error);
    let child = command.spawn().map_err(failed)?;
    interruptible(child, |mut child| child.wait())?.map_err(failed)
}

/// Unmounts a FUSE file system that this user mounted.
pub(crate) fn unmount_fuse(folder: &Path) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        tool("umount", "mount")?
    } else {
        let mut command =
            tool(if find("fusermount3").is_some() { "fusermount3" } else { "fusermount" }, "fuse3")?;
        command.arg("-u");
        command
    };
    command.arg(folder);
    finish(command).map(drop)
}
