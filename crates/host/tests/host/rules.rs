//! The requests that single operations send, and the requests for which they wait.

use emmclab_base::{BlockRole, Nanos, Op, RequestFlags};
use emmclab_host::{
    BarrierMode, CallerId, FileClass, FileId, FileOp, FileSpec, FilesystemKind, FolderId, HostConfig, IoCause, Mount, MountId,
    MountOptions, SimulatedHost, SyncedClasses, WaitCategory, WaitReason,
};

use crate::support::Bench;

const FILE: FileId = FileId(0);
const OTHER: FileId = FileId(1);

fn mount(filesystem: FilesystemKind, mb: u64, options: MountOptions) -> Mount {
    Mount { filesystem, first_sector: 0, sectors: mb << 11, options }
}

fn bench_with(config: HostConfig, mount: Mount) -> Bench {
    let plain = config.barrier == BarrierMode::Drain;
    let mut bench = Bench::new(config, &[mount], plain);
    for file in 0..400 {
        let class = if file == 0 { FileClass::Database } else { FileClass::Other };
        let spec = FileSpec { mount: MountId(0), folder: FolderId(0), class };
        bench.host.declare(FileId(file), spec).unwrap();
    }
    bench
}

fn bench(filesystem: FilesystemKind) -> Bench {
    bench_with(HostConfig::era("linux-6").unwrap(), mount(filesystem, 1024, MountOptions::default()))
}

fn create(file: FileId) -> FileOp {
    FileOp::Open { file, create: true }
}

/// Creates a file of this number of bytes.
fn make(bench: &mut Bench, file: FileId, bytes: u64) {
    bench.perform(&create(file));
    bench.perform(&FileOp::Append { file, bytes });
}

fn fsync(file: FileId) -> FileOp {
    FileOp::Fsync { file, data_only: false }
}

fn fdatasync(file: FileId) -> FileOp {
    FileOp::Fsync { file, data_only: true }
}

/// The requests of an operation: operation and number of sectors, with `f` for FUA and `p` for preflush.
fn sent(bench: &mut Bench, operation: &FileOp) -> Vec<String> {
    let from = bench.device.log.len();
    bench.perform(operation);
    let name = |(_, op, _, sectors, flags): &(Nanos, Op, u64, u32, u16)| {
        let flags = RequestFlags(*flags);
        let fua = if flags.contains(RequestFlags::FUA) { "f" } else { "" };
        let preflush = if flags.contains(RequestFlags::PREFLUSH) { "p" } else { "" };
        format!("{} {sectors}{preflush}{fua}", op.name())
    };
    bench.device.log[from..].iter().map(name).collect()
}

#[test]
fn a_sync_of_a_new_file_on_ext4_writes_data_then_the_blocks_then_the_commit() {
    let mut bench = bench(FilesystemKind::Ext4);
    make(&mut bench, FILE, 4096);
    // The first commit after a mount writes the journal's superblock. It logs six blocks: inode bitmap and table, descriptor, folder, block
    // bitmap, superblock.
    let requests = sent(&mut bench, &fsync(FILE));
    assert_eq!(requests, ["write 8", "write 8", "write 56", "write 8pf"]);
    make(&mut bench, OTHER, 10_000);
    assert_eq!(sent(&mut bench, &fsync(OTHER)), ["write 24", "write 48", "write 8pf"]);
}

#[test]
fn what_changes_no_length_needs_no_commit_for_its_data() {
    let mut bench = bench(FilesystemKind::Ext4);
    make(&mut bench, FILE, 8192);
    bench.perform(&fsync(FILE));
    bench.wait(Nanos::from_millis(20));
    bench.perform(&FileOp::Write { file: FILE, offset: 0, bytes: 4096 });
    assert_eq!(sent(&mut bench, &fdatasync(FILE)), ["write 8", "flush 0"]);
    bench.wait(Nanos::from_millis(20));
    bench.perform(&FileOp::Write { file: FILE, offset: 0, bytes: 4096 });
    // The times are in the block of the inode.
    assert_eq!(sent(&mut bench, &fsync(FILE)), ["write 8", "write 16", "write 8pf"]);
}

