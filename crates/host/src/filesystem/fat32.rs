//! FAT32 (`fs/fat`): the two file allocation tables and the folders are written in place, sector by sector, without a journal. Clusters are
//! allocated when a page is written in memory.
//!
//! A sync of a file writes its data, its folder entry and all dirty sectors of the tables, then flushes. The sector with the number of free
//! clusters is written back like other data. Each name takes three entries of 32 bytes. Not modelled: zeroing when a file is extended
//! without a write, and access times.

use std::collections::BTreeMap;
use std::ops::Range;

use emmclab_base::{BlockRole, Error, ErrorClass, Nanos, Result, SectorRangeMap};

use crate::block::{BioId, BioRequest};
use crate::config::Mount;
use crate::core::{FilesystemJob, HostCore, StepOutcome, TaskId};
use crate::operation::{FolderId, WaitReason};
use crate::request::IoCause;

use super::{FilesystemModel, FreeBlocks, MetadataBufferTable, place_of};

/// Number of sectors before the first table.
const RESERVED: u64 = 32;
/// The sector that contains the number of free clusters.
const INFO: u64 = 1;
/// Number of entries in a sector of a table.
const ENTRIES: u64 = 128;
/// Number of names in a sector of a folder, with three entries of 32 bytes each.
const NAMES: u64 = 5;
/// Number of clusters reserved for folders and for the last, partly used clusters of files.
const MARGIN: u64 = 16;

#[derive(Debug, Default)]
struct Fat32File {
    /// Extents of the file, by page number. The value of an extent is its page in the partition minus its page in the file.
    extents: SectorRangeMap<i64>,
    /// Number of pages of the file, all of which are allocated.
    pages: u64,
    name: u64,
    /// Time since which the folder entry of the file is outdated, and whether the length in this entry is outdated. `None` if the entry is
    /// correct.
    changed: Option<(Nanos, bool)>,
}

#[derive(Debug, Default)]
struct Fat32Folder {
    /// First sectors of the folder's clusters.
    clusters: Vec<u64>,
    names: u64,
}

/// The state of a FAT32 file system.
#[derive(Debug)]
pub(super) struct Fat32 {
    mount: u16,
    barrier: bool,
    discard: bool,
    /// Clusters that become free when their discard is complete.
    discarding: Vec<(u64, u64, BioId)>,
    /// Number of pages per cluster.
    cluster: u64,
    /// Number of sectors per file allocation table.
    table: u64,
    /// First page of the first cluster.
    data: u64,
    free: FreeBlocks,
    /// The cluster after the last allocated one.
    next: u64,
    reserved: u64,
    files: Vec<Fat32File>,
    /// Files whose folder entries are outdated, each with the time at which the entry became outdated.
    changed: BTreeMap<u32, Nanos>,
    folders: Vec<Fat32Folder>,
    buffers: MetadataBufferTable,
}

impl Fat32 {
    pub fn new(number: u16, mount: &Mount) -> Result<Self> {
        let kb = mount.options.cluster_kb.unwrap_or(default_cluster(mount.sectors));
        if !kb.is_power_of_two() || !(4..=64).contains(&kb) {
            return Err(Error::new(ErrorClass::Config, "this cluster size is not supported by the FAT32 model")
                .of_field("cluster_kb", 0, kb.to_string().as_bytes())
                .hint("use a cluster size of 4, 8, 16, 32 or 64 KB"));
        }
        let cluster = u64::from(kb / 4);
        let pages = mount.sectors / 8;
        let table = (pages / cluster).div_ceil(ENTRIES);
        let data = (RESERVED + 2 * table).div_ceil(8).next_multiple_of(cluster);
        let clusters = pages.saturating_sub(data) / cluster;
        if clusters < 2 * MARGIN {
            return Err(Error::new(ErrorClass::Config, "the partition is too small for FAT32")
                .of_field("sectors", 0, mount.sectors.to_string().as_bytes())
                .hint(format!("use a partition of {} sectors or more", (data + 4 * MARGIN * cluster) * 8)));
        }
        let mut free = FreeBlocks::default();
        free.give(0, clusters);
        let mut fs = Self {
            mount: number,
            barrier: !mount.options.no_barrier,
            discard: mount.options.discard,
            discarding: Vec::new(),
            cluster,
            table,
            data,
            free,
            next: 0,
            reserved: 0,
            files: Vec::new(),
            changed: BTreeMap::new(),
            folders: Vec::new(),
            buffers: MetadataBufferTable::new(number, 1),
        };
        fs.open_folder(FolderId(0));
        Ok(fs)
    }

