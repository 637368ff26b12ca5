//! A serving process that is killed (SIGKILL) leaves no mount, loop device, FUSE connection or folder, and no process that cannot be ended.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use common::devices::TestDevice;
use common::{again, busy_in, folder, left_in, live, mounts_below, wait_until};
use emmclab_serve::{FuseFile, HostDisk, LinuxFileSystem, LinuxMountOptions, LoopOptions, MkfsOptions};
use rustix::process::{Pid, Signal, kill_process};

const TOOLS: &[&str] = &["losetup", "mkfs.ext4", "dd"];
const POINT: &str = "EMMCLAB_TEST_POINT";
/// Set if the serving process itself does I/O on its file system.
const INSIDE: &str = "EMMCLAB_TEST_INSIDE";
/// Set if the command continues when its writes fail.
const STUBBORN: &str = "EMMCLAB_TEST_STUBBORN";

/// Serves until it is killed; started by [`Served`].
#[test]
#[ignore = "run by other tests in a process of its own"]
fn helper_process_serves_until_killed() {
    let point = std::env::var(POINT).unwrap();
    let file = FuseFile::start(Arc::new(TestDevice::late(1 << 17, 64))).unwrap();
    let mut disk = HostDisk::on_loop(file, &LoopOptions::default()).unwrap();
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    disk.mount(&LinuxMountOptions::at(point)).unwrap();
    println!("serving {}", disk.path().display());
    if std::env::var_os(INSIDE).is_some() {
        // The process uses its own file system, which it should not do.
        let file = fs::File::create(disk.mounts()[0].join("data")).unwrap();
        loop {
            file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
            file.sync_all().unwrap();
            println!("written");
        }
    }
    // A command that does I/O until it fails.
    let script = r#"cd / && while dd if=/dev/zero of="$EMMCLAB_MOUNT/data" bs=64k count=200 conv=fsync 2>/dev/null
        do echo written; done"#;
    let stubborn = r#"cd / && while :; do echo written; (echo data >"$EMMCLAB_MOUNT/$$"; sleep 0.01) 2>/dev/null; done"#;
    let without_a_trace = format!(r#"exec env -i PATH="$PATH" EMMCLAB_MOUNT="$EMMCLAB_MOUNT" setsid sh -c '{stubborn}'"#);
    let script = match std::env::var(STUBBORN).as_deref() {
        Ok("env") => &without_a_trace,
        Ok(_) => stubborn,
        Err(_) => script,
    };
    let _ = disk.run(Command::new("sh").args(["-c", script]));
    loop {
        std::thread::park();
    }
}

/// A process that serves a file system and a command that uses it.
struct Served {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    _folder: tempfile::TempDir,
    /// Its temporary folder, which contains all that it creates.
    temporary: PathBuf,
    point: PathBuf,
    connection: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The number of the FUSE connection below the folder.
fn connection(temporary: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut mount_lines = fields.filter(|fields| Path::new(fields[4]).starts_with(temporary) && fields[2].starts_with("0:"));
    mount_lines.next().map(|fields| fields[2].to_owned())
}

impl Served {
    /// `None` if the test must be skipped.
    fn start(variables: &[(&str, &str)]) -> Option<Self> {
        if !live(TOOLS) {
            return None;
        }
        let (folder, temporary) = folder();
        let point = temporary.join("point");
        let mut command = again("helper_process_serves_until_killed", &temporary);
        let mut process = command.env(POINT, &point).envs(variables.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut served = Self { process, lines, _folder: folder, temporary, point, connection: String::new() };
        served.wait_for("serving");
        served.connection = connection(&served.temporary).unwrap();
        Some(served)
    }

    fn wait_for(&mut self, start: &str) {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(start)), "the process ended");
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits until everything is removed. A connection without a mount would have been detached, but still exist.
    fn everything_is_undone(&self) {
        wait_until(&format!("left: {:?}", left_in(&self.temporary)), || left_in(&self.temporary).is_empty());
        let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", self.connection));
        let number = self.connection.trim_start_matches("0:");
        let control = Path::new("/sys/fs/fuse/connections").join(number);
        wait_until("the connection is closed", || mounted() || !control.exists());
    }
}

#[test]
fn killed_with_a_mounted_file_system_in_the_middle_of_writes() {
    for _ in 0..3 {
        let Some(mut served) = Served::start(&[]) else { return };
        served.wait_for("written");
        assert!(mounts_below(&served.temporary).len() == 2 && served.point.exists());
        served.kill();
        served.everything_is_undone();
    }
}

#[test]
fn killed_while_it_waits_for_its_own_file_system() {
    for _ in 0..5 {
        let Some(mut served) = Served::start(&[(INSIDE, "1")]) else { return };
        served.wait_for("written");
        // The waiting thread keeps the connection and the pipe open until the connection is aborted.
        served.process.kill().unwrap();
        served.everything_is_undone();
        served.process.wait().unwrap();
    }
}

#[test]
fn killed_with_a_command_that_would_go_on_in_the_folder_of_the_host() {
    for how in ["1", "env"] {
        let Some(mut served) = Served::start(&[(STUBBORN, how)]) else { return };
        served.wait_for("written");
        served.kill();
        served.everything_is_undone();
        // The folder is created again on the host, and nothing writes to it.
        fs::create_dir(&served.point).unwrap();
        let owned = format!("EMMCLAB_SERVER={}", served.temporary.display());
        let goes_on = || {
            let all = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
            all.into_iter().any(|environ| String::from_utf8_lossy(&environ).contains(&owned))
        };
        assert!(!goes_on());
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(fs::read_dir(&served.point).unwrap().count(), 0);
        fs::remove_dir(&served.point).unwrap();
    }
}

#[test]
fn killed_while_a_process_keeps_the_mount_busy() {
    let Some(mut served) = Served::start(&[]) else { return };
    let file = served.point.join("held");
    let mut busy = busy_in(&served.point);
    assert!(file.exists());
    served.kill();
    wait_until("mounts and folders are undone", || {
        mounts_below(&served.temporary).is_empty() && fs::read_dir(&served.temporary).unwrap().count() == 0
    });
    // The process can be ended; it does not wait for a server that has ended.
    busy.kill().unwrap();
    busy.wait().unwrap();
    served.everything_is_undone();
}

#[test]
fn killed_at_any_moment_of_its_start() {
    if !live(TOOLS) {
        return;
    }
    for moment in 0..12_u64 {
        let (_folder, temporary) = folder();
        let mut command = again("helper_process_serves_until_killed", &temporary);
        let mut process = command.env(POINT, temporary.join("point")).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(moment * 17));
        process.kill().unwrap();
        process.wait().unwrap();
        wait_until(&format!("killed after {} ms", moment * 17), || left_in(&temporary).is_empty());
        assert!(connection(&temporary).is_none());
    }
}

#[test]
fn the_process_that_cleans_up_ignores_signals_to_its_group() {
    let Some(mut served) = Served::start(&[]) else { return };
    served.wait_for("written");
    let parent = format!("PPid:\t{}\n", served.process.id());
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let mut cleaners = processes.filter(|process| {
        let holds = |file: &str, text: &str| fs::read_to_string(process.join(file)).is_ok_and(|all| all.contains(text));
        holds("status", &parent) && holds("cmdline", "emmclab-cleanup")
    });
    let cleaner = cleaners.next().map(|process| process.file_name().unwrap().to_str().unwrap().to_owned());
    let cleaner = cleaner.unwrap().parse().unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        kill_process(Pid::from_raw(cleaner).unwrap(), signal).unwrap();
    }
    served.kill();
    served.everything_is_undone();
}
