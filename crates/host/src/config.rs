//! Settings of a simulated host: memory, write-back, block layer, processor costs. There is one preset per era of Linux.

use emmclab_base::{Error, ErrorClass, Nanos, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operation::FileClass;

/// The order in which waiting requests are issued to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElevatorKind {
    /// Requests are issued in order of arrival.
    None,
    /// Reads come before writes. After two batches of reads, waiting writes get a batch. Each batch is ordered by address.
    Deadline,
    /// Requests that a thread waits for (reads and synchronous writes) come before write-back. Each batch is ordered by address.
    Cfq,
}

/// The commands by which a file system enforces order and durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BarrierMode {
    /// Flushes, and writes with preflush and FUA (Linux 2.6.37 and later).
    Flush,
    /// No barrier commands: the host waits until all earlier requests complete, sends the request alone, and then sends later ones
    /// (`QUEUE_ORDERED_DRAIN`, which the MMC driver of Linux 2.6.35 uses).
    Drain,
}

/// Processor time that the kernel of the host needs, in ns on the processor core of the host; the caller scales it to other cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CpuCosts {
    /// Time for each file operation, in ns.
    pub operation_ns: u64,
    /// Time for each page that is copied or looked up, in ns.
    pub page_ns: u64,
    /// Time for each block request, in ns: block layer, driver, interrupt.
    pub request_ns: u64,
    /// Time for each poll that checks whether the device is still busy with a write, in ns; 0 if an interrupt signals the end.
    pub poll_ns: u64,
    /// Interval between two polls, in ns.
    pub poll_interval_ns: u64,
}

/// Classes of files whose syncs are executed. For files of other classes and for their folders, `fsync` and `fdatasync` return at once;
/// write-back sends the data to the device later (selective sync, a pilot solution of FAST 2012).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a class by itself")]
pub struct SyncedClasses {
    /// Databases.
    pub database: bool,
    /// Rollback journals and write-ahead logs of databases.
    pub database_journal: bool,
    /// Cached files, whose data can be fetched again.
    pub cache: bool,
    /// Any other files.
    pub other: bool,
}

impl SyncedClasses {
    /// Settings with which the syncs of all classes are executed.
    pub const ALL: Self = Self { database: true, database_journal: true, cache: true, other: true };

    /// Returns settings that execute only the syncs of these classes.
    pub fn only(classes: &[FileClass]) -> Self {
        let has = |class| classes.contains(&class);
        Self {
            database: has(FileClass::Database),
            database_journal: has(FileClass::DatabaseJournal),
            cache: has(FileClass::Cache),
            other: has(FileClass::Other),
        }
    }

    /// Whether syncs of a class are executed. Syncs of files of the file system itself are always executed.
    pub const fn executes_sync(self, class: FileClass) -> bool {
        match class {
            FileClass::Database => self.database,
            FileClass::DatabaseJournal => self.database_journal,
            FileClass::Cache => self.cache,
            FileClass::Other => self.other,
            FileClass::Metadata | FileClass::FilesystemJournal => true,
        }
    }
}

impl Default for SyncedClasses {
    fn default() -> Self {
        Self::ALL
    }
}

/// Settings of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Memory for pages of files, in MB of 1,048,576 bytes.
    pub page_cache_mb: u64,
    /// Share of the page cache that may be dirty before write-back begins, in %.
    pub dirty_background_pct: u32,
    /// Share of the page cache that may be dirty or in write-back before writers wait, in %.
    pub dirty_pct: u32,
    /// Age at which dirty data is written back, in ms.
    pub dirty_expire_ms: u64,
    /// Interval between two searches for expired dirty data, in ms.
    pub writeback_interval_ms: u64,
    /// Age at which the running transaction of a journal is committed, or a checkpoint of a log is written, in ms.
    pub commit_interval_ms: u64,
    /// Largest window of read-ahead, in KB.
    pub readahead_kb: u32,
    /// Whether a read of a page that is not in memory continues the last window of read-ahead, if the window leads to this page. Since Linux
    /// 6.11 only the use of a marked page does.
    pub continues_readahead: bool,
    /// Maximum number of requests that wait for the device or are in progress. At this limit, tasks that submit requests wait.
    pub nr_requests: u32,
    /// Largest request, in KB.
    pub max_request_kb: u32,
    /// Maximum number of requests in the driver. Others wait in the elevator, where they can be merged.
    pub device_depth: u32,
    /// The order in which waiting requests are issued to the device.
    pub elevator: ElevatorKind,
    /// The commands by which file systems enforce order and durability.
    pub barrier: BarrierMode,
    /// Whether a sync of a folder on ext4 commits all transactions that are not durable. If all are durable, the sync does nothing. Linux
    /// behaves like this since 5.10, which introduced fast commits. If false, the sync of a folder works like the sync of a file.
    pub folder_sync_commits: bool,
    /// Whether the allocator of ext4 reads the bitmaps of a whole flex group at once. Linux does so since 5.10.
    pub prefetches_bitmaps: bool,
    /// Classes of files whose syncs are executed.
    #[serde(default)]
    pub synced: SyncedClasses,
    /// Processor time that the kernel of the host needs.
    pub cpu: CpuCosts,
}