#[test]
fn a_sync_joins_the_commit_that_another_began() {
    let mut bench = bench(FilesystemKind::Ext4);
    make(&mut bench, FILE, 4096);
    make(&mut bench, OTHER, 4096);
    bench.begin(CallerId(1), &fsync(FILE)).unwrap();
    bench.begin(CallerId(2), &fsync(OTHER)).unwrap();
    let commits = bench.device.commits;
    bench.drain();
    assert_eq!(bench.device.commits - commits, 1, "both files are in one transaction");
    let of = |caller| bench.finished.iter().rfind(|entry| entry.caller == CallerId(caller)).unwrap();
    assert!(of(1).waits[WaitReason::SyncCommit] > Nanos::ZERO && of(2).waits[WaitReason::SyncJoined] > Nanos::ZERO);
    assert_eq!(of(2).waits.group(WaitCategory::Fsync), of(2).waits.total());
    let requests = &bench.waited_for[bench.finished.iter().rposition(|entry| entry.caller == CallerId(2)).unwrap()];
    assert!(requests.len() >= 3, "those of the commit are among what it waited for: {requests:?}");
}

#[test]
fn a_commit_comes_after_its_interval_and_data_after_its_own() {
    let mut bench = bench(FilesystemKind::Ext4);
    make(&mut bench, FILE, 4096);
    let mut times = Vec::new();
    while bench.now < Nanos::from_secs(45) {
        bench.wait(Nanos::from_millis(100));
        while !bench.device.under_way.is_empty() {
            let entry = &bench.device.under_way[0];
            times.push((bench.now.0 / 1_000_000_000, entry.request.cause, entry.request.class));
            bench.complete(0, Nanos::from_micros(50));
        }
    }
    let first = |class| times.iter().find(|(.., entry)| *entry == class).map(|(at, cause, _)| (*at, *cause));
    assert_eq!(first(FileClass::FilesystemJournal), Some((5, IoCause::Commit)), "{times:?}");
    let data = first(FileClass::Database).unwrap();
    assert!((30..=36).contains(&data.0) && data.1 == IoCause::WriteBack, "{times:?}");
}

#[test]
fn a_full_journal_is_checkpointed_before_it_forgets() {
    let options = MountOptions { journal_mb: Some(4), ..MountOptions::default() };
    let mut bench = bench_with(HostConfig::era("linux-6").unwrap(), mount(FilesystemKind::Ext4, 256, options));
    for round in 0..3 {
        for file in 0..150 {
            make(&mut bench, FileId(file), 4096);
            bench.perform(&fsync(FileId(file)));
            bench.perform(&FileOp::Close { file: FileId(file) });
        }
        for file in 0..150 {
            bench.perform(&FileOp::Unlink { file: FileId(file) });
            bench.perform(&FileOp::FsyncFolder { mount: MountId(0), folder: FolderId(0) });
        }
        assert!(bench.device.tails > round, "the device checked that all was home");
    }
    let waited: Nanos = bench.finished.iter().map(|entry| entry.waits[WaitReason::Journal]).sum();
    assert!(waited > Nanos::ZERO, "somebody waited for room");
}

#[test]
fn a_writer_waits_where_too_much_is_dirty_and_reads_go_on() {
    let config = HostConfig { page_cache_mb: 8, ..HostConfig::era("linux-6").unwrap() };
    let mut bench = bench_with(config, mount(FilesystemKind::Ext4, 1024, MountOptions::default()));
    bench.host.preload(OTHER, 1 << 20).unwrap();
    bench.perform(&create(FILE));
    bench.begin(CallerId(1), &FileOp::Append { file: FILE, bytes: 6 << 20 }).unwrap();
    assert!(bench.is_busy(CallerId(1)));
    let read = bench.perform(&FileOp::Read { file: OTHER, offset: 0, bytes: 4096 });
    assert_eq!(read.waits.group(WaitCategory::Read), read.waits.total());
    bench.drain();
    let write = bench.finished.iter().find(|entry| entry.caller == CallerId(1)).unwrap();
    assert!(write.waits[WaitReason::DirtyLimit] > Nanos::ZERO && write.bytes == 6 << 20);
    assert_eq!(bench.host.size(FILE), Some(6 << 20));
}