    fn page_of(&self, cluster: u64) -> u64 {
        self.data + cluster * self.cluster
    }

    fn file(&mut self, inode: u32) -> &mut Fat32File {
        if self.files.len() <= inode as usize {
            self.files.resize_with(inode as usize + 1, Fat32File::default);
        }
        &mut self.files[inode as usize]
    }

    /// Initialises a folder at its first use; all folders exist from the start of the simulation.
    fn open_folder(&mut self, id: FolderId) {
        let at = id.0 as usize;
        if self.folders.len() <= at {
            self.folders.resize_with(at + 1, Fat32Folder::default);
        }
        if self.folders[at].clusters.is_empty()
            && let Some(cluster) = self.take_cluster()
        {
            let sector = self.page_of(cluster) * 8;
            self.folders[at].clusters.push(sector);
        }
    }

    /// Allocates the next free cluster.
    fn take_cluster(&mut self) -> Option<u64> {
        let (cluster, _) = self.free.find(self.next, 1, 1)?;
        self.free.take(cluster, cluster + 1);
        self.next = cluster + 1;
        Some(cluster)
    }

    /// Marks the entries of clusters as changed in both file allocation tables, and also the number of free clusters.
    fn change_table(&mut self, now: Nanos, clusters: Range<u64>) {
        for sector in clusters.start / ENTRIES..=(clusters.end - 1) / ENTRIES {
            for table in 0..2 {
                self.buffers.change(RESERVED + table * self.table + sector, BlockRole::Metadata, now);
            }
        }
        self.buffers.change(INFO, BlockRole::Superblock, now);
    }

    /// Allocates clusters for a file until it has `pages` pages.
    fn lengthen(&mut self, inode: u32, pages: u64, logged: Option<Nanos>) {
        while self.files[inode as usize].pages < pages {
            let Some(cluster) = self.take_cluster() else { return };
            let (place, length) = (self.page_of(cluster) as i64, self.cluster);
            let file = &mut self.files[inode as usize];
            let first = file.pages;
            file.extents.set(first, first + length, place - first as i64);
            file.pages += length;
            if let Some(now) = logged {
                // The table entry of the previous cluster refers to the new cluster.
                let before = first
                    .checked_sub(1)
                    .and_then(|page| file.extents.get(page).map(|delta| ((page as i64 + delta) as u64 - self.data) / length));
                self.change_table(now, cluster..cluster + 1);
                if let Some(before) = before {
                    self.change_table(now, before..before + 1);
                }
            }
        }
    }

    /// Frees the clusters of a file beyond its first `pages` pages.
    fn shorten(&mut self, core: &mut HostCore, inode: u32, pages: u64) {
        let from = pages.next_multiple_of(self.cluster);
        let file = &mut self.files[inode as usize];
        let cluster = |page: u64, delta: i64| ((page as i64 + delta) as u64 - self.data) / self.cluster;
        let runs: Vec<(u64, u64)> = file
            .extents
            .find(from, u64::MAX)
            .map(|(from, to, delta)| (cluster(from, *delta), cluster(to - 1, *delta) + 1))
            .collect();
        file.extents.remove(from, u64::MAX);
        file.pages = file.pages.min(from);
        for (from, to) in runs {
            self.change_table(core.now, from..to);
            if self.discard {
                let (sector, sectors) = (self.page_of(from) * 8, ((to - from) * self.cluster * 8) as u32);
                let bio = core.submit(BioRequest::discard(self.mount, sector, sectors, IoCause::WriteBack));
                self.discarding.push((from, to, bio));
            } else {
                self.free.give(from, to);
            }
        }
    }

    /// Frees the clusters whose discard is complete.
    fn reclaim(&mut self, core: &HostCore) {
        let free = &mut self.free;
        self.discarding.retain(|(from, to, bio)| {
            let waits = core.queue.in_flight(*bio);
            if !waits {
                free.give(*from, *to);
            }
            waits
        });
    }

    fn note_change(&mut self, inode: u32, now: Nanos, length: bool) {
        let changed = &mut self.files[inode as usize].changed;
        let (since, longer) = changed.unwrap_or((now, false));
        *changed = Some((since, longer || length));
        self.changed.entry(inode).or_insert(now);
    }

