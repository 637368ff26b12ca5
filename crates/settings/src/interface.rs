//! The interface between host and device: that of an eMMC, or of a UFS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The interface between host and device. All but `kind` belongs to UFS (JESD220; UFSHCI, JESD223): an eMMC has its bus in `controller`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The kind of interface: eMMC or UFS. Settings of the other kind are refused.
    pub kind: InterfaceKind,
    /// UFS: lanes of the link in each direction, 1 or 2. Both directions carry data at once.
    pub lanes: u32,
    /// UFS: gear of every lane.
    pub gear: LinkGear,
    /// UFS: queues of the host controller, up to 32 (UFSHCI 4), which share the tags of `controller.queue_depth`; commands take them
    /// in turn. 0 = the single list of up to 32 commands of UFSHCI 2 and 3.
    pub queues: u32,
    /// UFS: time that a queue needs to hand a command over to the device before it can hand over its next one.
    pub command_us: f64,
    /// UFS: time of FUA in addition to the program that it waits for.
    pub fua_us: f64,
}

impl InterfaceSettings {
    /// Bytes a second that the link carries in each direction; 0 if there is no link.
    pub fn link_bytes_per_s(&self) -> u64 {
        self.gear.bytes_per_s() * u64::from(self.lanes)
    }

    /// Whether the device is a UFS.
    pub fn is_ufs(&self) -> bool {
        self.kind == InterfaceKind::Ufs
    }
}

/// The kind of a device's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceKind {
    /// An eMMC: one bus for commands and data of both directions.
    #[default]
    Emmc,
    /// A UFS: a link that carries data in both directions at once, commands with tags that complete in any order, FUA and SYNCHRONIZE
    /// CACHE in place of reliable writes and barriers.
    Ufs,
}

/// Gear of a lane in high-speed rate series B (M-PHY): bytes a second after its 8b10b code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkGear {
    /// There is no link.
    #[default]
    None,
    /// 146 million bytes a second.
    HsG1,
    /// 292 million bytes a second.
    HsG2,
    /// 583 million bytes a second: most of UFS 2.
    HsG3,
    /// 1,166 million bytes a second: most of UFS 3.
    HsG4,
    /// 2,332 million bytes a second: most of UFS 4.
    HsG5,
}

impl LinkGear {
    /// Bytes a second of a lane.
    pub const fn bytes_per_s(self) -> u64 {
        match self {
            Self::None => 0,
            Self::HsG1 => 145_760_000,
            Self::HsG2 => 291_520_000,
            Self::HsG3 => 583_040_000,
            Self::HsG4 => 1_166_080_000,
            Self::HsG5 => 2_332_160_000,
        }
    }
}
