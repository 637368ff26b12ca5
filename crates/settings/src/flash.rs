//! Settings of the flash: its structure, its timing, blocks in SLC mode, zones, wear, and how much of it the host sees.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of channels, chips, dies, planes and blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeometrySettings {
    /// Channels (buses) of the device.
    pub channels: u32,
    /// Flash chips on a channel.
    pub chips_per_channel: u32,
    /// Dies in a chip.
    pub dies_per_chip: u32,
    /// Planes in a die.
    pub planes_per_die: u32,
    /// Kinds of blocks in every plane. With more than one, pages of different sizes exist side by side (a hybrid device).
    pub block_groups: Vec<BlockGroup>,
}

impl Default for GeometrySettings {
    fn default() -> Self {
        Self { channels: 1, chips_per_channel: 1, dies_per_chip: 1, planes_per_die: 1, block_groups: Vec::new() }
    }
}

/// Blocks with the same page size and timing, which every plane contains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockGroup {
    /// Page size in KB: 4, 8 or 16.
    pub page_kb: u32,
    /// Number of blocks of this group in each plane.
    pub blocks: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bits per cell, and so the pages of a word line. Results print it; the times below determine its effect on speed.
    pub cell_mode: CellMode,
    /// Array time of a page read. With `page_types` it is their mean.
    pub read_us: f64,
    /// Array time of a page program. With `page_types` it is their mean.
    pub program_us: f64,
    /// Times of the lower, middle, upper and top page of a word line, one entry for each bit of a cell, used instead of `read_us` and
    /// `program_us`. Page `p` of a block has the entry `p` modulo the number of bits. Empty = all pages take the same times.
    pub page_types: Vec<PageType>,
    /// Time of a block erase.
    pub erase_us: f64,
    /// Energy of a page read.
    pub read_uj: f64,
    /// Energy of a page program.
    pub program_uj: f64,
    /// Energy of a block erase.
    pub erase_uj: f64,
    /// Erases after which a block goes bad; 0 = never.
    pub erase_limit: u32,
    /// Blocks of a plane that are reserved as replacements of bad blocks.
    pub spare_blocks: u32,
    /// Time of a read retry: the page is read once more with other voltages, transferred and decoded. It keeps the plane busy, not the bus.
    pub retry_us: f64,
    /// Energy of a read retry.
    pub retry_uj: f64,
    /// Mean number of retries of a page read, by wear of the block and age of its data: rows in ascending order of `erases`, and of `days`
    /// for the same `erases`. Values between the rows are interpolated, first by days, then by erases; beyond the rows, the nearest one
    /// applies. Empty = every read succeeds at the first try. Blocks in SLC mode have no retries.
    pub retries: Vec<RetryPoint>,
    /// Reads of a block since its erase after which the device moves its data elsewhere (refresh, read reclaim), because reads disturb the
    /// cells beside them; 0 = never. Blocks in SLC mode are not refreshed.
    pub read_disturb_limit: u32,
    /// Age in days of the oldest data of a block at which the device moves the data of the block elsewhere (retention refresh), because cells
    /// lose charge; 0 = never. Blocks in SLC mode are not refreshed.
    pub refresh_days: f64,
}

/// Mean number of read retries at one state of wear and age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPoint {
    /// Erases of the block.
    pub erases: u32,
    /// Age of the data: days since the block was opened for programs.
    pub days: f64,
    /// Mean number of retries of a page.
    pub steps: f64,
}

impl Default for BlockGroup {
    fn default() -> Self {
        Self {
            page_kb: 4,
            blocks: 0,
            pages_per_block: 0,
            cell_mode: CellMode::Mlc,
            read_us: 0.0,
            program_us: 0.0,
            page_types: Vec::new(),
            erase_us: 0.0,
            read_uj: 0.0,
            program_uj: 0.0,
            erase_uj: 0.0,
            erase_limit: 0,
            spare_blocks: 0,
            retry_us: 0.0,
            retry_uj: 0.0,
            retries: Vec::new(),
            read_disturb_limit: 0,
            refresh_days: 0.0,
        }
    }
}