#[test]
fn a_sequential_reader_reads_ahead_and_a_second_time_from_memory() {
    let mut bench = bench(FilesystemKind::Ext4);
    bench.host.preload(FILE, 1 << 20).unwrap();
    bench.perform(&FileOp::Open { file: FILE, create: false });
    let mut lengths = Vec::new();
    for page in 0..256 {
        let requests = sent(&mut bench, &FileOp::Read { file: FILE, offset: page * 4096, bytes: 4096 });
        lengths.extend(requests.iter().map(|entry| entry.trim_start_matches("read ").parse::<u32>().unwrap()));
    }
    assert_eq!(lengths[..4], [32, 64, 128, 256]);
    assert!(lengths[3..].iter().all(|sectors| *sectors <= 256));
    assert_eq!(lengths.iter().sum::<u32>(), 2048);
    assert!(sent(&mut bench, &FileOp::Read { file: FILE, offset: 0, bytes: 1 << 20 }).is_empty());
}

#[test]
fn a_part_of_a_page_is_read_before_it_is_written() {
    for kind in [FilesystemKind::Ext4, FilesystemKind::Fat32, FilesystemKind::Lfs] {
        let mut bench = bench(kind);
        bench.host.preload(FILE, 40_000).unwrap();
        bench.perform(&FileOp::Open { file: FILE, create: false });
        // After this write, everything else that a first write reads is in memory.
        bench.perform(&FileOp::Write { file: FILE, offset: 0, bytes: 4096 });
        let requests = sent(&mut bench, &FileOp::Write { file: FILE, offset: 12_300, bytes: 100 });
        assert!(requests.contains(&"read 8".to_owned()), "{kind:?}: {requests:?}");
        let requests = sent(&mut bench, &FileOp::Write { file: FILE, offset: 40_000, bytes: 10 });
        assert!(requests.contains(&"read 8".to_owned()), "{kind:?}: {requests:?}");
        let whole = sent(&mut bench, &FileOp::Write { file: FILE, offset: 8192, bytes: 4096 });
        assert!(!whole.contains(&"read 8".to_owned()), "{kind:?}: {whole:?}");
    }
}

#[test]
fn a_barrier_of_old_goes_alone_and_without_a_flush() {
    let config = HostConfig { device_depth: 8, ..HostConfig::era("linux-2.6.35").unwrap() };
    let mut bench = bench_with(config, mount(FilesystemKind::Ext4, 1024, MountOptions::default()));
    make(&mut bench, FILE, 4096);
    bench.begin(CallerId(1), &fsync(FILE)).unwrap();
    let mut alone = 0;
    while bench.is_busy(CallerId(1)) {
        // Other callers read all the time.
        if !bench.is_busy(CallerId(2)) {
            bench.begin(CallerId(2), &create(FileId(2 + alone as u32))).unwrap();
        }
        for entry in &bench.device.under_way {
            assert!(entry.request.request.op != Op::Flush && !entry.request.request.flags.contains(RequestFlags::FUA));
            if entry.notes.iter().any(|note| note.role == BlockRole::Commit) {
                assert_eq!(bench.device.under_way.len(), 1, "a barrier goes alone");
                alone += 1;
            }
        }
        let some = bench.device.under_way.len().max(1) - 1;
        bench.complete(some, Nanos::from_micros(10));
    }
    assert!(alone > 0);
}

#[test]
fn a_sync_on_fat32_writes_both_tables_and_the_entry_then_flushes() {
    let mut bench = bench(FilesystemKind::Fat32);
    make(&mut bench, FILE, 4096);
    let requests = sent(&mut bench, &fsync(FILE));
    assert_eq!(requests, ["write 8", "write 1", "write 1", "write 1", "flush 0"]);
    bench.perform(&FileOp::Write { file: FILE, offset: 0, bytes: 100 });
    assert_eq!(sent(&mut bench, &fdatasync(FILE)), ["write 8", "flush 0"], "nothing but data changed");
}

#[test]
fn a_sync_on_a_log_needs_no_checkpoint_but_after_a_rename() {
    let mut bench = bench(FilesystemKind::Lfs);
    make(&mut bench, FILE, 4096);
    assert_eq!(sent(&mut bench, &fsync(FILE)), ["write 8", "write 8", "flush 0"]);
    bench.perform(&FileOp::Rename { from: FILE, to: OTHER });
    let requests = sent(&mut bench, &fsync(OTHER));
    assert_eq!(requests.last().map(String::as_str), Some("write 8pf"), "{requests:?}");
}

