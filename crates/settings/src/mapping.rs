//! The map from logical to physical.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::PolicyOptions;

/// The map from logical to physical.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MappingSettings {
    /// Mapping scheme.
    pub scheme: String,
    /// Planes that work as one: their pages make a clustered page, their blocks a clustered block (Kang et al., J. Systems
    /// Architecture 2007).
    pub clustering: PlaneClustering,
    /// Size of a map entry in KB: 4, 8 or 16. Below the page size, a page holds any units of a request, in its order;
    /// at the page size, data is aligned to pages and a smaller overwrite reads the old page first (SSDsim).
    pub unit_kb: u32,
    /// Cost of reading a unit that was never written.
    pub unwritten_read: UnwrittenRead,
    /// Settings of the scheme: those that its entry in the registry names.
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

/// Planes that work as one, from the smallest cluster to the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlaneClustering {
    /// Every plane works independently.
    #[default]
    None,
    /// The planes of a die.
    Planes,
    /// The planes of all dies of a chip.
    Dies,
    /// The planes of all chips on a channel.
    Chips,
    /// All planes of the device.
    Channels,
}

/// Reads of what was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnwrittenRead {
    /// As if the data had been there before the trace, striped over the planes.
    #[default]
    Flash,
    /// No cost: the map shows that there is no data.
    Free,
}