/// The settings of a current kernel.
const LINUX_6: HostConfig = HostConfig {
    page_cache_mb: 1_024,
    dirty_background_pct: 10,
    dirty_pct: 20,
    dirty_expire_ms: 30_000,
    writeback_interval_ms: 5_000,
    commit_interval_ms: 5_000,
    readahead_kb: 128,
    continues_readahead: false,
    nr_requests: 128,
    max_request_kb: 512,
    device_depth: 32,
    elevator: ElevatorKind::None,
    barrier: BarrierMode::Flush,
    folder_sync_commits: true,
    prefetches_bitmaps: true,
    synced: SyncedClasses::ALL,
    cpu: CpuCosts { operation_ns: 600, page_ns: 400, request_ns: 3_000, poll_ns: 0, poll_interval_ns: 100_000 },
};

/// Names and settings of the Linux eras.
///
/// Sources: `mm/page-writeback.c`, `fs/jbd2`, `block/blk-settings.c` of both kernels. The page cache of 2.6.35 is the memory that
/// applications leave free on a phone with 512 MB. Processor costs are assumptions: a system call that copies one page takes about 5 µs on
/// a 1 GHz core, and 1 µs on a current core.
///
/// After each write, `mmc_blk_issue_rq` of 2.6.35 repeats `SEND_STATUS` until the card has left its programming state. Each repetition is a
/// command of 48 bits, an interrupt and two context switches. The model assumes 100 µs for each repetition, of which 20 µs are processor
/// time.
const ERAS: [(&str, HostConfig); 2] = [
    (
        "linux-2.6.35",
        HostConfig {
            page_cache_mb: 128,
            dirty_background_pct: 5,
            continues_readahead: true,
            device_depth: 1,
            elevator: ElevatorKind::Cfq,
            barrier: BarrierMode::Drain,
            folder_sync_commits: false,
            prefetches_bitmaps: false,
            cpu: CpuCosts { operation_ns: 3_000, page_ns: 2_000, request_ns: 20_000, poll_ns: 20_000, poll_interval_ns: 100_000 },
            ..LINUX_6
        },
    ),
    ("linux-6", LINUX_6),
];

