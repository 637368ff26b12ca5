//! The device as a FUSE file, compared with an array and with the rules for files and block devices.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use common::devices::{Fate, TestDevice};
use common::{again, folder, left_in, live, mounts_below, wait_until};
use emmclab_base::CommandFlags;
use emmclab_serve::{BlockAction, FuseFile, MemoryDevice, RequestFailure, ServedRequest};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

/// The device as a file; `None` if the test must be skipped.
fn served(device: impl Into<Arc<TestDevice>>) -> Option<FuseFile> {
    live(&[]).then(|| FuseFile::start(device.into()).unwrap())
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn errno(outcome: std::io::Result<impl Sized>) -> Option<i32> {
    outcome.err().unwrap().raw_os_error()
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    WriteBytes(u64, u64, u8),
    Punch(u64, u64),
    Zero(u64, u64),
    Sync,
}

const SECTORS: u64 = 6000;

/// A range of sectors; some ranges span several requests.
fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..SECTORS, prop_oneof![4 => 1_u64..64, 1 => 1_u64..4500])
        .prop_map(|(sector, sectors)| (sector, sectors.min(SECTORS - sector)))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SECTORS * 512, 1_u64..3_000_000).prop_map(|(at, bytes)| Step::Read(at, bytes)),
        4 => (range(), any::<u8>()).prop_map(|((sector, sectors), seed)| Step::Write(sector, sectors, seed)),
        1 => (0..SECTORS * 512, 1_u64..5000, any::<u8>()).prop_map(|(at, bytes, seed)| Step::WriteBytes(at, bytes, seed)),
        1 => range().prop_map(|(sector, sectors)| Step::Punch(sector, sectors)),
        1 => range().prop_map(|(sector, sectors)| Step::Zero(sector, sectors)),
        1 => Just(Step::Sync),
    ]
}

/// Bytes that depend on the sector and the seed.
fn pattern(sector: u64, sectors: u64, seed: u8) -> Vec<u8> {
    (sector * 512..(sector + sectors) * 512).map(|byte| (byte / 97) as u8 ^ byte as u8 ^ seed).collect()
}

fn holds_what_an_array_holds(device: TestDevice, steps: &[Step]) {
    let Some(export) = served(device) else { return };
    let mut file = open(&export.path());
    let mut model = vec![0_u8; SECTORS as usize * 512];
    for step in steps {
        match *step {
            Step::Read(at, bytes) => {
                let end = model.len().min((at + bytes) as usize);
                let mut data = Vec::new();
                file.seek(SeekFrom::Start(at)).unwrap();
                (&file).take(bytes).read_to_end(&mut data).unwrap();
                assert!(data == model[at as usize..end], "{step:?}");
            }
            Step::Write(sector, sectors, seed) => {
                let data = pattern(sector, sectors, seed);
                file.write_all_at(&data, sector * 512).unwrap();
                model[sector as usize * 512..][..data.len()].copy_from_slice(&data);
            }
            Step::WriteBytes(at, bytes, seed) => {
                let data = vec![seed; bytes.min(SECTORS * 512 - at) as usize];
                file.write_all_at(&data, at).unwrap();
                model[at as usize..][..data.len()].copy_from_slice(&data);
            }
            Step::Punch(sector, sectors) | Step::Zero(sector, sectors) => {
                let flags = if matches!(step, Step::Punch(..)) { PUNCH } else { ZERO };
                fallocate(&file, flags, sector * 512, sectors * 512).unwrap();
                model[sector as usize * 512..][..sectors as usize * 512].fill(0);
            }
            Step::Sync => file.sync_all().unwrap(),
        }
    }
    let mut all = vec![0; model.len()];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == model);
    drop(file);
    export.stop().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(emmclab_testing::cases(24)))]
    #[test]
    fn the_file_holds_what_an_array_holds(steps in prop::collection::vec(step(), 1..40), late in any::<bool>()) {
        holds_what_an_array_holds(if late { TestDevice::late(SECTORS, 64) } else { TestDevice::new(SECTORS) }, &steps);
    }
}

#[test]
fn a_stopped_file_leaves_no_mount_and_no_folder() {
    let Some(export) = served(TestDevice::new(100)) else { return };
    let folder = export.path().parent().unwrap().to_owned();
    assert_eq!(fs::metadata(export.path()).unwrap().len(), 100 * 512);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disk"]);
    assert_eq!(mounts_below(&folder).len(), 1);
    export.stop().unwrap();
    assert_eq!((mounts_below(&folder).len(), folder.exists()), (0, false));

    let dropped = FuseFile::start(Arc::new(MemoryDevice::new(100))).unwrap().path();
    assert!(!dropped.parent().unwrap().exists());
}

