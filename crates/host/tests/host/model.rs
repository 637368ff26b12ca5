//! Random operations of several callers, on a device that completes requests in random order: rules that always hold.

use std::collections::{BTreeMap, BTreeSet};

use emmclab_base::Nanos;
use emmclab_host::{
    CallerId, ElevatorKind, FileClass, FileId, FileOp, FileSpec, FilesystemKind, FolderId, HostConfig, Mount, MountId,
    MountOptions,
};
use proptest::prelude::*;

use crate::support::Bench;

const FILES: u32 = 10;
const CALLERS: u32 = 4;

#[derive(Clone, Debug)]
enum Action {
    Begin(u32, FileOp),
    Complete(usize, i64),
    Wait(i64),
}

fn operation() -> impl Strategy<Value = FileOp> {
    let file = (0..FILES).prop_map(FileId);
    let length = prop_oneof![3 => 1..9_000_u64, 2 => 1..200_000_u64, 1 => Just(4096_u64), 1 => 1..3_000_000_u64];
    let offset = prop_oneof![Just(0_u64), 0..40_000_u64, 0..1_500_000_u64];
    prop_oneof![
        3 => file.clone().prop_map(|file| FileOp::Open { file, create: true }),
        3 => (file.clone(), offset.clone(), length.clone()).prop_map(|(file, offset, bytes)| FileOp::Write { file, offset, bytes }),
        3 => (file.clone(), length.clone()).prop_map(|(file, bytes)| FileOp::Append { file, bytes }),
        2 => (file.clone(), offset, length.clone()).prop_map(|(file, offset, bytes)| FileOp::Read { file, offset, bytes }),
        3 => (file.clone(), any::<bool>()).prop_map(|(file, data_only)| FileOp::Fsync { file, data_only }),
        1 => (file.clone(), length).prop_map(|(file, bytes)| FileOp::Truncate { file, bytes }),
        1 => file.clone().prop_map(|file| FileOp::Unlink { file }),
        1 => file.clone().prop_map(|file| FileOp::Close { file }),
        1 => (file.clone(), file).prop_map(|(from, to)| FileOp::Rename { from, to }),
        1 => (0..2_u32).prop_map(|folder| FileOp::FsyncFolder { mount: MountId(1), folder: FolderId(folder) }),
        1 => Just(FileOp::Sync),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (0..CALLERS, operation()).prop_map(|(caller, operation)| Action::Begin(caller, operation)),
        5 => (any::<usize>(), 0..20_000_000_i64).prop_map(|(at, ns)| Action::Complete(at, ns)),
        1 => (0..8_000_i64).prop_map(Action::Wait),
    ]
}

fn config() -> impl Strategy<Value = HostConfig> {
    let elevators = prop_oneof![Just(ElevatorKind::None), Just(ElevatorKind::Deadline), Just(ElevatorKind::Cfq)];
    let era = prop_oneof![Just("linux-6"), Just("linux-2.6.35")];
    (era, 1..4_u64, elevators, prop_oneof![Just(1), Just(4), Just(128)], 1..12_u32, 0..3_u32).prop_map(
        |(era, page_cache_mb, elevator, nr_requests, device_depth, kind)| HostConfig {
            page_cache_mb,
            elevator,
            nr_requests,
            device_depth,
            max_request_kb: [4, 64, 512][kind as usize],
            ..HostConfig::era(era).unwrap()
        },
    )
}

/// Two partitions, so that addresses on a mount differ from those on the device.
fn mounts(kind: FilesystemKind) -> Vec<Mount> {
    let options = match kind {
        FilesystemKind::Ext4 => MountOptions { journal_mb: Some(4), discard: true, ..MountOptions::default() },
        FilesystemKind::Fat32 => MountOptions { discard: true, ..MountOptions::default() },
        FilesystemKind::Lfs => MountOptions { segment_kb: Some(256), ..MountOptions::default() },
    };
    let mount = |first_sector| Mount { filesystem: kind, first_sector, sectors: 96 << 11, options };
    vec![mount(8), mount(100 << 11)]
}

/// What the test knows about a file.
#[derive(Clone, Debug, Default)]
struct Known {
    /// For each page, when its last completed write began and when it ended.
    written: BTreeMap<u64, (u64, u64)>,
    /// For each page, the locations at which it was seen.
    places: BTreeMap<u64, BTreeSet<u64>>,
}