#[test]
fn the_log_is_cleaned_and_every_page_survives() {
    let options = MountOptions { segment_kb: Some(128), ..MountOptions::default() };
    let mut bench = bench_with(HostConfig::era("linux-6").unwrap(), mount(FilesystemKind::Lfs, 64, options));
    bench.host.preload(FILE, 36 << 20).unwrap();
    let mut state = 7_u64;
    let mut cleaning = 0;
    for _ in 0..3_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let offset = (state >> 33) % (9 << 10) * 4096;
        let from = bench.device.log.len();
        bench.perform(&FileOp::Write { file: FILE, offset, bytes: 16_384.min((36 << 20) - offset) });
        bench.perform(&fdatasync(FILE));
        cleaning += bench.device.log[from..].iter().filter(|(_, op, ..)| *op == Op::Read).count();
    }
    let pages: u64 = bench.host.extents(FILE).iter().map(|extent| extent.pages).sum();
    assert_eq!(pages, 9 << 10);
    assert!(cleaning > 100, "it had to clean: {cleaning}");
    let discards = bench.device.log.iter().filter(|(_, op, ..)| *op == Op::Discard).count();
    assert_eq!(discards, 0, "cleaning erases nothing");
}

#[test]
fn space_comes_back_when_the_transaction_that_freed_it_is_durable() {
    let options = MountOptions { discard: true, journal_mb: Some(4), ..MountOptions::default() };
    let mut bench = bench_with(HostConfig::era("linux-6").unwrap(), mount(FilesystemKind::Ext4, 64, options));
    for round in 0..6 {
        make(&mut bench, FILE, 30 << 20);
        bench.perform(&fsync(FILE));
        bench.perform(&FileOp::Close { file: FILE });
        bench.perform(&FileOp::Unlink { file: FILE });
        assert!(bench.begin(CallerId(1), &create(FILE)).is_ok());
        bench.drain();
        let append = bench.begin(CallerId(1), &FileOp::Append { file: FILE, bytes: 40 << 20 });
        assert!(append.is_err(), "round {round}: 30 MB are not free yet");
        bench.perform(&FileOp::Close { file: FILE });
        bench.perform(&FileOp::Unlink { file: FILE });
        bench.perform(&FileOp::FsyncFolder { mount: MountId(0), folder: FolderId(0) });
    }
    let discarded: u32 =
        bench.device.log.iter().filter(|(_, op, ..)| *op == Op::Discard).map(|(_, _, _, sectors, _)| sectors).sum();
    assert_eq!(discarded, 6 * (30 << 11));
}

#[test]
fn the_limit_of_requests_holds_a_sync_back_and_counts_as_such() {
    let config = HostConfig { nr_requests: 2, device_depth: 1, max_request_kb: 4, ..HostConfig::era("linux-6").unwrap() };
    let mut bench = bench_with(config, mount(FilesystemKind::Ext4, 1024, MountOptions::default()));
    make(&mut bench, FILE, 40_960);
    let done = bench.perform(&fsync(FILE));
    assert!(done.waits[WaitReason::RequestLimit] > Nanos::ZERO && done.waits[WaitReason::SyncData] > Nanos::ZERO);
}

#[test]
fn a_file_that_is_removed_while_open_lives_until_it_is_closed() {
    let mut bench = bench(FilesystemKind::Ext4);
    bench.perform(&create(FILE));
    bench.perform(&FileOp::Unlink { file: FILE });
    bench.perform(&FileOp::Append { file: FILE, bytes: 4096 });
    assert_eq!(bench.host.size(FILE), Some(4096));
    bench.perform(&FileOp::Close { file: FILE });
    assert_eq!(bench.host.size(FILE), None);
    bench.perform(&create(FILE));
    assert_eq!(bench.host.size(FILE), Some(0));
}

