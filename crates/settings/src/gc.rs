//! Garbage collection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PolicyOptions;

/// Garbage collection, per plane and block group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GcSettings {
    /// Victim policy; `none` = no collection.
    pub policy: String,
    /// `blocking`: the write that needs space waits while whole blocks are collected, which takes seconds if they are large and full of
    /// valid data. `incremental`: some pages are copied with each write.
    pub mode: GcMode,
    /// Free blocks of a pool at or below which incremental and idle collection work.
    pub high_watermark: u32,
    /// Free blocks of a pool at or below which a write waits for collection; at least 1.
    pub low_watermark: u32,
    /// Incremental: pages copied for each page the host writes.
    pub pages_per_step: u32,
    /// Idle time after which collection works in the background; 0 = never (BKOPS, JESD84-B51, 6.6.25).
    pub idle_after_us: f64,
    /// Free blocks at or below which idle collection works; 0 = as `high_watermark`.
    pub idle_free_blocks: u32,
    /// A request interrupts idle collection after the current page (HPI); otherwise it waits for the block.
    pub hpi: bool,
    /// Time that the interruption takes.
    pub hpi_us: f64,
    /// Free blocks at or below which collection begins without idle time and is not interrupted (`BKOPS_STATUS` 3); 0 = never.
    pub urgent_free_blocks: u32,
    /// Settings of the policy: those that its entry in the registry names.
    #[serde(flatten)]
    pub options: PolicyOptions,
}

impl Default for GcSettings {
    fn default() -> Self {
        Self {
            policy: "greedy".into(),
            mode: GcMode::Blocking,
            high_watermark: 4,
            low_watermark: 1,
            pages_per_step: 4,
            idle_after_us: 0.0,
            idle_free_blocks: 0,
            hpi: true,
            hpi_us: 0.0,
            urgent_free_blocks: 0,
            options: PolicyOptions::new(),
        }
    }
}

/// The spread of a collection over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GcMode {
    /// Whole blocks, while the write that needs the space waits.
    #[default]
    Blocking,
    /// A few pages with every host write below the high watermark; whole blocks at the low one.
    Incremental,
}
