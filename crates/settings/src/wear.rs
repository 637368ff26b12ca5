//! Wear levelling and the end of life.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Wear levelling and the end of life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WearSettings {
    /// `dynamic`: new data goes to the least worn free block. `static`: cold data is moved off little worn blocks, too.
    pub levelling: WearLevelling,
    /// `static`: difference in erases between a plane's most and least worn block above which cold data is moved.
    pub threshold: u32,
}

impl Default for WearSettings {
    fn default() -> Self {
        Self { levelling: WearLevelling::None, threshold: 100 }
    }
}

/// Wear levelling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WearLevelling {
    /// Free blocks are used in the order in which they became free.
    #[default]
    None,
    /// The least worn free block is used next.
    Dynamic,
    /// As dynamic, and cold data is moved off the least worn blocks.
    Static,
}
