//! Runs the helper script on another machine, over any connection that transports bytes in both directions.
//!
//! An Android phone is reached over the adb server of this host, by the server's own protocol: each request is a length of four hexadecimal
//! digits and a text. The answer is `OKAY`, or `FAIL` and a reason. After `host:transport...` and `exec:COMMAND` the connection carries the
//! command's input and output, byte for byte. Source: `docs/dev/protocol.md` and `docs/dev/services.md` of Android's
//! platform/packages/modules/adb.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use emmclab_trace::{Error, ErrorClass, Result};

use super::{ReadRound, RecordSetup, RecordTransport};
use crate::disks::TargetDisks;
use crate::helper_stream::{HelperFrame, HelperStream};
use crate::kernel_format::Files;

/// Time limit for the helper to remove its tracefs instance.
const FAREWELL: Duration = Duration::from_secs(10);

/// The shell command to run on the recorded machine for [`crate::RecordTarget::Command`]: it becomes root by any available method
/// and runs the helper.
pub fn helper_command() -> String {
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

/// A recording by the helper script on another machine.
pub(crate) struct RemoteTransport {
    stream: HelperStream<Box<dyn Read + Send>>,
    answer: Option<Box<dyn Write + Send>>,
    files: Files,
    counters: Files,
    page: Vec<u8>,
    child: Option<Child>,
}

impl RemoteTransport {
    /// Runs a command that is connected to the helper by its standard input and output.
    pub(crate) fn spawn(command: &[String]) -> Result<Self> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Error::new(ErrorClass::Config, "the command that connects to the recorded machine is empty"))?;
        let mut child =
            Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| {
                Error::new(ErrorClass::Io, format!("the command that connects to the recorded machine cannot be run: {error}"))
                    .of_field("command", 0, program.as_bytes())
                    .hint(format!("install `{program}`, or check its path"))
            })?;
        let (Some(output), Some(input)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(Error::new(ErrorClass::Io, "the command that connects to the recorded machine has no open pipes"));
        };
        let input: ChildStdin = input;
        Self::connect(Box::new(output), Box::new(input), Some(child))
    }

    /// Reads the texts that the helper sends first.
    pub(crate) fn connect(output: Box<dyn Read + Send>, input: Box<dyn Write + Send>, child: Option<Child>) -> Result<Self> {
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

    /// If a connection ended because its command failed, returns an error with the exit status of the command. Otherwise returns `error`
    /// unchanged.
    fn explain(&mut self, error: Error) -> Error {
        let status = match (&mut self.child, error.kind()) {
            (Some(child), ErrorClass::Truncated) => child.wait().ok(),
            _ => None,
        };
        match status {
            Some(status) if !status.success() => {
                // ssh exits with status 255 after failures of its own, for which it prints a message.
                let problem = match status.code() {
                    Some(255) => "there is no connection to the recorded machine (exit status 255)".to_owned(),
                    Some(code) => {
                        format!("the command to the recorded machine ended with exit status {code}")
                    }
                    None => format!("the command to the recorded machine was ended: {status}"),
                };
                Error::new(ErrorClass::Io, problem).hint("read the command's message above, and try the connection by hand")
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
            // If the connection is lost, the next read reports the error.
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
        let mut all: Vec<_> = self.counters.iter().filter_map(|(name, text)| Some((cpu(name)?, text.clone()))).collect();
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
        // The helper on the recorded machine cleans up and exits when its input or output is closed.
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

/// Default port of the adb server, unless `ANDROID_ADB_SERVER_PORT` is set.
const PORT: u16 = 5037;
/// Time without data after which the connection is considered lost. The helper sends data each time it has read all CPUs.
const SILENCE: Duration = Duration::from_secs(15);

/// Runs the helper on the phone with this serial number, or on the only phone.
pub(crate) fn open_adb(serial: Option<&str>, port: Option<u16>) -> Result<RemoteTransport> {
    let mut server = connect(port.unwrap_or_else(default_port))?;
    let transport = match serial {
        Some(serial) => format!("host:transport:{serial}"),
        None => "host:transport-any".to_owned(),
    };
    request(&mut server, &transport)?;
    request(&mut server, &format!("exec:{}", helper_command()))?;
    let output = server.try_clone().map_err(|error| failed(&error))?;
    output.set_read_timeout(Some(SILENCE)).map_err(|error| failed(&error))?;
    RemoteTransport::connect(Box::new(output), Box::new(server), None)
}

fn default_port() -> u16 {
    std::env::var("ANDROID_ADB_SERVER_PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(PORT)
}

/// Connects to the adb server; starts the server if it does not run.
fn connect(port: u16) -> Result<TcpStream> {
    let address = ("127.0.0.1", port);
    if let Ok(server) = TcpStream::connect(address) {
        return Ok(server);
    }
    let started =
        Command::new("adb").args(["-P", &port.to_string(), "start-server"]).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if let Err(error) = started {
        return Err(Error::new(ErrorClass::Io, format!("no adb server runs and `adb` cannot be started: {error}"))
            .hint("install Android's platform tools (Debian: `apt install adb`)"));
    }
    TcpStream::connect(address).map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> Error {
    Error::new(ErrorClass::Io, format!("the adb server does not answer: {error}"))
        .hint("run `adb kill-server`, then `adb devices`, to see whether adb finds the phone")
}

fn request(server: &mut TcpStream, text: &str) -> Result<()> {
    let message = format!("{:04x}{text}", text.len());
    server.write_all(message.as_bytes()).map_err(|error| failed(&error))?;
    let mut word = [0; 4];
    server.read_exact(&mut word).map_err(|error| failed(&error))?;
    if &word == b"OKAY" {
        return Ok(());
    }
    let mut length = [0; 4];
    server.read_exact(&mut length).map_err(|error| failed(&error))?;
    let length = std::str::from_utf8(&length).ok().and_then(|text| u16::from_str_radix(text, 16).ok());
    let mut reason = vec![0; usize::from(length.unwrap_or(0))];
    server.read_exact(&mut reason).map_err(|error| failed(&error))?;
    let reason = String::from_utf8_lossy(&reason).into_owned();
    let hint = if reason.contains("unauthorized") {
        "unlock the phone and allow this computer to debug it"
    } else if reason.contains("more than one") {
        "name the phone: --serial SERIAL, as `adb devices` shows it"
    } else {
        "`adb devices` must list the phone as `device`: enable USB debugging and plug it in"
    };
    Err(Error::new(ErrorClass::Io, format!("adb: {reason}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_fits_into_one_message_of_an_old_adb() {
        let length = helper_command().len();
        assert!(length < 4_000, "{length} bytes; the first message of adb before Android 9 holds 4,096");
    }
}
