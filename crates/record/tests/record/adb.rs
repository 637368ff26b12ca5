//! A recording through a real adb server, to a stand-in for a phone's `adbd` that speaks adb's transport protocol.
//! Needs root.
//!
//! Source of the protocol: `protocol.txt` of Android's platform/packages/modules/adb.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use crate::common::{LoopDisk, by_dd, complete_recording, machine, stop, take, wait_until};
use emmclab_record::{RecordOptions, RecordTarget, TracefsRecorder};

const CNXN: u32 = u32::from_le_bytes(*b"CNXN");
const OPEN: u32 = u32::from_le_bytes(*b"OPEN");
const OKAY: u32 = u32::from_le_bytes(*b"OKAY");
const WRTE: u32 = u32::from_le_bytes(*b"WRTE");
const CLSE: u32 = u32::from_le_bytes(*b"CLSE");
/// What phones before Android 9 take at most.
const MAX_DATA: usize = 4096;

fn send(link: &Mutex<TcpStream>, command: u32, arg0: u32, arg1: u32, data: &[u8]) {
    let sum: u32 = data.iter().map(|byte| u32::from(*byte)).sum();
    let mut message = Vec::new();
    for word in [command, arg0, arg1, data.len() as u32, sum, !command] {
        message.extend(word.to_le_bytes());
    }
    message.extend(data);
    let _ = link.lock().unwrap().write_all(&message);
}

/// A command that runs on the "phone".
struct Service {
    child: Child,
    input: Option<ChildStdin>,
    acknowledged: Sender<()>,
}

fn open_service(shell: &[String], link: &Arc<Mutex<TcpStream>>, local: u32, remote: u32, name: &str) -> Service {
    let command = name.trim_end_matches('\0').strip_prefix("exec:").unwrap();
    let mut child = Command::new(&shell[0])
        .args(&shell[1..])
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (acknowledged, ready) = channel();
    let mut output = child.stdout.take().unwrap();
    let link = link.clone();
    std::thread::spawn(move || {
        send(&link, OKAY, local, remote, b"");
        let mut data = [0; MAX_DATA];
        loop {
            match output.read(&mut data).unwrap_or(0) {
                0 => break,
                read => send(&link, WRTE, local, remote, &data[..read]),
            }
            // One message at a time may be on its way.
            if ready.recv().is_err() {
                return;
            }
        }
        send(&link, CLSE, local, remote, b"");
    });
    Service { input: child.stdin.take(), child, acknowledged }
}

/// Serves one connection as `adbd` does, without authentication (as `ro.adb.secure=0`).
fn phone(shell: &[String], stream: TcpStream) {
    let mut reader = stream.try_clone().unwrap();
    let link = Arc::new(Mutex::new(stream));
    let mut services: HashMap<u32, Service> = HashMap::new();
    let mut header = [0; 24];
    while reader.read_exact(&mut header).is_ok() {
        let word = |i: usize| u32::from_le_bytes(header[4 * i..4 * i + 4].try_into().unwrap());
        let (command, arg0, arg1) = (word(0), word(1), word(2));
        let mut data = vec![0; word(3) as usize];
        if reader.read_exact(&mut data).is_err() {
            break;
        }
        match command {
            CNXN => {
                send(&link, CNXN, 0x0100_0000, MAX_DATA as u32, b"device::ro.product.name=stand;ro.product.model=in;");
            }
            OPEN => {
                let local = services.len() as u32 + 1;
                let name = String::from_utf8(data).unwrap();
                services.insert(local, open_service(shell, &link, local, arg0, &name));
            }
            WRTE => {
                if let Some(input) = services.get_mut(&arg1).and_then(|service| service.input.as_mut()) {
                    let _ = input.write_all(&data);
                    send(&link, OKAY, arg1, arg0, b"");
                }
            }
            OKAY => {
                if let Some(service) = services.get(&arg1) {
                    let _ = service.acknowledged.send(());
                }
            }
            CLSE => {
                if let Some(mut service) = services.remove(&arg1) {
                    service.input = None;
                    drop(service.acknowledged);
                    let _ = service.child.wait();
                }
            }
            _ => {}
        }
    }
}

/// Debian's adb server on a port of its own, connected to the stand-in.
pub struct Server {
    home: tempfile::TempDir,
    port: u16,
    pub serial: String,
}

impl Server {
    fn start() -> Self {
        Self::of(&["sh", "-c"])
    }

    /// A phone on which these words run a command.
    pub fn of(shell: &[&str]) -> Self {
        let shell: Arc<Vec<String>> = Arc::new(shell.iter().map(|word| (*word).to_owned()).collect());
        let phones = TcpListener::bind("127.0.0.1:0").unwrap();
        let serial = phones.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in phones.incoming().flatten() {
                let shell = shell.clone();
                std::thread::spawn(move || phone(&shell, stream));
            }
        });
        // Somebody else may take a port between its choice and the start of the server.
        let mut tried = Vec::new();
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = Self { home: tempfile::tempdir().unwrap(), port, serial: serial.clone() };
            server.adb(&["start-server"]);
            let said = server.adb(&["connect", &serial]);
            if said.contains("connected to") {
                return server;
            }
            tried.push(format!("port {port}: {said}"));
        }
        panic!("no adb server can be started: {tried:?}");
    }

    fn adb(&self, arguments: &[&str]) -> String {
        let output = Command::new("adb")
            .args(["-P", &self.port.to_string()])
            .args(arguments)
            .env("HOME", self.home.path())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn target(&self, serial: &str) -> RecordTarget {
        RecordTarget::Adb { serial: Some(serial.to_owned()), port: Some(self.port) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.adb(&["kill-server"]);
    }
}

#[test]
fn a_phone_is_recorded_through_the_adb_server_as_its_kernel_counts() {
    let Some(_alone) = machine(&["adb", "sqlite3", "mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    let server = Server::start();
    complete_recording(server.target(&server.serial), &disk);

    let options = RecordOptions { target: server.target("no-such-phone"), ..RecordOptions::default() };
    let error = TracefsRecorder::start(&options).err().unwrap();
    assert!(error.to_string().contains("not found") && error.hint_text().is_some(), "{error}");
}

#[test]
fn an_unplugged_phone_leaves_what_came_before() {
    let Some(_alone) = machine(&["adb", "mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    let server = Server::start();
    let target = server.target(&server.serial);
    let options = RecordOptions { target, devices: vec![disk.device.clone()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    assert_eq!(disk.instances(), 1);
    disk.read(500, 4);
    let requests = take(&recorder, 500);
    server.adb(&["disconnect", &server.serial]);
    wait_until("the recording ends", || recorder.has_ended());
    let (requests, outcome) = stop(recorder, requests);
    assert!(outcome.interrupted.is_some());
    assert_eq!(by_dd(&requests).count(), 500);
    disk.wait_for_no_instance();
}
