//! Recordings with the helper script: with all installed shells, over ssh, over connections that break, and through a real adb
//! server to a substitute for `adbd` on a phone that implements adb's transport protocol (source: `protocol.txt` of Android's
//! platform/packages/modules/adb). Needs root.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use emmclab_record::{RecordOptions, RecordTarget, TracefsRecorder, helper_command};
use emmclab_trace::ErrorClass;

use crate::common::{LoopDisk, by_dd, complete_recording, machine, recorded, run, stop, take, wait_until};

/// The helper under this shell.
pub fn through(shell: &[&str]) -> RecordTarget {
    let words = shell.iter().copied().chain(["-c"]).map(str::to_owned);
    RecordTarget::Command(words.chain([helper_command()]).collect())
}

#[test]
fn the_helper_records_everything_under_every_shell() {
    let Some(disk) = LoopDisk::of_machine(&["sqlite3"]) else { return };
    // `busybox sh` uses busybox's cat, dd and sleep; mksh is the shell of Android.
    for shell in [&["dash"][..], &["mksh"], &["busybox", "sh"], &["bash"]] {
        if emmclab_testing::has_tool(shell[0]) {
            eprintln!("under {shell:?}");
            let outcome = complete_recording(through(shell), &disk);
            assert_eq!(outcome.header.clock, "monotonic");
        } else {
            eprintln!("{} is not installed", shell[0]);
        }
    }
}

#[test]
fn the_helper_needs_no_more_than_androids_tools() {
    let Some(disk) = LoopDisk::of_machine(&["sqlite3", "mksh", "toybox", "busybox"]) else { return };
    let tools = tempfile::tempdir().unwrap();
    let mksh = run("sh", &["-c", "command -v mksh"]);
    std::os::unix::fs::symlink(&mksh, tools.path().join("sh")).unwrap();
    // Debian's toybox has no dd, unlike Android's.
    for tool in ["cat", "id", "mkdir", "rmdir", "sleep", "dd"] {
        let from = if tool == "dd" { "busybox" } else { "toybox" };
        let from = run("sh", &["-c", &format!("command -v {from}")]);
        std::os::unix::fs::symlink(from, tools.path().join(tool)).unwrap();
    }
    let path = format!("PATH={}", tools.path().display());
    complete_recording(through(&["env", &path, "sh"]), &disk);
}

/// A kernel counts a record slightly before it can be read; a read in between returns nothing.
#[test]
fn a_read_that_comes_too_early_costs_nothing() {
    let Some(disk) = LoopDisk::of_machine(&["sqlite3", "dd"]) else { return };
    let tools = tempfile::tempdir().unwrap();
    // Every second read of a buffer ends after half of its pages.
    let (dd, turn) = (run("sh", &["-c", "command -v dd"]), tools.path().join("turn"));
    let early = format!(
        "#!/bin/sh\n\
         case $1,$3 in\n\
         */trace_pipe_raw,count=*)\n\
         if rmdir {turn} 2>/dev/null; then k=${{3#*=}}; exec {dd} \"$1\" \"$2\" count=$((k / 2)); fi\n\
         mkdir {turn};;\n\
         esac\n\
         exec {dd} \"$@\"\n",
        turn = turn.display(),
    );
    let fake = tools.path().join("dd");
    fs::write(&fake, early).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let outcome = complete_recording(through(&["env", &path, "sh"]), &disk);
    assert!(outcome.cpus.iter().all(|cpu| cpu.damaged == 0), "{:?}", outcome.cpus);
}

#[test]
fn a_link_that_breaks_leaves_what_came_before() {
    let Some(disk) = LoopDisk::of_machine(&[]) else { return };
    // The output of the helper is truncated inside a page.
    let cut = format!("sh -c '{}' | dd bs=1 count=200000 status=none", helper_command().replace('\'', r"'\''"));
    let target = RecordTarget::Command(["sh", "-c", &cut].map(str::to_owned).to_vec());
    let recorder = TracefsRecorder::start(&disk.options(target)).unwrap();
    let (mut requests, mut read) = (Vec::new(), 0);
    while !recorder.has_ended() {
        disk.read(150, 4);
        read += 150;
        wait_until("the link breaks, or what was read is recorded", || {
            requests.extend(recorder.next_batch(Duration::ZERO).iter().flat_map(recorded));
            recorder.has_ended() || by_dd(&requests).count() == read
        });
    }
    let (requests, outcome) = stop(recorder, requests);
    let error = outcome.interrupted.unwrap();
    assert_eq!(error.kind(), ErrorClass::Truncated);
    assert!(error.to_string().contains("link"), "{error}");
    assert!(outcome.header.note.unwrap().contains("ended early"));
    // All requests up to some time are present, without a gap.
    let kept: Vec<_> = by_dd(&requests).collect();
    assert!(!kept.is_empty() && kept.len() <= read, "{} of {read}", kept.len());
    for (number, request) in kept.iter().enumerate() {
        assert_eq!(request.sector.0, number as u64 % 150 * 8);
        assert!(request.complete.is_some());
    }
    assert_eq!(outcome.ledger.lost, 0);
    disk.wait_for_no_instance();
}

