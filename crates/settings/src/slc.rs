//! Blocks in SLC mode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
