//! The device as a ublk device: its queue, file systems on it, the requests that it receives, and what remains afterwards. Hosts
//! without the driver skip these tests; `make test-guest` runs this program in a guest with the driver.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::devices::TestDevice;
use common::guest::{Guest, Parts};
use common::{again, attribute, busy_in, commits, folder, mounts_below, run, wait_until};
use emmclab_base::{CommandFlags, ErrorClass};
use emmclab_serve::{
    BlockAction, BlockDevice, BlockDeviceLimits, HostDisk, LinuxFileSystem, LinuxMountOptions, MemoryDevice, MkfsOptions,
    ServedRequest, UblkOptions, delete_left_ublk,
};
use emmclab_testing::MachineLock;

const MIB: u64 = 2048;
const CONTROL: &str = "/dev/ublk-control";
const POINT: &str = "EMMCLAB_TEST_POINT";
/// Set in the guest, in which no test may be skipped.
const REQUIRED: &str = "EMMCLAB_TEST_UBLK";
/// Locks the driver for a test that also needs these tools; `None` if the test must be skipped.
fn ublk(tools: &[&str]) -> Option<MachineLock> {
    let has_driver = Path::new(CONTROL).exists();
    if std::env::var_os(REQUIRED).is_some() {
        assert!(has_driver && tools.iter().all(|tool| emmclab_testing::has_tool(tool)), "{tools:?}");
    } else if !emmclab_testing::has_root() || !emmclab_testing::has_tools(tools) {
        return None;
    } else if !has_driver {
        emmclab_testing::skip_always(CONTROL, "make test-guest");
        return None;
    }
    // All ublk devices of the host share a namespace, so that tests must not run in parallel, also not those of other runs.
    Some(MachineLock::take("emmclab-ublk-tests.lock"))
}

fn options() -> UblkOptions {
    let cleaner = again("helper_process_deletes_what_was_left", Path::new("/tmp"));
    let mut words = vec![cleaner.get_program().to_owned()];
    words.extend(cleaner.get_args().map(ToOwned::to_owned));
    UblkOptions { patience: Duration::from_secs(1), cleaner: words, ..UblkOptions::default() }
}

fn served<Device: BlockDevice + 'static>(device: Arc<Device>) -> HostDisk {
    let device: Arc<dyn BlockDevice> = device;
    HostDisk::on_ublk(&device, &options()).unwrap()
}

/// The devices of the driver.
fn devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").unwrap().flatten().map(|entry| entry.path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.filter(|path| name(path).starts_with("ublk") && path != Path::new(CONTROL)).collect()
}

fn nothing_is_left(disk: &Path) {
    let number = disk.to_str().unwrap().trim_start_matches("/dev/ublkb");
    let left: Vec<_> =
        devices().into_iter().filter(|path| path.to_str().unwrap().trim_start_matches("/dev/ublk")[1..] == *number).collect();
    assert!(left.is_empty(), "{left:?}");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!table.contains(&format!(" {} ", disk.display())), "{table}");
}

/// Run by the process that cleans up.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn helper_process_deletes_what_was_left() {
    delete_left_ublk(std::env::args().next_back().unwrap().parse().unwrap()).unwrap();
}

#[test]
fn a_host_without_the_driver_is_told_what_it_takes() {
    if Path::new(CONTROL).exists() || !emmclab_testing::has_root() {
        return;
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(MIB));
    let error = HostDisk::on_ublk(&device, &UblkOptions::default()).err().unwrap();
    assert_eq!(error.kind(), ErrorClass::Unsupported);
    let message = format!("{error} {}", error.hint_text().unwrap_or_default());
    for word in ["/dev/ublk-control", "modprobe ublk_drv", "Linux 6.0", "CONFIG_BLK_DEV_UBLK"] {
        assert!(message.contains(word), "{word}: {message}");
    }
}

#[test]
fn impossible_options_and_sizes_are_refused_before_anything_is_made() {
    if !emmclab_testing::has_root() {
        return;
    }
    let short = TestDevice::new(MIB).with_limits(|limits| limits.max_sectors = 7);
    let cases: [(Arc<dyn BlockDevice>, UblkOptions, &str); 4] = [
        (Arc::new(MemoryDevice::new(0)), UblkOptions::default(), "at least one sector"),
        (Arc::new(MemoryDevice::new(8)), UblkOptions { depth: 4097, ..UblkOptions::default() }, "4097"),
        (Arc::new(MemoryDevice::new(8)), UblkOptions { queues: 0, ..UblkOptions::default() }, "0 queues"),
        (Arc::new(short), UblkOptions::default(), "7 sectors"),
    ];
    for (device, options, word) in cases {
        let error = HostDisk::on_ublk(&device, &options).err().unwrap();
        assert!(error.kind() == ErrorClass::Config && error.to_string().contains(word), "{error}");
    }
}

