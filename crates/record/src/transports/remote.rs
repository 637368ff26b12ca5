//! Runs the helper script on another machine, over any connection that carries bytes in both directions.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use emmclab_trace::{Error, ErrorClass, Result};

use crate::disks::TargetDisks;
use crate::helper_stream::{HelperFrame, HelperStream};
use crate::kernel_format::Files;

use super::{ReadRound, RecordSetup, RecordTransport};

/// How long to wait for the helper to remove its instance.
const FAREWELL: Duration = Duration::from_secs(10);

/// The command line for a POSIX shell on the recorded machine: it becomes root by any available method, then runs the helper.
pub(crate) fn command_line() -> String {
    let script: Vec<&str> = include_str!("helper.sh").lines().filter(|line| !line.starts_with('#')).collect();
    let quoted = script.join("\n").replace('\'', r"'\''");
    format!(
        "S='{quoted}'\n\
         if [ \"$(id -u)\" = 0 ]; then exec sh -c \"$S\"\n\
         elif sudo -n true 2>/dev/null; then exec sudo -n sh -c \"$S\"\n\
         elif su -c true </dev/null >/dev/null 2>&1; then exec su -c \"$S\"\n\
         elif su 0 true </dev/null >/dev/null 2>&1; then exec su 0 sh -c \"$S\"\n\
         else exec sh -c \"$S\"\nfi"
    )
}

/// A recording by the helper script.
pub(crate) struct RemoteTransport {
    stream: HelperStream<Box<dyn Read + Send>>,
    answer: Option<Box<dyn Write + Send>>,
    files: Files,
    counters: Files,
    page: Vec<u8>,
    child: Option<Child>,
}

impl RemoteTransport {
    /// Runs a command whose standard input and output are those of the helper.
    pub(crate) fn spawn(command: &[String]) -> Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Error::new(ErrorClass::Config, "there is no command to reach the recorded machine with"))?;
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(
                |error| {
                    Error::new(ErrorClass::Io, format!("cannot run it: {error}"))
                        .of_field("command", 0, program.as_bytes())
                        .hint(format!("install `{program}`, or check its path"))
                },
            )?;
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(Error::new(ErrorClass::Io, "the command has no input or output"));
        };
        let input: ChildStdin = input;
        Self::connect(Box::new(output), Box::new(input), Some(child))
    }

    /// Reads the texts that the helper sends first.
    pub(crate) fn connect(
        output: Box<dyn Read + Send>,
        input: Box<dyn Write + Send>,
        child: Option<Child>,
    ) -> Result<Self> {
        let mut remote = Self {
            stream: HelperStream::new(output),
            answer: Some(input),
            files: Files::new(),
            counters: Files::new(),
            page: Vec::new(),
            child,
        };
        remote.files = remote.stream.texts("ready").map_err(|error| remote.explain(error))?;
        Ok(remote)
    }

    /// If the connection ended because its command failed, returns an error that says so.
    fn explain(&mut self, error: Error) -> Error {
        let status = match (&mut self.child, error.kind()) {
            (Some(child), ErrorClass::Truncated) => child.wait().ok(),
            _ => None,
        };
        match status {
            Some(status) if !status.success() => {
                // ssh reports its own failures as 255, after a message of its own.
                let problem = match status.code() {
                    Some(255) => "there is no connection to the recorded machine (exit status 255)".to_owned(),
                    Some(code) => {
                        format!("the command to the recorded machine ended with exit status {code}")
                    }
                    None => format!("the command to the recorded machine was ended: {status}"),
                };
                Error::new(ErrorClass::Io, problem)
                    .hint("the message of the command is above; try the same connection by hand")
            }
            _ => error,
        }
    }
}

impl RecordTransport for RemoteTransport {
    fn files(&self) -> &Files {
        &self.files
    }

    fn begin(&mut self, setup: &RecordSetup) -> Result<Files> {
        let mut answer = String::new();
        let (size, most) = (setup.page_bytes, setup.events_per_page);
        let _ = writeln!(answer, "{} {size} {most} {:.3}", setup.buffer_kb, setup.interval.as_secs_f64());
        let _ = writeln!(answer, "{}\n{}\n{}.", setup.events.join(" "), setup.filter, setup.registers);
        if let Some(input) = &mut self.answer {
            // If the connection is lost, reading reports the error.
            let _ = input.write_all(answer.as_bytes()).and_then(|()| input.flush());
        }
        self.page = vec![0; setup.page_bytes];
        self.stream.texts("stream").map_err(|error| self.explain(error))
    }

    fn round(&mut self, page: &mut dyn FnMut(usize, &[u8])) -> Result<ReadRound> {
        loop {
            match self.stream.frame()? {
                HelperFrame::Pages { cpu, count } => {
                    for _ in 0..count {
                        self.stream.page(&mut self.page)?;
                        page(cpu, &self.page);
                    }
                }
                HelperFrame::Round => return Ok(ReadRound::default()),
                HelperFrame::End => {
                    self.counters = self.stream.texts("end")?;
                    return Ok(ReadRound { behind: Vec::new(), ended: true });
                }
            }
        }
    }

    fn stop(&mut self) {
        if let Some(input) = &mut self.answer {
            let _ = input.write_all(b"stop\n").and_then(|()| input.flush());
        }
    }

    fn counters(&self) -> Vec<(usize, String)> {
        let cpu = |name: &str| name.strip_prefix("per_cpu/cpu")?.strip_suffix("/stats")?.parse().ok();
        let mut all: Vec<_> =
            self.counters.iter().filter_map(|(name, text)| Some((cpu(name)?, text.clone()))).collect();
        all.sort_unstable();
        all
    }

    fn saved_names(&self) -> String {
        self.counters.get("saved_cmdlines").cloned().unwrap_or_default()
    }

    fn disks_now(&self) -> Option<TargetDisks> {
        let mounts = self.counters.get("mounts").map_or("", String::as_str);
        self.counters.get("disks").map(|text| TargetDisks::parse(text, mounts))
    }

    fn is_own(&self, _task: i32) -> bool {
        false
    }
}

impl Drop for RemoteTransport {
    fn drop(&mut self) {
        // In any state, the helper cleans up and exits when its input or output is closed.
        self.answer = None;
        self.stream = HelperStream::new(Box::new(std::io::empty()));
        let Some(child) = &mut self.child else { return };
        let deadline = Instant::now() + FAREWELL;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_fits_into_one_message_of_an_old_adb() {
        let length = command_line().len();
        assert!(length < 4_000, "{length} bytes; the first message of adb before Android 9 holds 4,096");
    }
}
