//! The controller: command path, bus, RAM that holds data, sleep and power.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The command path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSettings {
    /// Which page operation is executed first.
    pub scheduling: PageScheduling,
    /// Requests inside the device at once; 1 is an eMMC without a command queue, up to 32 one with it (`EXT_CSD` `CMDQ_DEPTH`,
    /// eMMC 5.1), 0 is no limit. Of a UFS, its tags: up to 32, up to 255 with `interface.queues`.
    pub queue_depth: u32,
    /// Fixed time of a read command before the flash is accessed.
    pub read_overhead_us: f64,
    /// Fixed time of a write command before the flash is accessed.
    pub write_overhead_us: f64,
    /// Time of a KB between host and device, before a write or after a read of the flash.
    pub host_us_per_kb: f64,
    /// Bus mode, which determines the time between host and device instead of `host_us_per_kb`.
    pub bus_mode: BusMode,
    /// Additional time of a reliable write, which keeps the old data until the new data is complete.
    pub reliable_write_us: f64,
    /// Time of a discard in addition to the fixed time of a write command.
    pub discard_us: f64,
    /// Distribution of the additional time of a read, caused by work that a real device does now and then (collection, folding of its
    /// SLC cache) but its model does not. Points in ascending order, the last at 100 %, with straight lines between them; drawn by
    /// `power.seed`.
    pub read_stalls: Vec<TimeQuantile>,
    /// Distribution of the additional time of a write.
    pub write_stalls: Vec<TimeQuantile>,
    /// The data of a packed write is programmed as one stream, so that a page may hold units of several entries; otherwise
    /// each entry fills pages of its own. The standard (eMMC 5.1, 6.6.29) specifies how a pack is transferred, not how it
    /// is stored.
    pub share_packed_pages: bool,
}

/// Order of page operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageScheduling {
    /// In the order of arrival.
    #[default]
    Fifo,
    /// Reads before writes that have not begun (SSDsim). On a UFS, at most as many commands overtake another as there are tags.
    ReadFirst,
}

/// Data rate of the bus between host and device, eight bits wide (`EXT_CSD` `HS_TIMING` and `BUS_WIDTH`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusMode {
    /// The rate is set by `host_us_per_kb`.
    #[default]
    Given,
    /// High speed, single data rate at 52 MHz: 52 million bytes a second.
    Hs52,
    /// High speed, double data rate at 52 MHz: 104 million bytes a second.
    Ddr52,
    /// Single data rate at 200 MHz (eMMC 4.5): 200 million bytes a second.
    Hs200,
    /// Double data rate at 200 MHz (eMMC 5.0): 400 million bytes a second.
    Hs400,
}

impl BusMode {
    /// Bytes per second; `None` for [`BusMode::Given`].
    pub const fn bytes_per_s(self) -> Option<u64> {
        match self {
            BusMode::Given => None,
            BusMode::Hs52 => Some(52_000_000),
            BusMode::Ddr52 => Some(104_000_000),
            BusMode::Hs200 => Some(200_000_000),
            BusMode::Hs400 => Some(400_000_000),
        }
    }
}

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

/// Sleep, waking, and power by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerSettings {
    /// Idle time after which the device sleeps; 0 = never. For a UFS, the timer of auto-hibernate, which includes clock gating.
    pub sleep_after_us: f64,
    /// Time to wake up, which delays the request that arrives; on a UFS, which leaves hibernation, it delays all requests that arrive in
    /// this time.
    pub wake_us: f64,
    /// Distribution of the time to wake up instead of `wake_us`: points in ascending order, the last at 100 %, with
    /// straight lines between them.
    pub wake_quantiles: Vec<TimeQuantile>,
    /// Seed of the wake-up times, and of `controller.read_stalls` and `controller.write_stalls`.
    pub seed: u64,
    /// Power while working, in addition to that of the flash.
    pub active_mw: f64,
    /// Power while idle and awake.
    pub idle_mw: f64,
    /// Power asleep.
    pub sleep_mw: f64,
    /// Power while waking up.
    pub waking_mw: f64,
}

/// A point of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeQuantile {
    /// Share that takes at most `us`.
    pub up_to_pct: f64,
    /// Time.
    pub us: f64,
}