/// Times of a page of a word line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PageType {
    /// Array time of a read.
    pub read_us: f64,
    /// Array time of a program.
    pub program_us: f64,
}

impl PageType {
    /// Mean of a time of the page types; `None` if there are none.
    pub fn mean(types: &[Self], time: fn(&Self) -> f64) -> Option<f64> {
        (!types.is_empty()).then(|| types.iter().map(time).sum::<f64>() / types.len() as f64)
    }
}

/// Bits stored in a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellMode {
    /// One bit per cell.
    Slc,
    /// Two bits per cell.
    #[default]
    Mlc,
    /// Three bits per cell.
    Tlc,
    /// Four bits per cell.
    Qlc,
}

impl CellMode {
    /// Number of bits in a cell.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Slc => 1,
            Self::Mlc => 2,
            Self::Tlc => 3,
            Self::Qlc => 4,
        }
    }
}

/// The logical capacity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CapacitySettings {
    /// Spare flash as a share of the logical capacity: logical = raw / (1 + share). 0 is allowed only without garbage collection.
    pub over_provisioning_pct: f64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self { over_provisioning_pct: 7.0 }
    }
}

/// Parallel operation of the flash, times of the flash bus, and when a write is complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one for each optional flash command")]
pub struct TimingSettings {
    /// Which part of the flash executes one operation at a time.
    pub parallelism: ParallelUnit,
    /// Multi-plane commands require pages at the same offset in their blocks.
    pub same_offset: bool,
    /// Garbage collection copies pages within a plane without the bus.
    pub copy_back: bool,
    /// The next page is read from the array while the bus transfers the previous one.
    pub cache_read: bool,
    /// The bus transfers the next page while the previous one is programmed.
    pub cache_program: bool,
    /// Bus time of a command with its address.
    pub command_ns: f64,
    /// Bus time of a byte of data.
    pub bus_ns_per_byte: f64,
    /// Additional bus time of a byte that is written, if the interface is slower for writes.
    pub bus_write_extra_ns_per_byte: f64,
    /// Energy of a KB on the bus.
    pub bus_uj_per_kb: f64,
    /// Number of reads of the host for which an erase or program is suspended or delayed, if no request waits for it: erases, moves by
    /// collection, and programs of the write cache; 0 = a read waits for the operations that were planned before it.
    pub suspend_limit: u32,
    /// Time from the command that suspends an operation until a read can begin.
    pub suspend_us: f64,
    /// Time that a suspended operation needs to resume.
    pub resume_us: f64,
    /// Energy of a suspension and the resumption after it.
    pub suspend_uj: f64,
    /// When a write to the flash is complete. With a write cache (`cache.size_kb`), this applies only to durable writes (FUA) and flushes:
    /// other writes are complete when they are in the cache.
    pub write_complete: WriteComplete,
}

/// The unit that executes one operation at a time (the advanced commands of SSDsim, Hu et al., ICS 2011).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParallelUnit {
    /// A chip executes one operation at a time.
    #[default]
    None,
    /// The dies of a chip work in parallel.
    Interleave,
    /// A chip works on one die at a time. The planes of this die work in parallel.
    MultiPlane,
    /// Every plane works independently.
    Both,
}

/// When a write is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteComplete {
    /// A write is complete when the cells are programmed, as a device without a cache promises.
    #[default]
    Programmed,
    /// A write is complete when the data has crossed the bus, as in SSDsim; the next operation waits for the program time.
    Transferred,
}

