//! Recordings through the helper script: under every shell that there is here, over ssh, and over links that break.
//! Needs root.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::common::{LoopDisk, by_dd, complete_recording, machine, recorded, run, stop, wait_until};
use emmclab_record::{RecordOptions, RecordTarget, TracefsRecorder, helper_command};
use emmclab_trace::ErrorClass;

fn through(shell: &[&str]) -> RecordTarget {
    let words = shell.iter().copied().chain(["-c"]).map(str::to_owned);
    RecordTarget::Command(words.chain([helper_command()]).collect())
}

#[test]
fn the_helper_records_everything_under_every_shell() {
    let Some(_alone) = machine(&["sqlite3", "mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    // `busybox sh` takes busybox's own cat, dd and sleep; mksh is Android's shell.
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
    let Some(_alone) = machine(&["sqlite3", "mkfs.ext4", "losetup", "mksh", "toybox", "busybox"]) else {
        return;
    };
    let disk = LoopDisk::new();
    let tools = tempfile::tempdir().unwrap();
    let mksh = run("sh", &["-c", "command -v mksh"]);
    std::os::unix::fs::symlink(&mksh, tools.path().join("sh")).unwrap();
    // Debian's toybox has no dd, unlike Android's.
    for (tool, from) in [
        ("cat", "toybox"),
        ("id", "toybox"),
        ("mkdir", "toybox"),
        ("rmdir", "toybox"),
        ("sleep", "toybox"),
        ("dd", "busybox"),
    ] {
        let from = run("sh", &["-c", &format!("command -v {from}")]);
        std::os::unix::fs::symlink(from, tools.path().join(tool)).unwrap();
    }
    let path = format!("PATH={}", tools.path().display());
    complete_recording(through(&["env", &path, "sh"]), &disk);
}

/// A kernel counts a record just before it can be read; whoever reads in between gets nothing.
#[test]
fn a_read_that_comes_too_early_costs_nothing() {
    let Some(_alone) = machine(&["sqlite3", "mkfs.ext4", "losetup", "dd"]) else { return };
    let disk = LoopDisk::new();
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
    let Some(_alone) = machine(&["mkfs.ext4", "losetup"]) else { return };
    let disk = LoopDisk::new();
    // The helper's output is cut in the middle of a page.
    let cut = format!("sh -c '{}' | dd bs=1 count=200000 status=none", helper_command().replace('\'', r"'\''"));
    let target = RecordTarget::Command(["sh", "-c", &cut].map(str::to_owned).to_vec());
    let options = RecordOptions { target, devices: vec![disk.device.clone()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
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
    // All that was read up to some moment, without a gap.
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

/// An ssh server of this host's own for each connection, without a port, for a key made now.
pub struct Sshd {
    folder: tempfile::TempDir,
}

impl Sshd {
    fn new() -> Self {
        Self::behind("")
    }

    /// A server that runs this command in place of the one that is asked for; empty: that one.
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
        let options = [
            "-o",
            &server,
            "-i",
            key.to_str().unwrap(),
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "LogLevel=ERROR",
            "-o",
            "BatchMode=yes",
        ];
        let options = options.map(str::to_owned).to_vec();
        RecordTarget::Ssh { destination: "root@127.0.0.1".to_owned(), options }
    }
}

#[test]
fn ssh_records_as_the_kernel_counts_and_its_end_removes_the_instance() {
    let Some(_alone) = machine(&["sqlite3", "mkfs.ext4", "losetup", "sshd", "ssh", "ssh-keygen"]) else {
        return;
    };
    let disk = LoopDisk::new();
    let server = Sshd::new();
    let outcome = complete_recording(server.target(), &disk);
    assert!(outcome.header.note.unwrap().contains("loop"));

    // A recorder that goes away without a word.
    let options =
        RecordOptions { target: server.target(), devices: vec![disk.device.clone()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    assert_eq!(disk.instances(), 1);
    drop(recorder);
    disk.wait_for_no_instance();

    // A device that is not there is found out before anything is recorded.
    let options = RecordOptions { devices: vec!["/dev/mmcblk7".to_owned()], ..options };
    assert_eq!(TracefsRecorder::start(&options).err().unwrap().kind(), ErrorClass::Config);
    disk.wait_for_no_instance();
}
