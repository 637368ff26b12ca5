//! The header of a recording contains the registers of the recorded device: over adb, over ssh and on this host, each in a mount
//! namespace with substitutes for sysfs and debugfs. Needs root.

use std::fs;
use std::os::unix::fs::symlink;

use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder, helper_command};
use emmclab_testing::LEAVE_FOREIGN_MOUNTS;
use serde_json::Value;

use crate::common::{LoopDisk, record_elsewhere};
use crate::remote::{Server, Sshd};

/// Substitutes for sysfs and debugfs, in which a loop device has the name and folder of another disk.
struct Machine {
    root: tempfile::TempDir,
    disk: &'static str,
}

impl Machine {
    /// A machine with this loop device as disk, and with these files in the folder of the device.
    fn new(disk: &'static str, device: &LoopDisk, folder: &str, files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        for name in [&format!("block/{disk}"), folder, "debug"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let number = fs::metadata(&device.device).map(|data| std::os::unix::fs::MetadataExt::rdev(&data)).unwrap();
        let number = format!("{}:{}\n", number >> 8 & 0xfff, number & 0xff);
        fs::write(path(&format!("block/{disk}/dev")), number).unwrap();
        fs::write(path(&format!("block/{disk}/size")), "524288\n").unwrap();
        symlink(path(folder), path(&format!("block/{disk}/device"))).unwrap();
        for (name, text) in files {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), format!("{text}\n")).unwrap();
        }
        Self { root, disk }
    }

    /// Shell commands to run before any other command on this machine.
    fn enter(&self) -> String {
        let root = self.root.path().display();
        format!("{LEAVE_FOREIGN_MOUNTS}; mount --bind {root}/block /sys/block && mount --bind {root}/debug /sys/kernel/debug")
    }

    fn target(&self, shell: &str) -> RecordTarget {
        let words = ["unshare", "-m", "sh", "-c", &format!("{} && exec {shell} -c \"$0\"", self.enter())];
        let words = words.map(str::to_owned).into_iter().chain([helper_command()]);
        RecordTarget::Command(words.collect())
    }

    fn record(&self, target: RecordTarget) -> (Vec<Value>, RecordOutcome) {
        let options = RecordOptions { target, devices: vec![self.disk.to_owned()], ..RecordOptions::default() };
        let (_, outcome) = record_elsewhere(&options, || {});
        let stored = outcome.header.registers.clone().unwrap();
        (serde_json::from_str(&stored).unwrap(), outcome)
    }
}

const CARD: &str = "soc/mmc_host/mmc0/mmc0:0001";

fn card(device: &LoopDisk, more: &[(&str, &str)]) -> Machine {
    let files = ["type MMC", "cid 45010044463430333201123456788333", "name DF4032", "life_time 0x03 0x04"];
    let files = files.map(|line| line.split_once(' ').unwrap());
    let files = files.map(|(name, text)| (format!("{CARD}/{name}"), text));
    let mut files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    files.extend(more);
    Machine::new("mmcblk0", device, CARD, &files)
}

#[test]
fn an_emmc_gives_its_register_and_the_files_of_sysfs_under_every_shell() {
    let Some(disk) = LoopDisk::of_machine(&["unshare", "mksh", "busybox"]) else { return };
    let digits = "00".repeat(511) + "08";
    let there = card(&disk, &[("debug/mmc0/mmc0:0001/ext_csd", &digits)]);
    for shell in ["dash", "mksh", "busybox sh", "bash"] {
        let (found, outcome) = there.record(there.target(shell));
        let [device] = &found[..] else { panic!("{shell}: {found:?}") };
        assert_eq!((&device["kind"], &device["disks"][0]), (&"emmc".into(), &"mmcblk0".into()), "{shell}");
        assert!(device["folder"].as_str().unwrap().ends_with("/mmc0:0001"));
        let files = &device["files"];
        assert_eq!((&files["ext_csd"], &files["life_time"]), (&digits.as_str().into(), &"0x03 0x04".into()));
        assert_eq!((&files["name"], &files["size"]), (&"DF4032".into(), &"524288".into()));
        // What this kernel does not show is named.
        let note = outcome.header.note.unwrap();
        assert!(note.contains("registers incomplete: csd, manfid"), "{shell}: {note}");
    }
}

#[test]
fn a_phone_over_adb_gives_the_descriptors_of_its_ufs() {
    let Some(disk) = LoopDisk::of_machine(&["adb", "unshare"]) else { return };
    let unit = "soc/1d84000.ufshc/host0/target0:0:0/0:0:0:0";
    let there = Machine::new(
        "sda",
        &disk,
        unit,
        &[
            ("soc/1d84000.ufshc/device_descriptor/specification_version", "0x0310"),
            ("soc/1d84000.ufshc/flags/wb_enable", "true"),
            ("soc/1d84000.ufshc/flags/hpb_enable", ""),
            ("soc/1d84000.ufshc/host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_size", "0x0C"),
        ],
    );
    let server = Server::of(&["unshare", "-m", "sh", "-c", &format!("{} && exec sh -c \"$0\"", there.enter())]);
    let (found, outcome) = there.record(server.target(&server.serial));
    let [device] = &found[..] else { panic!("{found:?}") };
    assert_eq!(device["kind"], "ufs");
    assert_eq!(device["files"]["device_descriptor/specification_version"], "0x0310");
    assert_eq!(device["files"]["host0/target0:0:0/0:0:0:0/unit_descriptor/logical_block_size"], "0x0C");
    let note = outcome.header.note.unwrap();
    for gap in ["health_descriptor", "flags: hpb_enable cannot be read"] {
        assert!(note.contains(gap), "{note}");
    }
}

#[test]
fn a_board_over_ssh_without_debugfs_gives_what_sysfs_has_and_a_gap_that_says_what_helps() {
    let Some(disk) = LoopDisk::of_machine(&["sshd", "ssh", "ssh-keygen", "unshare"]) else { return };
    let there = card(&disk, &[]);
    let server = Sshd::behind(&format!("unshare -m sh -c '{} && exec sh -c \"$SSH_ORIGINAL_COMMAND\"'", there.enter()));
    let (found, outcome) = there.record(server.target());
    assert_eq!(found[0]["files"]["cid"], "45010044463430333201123456788333");
    let gaps = found[0]["gaps"].as_array().unwrap();
    assert!(gaps.iter().any(|gap| gap.as_str().unwrap().contains("mount -t debugfs")), "{gaps:?}");
    assert!(outcome.header.note.unwrap().contains("ext_csd is not there"));
    assert!(outcome.remarks[0].starts_with("mmcblk0: registers incomplete"));
}

#[test]
fn a_disk_that_has_no_such_registers_is_no_gap() {
    let Some(disk) = LoopDisk::of_machine(&["unshare"]) else { return };
    let recorder = TracefsRecorder::start(&disk.options(RecordTarget::Local)).unwrap();
    assert_eq!(recorder.header.registers, None);
    drop(recorder);
    // A memory card has no EXT_CSD.
    let there = card(&disk, &[]);
    fs::write(there.root.path().join(CARD).join("type"), "SD\n").unwrap();
    let options = RecordOptions { target: there.target("sh"), devices: vec![there.disk.to_owned()], ..RecordOptions::default() };
    let (_, outcome) = record_elsewhere(&options, || {});
    assert_eq!(outcome.header.registers, None);
    assert!(!outcome.header.note.unwrap().contains("registers"));
}
