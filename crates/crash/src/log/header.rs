//! The header of a log: describes the run that was recorded.

use emmclab_base::{Error, ErrorClass, Result};
use emmclab_device::InterfaceKind;
use emmclab_device::contract::ContractRules;
use emmclab_layers::{DiskZones, DisksBelow, LayerConfig};
use serde::{Deserialize, Serialize};

use super::CommandPort;
use crate::disk_contents::BLOCK;

/// More zones than any device has; each zone costs memory in every state.
const MOST_ZONES: u32 = 1 << 20;

/// The settings of a device that determine which states a power cut may leave.
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
    /// Its interface, which determines what FUA and a flush of a range promise.
    #[serde(default, skip_serializing_if = "is_emmc")]
    pub interface: InterfaceKind,
    /// Sectors of a map unit.
    pub unit_sectors: u32,
    /// Number of sectors that it erases at a time, to which layers may align; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_none")]
    pub erase_sectors: u32,
    /// Its zones; a cut leaves a prefix of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<DiskZones>,
    /// The promise that it violates on purpose; `none` for an honest device.
    pub lies: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_emmc(interface: &InterfaceKind) -> bool {
    *interface == InterfaceKind::Emmc
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_none(sectors: &u32) -> bool {
    *sectors == 0
}

/// The header of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrashLogHeader {
    /// The device.
    pub device: DeviceFacts,
    /// Layers above the device, the first on top, with the settings for their recovery after a cut.
    pub layers: Vec<LayerConfig>,
    /// Number of sectors that the layers offer.
    pub sectors: u64,
    /// Sectors of a second device, which has no cache; 0 = none. The log appends its sectors to those of the first device, and
    /// records its writes as forced ones.
    #[serde(default)]
    pub second_sectors: u64,
    /// Whether the log contains the contents of the device's cells.
    #[serde(default)]
    pub cells: bool,
    /// The tool that wrote it, and its version.
    pub writer: String,
}

impl CrashLogHeader {
    /// Rejects impossible zones: they must consist of blocks of 4 KiB and be inside the device.
    pub(super) fn check(&self) -> Result<()> {
        let Some(DiskZones { first, sectors, count, .. }) = self.device.zones else { return Ok(()) };
        let end = sectors.checked_mul(count.into()).and_then(|length| first.checked_add(length));
        let are_blocks = sectors > 0 && sectors.is_multiple_of(BLOCK) && first.is_multiple_of(BLOCK);
        if are_blocks && count <= MOST_ZONES && end.is_some_and(|end| end <= self.device.sectors) {
            return Ok(());
        }
        let value = format!("{count} of {sectors} sectors from {first} on");
        let problem = format!("these are not the zones of a device of {} sectors", self.device.sectors);
        Err(Error::new(ErrorClass::Value, problem)
            .of_field("device.zones", 0, value.as_bytes())
            .hint("copy the log again, or run the workload again"))
    }

    /// Number of sectors of all devices together.
    pub fn all_sectors(&self) -> u64 {
        self.device.sectors.saturating_add(self.second_sectors)
    }

    /// The disks below the bottom layer.
    pub fn below(&self) -> DisksBelow {
        DisksBelow {
            erase_sectors: self.device.erase_sectors,
            zones: self.device.zones,
            ..DisksBelow::new(self.device.sectors, Some(self.second_sectors).filter(|sectors| *sectors > 0))
        }
    }

    /// The contract at a port, whether it is kept there or not. Layers promise no more than a device with a cache.
    pub fn rules(&self, port: CommandPort) -> ContractRules {
        let DeviceFacts { write_through, fifo, interface, unit_sectors, .. } = self.device;
        match port {
            CommandPort::Device => ContractRules { write_through, fifo, interface, unit_sectors },
            CommandPort::Host => ContractRules { write_through: false, fifo: false, interface, unit_sectors: 1 },
        }
    }
}
