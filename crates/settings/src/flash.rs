//! The flash: its structure, its timing, blocks in SLC mode, zones, wear, and how much of it the host sees.

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
    /// Kinds of blocks in every plane; more than one makes a hybrid-page-size device.
    pub block_groups: Vec<BlockGroup>,
}

impl Default for GeometrySettings {
    fn default() -> Self {
        Self { channels: 1, chips_per_channel: 1, dies_per_chip: 1, planes_per_die: 1, block_groups: Vec::new() }
    }
}

/// Blocks of one page size in every plane, with the times of their cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockGroup {
    /// Page size in KB: 4, 8 or 16.
    pub page_kb: u32,
    /// Blocks of this group in a plane.
    pub blocks: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bits in a cell; only named in results, its effect is set by the times below.
    pub cell_mode: CellMode,
    /// Array time of a page read.
    pub read_us: f64,
    /// Array time of a page program.
    pub program_us: f64,
    /// Time of a block erase.
    pub erase_us: f64,
    /// Energy of a page read.
    pub read_uj: f64,
    /// Energy of a page program.
    pub program_uj: f64,
    /// Energy of a block erase.
    pub erase_uj: f64,
    /// Erases that a block endures before it goes bad; 0 = never goes bad.
    pub erase_limit: u32,
    /// Blocks of a plane that are reserved until others go bad.
    pub spare_blocks: u32,
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
            erase_us: 0.0,
            read_uj: 0.0,
            program_uj: 0.0,
            erase_uj: 0.0,
            erase_limit: 0,
            spare_blocks: 0,
        }
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
    /// Spare flash as a share of the logical capacity: logical = raw / (1 + share). 0 only without collection.
    pub over_provisioning_pct: f64,
}

impl Default for CapacitySettings {
    fn default() -> Self {
        Self { over_provisioning_pct: 7.0 }
    }
}

/// Parallelism, bus and completion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "one for each optional flash command")]
pub struct TimingSettings {
    /// Which part of the flash executes one operation at a time.
    pub parallelism: ParallelUnit,
    /// With multi-plane commands: planes work together only on pages of the same offset in their blocks.
    pub same_offset: bool,
    /// Collection copies pages inside a plane without the bus.
    pub copy_back: bool,
    /// The next page is sensed while the bus still carries the last one.
    pub cache_read: bool,
    /// The bus carries the next page while the last one is programmed.
    pub cache_program: bool,
    /// Bus time of a command and its address.
    pub command_ns: f64,
    /// Bus time of a byte of data.
    pub bus_ns_per_byte: f64,
    /// Additional time of a byte on its way to the flash, if the interface is slower for writes.
    pub bus_write_extra_ns_per_byte: f64,
    /// Energy of a KB on the bus.
    pub bus_uj_per_kb: f64,
    /// When a write to the flash counts as complete. With a write cache (`cache.size_kb`), this applies only to durable writes (FUA) and
    /// flushes: other writes are complete in the cache.
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
    /// A chip works on one die at a time, whose planes work in parallel.
    MultiPlane,
    /// Every plane works independently.
    Both,
}

/// When a write is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteComplete {
    /// The cells are written: what a device without a cache promises.
    #[default]
    Programmed,
    /// The data has crossed the bus: SSDsim's view; the next operation waits for the program time.
    Transferred,
}

/// Blocks run in SLC mode, with times of their own: the enhanced area of eMMC 4.4 (`EXT_CSD` `ENH_SIZE_MULT`), with half the pages, or
/// `WriteBooster` of UFS 2.2 and later, with one page per wordline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlcSettings {
    /// The purpose of the blocks.
    pub mode: SlcMode,
    /// Blocks of each plane run in SLC mode; they are taken from `group`.
    pub blocks: u32,
    /// Block group that they are taken from, counted from 0.
    pub group: u32,
    /// `cache`: writes up to this size go there.
    pub max_kb: u32,
    /// Array time of a page read in SLC mode.
    pub read_us: f64,
    /// Array time of a page program in SLC mode.
    pub program_us: f64,
    /// Time of a block erase in SLC mode.
    pub erase_us: f64,
    /// Erases that a block endures in SLC mode; 0 = never goes bad.
    pub erase_limit: u32,
    /// `cache`: idle time after which its data is folded into the other blocks; 0 = only when it is full.
    pub fold_after_us: f64,
    /// UFS: when `WriteBooster` is flushed, which is folding.
    pub flush: BoosterFlush,
    /// UFS: it is flushed in idle time that begins with at most this share of it free (Linux requests it at 40); 100 = always.
    pub flush_at_pct: u32,
    /// UFS: `WriteBooster` does not reduce the capacity (`bWriteBoosterBufferPreserveUserSpaceEn`). It is then a part of the spare flash
    /// and shrinks with the user's free space.
    pub preserve_user_space: bool,
    /// UFS: `WriteBooster` of one logical unit, which is the beginning of the address space up to here; 0 = all share it
    /// (`bWriteBoosterBufferType`).
    pub dedicated_mb: u32,
    /// UFS: which data of `WriteBooster` a flush leaves in it (`bWriteBoosterBufferPartialFlushMode` of UFS 4.1).
    pub partial_flush: PartialFlush,
    /// UFS: share of `WriteBooster` that a partial flush leaves in it (`dMaxFIFOSizeForWriteBoosterPartialFlushMode`), or maximum share of
    /// pinned data (`dPinnedWriteBoosterBufferNumAllocUnits`).
    pub keep_pct: u32,
    /// UFS: pinned data is that of the addresses from here on; a host marks it with a group number, which traces do not have.
    pub pinned_from_mb: u32,
    /// UFS: pinned data is that of the addresses up to here.
    pub pinned_to_mb: u32,
    /// UFS: current size of `WriteBooster` as a share of `slc.blocks` (`dCurrentWriteBoosterBufferSize`).
    pub size_pct: u32,
    /// UFS: whether the host resizes `WriteBooster` as the device hints (`bWriteBoosterBufferResizeHint`, `bWriteBoosterBufferResizeEn`).
    pub resize: BoosterResize,
    /// UFS: `WriteBooster` accepts no more data once a block of it has reached this share of `slc.erase_limit`, as at
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
    /// Whether a flush of `WriteBooster` waits for a time without commands; otherwise it is folded when it is full.
    pub fn flushes_in_gaps(&self) -> bool {
        self.flush != BoosterFlush::Idle || self.fold_after_us > 0.0
    }
}

