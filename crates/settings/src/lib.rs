//! All settings of a device, with their defaults. This crate does not depend on the device model. The command `explain`, the JSON Schema
//! and the generated pages print the doc comments.

mod controller;
mod flash;
mod ftl;
mod interface;
mod published;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toml::Table;

pub use controller::{
    BusMode, CacheLie, CachePolicy, CacheSettings, ControllerSettings, IdleStage, LATE_TRIM_MS, MOST_STAGES, PageScheduling,
    PowerSettings, RECENT_MS, TimeQuantile, WriteBackMode,
};
pub use flash::{
    ALWAYS, BlockGroup, BoosterFlush, BoosterResize, CapacitySettings, CellMode, GeometrySettings, PageType, ParallelUnit,
    PartialFlush, RetryPoint, SlcMode, SlcSettings, TimingSettings, WHOLE, WearLevelling, WearSettings, WriteComplete,
    ZoneSettings,
};
pub use ftl::{AllocationSettings, GcMode, GcSettings, MappingSettings, PlaneClustering, StripeOrder, UnwrittenRead};
pub use interface::{
    FeatureSettings, HostSettings, InterfaceKind, InterfaceSettings, KernelEra, KernelRules, LinkGear, MOST_PACKED,
};
pub use published::{FigureMeasure, FittedSource, PublishedFigure};

/// Options of a policy: the value of each setting, by its key. The module of the policy declares the settings; settings of other policies
/// are refused.
pub type PolicyOptions = BTreeMap<String, u64>;

/// A setting that belongs to a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicySetting {
    /// Key of the setting, in the same table as the key that selects the policy.
    pub key: &'static str,
    /// What the setting means.
    pub about: &'static str,
    /// Value if the setting is absent.
    pub default: u64,
    /// Minimum and maximum value.
    pub range: (u64, u64),
}

impl PolicySetting {
    /// Value of the setting in the options of a policy, or its default.
    pub fn of(&self, options: &PolicyOptions) -> u64 {
        options.get(self.key).copied().unwrap_or(self.default)
    }

    /// Value of the setting as 32 bits, for a setting whose maximum is below 2^32.
    pub fn count(&self, options: &PolicyOptions) -> u32 {
        u32::try_from(self.of(options)).unwrap_or(u32::MAX)
    }
}

/// A policy or scheme that a setting chooses by name.
#[derive(Clone, Copy, Debug)]
pub struct PolicyDescription {
    /// Name of the policy in the settings.
    pub name: &'static str,
    /// One sentence on what the policy does.
    pub about: &'static str,
    /// The settings of the policy.
    pub settings: &'static [PolicySetting],
}

/// A simulated eMMC or UFS device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeviceSettings {
    /// Short name, printed with every result.
    pub name: String,
    /// One sentence on what the device represents.
    pub about: String,
    /// Published figures and recordings to which parameters were fitted. A result that agrees with them does not validate the device model.
    pub fitted_to: Vec<String>,
    /// How the flash is built.
    pub geometry: GeometrySettings,
    /// How much of the flash the host can use.
    pub capacity: CapacitySettings,
    /// Parallelism of the flash, and the times of the bus.
    pub timing: TimingSettings,
    /// The kind of interface, and the link of a UFS.
    pub interface: InterfaceSettings,
    /// The command path and the bus between host and device.
    pub controller: ControllerSettings,
    /// Optional functions of an eMMC.
    pub features: FeatureSettings,
    /// The map from logical to physical addresses.
    pub mapping: MappingSettings,
    /// Placement of new data.
    pub allocation: AllocationSettings,
    /// How space is reclaimed.
    pub gc: GcSettings,
    /// How wear is spread, and how old the data is.
    pub wear: WearSettings,
    /// Sleep, wake-up and power consumption.
    pub power: PowerSettings,
    /// The block layer and the driver of the host.
    pub host: HostSettings,
    /// Caches in the RAM of the device.
    pub cache: CacheSettings,
    /// Blocks in SLC mode.
    pub slc: SlcSettings,
    /// Zones that the host manages.
    pub zones: ZoneSettings,
}

// Code that reads and writes settings is generated only in this crate, which is built with little optimisation, unlike the device model.
impl DeviceSettings {
    /// Reads settings from TOML; absent settings have their defaults.
    /// Errors: At the first unknown key or value of a wrong type.
    pub fn from_table(table: Table) -> Result<Self, toml::de::Error> {
        table.try_into()
    }

    /// The JSON Schema of the settings, without the names of policies and the settings that belong to them.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// Whether data reaches the flash in the order of the writes. This is true if the cache keeps the order, and for a device with zones.
    pub fn keeps_write_order(&self) -> bool {
        self.cache.keeps_write_order() || self.zones.is_zoned()
    }

    /// Number of pages that one page in SLC mode replaces. Blocks of an eMMC are assumed to keep half of their pages for every kind of
    /// cell.
    pub fn pages_for_one_of_slc(&self, cells: CellMode) -> u32 {
        if self.interface.is_ufs() { cells.bits() } else { 2 }
    }

    /// The block groups in use: the blocks in SLC mode are removed from their group and form a group at the end.
    pub fn block_groups(&self) -> Vec<BlockGroup> {
        let mut groups = self.geometry.block_groups.clone();
        let slc = &self.slc;
        if slc.mode == SlcMode::Off {
            return groups;
        }
        if let Some(from) = groups.get_mut(slc.group as usize) {
            from.blocks -= slc.blocks;
            let group = BlockGroup {
                blocks: slc.blocks,
                pages_per_block: from.pages_per_block / self.pages_for_one_of_slc(from.cell_mode),
                cell_mode: CellMode::Slc,
                read_us: slc.read_us,
                program_us: slc.program_us,
                page_types: Vec::new(),
                erase_us: slc.erase_us,
                erase_limit: slc.erase_limit,
                spare_blocks: 0,
                retries: Vec::new(),
                read_disturb_limit: 0,
                refresh_days: 0.0,
                ..from.clone()
            };
            groups.push(group);
        }
        groups
    }
}
