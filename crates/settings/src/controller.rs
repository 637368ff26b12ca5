//! Settings of the controller: command path, bus, RAM for data, sleep and power.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the device executes commands: order, queue depth, fixed times, and the bus to the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControllerSettings {
    /// Which page operation is executed first.
    pub scheduling: PageScheduling,
    /// Maximum number of requests inside the device; 0 = no limit. eMMC: 1 without a command queue, up to 32 with one (`EXT_CSD`
    /// `CMDQ_DEPTH`, eMMC 5.1). SD: 1, or up to 32 for a card of class A2 whose queue is on. UFS: number of tags, up to 32, or up to 255 with `interface.queues`.
    pub queue_depth: u32,
    /// Fixed time of a read command before the flash is accessed.
    pub read_overhead_us: f64,
    /// Fixed time of a write command before the flash is accessed.
    pub write_overhead_us: f64,
    /// Transfer time of a KB between host and device, before a write to the flash or after a read from it.
    pub host_us_per_kb: f64,
    /// Bus mode. Its data rate replaces `host_us_per_kb`.
    pub bus_mode: BusMode,
    /// Additional time of a reliable write, which preserves the old data until the new data is programmed.
    pub reliable_write_us: f64,
    /// Time of a discard in addition to the fixed time of a write command.
    pub discard_us: f64,
    /// Distribution of the additional time of a read. It represents internal work of a real device that the model does not contain
    /// (collection, folding of the SLC cache). The points are in ascending order, the last at 100 %, with linear interpolation between
    /// them. `power.seed` is the seed of the random draws.
    pub read_stalls: Vec<TimeQuantile>,
    /// Distribution of the additional time of a write, in the format of `read_stalls`.
    pub write_stalls: Vec<TimeQuantile>,
    /// Whether a flash page may contain units of several entries of a packed write; otherwise each entry starts on a new page. The standard
    /// (eMMC 5.1, 6.6.29) specifies how a packed write is transferred, not how it is stored.
    pub share_packed_pages: bool,
}

/// Order of page operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PageScheduling {
    /// Page operations are executed in the order of arrival.
    #[default]
    Fifo,
    /// Reads overtake writes that have not begun (SSDsim). On a UFS, at most as many commands as there are tags overtake a write.
    ReadFirst,
}

/// Data rate of the bus between host and device: eight bits wide for an eMMC (`EXT_CSD` `HS_TIMING` and `BUS_WIDTH`), four for an SD card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusMode {
    /// `host_us_per_kb` sets the rate.
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
    /// SD: high speed at 50 MHz: 25 million bytes a second.
    Sdr25,
    /// SD: UHS-I, single data rate at 100 MHz: 50 million bytes a second.
    Sdr50,
    /// SD: UHS-I, double data rate at 50 MHz: 50 million bytes a second.
    Ddr50,
    /// SD: UHS-I, single data rate at 208 MHz: 104 million bytes a second.
    Sdr104,
}

impl BusMode {
    /// Bytes per second; `None` for [`BusMode::Given`].
    pub const fn bytes_per_s(self) -> Option<u64> {
        match self {
            BusMode::Given => None,
            BusMode::Hs52 => Some(52_000_000),
            BusMode::Ddr52 | BusMode::Sdr104 => Some(104_000_000),
            BusMode::Hs200 => Some(200_000_000),
            BusMode::Hs400 => Some(400_000_000),
            BusMode::Sdr25 => Some(25_000_000),
            BusMode::Sdr50 | BusMode::Ddr50 => Some(50_000_000),
        }
    }

    /// Clock of the command line of an SD card in MHz; `None` for [`BusMode::Given`] and the modes of an eMMC.
    pub const fn sd_clock_mhz(self) -> Option<u32> {
        match self {
            BusMode::Sdr25 | BusMode::Ddr50 => Some(50),
            BusMode::Sdr50 => Some(100),
            BusMode::Sdr104 => Some(208),
            _ => None,
        }
    }
}

