//! Parallelism of the flash, its bus, and when a write is complete.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
