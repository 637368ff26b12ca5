//! Placement of new data.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PolicyOptions;

/// Allocation of new data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AllocationSettings {
    /// How a plane is chosen.
    pub policy: String,
    /// Order in which consecutive pages (static), or pages while everything is idle (dynamic), are striped.
    pub order: StripeOrder,
    /// Write requests up to this size go to separate blocks (hot data); 0 = off.
    pub hot_max_kb: u32,
    /// Settings of the policy: those that its entry in the registry names.
    #[serde(flatten)]
    pub options: PolicyOptions,
}

impl Default for AllocationSettings {
    fn default() -> Self {
        Self {
            policy: "dynamic".into(),
            order: StripeOrder::ChannelFirst,
            hot_max_kb: 0,
            options: PolicyOptions::new(),
        }
    }
}

/// Which coordinate changes first from page to page; the others follow in the order channel, chip, die, plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StripeOrder {
    /// Channels.
    #[default]
    ChannelFirst,
    /// Chips.
    ChipFirst,
    /// Dies.
    DieFirst,
    /// Planes.
    PlaneFirst,
}