/// Blocks in SLC mode: the enhanced area of eMMC 4.4 (`EXT_CSD` `ENH_SIZE_MULT`), with half the pages, or `WriteBooster` of UFS 2.2 and
/// later, with one page per wordline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlcSettings {
    /// The purpose of the blocks.
    pub mode: SlcMode,
    /// Number of blocks in each plane that are in SLC mode. They belong to the block group `group`.
    pub blocks: u32,
    /// Block group from which the SLC blocks are taken, counted from 0.
    pub group: u32,
    /// Mode `cache`: maximum size of a write that goes to the blocks in SLC mode.
    pub max_kb: u32,
    /// Array time of a page read in SLC mode.
    pub read_us: f64,
    /// Array time of a page program in SLC mode.
    pub program_us: f64,
    /// Time of a block erase in SLC mode.
    pub erase_us: f64,
    /// Erases after which a block in SLC mode goes bad; 0 = never.
    pub erase_limit: u32,
    /// Mode `cache`: idle time after which data of the SLC cache is folded into the other blocks; 0 = only when the cache is full.
    pub fold_after_us: f64,
    /// UFS: when `WriteBooster` is flushed (folded).
    pub flush: BoosterFlush,
    /// UFS: a flush in idle time starts if at most this share of `WriteBooster` is free (Linux requests it at 40); 100 = always.
    pub flush_at_pct: u32,
    /// UFS: `WriteBooster` uses spare flash and does not reduce the capacity (`bWriteBoosterBufferPreserveUserSpaceEn`). It becomes smaller
    /// when the user's free space becomes smaller.
    pub preserve_user_space: bool,
    /// UFS: only the logical unit in the first MB of the address space uses `WriteBooster`, up to this limit; 0 = all logical units share
    /// it (`bWriteBoosterBufferType`).
    pub dedicated_mb: u32,
    /// UFS: which data remains in `WriteBooster` after a flush (`bWriteBoosterBufferPartialFlushMode` of UFS 4.1).
    pub partial_flush: PartialFlush,
    /// UFS: share of `WriteBooster` that remains after a partial flush (`dMaxFIFOSizeForWriteBoosterPartialFlushMode`), or maximum share of
    /// pinned data (`dPinnedWriteBoosterBufferNumAllocUnits`).
    pub keep_pct: u32,
    /// UFS: start of the addresses of pinned data. A real host marks pinned data with a group number, which traces do not have.
    pub pinned_from_mb: u32,
    /// UFS: end of the addresses of pinned data.
    pub pinned_to_mb: u32,
    /// UFS: current size of `WriteBooster` as a share of `slc.blocks` (`dCurrentWriteBoosterBufferSize`).
    pub size_pct: u32,
    /// UFS: whether the host resizes `WriteBooster` as the device hints (`bWriteBoosterBufferResizeHint`, `bWriteBoosterBufferResizeEn`).
    pub resize: BoosterResize,
    /// UFS: `WriteBooster` accepts no more data when one of its blocks has reached this share of `slc.erase_limit`, as at
    /// `bWriteBoosterBufferLifeTimeEst` 0Bh; 0 = never.
    pub life_limit_pct: u32,
}

impl Default for SlcSettings {
    fn default() -> Self {
        Self {
            mode: SlcMode::Off,
            blocks: 0,
            group: 0,
            max_kb: 16,
            read_us: 25.0,
            program_us: 200.0,
            erase_us: 1500.0,
            erase_limit: 0,
            fold_after_us: 0.0,
            flush: BoosterFlush::Idle,
            flush_at_pct: ALWAYS,
            preserve_user_space: false,
            dedicated_mb: 0,
            partial_flush: PartialFlush::None,
            keep_pct: 0,
            pinned_from_mb: 0,
            pinned_to_mb: 0,
            size_pct: WHOLE,
            resize: BoosterResize::Off,
            life_limit_pct: 0,
        }
    }
}

impl SlcSettings {
    /// Whether `WriteBooster` is flushed in times without commands; otherwise it is folded when it is full.
    pub fn flushes_in_gaps(&self) -> bool {
        self.flush != BoosterFlush::Idle || self.fold_after_us > 0.0
    }
}

/// Value of `flush_at_pct` with which `WriteBooster` is flushed regardless of how much of it is free.
pub const ALWAYS: u32 = 100;