impl HostConfig {
    /// The names of the presets.
    pub fn eras() -> impl Iterator<Item = &'static str> {
        ERAS.iter().map(|(name, _)| *name)
    }

    /// The settings of an era, which is a range of Linux versions.
    /// Errors: if the name is not among [`HostConfig::eras`].
    pub fn era(name: &str) -> Result<Self> {
        let era = ERAS.iter().find(|(known, _)| *known == name);
        era.map(|(_, config)| config.clone()).ok_or_else(|| {
            let names: Vec<_> = Self::eras().collect();
            Error::new(ErrorClass::Config, "this range of Linux versions is not modelled")
                .of_field("era", 0, name.as_bytes())
                .hint(format!("use one of the modelled ranges of Linux versions: {}", names.join(", ")))
        })
    }

    /// Checks all values.
    /// Errors: if a value is out of range.
    pub fn validate(&self) -> Result<()> {
        let ranges = [
            ("page_cache_mb", self.page_cache_mb, 1, 1 << 20),
            ("dirty_background_pct", u64::from(self.dirty_background_pct), 0, 100),
            ("dirty_pct", u64::from(self.dirty_pct), 1, 100),
            ("dirty_expire_ms", self.dirty_expire_ms, 1, 86_400_000),
            ("writeback_interval_ms", self.writeback_interval_ms, 1, 86_400_000),
            ("commit_interval_ms", self.commit_interval_ms, 1, 86_400_000),
            ("readahead_kb", u64::from(self.readahead_kb), 0, 1 << 20),
            ("nr_requests", u64::from(self.nr_requests), 1, 4_096),
            ("max_request_kb", u64::from(self.max_request_kb), 4, 1 << 16),
            ("device_depth", u64::from(self.device_depth), 1, 1 << 16),
            ("cpu.operation_ns", self.cpu.operation_ns, 0, 1_000_000_000),
            ("cpu.page_ns", self.cpu.page_ns, 0, 1_000_000_000),
            ("cpu.request_ns", self.cpu.request_ns, 0, 1_000_000_000),
            ("cpu.poll_ns", self.cpu.poll_ns, 0, self.cpu.poll_interval_ns),
            ("cpu.poll_interval_ns", self.cpu.poll_interval_ns, 1, 1_000_000_000),
        ];
        for (field, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                return Err(Error::new(ErrorClass::Config, "the setting of the host is out of range")
                    .of_field(field, 0, value.to_string().as_bytes())
                    .hint(format!("give the setting a value from {least} to {most}")));
            }
        }
        if self.dirty_background_pct >= self.dirty_pct {
            return Err(Error::new(ErrorClass::Config, "background write-back would begin only when writers already wait")
                .of_field("dirty_background_pct", 0, self.dirty_background_pct.to_string().as_bytes())
                .hint(format!("give `dirty_background_pct` a value below `dirty_pct`, which is {}", self.dirty_pct)));
        }
        Ok(())
    }

    pub(crate) fn cache_pages(&self) -> u64 {
        self.page_cache_mb << 8
    }

    pub(crate) fn background_pages(&self) -> u64 {
        self.cache_pages() * u64::from(self.dirty_background_pct) / 100
    }

    pub(crate) fn dirty_pages(&self) -> u64 {
        (self.cache_pages() * u64::from(self.dirty_pct) / 100).max(1)
    }

    pub(crate) fn expire(&self) -> Nanos {
        Nanos::from_millis(self.dirty_expire_ms as i64)
    }

    pub(crate) fn writeback_interval(&self) -> Nanos {
        Nanos::from_millis(self.writeback_interval_ms as i64)
    }

    pub(crate) fn commit_interval(&self) -> Nanos {
        Nanos::from_millis(self.commit_interval_ms as i64)
    }

    pub(crate) fn readahead_pages(&self) -> u64 {
        u64::from(self.readahead_kb) / 4
    }

    pub(crate) fn max_request_sectors(&self) -> u32 {
        self.max_request_kb * 2
    }
}

/// The file systems that can be modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilesystemKind {
    /// ext4 in ordered mode, with its journal (JBD2).
    Ext4,
    /// FAT32: tables and folders written in place, no journal.
    Fat32,
    /// A log-structured file system with node blocks, like F2FS.
    Lfs,
}

/// Options by which a file system is created and mounted. An omitted option has the default of the file system's tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MountOptions {
    /// Whether no flush is sent (`barrier=0`, `nobarrier`).
    pub no_barrier: bool,
    /// Whether syncs of files and folders return at once; write-back sends the data to the device later.
    pub no_sync: bool,
    /// Whether freed space is discarded immediately.
    pub discard: bool,
    /// Size of the journal in MB; by default the size that mke2fs chooses. Only for ext4.
    pub journal_mb: Option<u32>,
    /// Size of a cluster in KB; by default the size that mkfs.fat chooses. Only for FAT32.
    pub cluster_kb: Option<u32>,
    /// Size of a segment in KB, by default 2048. Only for `lfs`.
    pub segment_kb: Option<u32>,
}

/// A partition with a file system on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The file system.
    pub filesystem: FilesystemKind,
    /// First sector of the partition on the device; a multiple of 8.
    pub first_sector: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// Mount options.
    #[serde(default)]
    pub options: MountOptions,
}

/// A run of contiguous 4 KB pages of a file, and their location on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// First page of the file.
    pub page: u64,
    /// First sector on the device.
    pub sector: u64,
    /// Number of pages.
    pub pages: u64,
}
