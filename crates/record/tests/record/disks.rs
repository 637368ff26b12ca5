//! Disks that come and go while they are recorded. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::process::Command;

use crate::common::{machine, run, stop, wait_until};
use emmclab_record::{RecordOptions, RecordTarget, TracefsRecorder, helper_command};

/// A loop device of 16 MB, which may be mounted.
struct Loop {
    _file: tempfile::NamedTempFile,
    point: tempfile::TempDir,
    mounted: bool,
    device: Option<String>,
}

impl Loop {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(16 << 20).unwrap();
        let device = run("losetup", &["-f", "--show", file.path().to_str().unwrap()]);
        Self { _file: file, point: tempfile::tempdir().unwrap(), mounted: false, device: Some(device) }
    }

    /// One that backs a file system.
    fn mounted() -> Self {
        let mut disk = Self::new();
        run("mkfs.ext4", &["-q", disk.device()]);
        run("mount", &[disk.device(), disk.point.path().to_str().unwrap()]);
        disk.mounted = true;
        disk
    }

    fn device(&self) -> &str {
        self.device.as_deref().unwrap()
    }

    fn name(&self) -> &str {
        self.device().rsplit('/').next().unwrap()
    }

    /// Has a process read 50 blocks; its id.
    fn read(&self) -> i32 {
        let source = format!("if={}", self.device());
        let mut dd = Command::new("dd");
        dd.args([&source, "of=/dev/null", "bs=4k", "count=50", "iflag=direct", "status=none"]);
        let mut dd = dd.spawn().unwrap();
        assert!(dd.wait().unwrap().success());
        dd.id() as i32
    }

    fn remove(&mut self) {
        if std::mem::take(&mut self.mounted) {
            run("umount", &[self.point.path().to_str().unwrap()]);
        }
        if let Some(device) = self.device.take() {
            run("losetup", &["-d", &device]);
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.remove();
    }
}

#[test]
fn a_recording_ends_with_its_last_disk_and_holds_what_came_before() {
    let Some(_alone) = machine(&["losetup"]) else { return };
    let mut disk = Loop::new();
    let options = RecordOptions { devices: vec![disk.device().to_owned()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    let name = disk.name().to_owned();
    let reader = disk.read();
    disk.remove();
    // The kernel may give the number to a disk of somebody else at once, whose requests are recorded until that is seen.
    wait_until("the recording ends", || recorder.has_ended());
    let (requests, outcome) = stop(recorder, Vec::new());
    let read: Vec<_> = requests.iter().filter(|recorded| recorded.request.pid == Some(reader)).collect();
    assert_eq!(read.len(), 50, "{}", outcome.ledger);
    assert!(read.iter().all(|recorded| recorded.request.complete.is_some()));
    assert_eq!(outcome.interrupted.unwrap().to_string(), format!("{name} is gone"));
    assert!(outcome.header.note.unwrap().contains("is gone"));
}

#[test]
fn a_recording_ends_where_another_disk_takes_the_number_of_its_last() {
    let Some(_alone) = machine(&["losetup"]) else { return };
    let mut disk = Loop::new();
    let options = RecordOptions { devices: vec![disk.device().to_owned()], ..RecordOptions::default() };
    let recorder = TracefsRecorder::start(&options).unwrap();
    // The same device node, with another file behind it.
    let (device, other) = (disk.device().to_owned(), tempfile::NamedTempFile::new().unwrap());
    other.as_file().set_len(16 << 20).unwrap();
    run("losetup", &["-d", &device]);
    let attach = || Command::new("losetup").args([device.as_str(), other.path().to_str().unwrap()]).status();
    if !attach().unwrap().success() {
        // Somebody else was given the number, which is as good.
        disk.device = None;
    }
    wait_until("the recording ends", || recorder.has_ended());
    let (_, outcome) = stop(recorder, Vec::new());
    assert!(outcome.interrupted.unwrap().to_string().ends_with("is gone"));
}

#[test]
fn disks_that_come_or_go_are_named_at_the_end() {
    let Some(_alone) = machine(&["losetup", "mkfs.ext4"]) else { return };
    let shell = ["sh", "-c", &helper_command()].map(str::to_owned);
    for target in [RecordTarget::Local, RecordTarget::Command(shell.to_vec())] {
        let (mut old, unused) = (Loop::mounted(), Loop::new());
        // Without a name all disks are recorded, but for loop devices that back nothing.
        let recorder = TracefsRecorder::start(&RecordOptions { target, ..RecordOptions::default() }).unwrap();
        assert!(recorder.disks().iter().any(|disk| disk.name == old.name()));
        assert!(recorder.disks().iter().all(|disk| disk.name != unused.name()));
        assert!(recorder.choice_reason().unwrap().contains(unused.name()));
        let (new, gone) = (Loop::mounted(), old.name().to_owned());
        old.remove();
        new.read();
        let (_, outcome) = stop(recorder, Vec::new());
        let remarks = outcome.remarks.join("\n");
        assert!(remarks.contains(&format!("{gone} was removed during the recording")), "{remarks}");
        assert!(remarks.contains(&format!("{} was added during the recording", new.name())), "{remarks}");
        assert!(outcome.interrupted.is_none());
    }
}