struct Model {
    bench: Bench,
    files: BTreeMap<FileId, Known>,
    under_way: BTreeMap<CallerId, (FileOp, u64, u64)>,
    seen: usize,
    /// Whether the file system never writes in place.
    moves: bool,
    /// Files for which the order of writes is unknown until no operation is in progress.
    unclear: BTreeSet<FileId>,
}

impl Model {
    fn new(config: HostConfig, kind: FilesystemKind, plain: bool) -> Self {
        let moves = kind == FilesystemKind::Lfs;
        let mut bench = Bench::new(config, &mounts(kind), plain);
        let classes = [FileClass::Database, FileClass::DatabaseJournal, FileClass::Cache, FileClass::Other];
        for file in 0..FILES {
            let spec =
                FileSpec { mount: MountId(u16::from(file >= 3)), folder: FolderId(file % 2), class: classes[file as usize % 4] };
            bench.host.declare(FileId(file), spec).unwrap();
        }
        bench.host.preload(FileId(0), 300_000).unwrap();
        bench.host.preload(FileId(5), 2_000_000).unwrap();
        Self { bench, files: BTreeMap::new(), under_way: BTreeMap::new(), seen: 0, moves, unclear: BTreeSet::new() }
    }

    fn begin(&mut self, caller: CallerId, operation: FileOp) {
        if self.bench.is_busy(caller) {
            return;
        }
        let from = match operation {
            FileOp::Append { file, .. } => self.end(file),
            FileOp::Write { offset, .. } => offset,
            _ => 0,
        };
        // The effect of an operation is known only if no concurrent operation changes the file at its path, or the position of its append.
        let files = Self::files_of(&operation);
        for (other, ..) in self.under_way.values() {
            let (two, changes) = (Self::files_of(other), |operation: &FileOp| {
                matches!(operation, FileOp::Append { .. }) || files.iter().any(|file| Self::touches(operation, *file))
            });
            let meets = files.iter().any(|file| two.contains(file));
            if meets && (changes(other) || changes(&operation)) {
                self.unclear.extend(files.iter().chain(&two));
            }
        }
        self.under_way.insert(caller, (operation, from, self.bench.device.events));
        if self.bench.begin(caller, &operation).is_err() {
            self.under_way.remove(&caller);
        }
        self.look();
    }

    /// The position at which an append begins: after writes in progress.
    fn end(&self, file: FileId) -> u64 {
        let ends = self.under_way.values().filter_map(|(operation, from, _)| match *operation {
            FileOp::Write { file: one, bytes, .. } | FileOp::Append { file: one, bytes } if one == file => Some(from + bytes),
            _ => None,
        });
        ends.chain(self.bench.host.size(file)).max().unwrap_or(0)
    }

    fn touches(operation: &FileOp, file: FileId) -> bool {
        match *operation {
            FileOp::Truncate { file: one, .. } | FileOp::Unlink { file: one } | FileOp::Close { file: one } => one == file,
            FileOp::Rename { from, to } => from == file || to == file,
            _ => false,
        }
    }

    fn files_of(operation: &FileOp) -> Vec<FileId> {
        let replaced = match *operation {
            FileOp::Rename { to, .. } => Some(to),
            _ => None,
        };
        operation.file().into_iter().chain(replaced).collect()
    }

    /// Checks the operations that have ended.
    fn look(&mut self) {
        let ended = self.bench.device.events;
        for (file, known) in self.files.iter_mut().filter(|_| self.moves) {
            for extent in self.bench.host.extents(*file) {
                for step in 0..extent.pages {
                    known.places.entry(extent.page + step).or_default().insert(extent.sector + 8 * step);
                }
            }
        }
        while self.seen < self.bench.finished.len() {
            let caller = self.bench.finished[self.seen].caller;
            self.seen += 1;
            let Some((operation, from, event)) = self.under_way.remove(&caller) else { continue };
            match operation {
                FileOp::Write { file, bytes, .. } | FileOp::Append { file, bytes }
                    if !self.unclear.contains(&file)
                        && self.under_way.values().all(|(other, ..)| !Self::touches(other, file)) =>
                {
                    let known = self.files.entry(file).or_default();
                    for page in from / 4096..(from + bytes).div_ceil(4096) {
                        known.written.insert(page, (event, ended));
                    }
                }
                FileOp::Fsync { file, .. } => self.check_durable(file, event),
                FileOp::Truncate { file, bytes } => {
                    if let Some(known) = self.files.get_mut(&file) {
                        known.written.retain(|page, _| page * 4096 < bytes);
                    }
                }
                FileOp::Unlink { file } => {
                    self.files.remove(&file);
                }
                FileOp::Close { file } if self.bench.host.size(file).is_none() => {
                    self.files.remove(&file);
                }
                FileOp::Rename { from, to } => {
                    self.files.remove(&to);
                    self.files.remove(&from);
                }
                FileOp::Sync => {
                    let files: Vec<FileId> = self.files.keys().copied().collect();
                    for file in files {
                        self.check_durable(file, event);
                    }
                }
                _ => {}
            }
            if self.under_way.is_empty() {
                self.unclear.clear();
            }
        }
    }

