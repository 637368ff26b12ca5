//! An Android phone over the adb server of this host.
//!
//! This uses the server's own protocol: each request is a length of four hexadecimal digits and a text. The answer is `OKAY`, or `FAIL` and
//! a reason. After `host:transport...` and `exec:COMMAND` the connection carries the command's input and output, byte for byte. Source:
//! `docs/dev/protocol.md` and `docs/dev/services.md` of Android's platform/packages/modules/adb.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use emmclab_trace::{Error, ErrorClass, Result};

use super::remote::{RemoteTransport, command_line};

/// Default port of the server, unless `ANDROID_ADB_SERVER_PORT` is set.
const PORT: u16 = 5037;
/// The helper sends something in every round. After this time without any data, the connection is considered lost.
const SILENCE: Duration = Duration::from_secs(15);

/// Runs the helper on the phone with this serial number, or on the only one.
pub(crate) fn open(serial: Option<&str>, port: Option<u16>) -> Result<RemoteTransport> {
    let mut server = connect(port.unwrap_or_else(default_port))?;
    let transport = match serial {
        Some(serial) => format!("host:transport:{serial}"),
        None => "host:transport-any".to_owned(),
    };
    request(&mut server, &transport)?;
    request(&mut server, &format!("exec:{}", command_line()))?;
    let output = server.try_clone().map_err(|error| failed(&error))?;
    output.set_read_timeout(Some(SILENCE)).map_err(|error| failed(&error))?;
    RemoteTransport::connect(Box::new(output), Box::new(server), None)
}

fn default_port() -> u16 {
    std::env::var("ANDROID_ADB_SERVER_PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(PORT)
}

/// Connects to the server; starts the server if it does not run.
fn connect(port: u16) -> Result<TcpStream> {
    let address = ("127.0.0.1", port);
    if let Ok(server) = TcpStream::connect(address) {
        return Ok(server);
    }
    let started = Command::new("adb")
        .args(["-P", &port.to_string(), "start-server"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if let Err(error) = started {
        return Err(Error::new(ErrorClass::Io, format!("no adb server runs and `adb` cannot be started: {error}"))
            .hint("install Android's platform tools (Debian: `apt install adb`)"));
    }
    TcpStream::connect(address).map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> Error {
    Error::new(ErrorClass::Io, format!("the adb server does not answer: {error}"))
        .hint("`adb kill-server`, then `adb devices`, shows whether the phone is seen")
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