#[test]
fn the_queue_of_the_ublk_device_has_the_limits_of_the_device() {
    let Some(_alone) = ublk(&[]) else { return };
    for (max_sectors, longest_kb) in [(1 << 16, "512"), (256, "128")] {
        for (write_cache, mode, fua) in [(true, "write back", "1"), (false, "write through", "0")] {
            let limits =
                BlockDeviceLimits { sectors: 64 * MIB, preferred_sectors: 32, max_sectors, discard_sectors: 64, write_cache };
            let disk = served(Arc::new(TestDevice::new(64 * MIB).with_limits(|own| *own = limits)));
            for (name, value) in [
                ("size", "131072"),
                ("queue/logical_block_size", "512"),
                ("queue/physical_block_size", "4096"),
                ("queue/minimum_io_size", "16384"),
                ("queue/optimal_io_size", "16384"),
                ("queue/max_hw_sectors_kb", longest_kb),
                ("queue/write_cache", mode),
                ("queue/fua", fua),
                ("queue/discard_granularity", "32768"),
                ("queue/discard_max_bytes", &(u64::from(max_sectors) * 512).to_string()),
                ("queue/write_zeroes_max_bytes", &(u64::from(max_sectors) * 512).to_string()),
            ] {
                assert_eq!(attribute(disk.path(), name), value, "{name}");
            }
            let path = disk.path().to_owned();
            disk.stop().unwrap();
            nothing_is_left(&path);
        }
    }
}

#[test]
fn requests_arrive_as_the_kernel_sends_them_with_fua_apart_from_flushes() {
    let Some(_alone) = ublk(&["dd", "blkdiscard"]) else { return };
    let device = Arc::new(TestDevice::new(64 * MIB));
    let disk = served(device.clone());
    let path = disk.path().to_str().unwrap();
    device.requests.lock().unwrap().clear();
    let changes = || {
        let seen = device.take();
        let changing = seen.into_iter().filter(|request| request.action != BlockAction::Read);
        let plain = |request: ServedRequest| match request.action {
            BlockAction::Write(data) => {
                (BlockAction::Write(Vec::new()), data.len() as u64 / 512, request.sector, request.modifiers)
            }
            other => (other, u64::from(request.sectors), request.sector, request.modifiers),
        };
        changing.map(plain).collect::<Vec<_>>()
    };
    let (write, none, fua) = (BlockAction::Write(Vec::new()), CommandFlags::empty(), CommandFlags::RELIABLE);
    let to = format!("of={path}");
    run("dd", &["if=/dev/urandom", &to, "bs=512k", "count=4", "oflag=direct", "iflag=fullblock", "conv=fsync"]);
    let mut wanted: Vec<_> = (0..4).map(|n| (write.clone(), 1024, n * 1024, none)).collect();
    wanted.push((BlockAction::Flush, 0, 0, none));
    assert_eq!(changes(), wanted);
    // Each write is durable; the flush after it comes from O_DSYNC of the caller.
    run("dd", &["if=/dev/zero", &to, "bs=4k", "count=2", "seek=8", "oflag=direct,dsync", "conv=notrunc"]);
    let pair = |sector| [(write.clone(), 8, sector, fua), (BlockAction::Flush, 0, 0, none)];
    assert_eq!(changes(), [pair(64), pair(72)].concat());
    run("blkdiscard", &["--offset", "1048576", "--length", "2097152", path]);
    assert_eq!(changes(), [(BlockAction::Discard { secure: false }, 4096, 2048, none)]);
    run("blkdiscard", &["--zeroout", "--offset", "4194304", "--length", "1048576", path]);
    let zeroes = changes();
    assert_eq!(zeroes[0], (BlockAction::WriteZeroes { keep_allocated: true }, 2048, 8192, none));
    assert!(zeroes[1..].iter().all(|(action, ..)| *action == BlockAction::Flush), "{zeroes:?}");
    disk.stop().unwrap();
}