    /// Marks the sector with the folder entry of a file as dirty if the entry is outdated.
    fn write_entry(&mut self, inode: u32, now: Nanos) {
        self.changed.remove(&inode);
        let file = &mut self.files[inode as usize];
        if file.changed.take().is_some() {
            let name = file.name;
            self.buffers.change(name, BlockRole::Directory, now);
        }
    }

    /// Allocates an entry for a new name in a folder. Returns the sector of the entry.
    fn place_name(&mut self, folder: FolderId, logged: Option<Nanos>) -> u64 {
        self.open_folder(folder);
        let sectors = self.cluster * 8;
        let at = folder.0 as usize;
        let (cluster, sector) = {
            let sector = self.folders[at].names / NAMES;
            ((sector / sectors) as usize, sector % sectors)
        };
        if cluster >= self.folders[at].clusters.len()
            && let Some(new) = self.take_cluster()
        {
            let first = self.page_of(new) * 8;
            self.folders[at].clusters.push(first);
            if let Some(now) = logged {
                self.change_table(now, new..new + 1);
                for sector in first..first + sectors {
                    self.buffers.change(sector, BlockRole::Directory, now);
                }
            }
        }
        let folder = &mut self.folders[at];
        folder.names += 1;
        let last = folder.clusters.len() - 1;
        folder.clusters[cluster.min(last)] + sector
    }

    /// Writes the dirty sectors of both FATs and the sector `entry`, or all dirty sectors if `entry` is `None`. Then sends a flush.
    fn sync(&mut self, core: &mut HostCore, task: TaskId, entry: Option<u64>) -> StepOutcome {
        core.tasks[task].part += 1;
        match core.tasks[task].part {
            1 => {
                let cause = core.cause(task);
                if let Some(entry) = entry {
                    let tables = RESERVED..RESERVED + 2 * self.table;
                    self.buffers.write_range(core, tables, core.now, cause, Some(task));
                    self.buffers.write_range(core, entry..entry + 1, core.now, cause, Some(task));
                } else {
                    self.buffers.write_all(core, core.now, cause, Some(task));
                }
                StepOutcome::Wait(WaitReason::SyncData)
            }
            2 => core.flush_for(task, self.mount, self.barrier),
            _ => StepOutcome::Done,
        }
    }
}

impl FilesystemModel for Fat32 {
    fn preload(&mut self, core: &mut HostCore, inode: u32, pages: u64) -> bool {
        if self.free_pages() < pages {
            return false;
        }
        let folder = core.cache.inode(inode).folder;
        *self.file(inode) = Fat32File::default();
        self.files[inode as usize].name = self.place_name(folder, None);
        self.lengthen(inode, pages, None);
        true
    }

    fn lookup(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        self.buffers.read(core, task, self.files[inode as usize].name)
    }

    fn create(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        let folder = core.cache.inode(inode).folder;
        self.open_folder(folder);
        let first = self.folders[folder.0 as usize].clusters[0];
        if !self.buffers.make_ready(core, task, first) {
            return StepOutcome::Wait(WaitReason::Read);
        }
        *self.file(inode) = Fat32File::default();
        let name = self.place_name(folder, Some(core.now));
        self.files[inode as usize].name = name;
        self.buffers.change(name, BlockRole::Directory, core.now);
        StepOutcome::Done
    }

    fn unlink(&mut self, core: &mut HostCore, task: TaskId, inode: u32) -> StepOutcome {
        self.reclaim(core);
        let name = self.files[inode as usize].name;
        if !self.buffers.make_ready(core, task, name) {
            return StepOutcome::Wait(WaitReason::Read);
        }
        self.buffers.change(name, BlockRole::Directory, core.now);
        let folder = &mut self.folders[core.cache.inode(inode).folder.0 as usize];
        folder.names = folder.names.saturating_sub(1);
        StepOutcome::Done
    }

    fn free(&mut self, core: &mut HostCore, _: TaskId, inode: u32) -> StepOutcome {
        self.shorten(core, inode, 0);
        self.changed.remove(&inode);
        StepOutcome::Done
    }

    fn truncate(&mut self, core: &mut HostCore, _: TaskId, inode: u32, pages: u64) -> StepOutcome {
        self.shorten(core, inode, pages);
        self.note_change(inode, core.now, true);
        StepOutcome::Done
    }

