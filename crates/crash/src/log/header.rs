//! What a log says of the run before its records.

use emmclab_device::contract::Rules;
use emmclab_layers::LayerConfig;
use serde::{Deserialize, Serialize};

/// What decides which states a cut of power may leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Size in sectors.
    pub sectors: u64,
    /// Whether the completion of a plain write promises that it is durable.
    pub write_through: bool,
    /// Whether its cache promises to be written back in the order in which the host wrote.
    pub fifo: bool,
    /// Sectors of a map unit.
    pub unit_sectors: u32,
    /// The promise that it breaks on purpose; `none` for an honest one.
    pub lies: String,
}

impl DeviceFacts {
    /// The contract that holds for it, whether it keeps it or not.
    pub fn rules(&self) -> Rules {
        Rules { write_through: self.write_through, fifo: self.fifo, unit_sectors: self.unit_sectors }
    }
}

/// The head of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogHeader {
    /// The device.
    pub device: DeviceFacts,
    /// Layers above it, the first on top, as they are restored after a cut.
    pub layers: Vec<LayerConfig>,
    /// Sectors that the layers offer.
    pub sectors: u64,
    /// Whether it says what the device had in its cells.
    #[serde(default)]
    pub cells: bool,
    /// The tool that wrote it, and its version.
    pub writer: String,
}
