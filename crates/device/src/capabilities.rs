//! Derives the capabilities that a device reports to its host from the settings of the device. An eMMC reports them in its `EXT_CSD`
//! register (JESD84-B51, 7.4).

use emmclab_base::SECTOR_BYTES;
use emmclab_registers::ext_csd::fields::{self, RegisterField};
use schemars::JsonSchema;
use serde::Serialize;

use crate::geometry::Geometry;
use emmclab_settings::{CacheLie, DeviceSettings, InterfaceKind};

/// Capabilities that a device reports to its host in registers or descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceCapabilities {
    /// Interface of the device: eMMC or UFS.
    pub interface: InterfaceKind,
    /// Volatile cache in KB (`CACHE_SIZE [252:249]`, which counts 1,024 bits); 0 = none.
    pub cache_kb: u32,
    /// Capacity that the host sees in sectors of 512 bytes (`SEC_COUNT [215:212]`).
    pub sectors: u64,
    /// Whether the cache keeps the order of writes (`CACHE_FLUSH_POLICY [240]` bit 0), so that a barrier has no further effect.
    pub cache_in_order: bool,
    /// Whether cache barriers are supported (`BARRIER_SUPPORT [486]`).
    pub barrier: bool,
    /// Whether reliable writes of any length are supported (`WR_REL_PARAM [166]` bit 2, `EN_REL_WR`).
    pub reliable_write: bool,
    /// The partitions in which an interrupted write does not damage older data, one bit each (`WR_REL_SET [167]`).
    #[serde(skip)]
    pub protected_partitions: u32,
    /// Maximum number of entries of a packed write (`MAX_PACKED_WRITES [500]`); 0 = not supported.
    pub packed_writes: u32,
    /// Maximum number of entries of a packed read (`MAX_PACKED_READS [501]`); 0 = not supported.
    pub packed_reads: u32,
    /// Depth of the command queue (`CMDQ_DEPTH [307]`, which contains the depth minus one; `CMDQ_SUPPORT [308]`); 1 = no queue.
    pub queue_depth: u32,
}

/// A field of the `EXT_CSD` register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExtCsdField {
    /// Name of the `EXT_CSD` field in the standard.
    pub name: &'static str,
    /// Address of the lowest byte of the field in the register.
    pub byte: u16,
    /// Length of the field in bytes; the lowest byte comes first.
    pub bytes: u16,
    /// Value of the field that the device reports.
    pub value: u32,
}

/// The capabilities of a device, together with the fields of its `EXT_CSD` register.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AnnouncedCapabilities {
    /// The capabilities.
    pub values: DeviceCapabilities,
    /// Fields of the `EXT_CSD` register; none for a UFS.
    pub ext_csd: Vec<ExtCsdField>,
}

impl AnnouncedCapabilities {
    /// Derives the capabilities of a device from its settings.
    pub fn of(settings: &DeviceSettings) -> Self {
        let values = DeviceCapabilities::of(settings);
        Self { values, ext_csd: values.ext_csd() }
    }
}

impl DeviceCapabilities {
    /// Derives the capabilities of a device from its settings.
    pub fn of(settings: &DeviceSettings) -> Self {
        let (cache, features) = (&settings.cache, &settings.features);
        Self {
            interface: settings.interface.kind,
            cache_kb: cache.size_kb,
            sectors: Geometry::new(settings).capacity().0 / SECTOR_BYTES,
            cache_in_order: cache.promises_write_order(),
            barrier: features.barrier && cache.size_kb > 0,
            reliable_write: features.reliable_write,
            protected_partitions: if cache.lies == CacheLie::PairedPages { 0 } else { 0x1f },
            packed_writes: features.packed_writes,
            packed_reads: features.packed_reads,
            // A `queue_depth` of 0 means an unlimited number of commands, which the standard cannot express, so 1 (no queue) is reported.
            queue_depth: settings.controller.queue_depth.max(1),
        }
    }

    /// Whether a single write can be made durable: by a reliable write, or by FUA on a UFS.
    pub fn has_fua(&self) -> bool {
        self.reliable_write || self.interface == InterfaceKind::Ufs
    }