#[test]
fn a_process_that_keeps_the_file_open_is_named_and_loses_it() {
    let Some(export) = served(TestDevice::new(100)) else { return };
    let path = export.path();
    let file = open(&path);
    let error = export.stop().unwrap_err().to_string();
    assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn the_file_reports_blocks_of_4096_bytes_or_of_the_discard_granularity() {
    for (discard_sectors, block) in [(1, 4096), (8, 4096), (1024, 512 << 10)] {
        let device = TestDevice::new(1 << 20).with_limits(|limits| limits.discard_sectors = discard_sectors);
        let Some(export) = served(device) else { return };
        assert_eq!(rustix::fs::statfs(export.path()).unwrap().f_bsize, block);
        export.stop().unwrap();
    }
}

#[test]
fn requests_reach_the_device_whole_up_to_1_mib_or_its_own_limit() {
    for (max_sectors, expected) in [(1 << 16, 2048), (256, 256), (7, 7)] {
        let device = Arc::new(TestDevice::new(1 << 16).with_limits(|limits| limits.max_sectors = max_sectors));
        let Some(export) = served(device.clone()) else { return };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(export.path())
            .unwrap();
        // Aligned to pages, like the memory of a loop device's requests.
        let mut memory = vec![0_u8; (4 << 20) + 4096];
        let skip = memory.as_ptr().align_offset(4096);
        let data = &mut memory[skip..skip + (4 << 20)];
        data.copy_from_slice(&pattern(0, 8192, 1));
        file.write_all_at(data, 0).unwrap();
        data.fill(0);
        file.read_exact_at(data, 0).unwrap();
        assert!(data == pattern(0, 8192, 1));
        let longest = device.requests.lock().unwrap().iter().map(|request| request.sectors).max().unwrap();
        assert_eq!(longest, expected);
        drop(file);
        export.stop().unwrap();
    }
}

#[test]
fn a_discard_longer_than_a_thousand_requests_arrives_in_all_its_parts() {
    let device = Arc::new(TestDevice::new(40_000).with_limits(|limits| limits.max_sectors = 8));
    let Some(export) = served(device.clone()) else { return };
    let file = open(&export.path());
    fallocate(&file, PUNCH, 3 * 512, 39_000 * 512).unwrap();
    let mut next = 3;
    for request in device.requests.lock().unwrap().iter() {
        assert_eq!((request.sector, &request.action), (next, &BlockAction::Discard { secure: false }));
        assert!(request.sectors <= 8);
        next = request.end();
    }
    assert_eq!(next, 39_003);
    drop(file);
    export.stop().unwrap();
}

#[test]
fn fsync_is_a_flush_and_a_synchronous_write_is_fua_only_where_the_device_has_a_cache() {
    for write_cache in [true, false] {
        let device = Arc::new(TestDevice::new(1000).with_limits(|limits| limits.write_cache = write_cache));
        let Some(export) = served(device.clone()) else { return };
        let file = open(&export.path());
        file.sync_all().unwrap();
        let flushes = device.requests.lock().unwrap().iter().filter(|r| r.action == BlockAction::Flush).count();
        assert_eq!(flushes, usize::from(write_cache));
        let flag = rustix::fs::OFlags::DSYNC.bits() as i32;
        let durable = OpenOptions::new().write(true).custom_flags(flag).open(export.path()).unwrap();
        durable.write_all_at(&[1; 512], 0).unwrap();
        let fua = device.requests.lock().unwrap().iter().any(|r| r.modifiers.contains(CommandFlags::RELIABLE));
        assert_eq!(fua, write_cache);
        drop((file, durable));
        export.stop().unwrap();
    }
}

#[test]
fn senseless_requests_fail_with_their_errno_and_the_rest_as_on_a_block_device() {
    let Some(export) = served(TestDevice::new(100)) else { return };
    let file = open(&export.path());
    let size = 100 * 512;
    let invalid = Some(Errno::INVAL.raw_os_error());
    assert_eq!(errno(file.write_at(&[0; 512], size)), Some(Errno::NOSPC.raw_os_error()));
    assert_eq!(file.write_at(&[0; 1024], size - 512).unwrap(), 512);
    assert_eq!(file.read_at(&mut [0; 1024], size - 100).unwrap(), 100);
    assert_eq!(file.read_at(&mut [0; 1024], size).unwrap(), 0);
    assert_eq!(fallocate(&file, PUNCH, 0, 100), Err(Errno::INVAL));
    assert_eq!(fallocate(&file, PUNCH, size - 512, 1024), Err(Errno::INVAL));
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 512), Err(Errno::OPNOTSUPP));
    assert_eq!(errno(file.set_len(512)), invalid);
    File::create(export.path()).unwrap();
    assert_eq!(fs::metadata(export.path()).unwrap().len(), size);
    assert!(fs::write(export.path().with_file_name("other"), "").is_err());
    drop(file);
    export.stop().unwrap();
}

