//! Recovery from a state after a power cut: the disk above the layers after they have recovered, the files on that disk, and the blocks
//! that the recovery reads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use emmclab_base::{Error, ErrorClass, Op, Result, SECTOR_BYTES};
use emmclab_device::CommandFlags;
use emmclab_ext4::{DiskReader, Ext4Filesystem, JournalRecovery, TreeNode};
use emmclab_layers::{DiskZones, DisksBelow, ImmediateStack, LayerConfig, SectorDisk, build_stack};
use rustc_hash::FxHashMap;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::disk_contents::{BLOCK, CrashDiskView};
use crate::explorer::{CrashState, Explorer};

const SECTOR: usize = SECTOR_BYTES as usize;
/// Maximum number of sectors that are copied at a time.
const MOST_AT_ONCE: u64 = 2048;

/// A write or a discard that a recovery makes.
#[derive(Clone)]
enum RecoveryChange {
    Write(Box<[u8]>),
    Discard(u32),
}

/// Changes of a recovery to a disk: the sectors that it has written or discarded, in memory.
#[derive(Clone, Default)]
struct RecoveryOverlay {
    written: BTreeMap<u64, Box<[u8]>>,
    /// Discarded ranges, as first sector and end. Data that was written to them later is in `written`.
    discarded: Vec<(u64, u64)>,
    zones: Option<DiskZones>,
    /// Write pointer of each zone.
    pointers: Vec<u64>,
}

impl RecoveryOverlay {
    fn over(view: &CrashDiskView, zones: Option<DiskZones>) -> Self {
        let pointers = zones.map_or_else(Vec::new, |zones| view.write_pointers(&zones));
        Self { zones, pointers, ..Self::default() }
    }

    fn pointer(&mut self, sector: u64) -> Option<(&DiskZones, u32, &mut u64)> {
        let zones = self.zones.as_ref()?;
        let zone = zones.zone_of(sector)?;
        Some((zones, zone, &mut self.pointers[zone as usize]))
    }

    fn change(&mut self, sector: u64, change: &RecoveryChange) {
        match change {
            RecoveryChange::Write(data) => {
                for (sector, part) in (sector..).zip(data.chunks_exact(SECTOR)) {
                    self.written.insert(sector, part.into());
                }
                if let Some((.., pointer)) = self.pointer(sector) {
                    *pointer = (*pointer).max(sector + (data.len() / SECTOR) as u64);
                }
            }
            RecoveryChange::Discard(sectors) => {
                let end = sector + u64::from(*sectors);
                let mut behind = self.written.split_off(&sector);
                self.written.append(&mut behind.split_off(&end));
                self.discarded.push((sector, end));
                // On a zoned device, a discard resets the write pointers of all zones in its range.
                let mut at = sector;
                while let Some((zones, zone, pointer)) = self.pointer(at).filter(|_| at < end) {
                    *pointer = zones.start(zone);
                    at = zones.start(zone) + zones.sectors;
                }
            }
        }
    }

    fn patch(&self, sector: u64, buffer: &mut [u8]) {
        let end = sector + (buffer.len() / SECTOR) as u64;
        let place = |at: u64| (at - sector) as usize * SECTOR;
        for (first, last) in &self.discarded {
            let (from, to) = ((*first).max(sector), (*last).min(end));
            if from < to {
                buffer[place(from)..place(to)].fill(0);
            }
        }
        for (at, data) in self.written.range(sector..end) {
            buffer[place(*at)..][..SECTOR].copy_from_slice(data);
        }
    }
}

/// A device in the state after a power cut, to which the recovery writes.
struct StateDisk {
    view: CrashDiskView,
    /// Offset of the device in the state, in sectors. The sectors of several devices follow each other in the state.
    first: u64,
    overlay: RecoveryOverlay,
    /// The changes that the recovery made to this device: the number of the change among those of all devices, its sector in the state, and
    /// the change.
    changes: Vec<(usize, u64, RecoveryChange)>,
    changed: Arc<AtomicUsize>,
}