/// The RAM of the device that holds data: the volatile cache of written data (`EXT_CSD` `CACHE_SIZE`, eMMC 4.5), and a cache of data that
/// was read. The persistence contract (`contract/mod.rs`) states when data is durable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSettings {
    /// Size of the write cache, whose data is lost on a power loss; 0 = no cache, every write goes to the flash.
    pub size_kb: u32,
    /// Which written data leaves the cache first.
    pub policy: CachePolicy,
    /// When written data goes to the flash.
    pub write_back: WriteBackMode,
    /// Idle time after which written data goes to the flash; applies if `write_back` is "idle".
    pub idle_after_us: f64,
    /// Fixed time of a flush in addition to the program operations that it waits for, with or without a cache.
    pub flush_us: f64,
    /// Size of the read cache, which evicts the least recently used data; 0 = none.
    pub read_kb: u32,
    /// Whether the read cache also keeps the data that follows a read in the same flash page. The flash reads whole pages, so that a sequential
    /// read of small blocks then needs one flash read per page.
    pub read_pages: bool,
    /// The promise about written data that the device breaks on purpose, to simulate defective firmware. Every result reports this setting.
    pub lies: CacheLie,
}

impl CacheSettings {
    /// Whether the cache promises to keep the order of writes (C9 of the persistence contract).
    pub fn promises_write_order(&self) -> bool {
        self.size_kb > 0 && self.policy == CachePolicy::Fifo
    }

    /// Whether the cache keeps the order of writes: it promises the order, and `lies` does not break that promise.
    pub fn keeps_write_order(&self) -> bool {
        self.promises_write_order() && !matches!(self.lies, CacheLie::Barrier | CacheLie::Reorder)
    }
}

/// A device with [`CacheLie::Recent`] loses the data that it programmed less than this time before a power cut, ms.
pub const RECENT_MS: i64 = 10;

/// A device with [`CacheLie::LateTrim`] repeats the discards within this time before a power cut, ms.
pub const LATE_TRIM_MS: i64 = 100;

/// The promise that the device breaks, as defective devices do. Tests of power cuts must detect it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheLie {
    /// The device keeps all promises.
    #[default]
    None,
    /// A flush completes, but written data stays in the cache. The tool diskchecker.pl was written because some drives acknowledge flushes
    /// without executing them.
    Flush,
    /// If a flush comes before the first write after power-on, the device completes this and all later flushes without executing them,
    /// until the power is off. Linux does not send such early flushes to the Micron eMMC Q2J54A (`MMC_QUIRK_BROKEN_CACHE_FLUSH`), in which
    /// later commands may time out.
    EarlyFlush,
    /// A flush completes before its data is programmed, and the newest data is programmed first: data that was written later may
    /// survive without the flushed data. Zheng et al. (FAST 2013) call this unserializable writes.
    Reorder,
    /// Data of reliable writes and of forced programming stays in the cache when the command completes.
    Fua,
    /// A barrier does not order writes, and neither does a FIFO cache.
    Barrier,
    /// If the power is cut during a program operation, the first half of the sectors is new and the rest old (4 of 8 sectors of 4 KB), also
    /// in reliable writes. Zheng et al. (FAST 2013) call these shorn writes.
    Tear,
    /// Discard and secure erase complete, but the old data can still be read, also after a power cut. Linux does not send secure commands
    /// to some Samsung and Micron eMMC (`MMC_QUIRK_SEC_ERASE_TRIM_BROKEN`).
    Trim,
    /// A power cut repeats the discards of the last 100 ms (`LATE_TRIM_MS`), and so deletes data that was written after them, even if it is
    /// promised to be durable. Queued trims destroy data on some SSDs in an unpublished way; Linux does not send them to these
    /// (`ATA_QUIRK_NO_NCQ_TRIM`: Micron M500, Samsung 840 and others).
    LateTrim,
    /// A power cut reverts what was programmed in the last 10 ms (`RECENT_MS`), even if it is promised to be durable, as with firmware that
    /// saves its map only from time to time.
    Recent,
    /// A power cut during a page program damages the data in the earlier pages of the same word line, which share its cells, even if it is
    /// promised to be durable; blocks in SLC mode are not affected. Tseng et al. (DAC 2011) measured this on flash chips. The standard
    /// permits a device without this protection, which then says so (`EXT_CSD` `WR_REL_SET` [167]); the other lies change no register.
    PairedPages,
}