#[test]
fn what_cannot_be_reached_is_said_in_words() {
    let Some(_alone) = machine(&[]) else { return };
    let start = |words: &[&str]| {
        let target = RecordTarget::Command(words.iter().map(|word| (*word).to_owned()).collect());
        TracefsRecorder::start(&RecordOptions { target, ..RecordOptions::default() }).err().unwrap()
    };
    let error = start(&["emmclab-no-such-program"]);
    assert!(error.to_string().contains("emmclab-no-such-program"), "{error}");
    let error = start(&["sh", "-c", "exit 255"]);
    assert!(error.to_string().contains("255"), "{error}");
    let error = start(&["echo", "Hello"]);
    assert_eq!(error.kind(), ErrorClass::Truncated);
}

/// An ssh server of this host without a port, one process for each connection, with a temporary key.
pub struct Sshd {
    folder: tempfile::TempDir,
}

impl Sshd {
    fn new() -> Self {
        Self::behind("")
    }

    /// A server that runs this command instead of the requested one; empty for the requested one.
    pub fn behind(command: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for key in ["host", "user"] {
            run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path(key)]);
        }
        let forced = if command.is_empty() { String::new() } else { format!("ForceCommand {command}\n") };
        let config = format!(
            "{forced}HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PermitRootLogin yes\nPidFile none\n",
            path("host"),
            path("user.pub")
        );
        fs::write(path("config"), config).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        Self { folder }
    }

    pub fn target(&self) -> RecordTarget {
        let key = self.folder.path().join("user");
        let server = format!("ProxyCommand=/usr/sbin/sshd -i -f {}", self.folder.path().join("config").display());
        let fixed = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes";
        let options = ["-o", &server, "-i", key.to_str().unwrap()].into_iter().chain(fixed.split(' '));
        let options = options.map(str::to_owned).collect();
        RecordTarget::Ssh { destination: "root@127.0.0.1".to_owned(), options }
    }
}

#[test]
fn ssh_records_as_the_kernel_counts_and_its_end_removes_the_instance() {
    let Some(disk) = LoopDisk::of_machine(&["sqlite3", "sshd", "ssh", "ssh-keygen"]) else { return };
    let server = Sshd::new();
    let outcome = complete_recording(server.target(), &disk);
    assert!(outcome.header.note.unwrap().contains("loop"));

    // A recorder that disappears without ending the recording.
    let recorder = TracefsRecorder::start(&disk.options(server.target())).unwrap();
    assert_eq!(disk.instances(), 1);
    drop(recorder);
    disk.wait_for_no_instance();

    // A device that does not exist is an error before anything is recorded.
    let options = RecordOptions { devices: vec!["/dev/mmcblk7".to_owned()], ..disk.options(server.target()) };
    assert_eq!(TracefsRecorder::start(&options).err().unwrap().kind(), ErrorClass::Config);
    disk.wait_for_no_instance();
}

const CNXN: u32 = u32::from_le_bytes(*b"CNXN");
const OPEN: u32 = u32::from_le_bytes(*b"OPEN");
const OKAY: u32 = u32::from_le_bytes(*b"OKAY");
const WRTE: u32 = u32::from_le_bytes(*b"WRTE");
const CLSE: u32 = u32::from_le_bytes(*b"CLSE");
/// Maximum length of a message on phones before Android 9.
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
    let mut child =
        Command::new(&shell[0]).args(&shell[1..]).arg(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
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
            // Only one message may be in transit.
            if ready.recv().is_err() {
                return;
            }
        }
        send(&link, CLSE, local, remote, b"");
    });
    Service { input: child.stdin.take(), child, acknowledged }
}

/// Serves a connection like `adbd` without authentication (`ro.adb.secure=0`).
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

/// Debian's adb server on its own port, connected to the substitute.
pub struct Server {
    home: tempfile::TempDir,
    port: u16,
    pub serial: String,
}

impl Server {
    fn start() -> Self {
        Self::of(&["sh", "-c"])
    }

    /// A phone whose shell consists of these words.
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
        // Another process may take a port between its choice and the start of the server.
        let mut tried = Vec::new();
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let server = Self { home: tempfile::tempdir().unwrap(), port, serial: serial.clone() };
            server.adb(&["start-server"]);
            let output = server.adb(&["connect", &serial]);
            if output.contains("connected to") {
                return server;
            }
            tried.push(format!("port {port}: {output}"));
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
    let Some(disk) = LoopDisk::of_machine(&["adb", "sqlite3"]) else { return };
    let server = Server::start();
    complete_recording(server.target(&server.serial), &disk);

    let options = RecordOptions { target: server.target("no-such-phone"), ..RecordOptions::default() };
    let error = TracefsRecorder::start(&options).err().unwrap();
    assert!(error.to_string().contains("not found") && error.hint_text().is_some(), "{error}");
}

#[test]
fn an_unplugged_phone_leaves_what_came_before() {
    let Some(disk) = LoopDisk::of_machine(&["adb"]) else { return };
    let server = Server::start();
    let target = server.target(&server.serial);
    let recorder = TracefsRecorder::start(&disk.options(target)).unwrap();
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
