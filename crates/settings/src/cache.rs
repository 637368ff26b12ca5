//! The RAM of the device that holds data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The RAM of the device that holds data: the volatile cache of written data (`EXT_CSD` `CACHE_SIZE`, eMMC 4.5), and data
/// that was read. What is durable when stands in `contract/mod.rs`.
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
    /// Fixed time that a flush takes on top of the programs that it waits for.
    pub flush_us: f64,
    /// Room for data that was read, replaced by LRU; 0 = none.
    pub read_kb: u32,
    /// The promise of the persistence contract that the device breaks on purpose; every result names it.
    pub lies: Lie,
}

impl CacheSettings {
    /// Whether the cache promises to keep the order of writes (rule 9 of the contract).
    pub fn promises_write_order(&self) -> bool {
        self.size_kb > 0 && self.policy == CachePolicy::Fifo
    }

    /// Whether it does.
    pub fn keeps_write_order(&self) -> bool {
        self.promises_write_order() && self.lies != Lie::Barrier
    }
}

/// A promise that a device breaks, as defective ones do: the control of every test of power cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    /// It keeps its promises.
    #[default]
    None,
    /// A flush completes, but written data stays in the cache.
    Flush,
    /// Reliable writes and forced programming end in the cache.
    Fua,
    /// A barrier sets no order, and a FIFO cache keeps none.
    Barrier,
    /// Power that goes during a program leaves the first half of its sectors new and the rest old, in reliable writes too.
    Tear,
}

/// Which written data leaves the cache first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CachePolicy {
    /// The page that came first; data that is written again waits until the old has left. It keeps the order of writes, which
    /// `EXT_CSD` `CACHE_FLUSH_POLICY` [240] bit 0 tells the host; a barrier is nothing to it.
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
pub enum WriteBack {
    /// As soon as the flash has nothing else to do.
    #[default]
    Eager,
    /// After some idle time, and when room is short.
    Idle,
    /// Only when room is short, or a flush asks.
    WhenFull,
}