#[test]
fn an_operation_that_cannot_be_is_refused_and_changes_nothing() {
    let mut bench = bench(FilesystemKind::Ext4);
    let refused = [
        (FileOp::Open { file: FILE, create: false }, "does not exist"),
        (FileOp::Read { file: FileId(9_999), offset: 0, bytes: 1 }, "not declared"),
        (FileOp::Append { file: FILE, bytes: 1 }, "does not exist"),
        (FileOp::FsyncFolder { mount: MountId(3), folder: FolderId(0) }, "unknown mount number"),
    ];
    for (operation, words) in refused {
        let error = bench.begin(CallerId(1), &operation).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    bench.perform(&create(FILE));
    let refused = [
        (FileOp::Append { file: FILE, bytes: 2 << 30 }, "no space"),
        (FileOp::Append { file: FILE, bytes: 4 << 40 }, "no space"),
        (FileOp::FsyncFolder { mount: MountId(0), folder: FolderId(u32::MAX) }, "folder"),
        (FileOp::Write { file: FILE, offset: u64::MAX, bytes: 2 }, "too long"),
        (FileOp::Rename { from: FILE, to: FILE }, "cannot be renamed"),
    ];
    for (operation, words) in refused {
        let error = bench.begin(CallerId(1), &operation).unwrap_err();
        assert!(error.to_string().contains(words) && error.hint_text().is_some(), "{error}");
    }
    assert_eq!(bench.host.size(FILE), Some(0));
    bench.perform(&FileOp::Append { file: FILE, bytes: 4096 });
    bench.begin(CallerId(1), &fsync(FILE)).unwrap();
    let error = bench.begin(CallerId(1), &fsync(FILE)).unwrap_err();
    assert!(error.to_string().contains("in progress"), "{error}");
    bench.drain();
}

#[test]
fn settings_and_mounts_that_cannot_be_are_refused_by_name() {
    let era = |change: fn(&mut HostConfig)| {
        let mut config = HostConfig::era("linux-6").unwrap();
        change(&mut config);
        config
    };
    let good = mount(FilesystemKind::Ext4, 1024, MountOptions::default());
    let small = Mount { sectors: 100, ..good };
    let inside = Mount { first_sector: 4, ..good };
    let clusters = MountOptions { cluster_kb: Some(3), ..MountOptions::default() };
    let cases: Vec<(HostConfig, Vec<Mount>, &str)> = vec![
        (era(|config| config.nr_requests = 0), vec![good], "nr_requests"),
        (era(|config| config.dirty_background_pct = 50), vec![good], "dirty_background_pct"),
        (era(|_| {}), vec![], "65,535 mounts"),
        (era(|_| {}), vec![good, good], "overlaps"),
        (era(|_| {}), vec![small], "sectors"),
        (era(|_| {}), vec![inside], "first_sector"),
        (era(|_| {}), vec![mount(FilesystemKind::Fat32, 1024, clusters)], "cluster_kb"),
        (era(|_| {}), vec![Mount { filesystem: FilesystemKind::Fat32, ..small }], "sectors"),
        (era(|_| {}), vec![Mount { filesystem: FilesystemKind::Lfs, ..small }], "sectors"),
        (era(|_| {}), vec![Mount { sectors: u64::MAX, ..good }], "sectors"),
        (era(|_| {}), vec![Mount { sectors: 1 << 30, filesystem: FilesystemKind::Lfs, ..good }], "too large"),
        (
            era(|_| {}),
            vec![mount(FilesystemKind::Ext4, 1024, MountOptions { journal_mb: Some(2_000), ..MountOptions::default() })],
            "sectors",
        ),
    ];
    for (config, mounts, words) in cases {
        let error = SimulatedHost::new(config, &mounts).err().unwrap();
        assert!(error.to_string().contains(words) && error.hint_text().is_some(), "{words}: {error}");
    }
    let error = HostConfig::era("linux-7").unwrap_err();
    assert!(error.hint_text().unwrap().contains("linux-2.6.35"));
    for name in HostConfig::eras() {
        let config = HostConfig::era(name).unwrap();
        config.validate().unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<HostConfig>(&text).unwrap(), config);
        assert!(toml::from_str::<HostConfig>(&format!("{text}\nmore = 1")).is_err());
    }
}