#[test]
fn ext4_syncs_by_a_flush_and_a_commit_with_fua_and_keeps_its_files() {
    let Some(_alone) = ublk(&["mkfs.ext4", "e2fsck", "fstrim"]) else { return };
    let (_folder, temporary) = folder();
    let device = Arc::new(TestDevice::new(64 * MIB));
    let mut disk = served(device.clone());
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    let point = temporary.join("point");
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    device.requests.lock().unwrap().clear();
    let file = fs::File::create(point.join("one")).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    file.sync_all().unwrap();
    let seen = device.take();
    let data = |request: &ServedRequest| matches!(&request.action, BlockAction::Write(data) if data.starts_with(&[7; 8192]));
    let position = |what: &dyn Fn(&ServedRequest) -> bool| seen.iter().position(what).unwrap();
    let (data, commit) = (position(&data), position(&commits));
    let flush = seen[data..].iter().position(|request| request.action == BlockAction::Flush).unwrap() + data;
    assert!(data < flush && flush < commit, "{data} {flush} {commit}");
    assert_eq!(seen[data].modifiers, CommandFlags::empty());
    assert!(seen[commit].modifiers.contains(CommandFlags::RELIABLE));
    assert!(seen[..flush].iter().any(|request| request.modifiers.contains(CommandFlags::META)), "metadata is marked");
    // FUA is not replaced by a flush after the write.
    assert!(seen[commit..].iter().all(|request| request.action != BlockAction::Flush));
    drop(file);
    fs::write(point.join("gone"), vec![1; 4 << 20]).unwrap();
    run("sync", &[]);
    fs::remove_file(point.join("gone")).unwrap();
    run("fstrim", &[point.to_str().unwrap()]);
    let discards = |request: &ServedRequest| matches!(request.action, BlockAction::Discard { .. });
    assert!(device.requests.lock().unwrap().iter().any(discards));
    disk.unmount().unwrap();
    run("e2fsck", &["-fn", disk.path().to_str().unwrap()]);
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    assert_eq!(fs::read(point.join("one")).unwrap(), [7; 8192]);
    let path = disk.path().to_owned();
    disk.stop().unwrap();
    nothing_is_left(&path);
    assert!(!point.exists());
}

#[test]
fn file_systems_of_phones_are_made_mounted_and_found_clean() {
    let Some(_alone) = ublk(&["mkfs.f2fs", "fsck.f2fs", "mkfs.vfat", "fsck.vfat", "blkid"]) else { return };
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    for (kind, check) in [(LinuxFileSystem::F2fs, "fsck.f2fs"), (LinuxFileSystem::Vfat, "fsck.vfat")] {
        if !known.contains(kind.name()) {
            assert!(std::env::var_os(REQUIRED).is_none(), "the kernel has no {}", kind.name());
            let module = format!("modprobe {}", kind.name());
            emmclab_testing::skip_always(&format!("{} in the kernel", kind.name()), &module);
            continue;
        }
        let (_folder, temporary) = folder();
        let device = Arc::new(TestDevice::new(128 * MIB));
        let mut disk = served(device.clone());
        disk.mkfs(&MkfsOptions::new(kind)).unwrap();
        let point = temporary.join("point");
        let options = LinuxMountOptions { file_system: Some(kind), ..LinuxMountOptions::at(&point) };
        disk.mount(&options).unwrap();
        let content = |n: u32| (0..50_000_u32).map(|i| (i.wrapping_mul(n + 3) >> 5) as u8).collect::<Vec<_>>();
        for n in 0..20 {
            fs::write(point.join(format!("file{n}")), content(n)).unwrap();
        }
        device.requests.lock().unwrap().clear();
        let file = fs::File::options().append(true).open(point.join("file3")).unwrap();
        file.write_at(b"end", 50_000).unwrap();
        file.sync_all().unwrap();
        let flushes = device.requests.lock().unwrap().iter().filter(|request| request.action == BlockAction::Flush).count();
        assert!(flushes > 0, "{}: fsync flushes", kind.name());
        drop(file);
        fs::remove_file(point.join("file4")).unwrap();
        run("sync", &[]);
        disk.unmount().unwrap();
        // Status 0 means that nothing must be repaired.
        let output = run(check, &[if kind == LinuxFileSystem::F2fs { "--dry-run" } else { "-n" }, disk.path().to_str().unwrap()]);
        assert!(!output.contains("[Fail]"), "{output}");
        // Existing data is not overwritten without the option.
        let error = disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Vfat)).unwrap_err();
        assert!(error.to_string().contains(kind.name()), "{error}");
        disk.mount(&LinuxMountOptions::at(&point)).unwrap();
        for n in (0..20).filter(|n| *n != 4) {
            let mut wanted = content(n);
            if n == 3 {
                wanted.extend(b"end");
            }
            assert!(fs::read(point.join(format!("file{n}"))).unwrap() == wanted, "{}: file{n}", kind.name());
        }
        assert!(!point.join("file4").exists());
        disk.stop().unwrap();
    }
}