#[test]
fn holes_are_found_by_seeking() {
    let Some(export) = served(TestDevice::new(1024)) else { return };
    let mut file = open(&export.path());
    file.write_all_at(&[1; 512], 256 * 512).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap(), 256 * 512);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(256 * 512 + 7)).unwrap(), 384 * 512);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(384 * 512)), Err(Errno::NXIO));
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 1024 * 512);
    drop(file);
    export.stop().unwrap();
}

/// A device that fails in the way that the sector number selects, or never completes.
fn failing() -> TestDevice {
    let failures = [RequestFailure::Invalid, RequestFailure::NoSpace, RequestFailure::Io, RequestFailure::ReadOnly];
    let fate = move |request: &ServedRequest| failures.get(request.sector as usize).copied().map_or(Fate::Lost, Fate::Fails);
    TestDevice::new(1000).with_fate(fate)
}

#[test]
fn failures_of_the_device_keep_their_meaning() {
    let Some(export) = served(failing()) else { return };
    let file = open(&export.path());
    for (sector, expected) in [Errno::INVAL, Errno::NOSPC, Errno::IO, Errno::ROFS].into_iter().enumerate() {
        let at = sector as u64 * 512;
        assert_eq!(errno(file.write_at(&[0; 512], at)), Some(expected.raw_os_error()));
        assert_eq!(errno(file.read_at(&mut [0; 512], at)), Some(expected.raw_os_error()));
        assert_eq!(fallocate(&file, PUNCH, at, 512), Err(expected));
    }
    drop(file);
    export.stop().unwrap();
}

#[test]
fn a_request_that_the_device_never_completes_fails_when_the_file_is_stopped() {
    let Some(export) = served(failing()) else { return };
    let file = open(&export.path());
    let waiting = std::thread::spawn(move || file.write_at(&[0; 512], 10 * 512));
    assert!(export.stop().is_err());
    assert!(waiting.join().unwrap().is_err());
}

/// Serves a file as another user and checks it; the test below starts it.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn helper_process_serves_as_a_user() {
    assert!(!rustix::process::geteuid().is_root());
    let export = FuseFile::start(Arc::new(MemoryDevice::new(1000))).unwrap();
    let file = open(&export.path());
    file.write_all_at(&pattern(0, 1000, 3), 0).unwrap();
    let mut data = vec![0; 512_000];
    file.read_exact_at(&mut data, 0).unwrap();
    assert!(data == pattern(0, 1000, 3));
    drop(file);
    let error = emmclab_serve::HostDisk::on_loop(export, &emmclab_serve::LoopOptions::default()).err().unwrap();
    assert!(error.to_string().contains("needs root"), "{error}");
    let export = FuseFile::start(Arc::new(MemoryDevice::new(1000))).unwrap();
    assert_eq!(fs::metadata(export.path()).unwrap().len(), 512_000);
    export.stop().unwrap();
    println!("served as a user");
}

#[test]
fn a_user_without_root_gets_the_file() {
    if !live(&["fusermount3", "setpriv", "unshare"]) {
        return;
    }
    let (_folder, path) = folder();
    // On some hosts only root may open /dev/fuse; a private mount namespace has it with the usual permissions.
    let script = r#"mknod "$TMPDIR/fuse" c 10 229 && chmod 666 "$TMPDIR/fuse" && cp "$0" "$TMPDIR/test" &&
        mkdir -m 777 "$TMPDIR/work" && chmod 755 "$TMPDIR" "$TMPDIR/test" &&
        mount --bind "$TMPDIR/fuse" /dev/fuse && program=$TMPDIR/test && TMPDIR=$TMPDIR/work &&
        setpriv --reuid=65534 --regid=65534 --clear-groups "$program" "$@" && ls "$TMPDIR""#;
    let inner = again("helper_process_serves_as_a_user", &path);
    let mut command = std::process::Command::new("unshare");
    let script = format!("{}\n{script}", emmclab_testing::LEAVE_FOREIGN_MOUNTS);
    command.args(["--mount", "sh", "-c", &script]).arg(inner.get_program()).args(inner.get_args());
    let output = command.env("TMPDIR", &path).current_dir("/").output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output_text.contains("served as a user"), "{output_text}\n{output:?}");
    wait_until("everything is undone", || left_in(&path.join("work")).is_empty());
}