impl StateDisk {
    fn change(&mut self, sector: u64, change: RecoveryChange) {
        let sector = self.first + sector;
        self.overlay.change(sector, &change);
        self.changes.push((self.changed.fetch_add(1, Ordering::Relaxed), sector, change));
    }
}

impl SectorDisk for StateDisk {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sector = self.first + sector;
        self.view.read(sector, buffer)?;
        self.overlay.patch(sector, buffer);
        Ok(())
    }

    fn write(&mut self, sector: u64, data: &[u8], _: CommandFlags) -> io::Result<()> {
        self.change(sector, RecoveryChange::Write(data.into()));
        Ok(())
    }

    fn discard(&mut self, sector: u64, sectors: u32, _: bool) -> io::Result<()> {
        self.change(sector, RecoveryChange::Discard(sectors));
        Ok(())
    }

    fn write_pointer(&mut self, sector: u64) -> io::Result<Option<u64>> {
        let sector = self.first + sector;
        Ok(self.overlay.pointer(sector).filter(|(zones, zone, _)| zones.start(*zone) == sector).map(|(.., pointer)| *pointer))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The disk that a host sees in a state after a power cut: the state itself, or the disk that layers recover from it.
pub struct HostView {
    source: HostViewSource,
    sectors: u64,
}

enum HostViewSource {
    Plain(CrashDiskView),
    Layered(Box<RefCell<ImmediateStack<StateDisk>>>),
}

impl HostView {
    /// Recovers the layers from a crash state. `cut_after`: an earlier recovery was interrupted by a power cut after this many writes.
    /// Errors: if the layers cannot be built or cannot recover.
    pub fn recover(
        view: CrashDiskView, (layers, below): (&[LayerConfig], &DisksBelow), sectors: u64, cut_after: Option<usize>,
    ) -> Result<io::Result<Self>> {
        if layers.is_empty() {
            return Ok(Ok(Self { source: HostViewSource::Plain(view), sectors }));
        }
        let start = |overlay: RecoveryOverlay| -> Result<_> {
            let layers = build_stack(layers, below)?;
            let changed = Arc::<AtomicUsize>::default();
            let disk = |first| {
                let (view, overlay, changed) = (view.clone(), overlay.clone(), changed.clone());
                StateDisk { view, first, overlay, changes: Vec::new(), changed }
            };
            let disks = [Some(0), below.second.map(|_| below.main)].into_iter().flatten().map(disk).collect();
            Ok(ImmediateStack::start(layers, disks, true))
        };
        let new = RecoveryOverlay::over(&view, below.zones);
        let mut started: io::Result<ImmediateStack<StateDisk>> = start(new.clone())?;
        if let (Some(writes), Ok(executor)) = (cut_after, &mut started) {
            let mut left = new;
            let mut done: Vec<_> = executor.disks().iter().flat_map(|disk| &disk.changes).collect();
            done.sort_unstable_by_key(|(number, ..)| *number);
            for (_, sector, change) in done.into_iter().take(writes) {
                left.change(*sector, change);
            }
            started = start(left)?;
        }
        Ok(started.map(|executor| Self { source: HostViewSource::Layered(Box::new(executor.into())), sectors }))
    }

    /// Number of writes and discards that the recovery has made.
    pub fn recovery_writes(&self) -> usize {
        match &self.source {
            HostViewSource::Plain(_) => 0,
            HostViewSource::Layered(executor) => executor.borrow_mut().disks().iter().map(|disk| disk.changes.len()).sum(),
        }
    }

    /// Size of the disk in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Fills `buffer` with whole sectors from `sector` on.
    /// Errors: if the range is beyond the end of the disk, or the state cannot be read.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        if sector.saturating_add((buffer.len() / SECTOR) as u64) > self.sectors {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.source {
            HostViewSource::Plain(view) => view.read(sector, buffer),
            HostViewSource::Layered(executor) => executor.borrow_mut().submit(Op::Read, sector, buffer),
        }
    }

    /// Returns the ranges of sectors that may contain data, in order. Each range has at most `MOST_AT_ONCE` sectors.
    fn written(&self) -> Vec<Range<u64>> {
        match &self.source {
            HostViewSource::Plain(view) => {
                let mut ranges: Vec<Range<u64>> = Vec::new();
                for block in view.written().into_iter().filter(|block| !view.is_zero(*block)) {
                    let range = block * BLOCK..((block + 1) * BLOCK).min(self.sectors);
                    match ranges.last_mut() {
                        Some(last) if last.end == range.start && range.end - last.start <= MOST_AT_ONCE => {
                            last.end = range.end;
                        }
                        _ => ranges.push(range),
                    }
                }
                ranges
            }
            // A layer may store a sector anywhere on the device, so the whole address range counts as written.
            HostViewSource::Layered(_) => {
                let ends = |first: u64| (first + MOST_AT_ONCE).min(self.sectors);
                (0..self.sectors).step_by(MOST_AT_ONCE as usize).map(|first| first..ends(first)).collect()
            }
        }
    }

    /// Writes all data except zeros to its position in a file, which must be empty. The length of the file is set to that of the disk.
    /// Errors: if the file cannot be written, or the state cannot be read.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.set_len(self.sectors * SECTOR_BYTES)?;
        let mut buffer = Vec::new();
        for range in self.written() {
            buffer.resize((range.end - range.start) as usize * SECTOR, 0);
            self.read(range.start, &mut buffer)?;
            if buffer.iter().any(|byte| *byte != 0) {
                file.write_all_at(&buffer, range.start * SECTOR_BYTES)?;
            }
        }
        Ok(())
    }
}

