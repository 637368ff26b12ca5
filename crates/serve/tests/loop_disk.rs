//! The device as a loop device: its queue, file systems on it, tools of other projects, and the order of the shutdown.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::devices::TestDevice;
use common::{attribute, folder, live, loops_below, mounts_below, run};
use emmclab_base::{ErrorClass, interrupt::interruptible};
use emmclab_serve::{
    BlockAction, BlockDevice, BlockDeviceLimits, FuseFile, HostDisk, LinuxFileSystem, LinuxMountOptions, LoopOptions,
    MemoryDevice, MkfsOptions,
};

const MIB: u64 = 2048;

/// The device as a loop device, for a test that also needs these tools; `None` if the test must be skipped.
fn attach(device: Arc<dyn BlockDevice>, options: &LoopOptions, tools: &[&str]) -> Option<HostDisk> {
    let can_run = live(&["losetup"]) && live(tools);
    can_run.then(|| HostDisk::on_loop(FuseFile::start(device).unwrap(), options).unwrap())
}

fn served(device: Arc<dyn BlockDevice>, tools: &[&str]) -> Option<HostDisk> {
    attach(device, &LoopOptions::default(), tools)
}

/// The private folder of the export.
fn private(disk: &HostDisk) -> PathBuf {
    PathBuf::from(attribute(disk.path(), "loop/backing_file")).parent().unwrap().to_owned()
}

fn nothing_is_left(private: &Path) {
    assert_eq!(loops_below(private), [""; 0]);
    assert_eq!(mounts_below(private), [""; 0]);
    assert!(!private.exists());
}

#[test]
fn the_queue_of_the_loop_device_has_the_limits_of_the_device() {
    for (max_sectors, longest_kb) in [(1 << 16, "512"), (256, "128")] {
        for (write_cache, mode) in [(true, "write back"), (false, "write through")] {
            let device = TestDevice::new(64 * MIB).with_limits(|limits| {
                *limits = BlockDeviceLimits { max_sectors, write_cache, discard_sectors: 1024, ..*limits };
            });
            let Some(disk) = served(Arc::new(device), &[]) else { return };
            assert_eq!(attribute(disk.path(), "loop/dio"), "1");
            assert_eq!(attribute(disk.path(), "queue/logical_block_size"), "512");
            assert_eq!(attribute(disk.path(), "queue/max_sectors_kb"), longest_kb);
            assert_eq!(attribute(disk.path(), "queue/write_cache"), mode);
            assert_eq!(attribute(disk.path(), "queue/discard_granularity"), (512 << 10).to_string());
            assert_eq!(attribute(disk.path(), "size"), (64 * MIB).to_string());
            let private = private(&disk);
            disk.stop().unwrap();
            nothing_is_left(&private);
        }
    }
}

#[test]
fn a_loop_device_may_have_blocks_of_4096_bytes_and_no_others_than_the_kernel_knows() {
    let options = |block_bytes| LoopOptions { block_bytes, ..LoopOptions::default() };
    let Some(disk) = attach(Arc::new(MemoryDevice::new(64 * MIB)), &options(4096), &[]) else { return };
    assert_eq!(attribute(disk.path(), "queue/logical_block_size"), "4096");
    assert_eq!(attribute(disk.path(), "loop/dio"), "1");
    disk.stop().unwrap();
    for (sectors, block) in [(64 * MIB, 1000), (64 * MIB, 0), (64 * MIB, 8192), (64 * MIB + 1, 4096), (0, 512)] {
        let file = FuseFile::start(Arc::new(MemoryDevice::new(sectors))).unwrap();
        let private = file.path().parent().unwrap().to_owned();
        assert!(HostDisk::on_loop(file, &options(block)).is_err(), "{sectors} sectors in blocks of {block}");
        nothing_is_left(&private);
    }
}