#[test]
fn what_changes_on_its_way_to_the_device_is_written_once_more_by_a_sync() {
    for kind in [FilesystemKind::Ext4, FilesystemKind::Fat32, FilesystemKind::Lfs] {
        let config = HostConfig { page_cache_mb: 1, ..HostConfig::era("linux-6").unwrap() };
        let mut bench = bench_with(config, mount(kind, 256, MountOptions::default()));
        make(&mut bench, FILE, 20 * 4096);
        bench.perform(&fsync(FILE));
        // Background write-back begins. The second write arrives while the first one is in progress.
        let pages = |bench: &Bench| bench.device.log.iter().filter(|(_, op, ..)| *op == Op::Write).count();
        bench.begin(CallerId(1), &FileOp::Write { file: FILE, offset: 0, bytes: 40 * 4096 }).unwrap();
        while bench.is_busy(CallerId(1)) || !bench.device.under_way.iter().any(|entry| entry.request.class == FileClass::Database)
        {
            assert!(!bench.device.under_way.is_empty(), "{kind:?}: write-back is under way");
            bench.complete(0, Nanos::from_micros(10));
        }
        bench.begin(CallerId(1), &FileOp::Write { file: FILE, offset: 0, bytes: 8 * 4096 }).unwrap();
        assert!(!bench.is_busy(CallerId(1)));
        let event = bench.device.events;
        let before = pages(&bench);
        bench.perform(&fsync(FILE));
        assert!(pages(&bench) > before);
        for extent in bench.host.extents(FILE) {
            for page in 0..extent.pages.min(8_u64.saturating_sub(extent.page)) {
                assert!(bench.device.is_durable_since(extent.sector + 8 * page, event), "{kind:?}: {extent:?}");
            }
        }
    }
}

#[test]
fn many_small_files_end_with_a_full_file_system_and_not_before() {
    for kind in [FilesystemKind::Ext4, FilesystemKind::Fat32, FilesystemKind::Lfs] {
        let segment_kb = (kind == FilesystemKind::Lfs).then_some(128);
        let options = MountOptions { segment_kb, ..MountOptions::default() };
        let mut bench = bench_with(HostConfig::era("linux-6").unwrap(), mount(kind, 64, options));
        let mut created = 0;
        for file in 400..30_000 {
            let spec = FileSpec { mount: MountId(0), folder: FolderId(0), class: FileClass::Other };
            bench.host.declare(FileId(file), spec).unwrap();
            let caller = CallerId(1);
            if bench.begin(caller, &create(FileId(file))).is_err() {
                break;
            }
            bench.drain();
            if bench.begin(caller, &FileOp::Append { file: FileId(file), bytes: 100 }).is_err() {
                break;
            }
            bench.drain();
            created += 1;
        }
        assert!((3_000..20_000).contains(&created), "{kind:?}: {created} files");
        bench.perform(&FileOp::Sync);
        bench.perform(&FileOp::Unlink { file: FileId(500) });
        bench.perform(&FileOp::Close { file: FileId(500) });
        assert_eq!(bench.host.size(FileId(500)), None);
    }
}

#[test]
fn a_sync_that_is_not_kept_returns_at_once_and_write_back_takes_the_data() {
    let era = HostConfig::era("linux-6").unwrap();
    let no_databases = HostConfig { synced: SyncedClasses::only(&[FileClass::Other]), ..era.clone() };
    let no_sync = MountOptions { no_sync: true, ..MountOptions::default() };
    for kind in [FilesystemKind::Ext4, FilesystemKind::Fat32, FilesystemKind::Lfs] {
        for (config, options) in [(no_databases.clone(), MountOptions::default()), (era.clone(), no_sync)] {
            let mut bench = bench_with(config, mount(kind, 1024, options));
            make(&mut bench, FILE, 64 << 10);
            assert!(sent(&mut bench, &fsync(FILE)).is_empty(), "{kind:?}");
            let folder = FileOp::FsyncFolder { mount: MountId(0), folder: FolderId(0) };
            assert!(sent(&mut bench, &folder).is_empty(), "{kind:?}");
            let written = |bench: &Bench| {
                let writes = bench.device.log.iter().filter(|entry| entry.1 == Op::Write);
                writes.map(|entry| u64::from(entry.3)).sum::<u64>()
            };
            assert_eq!(written(&bench), 0, "{kind:?}");
            bench.wait(Nanos::from_secs(60));
            bench.drain();
            assert!(written(&bench) >= 128, "{kind:?}: {} sectors", written(&bench));
        }
    }
    let kept = HostConfig { synced: SyncedClasses::only(&[FileClass::Database]), ..era };
    let mut bench = bench_with(kept, mount(FilesystemKind::Ext4, 1024, MountOptions::default()));
    make(&mut bench, FILE, 64 << 10);
    assert!(!sent(&mut bench, &fsync(FILE)).is_empty(), "the class of the file is kept");
}