impl DiskReader for HostView {
    fn size(&self) -> io::Result<u64> {
        Ok(self.sectors * SECTOR_BYTES)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let sector = SECTOR_BYTES;
        if offset.is_multiple_of(sector) && (buffer.len() as u64).is_multiple_of(sector) {
            return self.read(offset / sector, buffer);
        }
        let (first, end) = (offset / sector, (offset + buffer.len() as u64).div_ceil(sector));
        let mut whole = vec![0; ((end - first) * sector) as usize];
        self.read(first, &mut whole)?;
        let from = (offset - first * sector) as usize;
        buffer.copy_from_slice(&whole[from..from + buffer.len()]);
        Ok(())
    }

    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        let (sector, length) = (SECTOR_BYTES, length as u64);
        match &self.source {
            HostViewSource::Plain(view) if offset.is_multiple_of(sector) && length.is_multiple_of(sector) => {
                Some(view.identity(offset / sector, length / sector))
            }
            _ => None,
        }
    }
}

/// The levels of the storage stack whose promises are checked. The lowest level that violated a promise is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseLevel {
    /// The device, whose promises are its contract.
    Device,
    /// A layer between file system and device.
    Layer,
    /// The file system.
    FileSystem,
}

impl PromiseLevel {
    /// The name of the level in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Layer => "layer",
            Self::FileSystem => "filesystem",
        }
    }
}

/// A promise that a disk state violates, with the level of the storage stack that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateViolation {
    /// The level of the storage stack that made the promise.
    pub level: PromiseLevel,
    /// The name of the violated promise.
    pub promise: &'static str,
    /// Describes the sectors or the structure that violate the promise.
    pub detail: String,
}

impl StateViolation {
    /// Converts an error that prevents the recovery of an ext4 file system to a violation.
    pub fn of_file_system(error: &Error) -> Self {
        let text = error.to_string();
        let damaged = BEFORE_REPLAY.iter().find(|(name, _)| text.contains(name));
        Self {
            level: PromiseLevel::FileSystem,
            promise: damaged.map_or("mountable", |(_, promise)| promise),
            detail: text.lines().next().unwrap_or_default().to_owned(),
        }
    }
}