#[test]
fn requests_of_the_loop_device_reach_the_device_whole() {
    let device = Arc::new(TestDevice::new(64 * MIB));
    let Some(disk) = served(device.clone(), &["dd", "blkdiscard"]) else { return };
    let path = disk.path().to_str().unwrap();
    device.requests.lock().unwrap().clear();
    run("dd", &["if=/dev/zero", &format!("of={path}"), "bs=1M", "count=8", "oflag=direct", "conv=fsync"]);
    run("blkdiscard", &["--offset", "1048576", "--length", "2097152", path]);
    run("blkdiscard", &["--zeroout", "--offset", "4194304", "--length", "1048576", path]);
    let requests = device.requests.lock().unwrap();
    let changing = requests.iter().filter(|request| request.action != BlockAction::Read);
    let seen: Vec<_> = changing.map(|request| (request.action.clone(), request.sector, request.sectors)).collect();
    let is_write = |seen: &&(BlockAction, u64, u32)| matches!(seen.0, BlockAction::Write(_));
    let mut writes: Vec<_> = seen.iter().filter(is_write).map(|seen| (seen.1, seen.2)).collect();
    // The halves of a write of dd are in flight together.
    writes.sort_unstable();
    assert_eq!(writes, (0..16).map(|n| (n * 1024, 1024)).collect::<Vec<_>>());
    assert_eq!(seen[16].0, BlockAction::Flush);
    assert!(seen.contains(&(BlockAction::Discard { secure: false }, 2048, 4096)), "{:?}", &seen[16..]);
    assert!(seen.contains(&(BlockAction::WriteZeroes { keep_allocated: true }, 8192, 2048)), "{:?}", &seen[16..]);
    drop(requests);
    disk.stop().unwrap();
}

#[test]
fn a_device_without_a_volatile_cache_gets_no_flushes() {
    let device = Arc::new(TestDevice::new(64 * MIB).with_limits(|limits| limits.write_cache = false));
    let Some(disk) = served(device.clone(), &["mkfs.ext4"]) else { return };
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    disk.stop().unwrap();
    let requests = device.requests.lock().unwrap();
    assert!(requests.iter().any(|request| matches!(request.action, BlockAction::Write(_))));
    assert!(requests.iter().all(|request| request.action != BlockAction::Flush));
}

/// Creates the file system, writes files, and compares them after the device is served again.
fn keeps_files(kind: LinuxFileSystem, sectors: u64, check: &[&str]) {
    println!("{}", kind.name());
    let tool = format!("mkfs.{}", kind.name());
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    if !known.split_whitespace().any(|name| name == kind.name()) {
        let module = format!("modprobe {}", kind.name());
        emmclab_testing::skip_always(&format!("{} in the kernel", kind.name()), &module);
        return;
    }
    let (_folder, at) = folder();
    let point = at.join("a folder with blanks");
    let device = Arc::new(MemoryDevice::new(sectors));
    let Some(mut disk) = served(device.clone(), &[&tool, check[0]]) else { return };
    disk.mkfs(&MkfsOptions::new(kind)).unwrap();
    let options =
        LinuxMountOptions { file_system: Some(kind), options: Some("noatime".to_owned()), ..LinuxMountOptions::at(&point) };
    disk.mount(&options).unwrap();
    assert_eq!(disk.mounts(), std::slice::from_ref(&point));
    for number in 0..200_usize {
        fs::write(point.join(format!("file {number}")), vec![number as u8; number * 997]).unwrap();
    }
    let script = r#"[ -b "$EMMCLAB_DEVICE" ] && cp "$EMMCLAB_MOUNT/file 7" "$EMMCLAB_MOUNT/copy"; exit 7"#;
    let status = disk.run(Command::new("sh").args(["-c", script])).unwrap();
    assert_eq!(status.code(), Some(7));
    disk.unmount().unwrap();
    let path = disk.path().to_str().unwrap().to_owned();
    let arguments: Vec<_> = check[1..].iter().copied().chain([path.as_str()]).collect();
    run(check[0], &arguments);
    let error = disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap_err().to_string();
    assert!(error.contains(kind.name()), "{error}");
    let first = private(&disk);
    disk.stop().unwrap();
    nothing_is_left(&first);
    assert!(!point.exists(), "the folder was made for the mount");

    fs::create_dir(&point).unwrap();
    let Some(mut disk) = served(device, &[]) else { return };
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    for number in 0..200_usize {
        assert_eq!(fs::read(point.join(format!("file {number}"))).unwrap(), vec![number as u8; number * 997]);
    }
    assert_eq!(fs::read(point.join("copy")).unwrap().len(), 7 * 997);
    let second = private(&disk);
    disk.stop().unwrap();
    nothing_is_left(&second);
    assert!(point.exists(), "the folder was there before");
}