/// Value of `size_pct` of a `WriteBooster` buffer that was not resized.
pub const WHOLE: u32 = 100;

/// When `WriteBooster` is flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoosterFlush {
    /// `WriteBooster` is flushed in the same cases as an SLC cache: after `fold_after_us` of idle time, or when it is full.
    #[default]
    Idle,
    /// `WriteBooster` is flushed during hibernation (`fWriteBoosterBufferFlushDuringHibernate`).
    Hibernate,
    /// `WriteBooster` is flushed while no commands arrive, until all data that may be moved has been moved. The device requests this flush
    /// by the exception event `WRITEBOOSTER_FLUSH_NEEDED`. It raises the event when at most `flush_at_pct` is free, and the host then sets
    /// `fWriteBoosterBufferFlushEn`.
    Event,
}

/// The data that remains in `WriteBooster` after a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialFlush {
    /// No data remains: a flush moves all data.
    #[default]
    None,
    /// The most recently written data remains.
    Fifo,
    /// Pinned data remains, which is stored in separate blocks.
    Pinned,
    /// The blocks that were most recently written or read remain (not in the standard).
    Lru,
}

/// When `WriteBooster` changes its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoosterResize {
    /// The host does not resize `WriteBooster`. Its size changes only if `size_pct` is changed while the device is in use.
    #[default]
    Off,
    /// The device resizes the buffer at the beginning of an idle time, by at most an eighth of the buffer's blocks. The buffer shrinks if
    /// the free space of the user is smaller than the buffer. It grows if it was full and there is enough free space.
    Hint,
}

/// The purpose of blocks in SLC mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlcMode {
    /// No blocks are in SLC mode.
    #[default]
    Off,
    /// The blocks in SLC mode store the beginning of the address space.
    Region,
    /// The blocks receive small writes, which are later folded into the other blocks.
    Cache,
}

/// Zones that the host manages (zoned UFS, JESD220-5; ZBC). A zone is written sequentially at its write pointer, and reset as a whole. The
/// blocks in SLC mode (`slc.mode` = "region") store the conventional zones. If a flush must program data that does not fill a page, these
/// blocks also store this data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneSettings {
    /// Number of blocks of each plane that form a zone; the size of a zone is the capacity of its blocks. 0 = the device has no zones.
    pub blocks: u32,
    /// Maximum number of open zones. A write that opens another zone closes an implicitly opened one. 0 = no limit.
    pub max_open: u32,
    /// Maximum number of active zones: open or closed, neither empty nor full. A write that exceeds it is refused. 0 = no limit.
    pub max_active: u32,
    /// Number of conventional zones at the beginning, which may be written in any order, for metadata of the host.
    pub conventional: u32,
    /// Number of write buffers that the zones share; 0 = one for each zone. A write to a zone without a buffer takes the buffer of the
    /// least recently written zone, whose buffered data is programmed even if it does not fill a page.
    pub write_buffers: u32,
}

impl ZoneSettings {
    /// Whether the device has zones.
    pub fn is_zoned(&self) -> bool {
        self.blocks > 0
    }
}

/// Wear levelling, and the age of the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WearSettings {
    /// `dynamic`: new data goes to the least worn free block. `static`: in addition, cold data is moved off little worn blocks.
    pub levelling: WearLevelling,
    /// Levelling `static`: cold data is moved if the erase counts of the most and the least worn block of a plane differ by more than this.
    pub threshold: u32,
    /// Age in days of the data that a device holds when the simulation begins. It determines the read retries of this data.
    pub data_age_days: f64,
}

impl Default for WearSettings {
    fn default() -> Self {
        Self { levelling: WearLevelling::None, threshold: 100, data_age_days: 0.0 }
    }
}

/// How wear is levelled between blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WearLevelling {
    /// Free blocks are used in the order in which they became free.
    #[default]
    None,
    /// The least worn free block is used next.
    Dynamic,
    /// As `dynamic`; in addition, cold data is moved off the least worn blocks.
    Static,
}