    /// The fields of the `EXT_CSD` register of an eMMC, in order of their bytes; empty for other devices, which have no such register.
    ///
    /// [`emmclab_base::DeviceHealth`] contains the fields that change in use. `WR_REL_SET [167]` reports for every partition whether
    /// an interrupted write leaves older data intact. A device that breaks any other promise (`cache.lies`) reports the same values.
    pub fn ext_csd(&self) -> Vec<ExtCsdField> {
        if self.interface != InterfaceKind::Emmc {
            return Vec::new();
        }
        let field = |of: RegisterField, value| ExtCsdField { name: of.name, byte: of.byte, bytes: of.bytes, value };
        vec![
            field(fields::WR_REL_PARAM, u32::from(self.reliable_write) << 2),
            field(fields::WR_REL_SET, self.protected_partitions),
            field(fields::SEC_COUNT, u32::try_from(self.sectors).unwrap_or(u32::MAX)),
            field(fields::CACHE_FLUSH_POLICY, self.cache_in_order.into()),
            field(fields::CACHE_SIZE, self.cache_kb.saturating_mul(8)),
            field(fields::CMDQ_DEPTH, self.queue_depth - 1),
            field(fields::CMDQ_SUPPORT, u32::from(self.queue_depth > 1)),
            field(fields::BARRIER_SUPPORT, self.barrier.into()),
            field(fields::MAX_PACKED_WRITES, self.packed_writes),
            field(fields::MAX_PACKED_READS, self.packed_reads),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::DeviceConfig;

    fn of(pairs: &[(&str, &str)]) -> DeviceCapabilities {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        config.set_all(pairs).unwrap();
        DeviceCapabilities::of(config.settings())
    }

    fn value(capabilities: DeviceCapabilities, name: &str) -> u32 {
        capabilities.ext_csd().iter().find(|field| field.name == name).unwrap().value
    }

    #[test]
    fn a_device_without_a_cache_takes_no_barrier_and_keeps_no_order() {
        let none = of(&[]);
        assert_eq!((none.cache_kb, none.cache_in_order, none.barrier), (0, false, false));
        let lru = of(&[("cache.size_kb", "512")]);
        assert_eq!((lru.cache_in_order, lru.barrier, value(lru, "CACHE_SIZE")), (false, true, 4096));
        let fifo = of(&[("cache.size_kb", "512"), ("cache.policy", "fifo"), ("features.barrier", "false")]);
        assert_eq!((value(fifo, "CACHE_FLUSH_POLICY"), value(fifo, "BARRIER_SUPPORT")), (1, 0));
    }

    #[test]
    fn a_lying_device_states_the_same_as_an_honest_one() {
        let honest = of(&[("cache.size_kb", "512"), ("cache.policy", "fifo")]);
        for lie in ["flush", "early_flush", "reorder", "fua", "barrier", "tear", "trim", "recent"] {
            let lies = of(&[("cache.size_kb", "512"), ("cache.policy", "fifo"), ("cache.lies", lie)]);
            assert_eq!(lies.ext_csd(), honest.ext_csd(), "{lie}");
        }
        let unprotected = of(&[("cache.lies", "paired_pages")]);
        assert_eq!((value(of(&[]), "WR_REL_SET"), value(unprotected, "WR_REL_SET")), (0x1f, 0));
    }

    #[test]
    fn the_register_counts_as_the_standard_does() {
        let queue = of(&[("controller.queue_depth", "32")]);
        assert_eq!((value(queue, "CMDQ_DEPTH"), value(queue, "CMDQ_SUPPORT")), (31, 1));
        let endless = of(&[("controller.queue_depth", "0")]);
        assert_eq!((value(endless, "CMDQ_DEPTH"), value(endless, "CMDQ_SUPPORT")), (0, 0));
        let plain = of(&[("features.reliable_write", "false")]);
        assert_eq!((value(plain, "WR_REL_PARAM"), value(endless, "WR_REL_PARAM")), (0, 4));
        let fields = endless.ext_csd();
        assert!(fields.is_sorted_by_key(|field| field.byte), "fields are in the order of their bytes");
    }
}