/// The value of `flush_at_pct` with which a buffer is flushed however much of it is free.
pub const ALWAYS: u32 = 100;

/// The current size of a buffer that was not resized, as a share of its blocks.
pub const WHOLE: u32 = 100;

/// When `WriteBooster` is flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoosterFlush {
    /// As an SLC cache is folded: after `fold_after_us` of idle time, or when it is full.
    #[default]
    Idle,
    /// In hibernation, from its beginning on (`fWriteBoosterBufferFlushDuringHibernate`).
    Hibernate,
    /// Between commands, from the exception event `WRITEBOOSTER_FLUSH_NEEDED` on, upon which the host sets `fWriteBoosterBufferFlushEn`,
    /// until all data that may be moved out has been moved. The device raises it with at most `flush_at_pct` free.
    Event,
}

/// The data of `WriteBooster` that a flush leaves in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartialFlush {
    /// None: a flush empties it.
    #[default]
    None,
    /// The data that was written last; the oldest leaves first.
    Fifo,
    /// Pinned data, which is stored in separate blocks.
    Pinned,
    /// Beyond the standard: the blocks that were written or read last; the least recently used leaves first.
    Lru,
}

/// When `WriteBooster` changes its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoosterResize {
    /// Only when `size_pct` changes in a device in use.
    #[default]
    Off,
    /// At the beginning of a time without commands, by at most an eighth of its blocks. The buffer shrinks when the free space of the user is
    /// smaller than the buffer, and grows when it was full and the free space allows it.
    Hint,
}

/// The purpose of blocks in SLC mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlcMode {
    /// There are none.
    #[default]
    Off,
    /// A region at the beginning of the address space is always stored in them.
    Region,
    /// Small writes go there first and are folded into the other blocks later.
    Cache,
}

/// Zones that the host manages (zoned UFS, JESD220-5; ZBC): a zone is written in order from its start, at its write pointer, and reset as
/// a whole. The blocks in SLC mode of `slc.mode` = "region" contain the conventional zones, and data of pages that a flush writes before
/// they are full.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ZoneSettings {
    /// Blocks of each plane that a zone consists of; its size is their capacity. 0 = the device has no zones.
    pub blocks: u32,
    /// Zones that may be open at once: a write to one more closes another that a write has opened. 0 = no limit.
    pub max_open: u32,
    /// Zones that may be open or closed at once, neither empty nor full: a write to one more is refused. 0 = no limit.
    pub max_active: u32,
    /// Zones at the beginning that may be written anywhere, for the host's metadata.
    pub conventional: u32,
    /// Write buffers that the zones share: a write to a zone without one uses that of the zone that was written longest ago, whose data
    /// is programmed before its page is full. 0 = as many as zones.
    pub write_buffers: u32,
}

impl ZoneSettings {
    /// Whether the device has zones.
    pub fn is_zoned(&self) -> bool {
        self.blocks > 0
    }
}

/// Wear levelling and the end of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WearSettings {
    /// `dynamic`: new data goes to the least worn free block. `static`: cold data is moved off little worn blocks, too.
    pub levelling: WearLevelling,
    /// `static`: difference in erases between a plane's most and least worn block above which cold data is moved.
    pub threshold: u32,
}

impl Default for WearSettings {
    fn default() -> Self {
        Self { levelling: WearLevelling::None, threshold: 100 }
    }
}

/// Wear levelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WearLevelling {
    /// Free blocks are used in the order in which they became free.
    #[default]
    None,
    /// The least worn free block is used next.
    Dynamic,
    /// As dynamic, and cold data is moved off the least worn blocks.
    Static,
}
