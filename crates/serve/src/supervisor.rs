//! The process that removes mounts, loop devices, ublk devices and folders when the serving process has ended in any way.
//!
//! It is a shell script, because a Rust process with threads cannot safely continue after fork. It waits for the end of a pipe,
//! and checks every second whether the serving process was killed but cannot end.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use emmclab_base::{Error, ErrorClass, Result};

const SCRIPT: &str = include_str!("supervisor.sh");

/// The supervisor process, and the private folder (mode 0700) that it created and will remove.
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