#[test]
fn a_device_without_a_volatile_cache_gets_no_flushes() {
    let Some(_alone) = ublk(&["mkfs.ext4"]) else { return };
    let (_folder, temporary) = folder();
    let device = Arc::new(TestDevice::new(64 * MIB).with_limits(|limits| limits.write_cache = false));
    let mut disk = served(device.clone());
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    disk.mount(&LinuxMountOptions::at(temporary.join("point"))).unwrap();
    let file = fs::File::create(disk.mounts()[0].join("file")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    disk.stop().unwrap();
    let seen = device.requests.lock().unwrap();
    assert!(seen.iter().any(commits));
    assert!(seen.iter().all(|request| request.action != BlockAction::Flush && !request.modifiers.durable()));
}

#[test]
fn completions_that_come_late_and_in_another_order_are_those_of_their_requests() {
    let Some(_alone) = ublk(&["dd"]) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(TestDevice::late(64 * MIB, 64));
    let disk = HostDisk::on_ublk(&device, &UblkOptions { queues: 2, depth: 16, ..options() }).unwrap();
    let path = disk.path().to_owned();
    // Four writers and readers in parallel, each in its quarter; requests to the device have at most 64 sectors.
    std::thread::scope(|scope| {
        for quarter in 0..4_u64 {
            let path = &path;
            scope.spawn(move || {
                let file = fs::File::options().read(true).write(true).open(path).unwrap();
                let start = quarter * (16 << 20);
                for round in 0..12_u64 {
                    let place = start + round * 300_000;
                    let data: Vec<_> = (0..200_000_u64).map(|i| (i * (round + 1) + quarter) as u8).collect();
                    file.write_all_at(&data, place).unwrap();
                    file.sync_data().unwrap();
                    fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
                    let mut read = vec![0; data.len()];
                    file.read_exact_at(&mut read, place).unwrap();
                    assert!(read == data, "quarter {quarter}, round {round}");
                }
            });
        }
    });
    disk.stop().unwrap();
    nothing_is_left(&path);
}

#[test]
fn a_failure_of_the_device_is_an_error_of_that_block_only() {
    let Some(_alone) = ublk(&["dd"]) else { return };
    let disk = served(Arc::new(TestDevice::new(64 * MIB).with_bad_sector(8 * 1000)));
    let path = disk.path().to_str().unwrap();
    let works = |block: u64, writes: bool| {
        let (from, to) = if writes { ("/dev/zero", path) } else { (path, "/dev/null") };
        let place = format!("{}={block}", if writes { "seek" } else { "skip" });
        let direct = if writes { "oflag=direct" } else { "iflag=direct" };
        let words = [format!("if={from}"), format!("of={to}"), place, direct.to_owned()];
        let mut dd = Command::new("dd");
        dd.args(words).args(["bs=4k", "count=1", "conv=notrunc"]).stderr(Stdio::null());
        dd.status().unwrap().success()
    };
    for writes in [false, true] {
        assert!(!works(1000, writes) && works(1001, writes) && works(999, writes), "{writes}");
    }
    disk.stop().unwrap();
}

#[test]
fn a_disk_taken_from_its_users_leaves_nothing_and_names_them() {
    let Some(_alone) = ublk(&["mkfs.ext4"]) else { return };
    let (_folder, temporary) = folder();
    let mut disk = served(Arc::new(MemoryDevice::new(64 * MIB)));
    let path = disk.path().to_owned();
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    let point = temporary.join("point");
    disk.mount(&LinuxMountOptions::at(&point)).unwrap();
    let mut busy = busy_in(&point);
    let error = disk.stop().unwrap_err().to_string();
    assert!(error.contains(&format!("pid {}", busy.id())), "{error}");
    nothing_is_left(&path);
    assert_eq!(mounts_below(&temporary), [""; 0]);
    busy.kill().unwrap();
    busy.wait().unwrap();
    // The same for a process that has the disk itself open.
    let disk = served(Arc::new(MemoryDevice::new(64 * MIB)));
    let path = disk.path().to_owned();
    let held = fs::File::open(&path).unwrap();
    let error = disk.stop().unwrap_err().to_string();
    assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
    nothing_is_left(&path);
    assert!(held.read_at(&mut [0; 512], 0).unwrap_or_default() == 0);
    drop(held);
    // The driver has deleted both devices.
    wait_until("numbers are free", || fs::read_dir("/sys/class/ublk-char").unwrap().next().is_none());
}

#[test]
#[ignore = "run by other tests in a process of its own"]
fn helper_process_serves_until_killed() {
    let mut disk = served(Arc::new(TestDevice::late(1 << 17, 64)));
    disk.mkfs(&MkfsOptions::new(LinuxFileSystem::Ext4)).unwrap();
    disk.mount(&LinuxMountOptions::at(std::env::var(POINT).unwrap())).unwrap();
    println!("serving {}", disk.path().display());
    let script = r#"cd / && while dd if=/dev/zero of="$EMMCLAB_MOUNT/data" bs=64k count=200 conv=fsync 2>/dev/null
        do echo written; done"#;
    let _ = disk.run(Command::new("sh").args(["-c", script]));
    loop {
        std::thread::park();
    }
}

/// Whether nothing remains of a process with this temporary folder.
fn is_undone(temporary: &Path) -> bool {
    devices().is_empty() && mounts_below(temporary).is_empty() && fs::read_dir(temporary).unwrap().next().is_none()
}

#[test]
fn a_killed_process_leaves_no_device_no_mount_and_no_folder() {
    let Some(_alone) = ublk(&["mkfs.ext4", "dd"]) else { return };
    let serve = |temporary: &Path| {
        let mut command = again("helper_process_serves_until_killed", temporary);
        command.env(POINT, temporary.join("point"));
        command
    };
    for _ in 0..2 {
        let (_folder, temporary) = folder();
        let mut process = serve(&temporary).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("written")));
        assert!(mounts_below(&temporary).len() == 1 && devices().len() == 2, "{:?}", devices());
        process.kill().unwrap();
        process.wait().unwrap();
        wait_until("everything is undone", || is_undone(&temporary));
    }
    // The process is killed at various times during its start.
    for moment in 0..12_u64 {
        let (_folder, temporary) = folder();
        let mut process = serve(&temporary).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(moment * 60));
        process.kill().unwrap();
        process.wait().unwrap();
        wait_until(&format!("killed after {} ms", moment * 60), || is_undone(&temporary));
    }
}

