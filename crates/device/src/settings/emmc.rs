//! The settings of what makes a device an eMMC: the host's driver, the cache, SLC mode, waking up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the host's block layer and MMC driver do with requests before the device sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
    /// Longest request that merging neighbours in the block layer's queue makes; 0 = no merging. Linux allows 512 KB.
    pub merge_max_kb: u32,
    /// Most write requests in one packed command (`EXT_CSD` `MAX_PACKED_WRITES`, eMMC 4.5); 0 = no packing.
    pub packed_writes: u32,
    /// Most read requests in one packed command (`EXT_CSD` `MAX_PACKED_READS`, eMMC 4.5); 0 = no packing.
    pub packed_reads: u32,
    /// Most data in a packed command, its header block not counted.
    pub packed_max_kb: u32,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self { merge_max_kb: 0, packed_writes: 0, packed_reads: 0, packed_max_kb: 16384 }
    }
}

/// Data rate of the bus between host and device, eight bits wide (`EXT_CSD` `HS_TIMING` and `BUS_WIDTH`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BusMode {
    /// As `host_us_per_kb` says.
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
    /// Bytes a second, where the mode says it.
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
/// that was read. What is durable when stands in `persistence.rs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CacheSettings {
    /// Room for written data, which is lost with the power; 0 = no cache, every write goes to the flash.
    pub size_kb: u32,
    /// Which written data leaves first.
    pub policy: CachePolicy,
    /// When written data goes to the flash.
    pub write_back: WriteBack,
    /// Idle time after which written data goes to the flash, with `write_back` = "idle".
    pub idle_after_us: f64,
    /// Room for data that was read, replaced by LRU; 0 = none.
    pub read_kb: u32,
}

/// Which written data leaves the cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// The page that came first.
    #[default]
    Fifo,
    /// The page not written for longest.
    Lru,
    /// All data of the erase-block-sized range not written for longest (BPLRU without padding; Kim and Ahn, FAST 2008).
    BlockLru,
}

/// When written data leaves the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteBack {
    /// As soon as the flash has nothing else to do.
    #[default]
    Eager,
    /// After some idle time, and when room is short.
    Idle,
    /// Only when room is short, or a flush asks.
    WhenFull,
}

/// Blocks run in SLC mode: half the pages, times of their own (the enhanced area of eMMC 4.4, `EXT_CSD` `ENH_SIZE_MULT`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SlcSettings {
    /// What the blocks are for.
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
    /// Erases that a block stands in SLC mode; 0 = never goes bad.
    pub erase_limit: u32,
    /// `cache`: idle time after which its data is folded into the other blocks; 0 = only when it is full.
    pub fold_after_us: f64,
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
        }
    }
}

/// What blocks in SLC mode are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SlcMode {
    /// There are none.
    #[default]
    Off,
    /// A region at the beginning of the address space lies in them for good.
    Region,
    /// Small writes go there first and are folded into the other blocks later.
    Cache,
}

/// A point of the distribution of wake-up times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WakeQuantile {
    /// Share of wake-ups that take at most `us`.
    pub up_to_pct: f64,
    /// Time to wake up.
    pub us: f64,
}
