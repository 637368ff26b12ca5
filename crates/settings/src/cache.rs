//! The RAM of the device that holds data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The RAM of the device that holds data: the volatile cache of written data (`EXT_CSD` `CACHE_SIZE`, eMMC 4.5), and data
/// that was read. The persistence contract (`contract/mod.rs`) states which data is durable at which time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSettings {
    /// Room for written data, which is lost with the power; 0 = no cache, every write goes to the flash.
    pub size_kb: u32,
    /// Which written data leaves the cache first.
    pub policy: CachePolicy,
    /// When written data goes to the flash.
    pub write_back: WriteBackMode,
    /// Idle time after which written data goes to the flash, with `write_back` = "idle".
    pub idle_after_us: f64,
    /// Fixed time of a flush in addition to the programs that it waits for, with or without a cache.
    pub flush_us: f64,
    /// Room for data that was read, replaced by LRU; 0 = none.
    pub read_kb: u32,
    /// The promise of the persistence contract that the device breaks on purpose; every result names it.
    pub lies: CacheLie,
}

impl CacheSettings {
    /// Whether the cache promises to keep the order of writes (rule 9 of the contract).
    pub fn promises_write_order(&self) -> bool {
        self.size_kb > 0 && self.policy == CachePolicy::Fifo
    }

    /// Whether the cache keeps the order of writes: it promises it, and does not break that promise.
    pub fn keeps_write_order(&self) -> bool {
        self.promises_write_order() && !matches!(self.lies, CacheLie::Barrier | CacheLie::Reorder)
    }
}

/// A device with [`CacheLie::Recent`] loses what it programmed within this time before a power cut, ms.
pub const RECENT_MS: i64 = 10;

/// A device with [`CacheLie::LateTrim`] repeats the discards within this time before a power cut, ms.
pub const LATE_TRIM_MS: i64 = 100;

/// A promise that a device breaks, as defective ones do: the control of every test of power cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheLie {
    /// It keeps its promises.
    #[default]
    None,
    /// A flush completes, but written data stays in the cache: drives that acknowledged flushes without executing them are why the
    /// tool diskchecker.pl exists.
    Flush,
    /// A flush that comes before the first write after power-on leaves the device unable to flush until the power is off: it completes
    /// flushes without executing them. Linux keeps such early flushes from the Micron eMMC Q2J54A (`MMC_QUIRK_BROKEN_CACHE_FLUSH`), in
    /// which later commands may time out.
    EarlyFlush,
    /// A flush completes before its data is programmed, and the newest data is programmed first: data that was written later may
    /// survive without the flushed data. Zheng et al. (FAST 2013) call this unserializable writes.
    Reorder,
    /// Reliable writes and forced programming end in the cache.
    Fua,
    /// A barrier sets no order, and a FIFO cache keeps none.
    Barrier,
    /// A power cut during a program leaves the first half of its sectors new and the rest old, also in reliable writes: 4 of the 8 sectors
    /// of 4 KB. Zheng et al. (FAST 2013) call these shorn writes.
    Tear,
    /// Discard and secure erase complete, but the old data stays: it can still be read, also after a power cut. Linux does not
    /// send secure commands to some Samsung and Micron eMMC (`MMC_QUIRK_SEC_ERASE_TRIM_BROKEN`).
    Trim,
    /// A power cut repeats the discards of the last 100 ms (`LATE_TRIM_MS`), so that data written after them is lost even if it was
    /// promised to be durable. It is not published how the SSDs fail whose queued trims destroy data; Linux sends them none
    /// (`ATA_QUIRK_NO_NCQ_TRIM`: Micron M500, Samsung 840 and others).
    LateTrim,
    /// A power cut undoes what was programmed in the last 10 ms (`RECENT_MS`), even if it was promised to be durable, as with firmware
    /// that saves its map only from time to time.
    Recent,
}

/// Which written data leaves the cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// The page that was written first; data that is written again waits until the old data has left. This keeps the order of
    /// writes, which `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0 reports to the host; a barrier has no effect.
    Fifo,
    /// The page not written for longest.
    #[default]
    Lru,
    /// All data of the erase-block-sized range not written for longest (BPLRU without padding; Kim and Ahn, FAST 2008).
    BlockLru,
}

/// When written data leaves the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteBackMode {
    /// As soon as the flash has nothing else to do.
    #[default]
    Eager,
    /// After some idle time, and when space is short.
    Idle,
    /// Only when space is short, or for a flush.
    WhenFull,
}