/// The initrd of a guest that runs this program and powers itself off.
fn initrd(parts: &Parts, folder: &Path) -> PathBuf {
    let files = folder.join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("init"), include_str!("guest/init_tests")).unwrap();
    run("chmod", &["+x", files.join("init").to_str().unwrap()]);
    let program = std::env::current_exe().unwrap();
    run("strip", &["-o", files.join("tests").to_str().unwrap(), program.to_str().unwrap()]);
    // The kernel unpacks one archive over the other.
    let initrd = folder.join("initrd");
    fs::copy(parts.initrd(), &initrd).unwrap();
    let append = r#"cd "$1" && find . -type f | cpio -o -H newc -R 0:0 --quiet | gzip -1 >>"$2""#;
    run("sh", &["-c", append, "sh", files.to_str().unwrap(), initrd.to_str().unwrap()]);
    initrd
}

#[test]
fn all_of_these_tests_pass_in_a_guest() {
    let Some(parts) = Parts::find() else { return };
    if !parts.folder.join("root-serve/modules/ublk_drv.ko").exists() {
        emmclab_testing::skip_always("ublk_drv in the kernel of the guest", "make test-guest");
        return;
    }
    let (_folder, temporary) = folder();
    let message = Guest::boot(&parts, &initrd(&parts, &temporary), 2, &[], "").finish();
    assert!(message.contains("STATUS 0"));
    assert!(!message.contains("KERNEL"));
}