/// The outcome of the recovery from a disk state: the first violation, and the data that was read afterwards.
#[derive(Clone, Debug, Default)]
pub struct RecoveredState {
    /// The violation at the lowest level of the storage stack; `None` if the state is correct.
    pub problem: Option<StateViolation>,
    /// The contents of the requested files; `None` for a missing file. The list is empty if a promise was violated.
    pub files: Vec<Option<Vec<u8>>>,
    /// All files and folders below the requested folder; `None` if the folder does not exist, or after a violation.
    pub tree: Option<Vec<TreeNode>>,
    /// Number of writes during the recovery of the layers.
    pub layer_writes: usize,
}

impl RecoveredState {
    fn broken(problem: StateViolation) -> Self {
        Self { problem: Some(problem), ..Self::default() }
    }
}

/// Maximum size of a file that is read, in bytes.
const MOST_FILE: usize = 1 << 30;
/// Maximum number of files and folders that are read from a tree.
const MOST_NODES: usize = 1 << 20;

/// Recovers disk states, one after another, and checks them. Checksums that are already known are reused.
#[derive(Default)]
pub struct StateJudge {
    recovery: JournalRecovery,
}

impl StateJudge {
    /// Recovers layers and journal from a state of the current cut of `explorer`, and reads files and a folder. With `cut_after`, power is
    /// lost again after this number of writes during the recovery of the layers.
    /// Errors: if the state contains something that emmclab does not support. This does not count as a violation.
    pub fn recover(
        &mut self, explorer: &Explorer, state: &CrashState, wanted: &[&str], tree: Option<&str>, cut_after: Option<usize>,
    ) -> Result<RecoveredState> {
        let header = explorer.run().header();
        let view = explorer.view(state);
        let broken = |promise, detail| Ok(RecoveredState::broken(StateViolation { level: PromiseLevel::Layer, promise, detail }));
        let host = match HostView::recover(view, (&header.layers, &header.below()), header.sectors, cut_after)? {
            Ok(host) => host,
            Err(error) => return broken("recovery", format!("the layers do not recover: {error}")),
        };
        if let Some(detail) = explorer.host_fault(state, &host) {
            return broken("contents", detail);
        }
        match self.files(&host, wanted, tree) {
            Ok(recovered) => Ok(RecoveredState { layer_writes: host.recovery_writes(), ..recovered }),
            Err(error) if error.kind() == ErrorClass::Unsupported => Err(error),
            Err(error) => Ok(RecoveredState::broken(StateViolation::of_file_system(&error))),
        }
    }

    /// Replays the journal of a disk and reads files from it. `wanted` are their paths, `tree` is a folder to list.
    /// Errors: if structures of the file system are damaged or not supported.
    pub fn files(&mut self, disk: &dyn DiskReader, wanted: &[&str], tree: Option<&str>) -> Result<RecoveredState> {
        let replayed = self.recovery.replay(disk)?;
        let replay = replayed.replay();
        if let Some(refused) = &replay.refused {
            return Ok(RecoveredState::broken(StateViolation::of_file_system(refused)));
        }
        let files = Ext4Filesystem::open(&replayed)?;
        let mut contents = Vec::with_capacity(wanted.len());
        for path in wanted {
            let inode = files.lookup(path)?;
            contents.push(inode.map(|inode| files.contents(&inode, MOST_FILE)).transpose()?);
        }
        let tree = tree.map(|folder| files.tree(folder, MOST_FILE, MOST_NODES)).transpose()?.flatten();
        Ok(RecoveredState { files: contents, tree, ..RecoveredState::default() })
    }
}

/// Structures that Linux needs before it can replay the journal. Each entry has the name of the structure in errors, and the name of the
/// promise that a damaged structure violates. ext4 promises nothing if a power cut tears or garbles one of these structures.
const BEFORE_REPLAY: [(&str, &str); 5] = [
    ("`superblock`", "superblock"),
    ("`journal superblock`", "journal superblock"),
    ("`descriptor of block group ", "group descriptor"),
    ("`inode 8`", "journal inode"),
    ("commit block", "commit block"),
];

