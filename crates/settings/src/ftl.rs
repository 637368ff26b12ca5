//! Settings of the map from logical to physical addresses, of the placement of new data, and of garbage collection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PolicyOptions;

/// The map from logical to physical addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MappingSettings {
    /// Mapping scheme.
    pub scheme: String,
    /// Which planes work as one: their pages form a clustered page, their blocks a clustered block (Kang et al., J. Systems Architecture
    /// 2007).
    pub clustering: PlaneClustering,
    /// Size of a map unit in KB: 4, 8 or 16. If it is smaller than a page, the units of a request fill pages in order, from any address. If
    /// it equals the page size, pages are aligned, and a write of a part of a page first reads the old page (SSDsim).
    pub unit_kb: u32,
    /// Cost of reading a unit that was never written.
    pub unwritten_read: UnwrittenRead,
    /// Settings that only the chosen mapping scheme has.
    #[serde(flatten)]
    pub options: PolicyOptions,
}

impl Default for MappingSettings {
    fn default() -> Self {
        Self {
            scheme: "page".into(),
            clustering: PlaneClustering::None,
            unit_kb: 4,
            unwritten_read: UnwrittenRead::Flash,
            options: PolicyOptions::new(),
        }
    }
}

/// Which planes work as one. The values are ordered from the smallest group of planes to the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlaneClustering {
    /// Every plane works independently.
    #[default]
    None,
    /// The planes of a die work as one.
    Planes,
    /// The planes of all dies of a chip work as one.
    Dies,
    /// The planes of all chips on a channel work as one.
    Chips,
    /// All planes of the device work as one.
    Channels,
}

/// Cost of reading a unit that was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnwrittenRead {
    /// The cost of a read from the flash. The assumed location is as if the data had been written before the trace, striped over the
    /// planes.
    #[default]
    Flash,
    /// As `flash`, but in the smallest pages of the device, unit by unit, as the public SSDsim places data that is read before the replay.
    FlashSmall,
    /// No cost: the map shows that there is no data.
    Free,
}

/// Allocation of new data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AllocationSettings {
    /// Policy that chooses the plane for new data.
    pub policy: String,
    /// Order of the planes. The policy `static` uses it for consecutive pages, the policy `dynamic` while all planes are idle.
    pub order: StripeOrder,
    /// Maximum size of a write request that goes to separate blocks for hot data; 0 = off.
    pub hot_max_kb: u32,
    /// Settings that only the chosen policy has.
    #[serde(flatten)]
    pub options: PolicyOptions,
}

impl Default for AllocationSettings {
    fn default() -> Self {
        Self { policy: "dynamic".into(), order: StripeOrder::ChannelFirst, hot_max_kb: 0, options: PolicyOptions::new() }
    }
}

/// Which coordinate changes first from page to page. The others follow in the order channel, chip, die, plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StripeOrder {
    /// The channel changes first.
    #[default]
    ChannelFirst,
    /// The chip changes first.
    ChipFirst,
    /// The die changes first.
    DieFirst,
    /// The plane changes first.
    PlaneFirst,
}

/// Garbage collection, per plane and block group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GcSettings {
    /// Victim policy; `none` = no collection.
    pub policy: String,
    /// `blocking`: the write that needs space waits while whole blocks are collected, which takes seconds if they are large and full of
    /// valid data. `incremental`: some pages are copied with each write.
    pub mode: GcMode,
    /// Number of free blocks (of a plane and block group) at or below which incremental and idle collection work.
    pub high_watermark: u32,
    /// Number of free blocks (of a plane and block group) at or below which a write waits for collection; at least 1.
    pub low_watermark: u32,
    /// Mode `incremental`: pages copied for each page that the host writes.
    pub pages_per_step: u32,
    /// Idle time after which collection works in the background; 0 = never (BKOPS, JESD84-B51, 6.6.25).
    pub idle_after_us: f64,
    /// Number of free blocks at or below which idle collection works; 0 = the value of `high_watermark`.
    pub idle_free_blocks: u32,
    /// Whether a request interrupts idle collection after the current page (HPI); otherwise the request waits until the block is collected.
    pub hpi: bool,
    /// Time that the interruption by HPI takes.
    pub hpi_us: f64,
    /// Number of free blocks at or below which collection begins without idle time and cannot be interrupted (`BKOPS_STATUS` 3); 0 = never.
    pub urgent_free_blocks: u32,
    /// Settings that only the chosen policy has.
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

/// How a collection is spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GcMode {
    /// Whole blocks are collected while the write that needs the space waits.
    #[default]
    Blocking,
    /// Below the high watermark, a few pages are copied with each host write; below the low watermark, whole blocks are collected.
    Incremental,
}