    /// Data that was written to a file before a sync of it began is durable when the sync has ended.
    fn check_durable(&self, file: FileId, begun: u64) {
        let Some(known) = self.files.get(&file) else { return };
        if self.under_way.values().any(|(other, ..)| Self::touches(other, file)) {
            return;
        }
        let mut places = BTreeMap::new();
        for extent in self.bench.host.extents(file) {
            places.extend((0..extent.pages).map(|step| (extent.page + step, extent.sector + 8 * step)));
        }
        for (page, (event, _)) in known.written.iter().filter(|(_, (_, ended))| *ended <= begun) {
            // A write in progress may have moved the page, or made it wait for another sync.
            if self.is_being_written(file, *page) {
                continue;
            }
            let place = places.get(page);
            // A log-structured file system writes a changed page to a new location. Until that is durable, an older location also counts.
            let older = known.places.get(page).filter(|_| self.moves).into_iter().flatten();
            let durable = place.into_iter().chain(older).any(|sector| self.bench.device.is_durable_since(*sector, *event));
            assert!(durable, "page {page} of {file:?} is not durable at {place:?}");
        }
    }

    fn is_being_written(&self, file: FileId, page: u64) -> bool {
        self.under_way.values().any(|(operation, from, _)| match *operation {
            FileOp::Write { file: one, bytes, .. } | FileOp::Append { file: one, bytes } => {
                one == file && from / 4096 <= page && page * 4096 < from + bytes
            }
            _ => false,
        })
    }

    /// Checks that no two files share a page of the device.
    fn check_places(&self) {
        let mut taken = BTreeSet::new();
        for file in 0..FILES {
            for extent in self.bench.host.extents(FileId(file)) {
                for page in 0..extent.pages {
                    assert!(taken.insert(extent.sector / 8 + page), "two files at sector {}", extent.sector);
                }
            }
        }
    }

    fn run(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Begin(caller, operation) => self.begin(CallerId(*caller), *operation),
                Action::Complete(at, ns) => self.bench.complete(*at, Nanos(*ns)),
                Action::Wait(ms) => self.bench.wait(Nanos::from_millis(*ms)),
            }
            self.look();
        }
        self.check_places();
        self.bench.drain();
        self.look();
        // After a final sync without concurrent operations, everything is durable.
        self.begin(CallerId(99), FileOp::Sync);
        self.bench.drain();
        self.look();
        self.check_places();
    }
}

fn check(kind: FilesystemKind, config: &HostConfig, actions: &[Action]) {
    // A device without flushes keeps all completed writes.
    let plain = config.barrier == emmclab_host::BarrierMode::Drain;
    let mut logs = Vec::new();
    for _ in 0..2 {
        let mut model = Model::new(config.clone(), kind, plain);
        model.run(actions);
        logs.push(std::mem::take(&mut model.bench.device.log));
    }
    assert!(logs[0] == logs[1], "the same operations give the same requests");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ext4_keeps_its_promises(config in config(), actions in prop::collection::vec(action(), 1..120)) {
        check(FilesystemKind::Ext4, &config, &actions);
    }

    #[test]
    fn fat32_keeps_its_promises(config in config(), actions in prop::collection::vec(action(), 1..120)) {
        check(FilesystemKind::Fat32, &config, &actions);
    }

    #[test]
    fn lfs_keeps_its_promises(config in config(), actions in prop::collection::vec(action(), 1..120)) {
        check(FilesystemKind::Lfs, &config, &actions);
    }
}