    fn rename(&mut self, core: &mut HostCore, task: TaskId, inode: u32, to: FolderId, replaced: Option<u32>) -> StepOutcome {
        let old = self.files[inode as usize].name;
        if !self.buffers.make_ready(core, task, old) {
            return StepOutcome::Wait(WaitReason::Read);
        }
        let from = core.cache.inode(inode).folder.0 as usize;
        self.folders[from].names = self.folders[from].names.saturating_sub(1);
        self.buffers.change(old, BlockRole::Directory, core.now);
        // If the rename replaces a file, the directory entry of that file is reused.
        let new = replaced.map(|replaced| self.files[replaced as usize].name);
        let new = new.unwrap_or_else(|| self.place_name(to, Some(core.now)));
        self.buffers.change(new, BlockRole::Directory, core.now);
        self.files[inode as usize].name = new;
        StepOutcome::Done
    }

    fn has_holes(&self) -> bool {
        false
    }

    fn begin_write(&mut self, core: &mut HostCore, task: TaskId, _: u32) -> StepOutcome {
        self.reclaim(core);
        // Reads the sector of the file allocation table where the search for the next free cluster starts.
        self.buffers.read(core, task, RESERVED + self.next / ENTRIES)
    }

    fn wrote(&mut self, core: &mut HostCore, inode: u32, _: Range<u64>, grew: bool) {
        self.note_change(inode, core.now, grew);
    }

    fn map(&self, inode: u32, page: u64) -> Option<(u64, u64)> {
        place_of(&self.files.get(inode as usize)?.extents, page)
    }

    fn place_at_once(&mut self, core: &mut HostCore, inode: u32, page: u64) -> bool {
        self.lengthen(inode, page + 1, Some(core.now));
        self.reserved = self.reserved.saturating_sub(1);
        true
    }

    fn prepare(&mut self, _: &mut HostCore, _: TaskId, _: u32) -> StepOutcome {
        StepOutcome::Done
    }

    fn place(&mut self, _: &mut HostCore, inode: u32, page: u64, count: u64) -> (u64, u64) {
        let place = self.map(inode, page);
        assert!(place.is_some(), "clusters are taken when a page is written in memory");
        place.map_or((0, count), |(sector, run)| (sector, run.min(count)))
    }

    fn sync_file(&mut self, core: &mut HostCore, task: TaskId, inode: u32, data_only: bool) -> StepOutcome {
        if core.tasks[task].part == 0
            && let Some((_, length)) = self.files[inode as usize].changed
            && (length || !data_only)
        {
            self.write_entry(inode, core.now);
        }
        let entry = self.files[inode as usize].name;
        self.sync(core, task, Some(entry))
    }

    fn sync_folder(&mut self, core: &mut HostCore, task: TaskId, folder: FolderId) -> StepOutcome {
        self.open_folder(folder);
        self.sync(core, task, None)
    }

    fn sync_all(&mut self, core: &mut HostCore, task: TaskId) -> StepOutcome {
        if core.tasks[task].part == 0 {
            while let Some((&inode, _)) = self.changed.first_key_value() {
                self.write_entry(inode, core.now);
            }
        }
        self.sync(core, task, None)
    }

    fn free_pages(&self) -> u64 {
        (self.free.len().saturating_sub(MARGIN) * self.cluster).saturating_sub(self.reserved)
    }

    fn set_aside(&mut self, pages: i64) {
        self.reserved = self.reserved.saturating_add_signed(pages);
    }

    fn step(&mut self, _: &mut HostCore, _: TaskId, _: FilesystemJob) -> StepOutcome {
        StepOutcome::Done
    }

    fn oldest_dirty(&self) -> Option<Nanos> {
        self.buffers.oldest().into_iter().chain(self.changed.values().min().copied()).min()
    }

    fn write_back(&mut self, core: &mut HostCore, until: Nanos) {
        let old: Vec<u32> = self.changed.iter().filter(|(_, since)| **since <= until).map(|(inode, _)| *inode).collect();
        for inode in old {
            self.write_entry(inode, core.now);
        }
        self.buffers.write_all(core, until, IoCause::WriteBack, None);
    }
}

/// Returns the cluster size that mkfs.fat chooses, in KB. Small partitions, for which mkfs.fat would choose less than 4 KB, have 4 KB.
fn default_cluster(sectors: u64) -> u32 {
    match sectors >> 21 {
        0..8 => 4,
        8..16 => 8,
        16..32 => 16,
        _ => 32,
    }
}