#[test]
fn file_systems_keep_their_files_and_are_clean() {
    keeps_files(LinuxFileSystem::Ext4, 64 * MIB, &["e2fsck", "-fn"]);
    keeps_files(LinuxFileSystem::Xfs, 320 * MIB, &["xfs_repair", "-n"]);
    keeps_files(LinuxFileSystem::Btrfs, 128 * MIB, &["btrfs", "check", "--readonly"]);
}

#[test]
fn other_file_systems_can_be_made_where_their_tools_are() {
    for kind in [LinuxFileSystem::F2fs, LinuxFileSystem::Vfat] {
        let Some(disk) = served(Arc::new(MemoryDevice::new(64 * MIB)), &[]) else { return };
        let outcome = disk.mkfs(&MkfsOptions::new(kind));
        if emmclab_testing::has_tool(&format!("mkfs.{}", kind.name())) {
            outcome.unwrap();
            assert_eq!(run("blkid", &["-p", "-o", "value", "-s", "TYPE", disk.path().to_str().unwrap()]), kind.name());
        } else {
            let error = outcome.unwrap_err();
            assert!(error.hint_text().unwrap().contains("Debian package"), "{error}");
        }
        disk.stop().unwrap();
    }
}

#[test]
fn options_reach_mkfs_and_a_second_file_system_needs_leave_to_overwrite() {
    let Some(disk) = served(Arc::new(MemoryDevice::new(64 * MIB)), &["mkfs.ext4", "blkid"]) else { return };
    let mut mkfs = MkfsOptions { options: ["-L", "first"].map(Into::into).to_vec(), ..MkfsOptions::new(LinuxFileSystem::Ext4) };
    let label = || run("blkid", &["-p", "-o", "value", "-s", "LABEL", disk.path().to_str().unwrap()]);
    disk.mkfs(&mkfs).unwrap();
    assert_eq!(label(), "first");
    mkfs.options[1] = "second".into();
    assert!(disk.mkfs(&mkfs).unwrap_err().to_string().contains("ext4"));
    mkfs.overwrite = true;
    disk.mkfs(&mkfs).unwrap();
    assert_eq!(label(), "second");
    mkfs.options = vec!["--no-such-option".into()];
    assert!(disk.mkfs(&mkfs).unwrap_err().to_string().contains("mkfs.ext4: "));
    disk.stop().unwrap();
}

#[test]
fn partitions_are_found_and_mounted() {
    let (_folder, at) = folder();
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let options = LoopOptions { partitions: true, ..LoopOptions::default() };
    let Some(mut disk) = attach(device, &options, &["mkfs.ext4", "addpart"]) else { return };
    let error =
        disk.mkfs(&MkfsOptions { partition: Some(1), ..MkfsOptions::new(LinuxFileSystem::Ext4) }).unwrap_err().to_string();
    assert!(error.contains("no partition with this number"), "{error}");
    for number in [1, 2_u32] {
        // Passed to the kernel directly, because not every kernel reads every kind of partition table.
        let start = (2048 + (number - 1) * 65536).to_string();
        run("addpart", &[disk.path().to_str().unwrap(), &number.to_string(), &start, "60000"]);
        disk.mkfs(&MkfsOptions { partition: Some(number), ..MkfsOptions::new(LinuxFileSystem::Ext4) }).unwrap();
        let point = at.join(number.to_string());
        disk.mount(&LinuxMountOptions { partition: Some(number), ..LinuxMountOptions::at(&point) }).unwrap();
        fs::write(point.join("file"), "content").unwrap();
    }
    let private = private(&disk);
    disk.stop().unwrap();
    nothing_is_left(&private);
    assert_eq!(mounts_below(&at), [""; 0]);
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
}