const BLOCK_BYTES: usize = (BLOCK * SECTOR_BYTES) as usize;

/// The outcomes of recoveries that read the same set of blocks, by a digest of the contents of these blocks.
struct ReadSet {
    blocks: Box<[u64]>,
    outcomes: FxHashMap<u128, usize>,
}

/// Outcomes of recoveries, each with the blocks that the recovery read. A disk state has the outcome of an earlier recovery if it has equal
/// contents in all blocks that this recovery read. Such a state need not be recovered.
#[derive(Default)]
pub struct RecoveryReadCache {
    /// Sets of blocks that earlier recoveries read. The key describes what was then read from the recovered disk. In each list, the set
    /// that matched last comes first.
    sets: FxHashMap<String, Vec<ReadSet>>,
}

impl RecoveryReadCache {
    /// Returns the outcome of an earlier recovery, if every block that it read has the same contents in this state; otherwise `None`. The
    /// outcomes are stored by `request`, which describes what is read from the recovered disk.
    pub fn outcome(&mut self, request: &str, state: &HostView) -> Option<usize> {
        let sets = self.sets.get_mut(request)?;
        let digests = BlockDigests::of(state);
        let matching = sets
            .iter()
            .enumerate()
            .find_map(|(place, set)| set.outcomes.get(&digests.over(&set.blocks)?).map(|outcome| (place, *outcome)));
        let (place, outcome) = matching?;
        sets[..=place].rotate_right(1);
        Some(outcome)
    }

    /// Records which blocks of eight sectors the recovery of a state read, and the outcome of the recovery.
    pub fn learn(&mut self, request: &str, state: &HostView, mut blocks: Vec<u64>, outcome: usize) {
        blocks.sort_unstable();
        blocks.dedup();
        let Some(digest) = BlockDigests::of(state).over(&blocks) else { return };
        let sets = self.sets.entry(request.to_owned()).or_default();
        if let Some(set) = sets.iter_mut().find(|set| *set.blocks == *blocks) {
            set.outcomes.insert(digest, outcome);
        } else {
            let outcomes = [(digest, outcome)].into_iter().collect();
            sets.insert(0, ReadSet { blocks: blocks.into(), outcomes });
        }
    }
}

/// The digests of the blocks of a disk state. Each digest is computed only once.
struct BlockDigests<'a> {
    state: &'a HostView,
    computed: RefCell<FxHashMap<u64, Option<u64>>>,
}

impl<'a> BlockDigests<'a> {
    fn of(state: &'a HostView) -> Self {
        Self { state, computed: RefCell::default() }
    }

    /// Returns a digest of the contents of several blocks; `None` if a block cannot be read.
    fn over(&self, blocks: &[u64]) -> Option<u128> {
        let mut bytes = Vec::with_capacity(size_of_val(blocks));
        for block in blocks {
            bytes.extend_from_slice(&self.block(*block)?.to_le_bytes());
        }
        Some(xxh3_128(&bytes))
    }

    fn block(&self, block: u64) -> Option<u64> {
        *self.computed.borrow_mut().entry(block).or_insert_with(|| self.read(block))
    }

    fn read(&self, block: u64) -> Option<u64> {
        let sectors = self.state.sectors().checked_sub(block.checked_mul(BLOCK)?)?.min(BLOCK);
        let (offset, length) = (block * BLOCK_BYTES as u64, (sectors * SECTOR_BYTES) as usize);
        self.state.content(offset, length).or_else(|| {
            let mut buffer = [0; BLOCK_BYTES];
            let buffer = &mut buffer[..length];
            self.state.read(block * BLOCK, buffer).ok()?;
            Some(xxh3_64(buffer))
        })
    }
}