/// Which written data leaves the cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// The page that was written first leaves the cache first. A new version of a page waits until the old version has left. This keeps the
    /// order of writes, which `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0 reports to the host; a barrier has no effect.
    Fifo,
    /// The page that was least recently written leaves the cache first.
    #[default]
    Lru,
    /// All data of the least recently written range of the size of an erase block leaves the cache first (BPLRU without padding; Kim and
    /// Ahn, FAST 2008).
    BlockLru,
}

/// When written data leaves the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteBackMode {
    /// Written data leaves the cache as soon as the flash is idle.
    #[default]
    Eager,
    /// Written data leaves the cache after some idle time, and when space is short.
    Idle,
    /// Written data leaves the cache only when space is short, or for a flush.
    WhenFull,
}

/// Sleep, wake-up, and power consumption by state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PowerSettings {
    /// Idle time after which the device sleeps; 0 = never. UFS: the timer of auto-hibernate, which includes clock gating. This key, `wake_us`
    /// and `wake_quantiles` are the short form of `stages` for one stage.
    pub sleep_after_us: f64,
    /// Wake-up time. eMMC: it delays the request that wakes the device. UFS: the time to leave hibernation, which delays all requests that
    /// arrive during it.
    pub wake_us: f64,
    /// Distribution of the wake-up time, used instead of `wake_us`: points in ascending order, the last at 100 %, with linear interpolation
    /// between them.
    pub wake_quantiles: Vec<TimeQuantile>,
    /// Stages of sleep in ascending order of the idle time after which each begins, for example the hibernation of the link of a UFS, the
    /// gating of its clocks, and its runtime suspend. The request that ends the idle time waits for the exit time of the last stage that has
    /// begun. Work that begins with sleep, such as `slc.flush = "hibernate"`, begins with the first stage.
    pub stages: Vec<IdleStage>,
    /// Seed of the wake-up times, and of `controller.read_stalls` and `controller.write_stalls`.
    pub seed: u64,
    /// Power of the device while it executes requests, without the flash.
    pub active_mw: f64,
    /// Power while idle and awake.
    pub idle_mw: f64,
    /// Power while asleep, unless the stage has its own.
    pub sleep_mw: f64,
    /// Power while waking up.
    pub waking_mw: f64,
}

impl PowerSettings {
    /// The stages of sleep: `stages`, or the stage of the short form; empty if the device never sleeps.
    pub fn idle_stages(&self) -> Cow<'_, [IdleStage]> {
        if !self.stages.is_empty() || self.sleep_after_us <= 0.0 {
            return Cow::Borrowed(&self.stages);
        }
        let (wake_us, wake_quantiles) = (self.wake_us, self.wake_quantiles.clone());
        Cow::Owned(vec![IdleStage { after_us: self.sleep_after_us, wake_us, wake_quantiles, sleep_mw: 0.0 }])
    }

    /// Idle time after which the device sleeps, which is that of its first stage; 0 if it never sleeps.
    pub fn sleeps_after_us(&self) -> f64 {
        self.stages.first().map_or(self.sleep_after_us, |stage| stage.after_us)
    }
}

/// Maximum number of stages of sleep of a device.
pub const MOST_STAGES: usize = 8;

/// A stage of sleep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IdleStage {
    /// Idle time after which the stage begins.
    pub after_us: f64,
    /// Exit time: wake-up time of the request that ends the stage.
    pub wake_us: f64,
    /// Distribution of the exit time, used instead of `wake_us`, in the format of `power.wake_quantiles`.
    pub wake_quantiles: Vec<TimeQuantile>,
    /// Power in this stage; 0 = `power.sleep_mw`.
    pub sleep_mw: f64,
}

/// A point of a distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeQuantile {
    /// Share of the times that are at most `us`.
    pub up_to_pct: f64,
    /// Time at this point of the distribution, in microseconds.
    pub us: f64,
}