#[test]
fn a_mount_that_a_process_keeps_busy_names_it_and_is_taken_away_at_the_end() {
    let (_folder, at) = folder();
    let point = at.join("mount");
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let options = LoopOptions { patience: Duration::from_millis(300), ..LoopOptions::default() };
    let Some(mut disk) = attach(device.clone(), &options, &["mkfs.ext4", "e2fsck"]) else { return };
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    fs::write(point.join("file"), vec![5; 1 << 20]).unwrap();
    let mut busy = Command::new("sleep").arg("1000").current_dir(&point).spawn().unwrap();
    let name = format!("sleep (pid {})", busy.id());
    let error = disk.unmount().unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
    assert!(point.join("file").exists(), "it is still mounted");
    let private = private(&disk);
    let error = disk.stop().unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
    assert!(!point.exists() && !private.exists());
    busy.kill().unwrap();
    busy.wait().unwrap();
    common::wait_until("the loop device goes with the process", || loops_below(&private).is_empty());

    // Earlier writes are on the device.
    let Some(mut disk) = served(device, &["mkfs.ext4", "e2fsck"]) else { return };
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    assert_eq!(fs::read(point.join("file")).unwrap(), vec![5; 1 << 20]);
    disk.stop().unwrap();
}

#[test]
fn a_command_ends_when_the_caller_is_interrupted() {
    let Some(mut disk) = served(Arc::new(MemoryDevice::new(MIB)), &[]) else { return };
    // A command that ignores SIGTERM.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; exec sleep 1000"]);
    let error = interruptible(|| true, || disk.run(&mut command)).unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Interrupted);
    disk.stop().unwrap();
}

#[test]
fn fio_reads_back_what_it_wrote_at_depth_32_from_a_device_that_answers_late_and_out_of_order() {
    let devices: [Arc<dyn BlockDevice>; 2] = [Arc::new(MemoryDevice::new(32 * MIB)), Arc::new(TestDevice::late(32 * MIB, 64))];
    for device in devices {
        let Some(disk) = served(device, &["fio"]) else { return };
        let (_folder, at) = folder();
        let arguments = format!(
            "--name=verify --filename={} --aux-path={} --ioengine=libaio --iodepth=32 --direct=1 --rw=randwrite --bsrange=4k-256k \
             --blockalign=4k --size=32m --verify=crc32c --verify_state_save=0 --fsync=50 --output-format=terse",
            disk.path().display(),
            at.display()
        );
        let output = run("fio", &arguments.split_whitespace().collect::<Vec<_>>());
        assert!(!output.is_empty());
        disk.stop().unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_made_or_mounted_is_an_error_with_its_name() {
    let (_folder, at) = folder();
    let Some(mut disk) = served(Arc::new(MemoryDevice::new(MIB)), &[]) else { return };
    let error = disk.mount(&LinuxMountOptions::at(at.join("no/such"))).unwrap_err().to_string();
    assert!(error.contains("no/such"), "{error}");
    assert!(disk.mount(&LinuxMountOptions::at(at.join("line\nbreak"))).is_err());
    let full = at.join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "of the host").unwrap();
    let error = disk.mount(&LinuxMountOptions::at(&full)).unwrap_err().to_string();
    assert!(error.contains("full") && error.contains("is not empty"), "{error}");
    fs::remove_dir_all(&full).unwrap();
    // The device contains no file system.
    assert!(disk.mount(&LinuxMountOptions::at(at.join("empty"))).unwrap_err().to_string().contains("mount: "));
    let missing = disk.run(Command::new("/no/such/program").stdin(Stdio::null())).unwrap_err().to_string();
    assert!(missing.contains("/no/such/program"), "{missing}");
    disk.stop().unwrap();
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
}
