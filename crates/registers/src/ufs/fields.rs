//! The descriptors, attributes and flags of a UFS (JESD220, 14) that describe its properties.
//!
//! The sysfs of Linux gives their fields other names (`Documentation/ABI/testing/sysfs-driver-ufs`); ufs-utils prints the names of the
//! standard with the offset of each field.

use DescriptorKind::{Attributes, Device, Flags, Geometry, Health, Interconnect, Link, Strings, Unit};

/// The descriptor that contains a field, or a group of values outside descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DescriptorKind {
    Device,
    Geometry,
    Unit,
    Interconnect,
    Health,
    Strings,
    Attributes,
    Flags,
    /// The link as the host negotiated it; no descriptor contains it.
    Link,
}

impl DescriptorKind {
    pub const ALL: [Self; 9] = [Device, Geometry, Unit, Interconnect, Health, Strings, Attributes, Flags, Link];

    /// Returns the name of the descriptor's folder in sysfs, and its name in reports.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Device => ("device_descriptor", "device descriptor"),
            Geometry => ("geometry_descriptor", "geometry descriptor"),
            Unit => ("unit_descriptor", "unit descriptor"),
            Interconnect => ("interconnect_descriptor", "interconnect descriptor"),
            Health => ("health_descriptor", "device health descriptor"),
            Strings => ("string_descriptors", "string descriptors"),
            Attributes => ("attributes", "attributes"),
            Flags => ("flags", "flags"),
            Link => ("power_info", "link"),
        }
    }

    pub const fn folder(self) -> &'static str {
        self.names().0
    }

    pub const fn name(self) -> &'static str {
        self.names().1
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DescriptorField {
    pub part: DescriptorKind,
    /// Name of the field in the standard.
    pub name: &'static str,
    /// Name of the field in sysfs.
    pub sysfs: &'static str,
    /// Offset of the field in the descriptor; `None` if no descriptor contains the field.
    pub offset: Option<u16>,
    /// Length in bytes; 0 for a text.
    pub bytes: u8,
    pub meaning: &'static str,
}

impl DescriptorField {
    /// The field with this file name in sysfs.
    pub fn of_sysfs(part: DescriptorKind, file: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.part == part && field.sysfs == file)
    }

    /// Returns the field with this name in the standard, where all names are unique.
    pub fn of_standard(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|field| field.name == name)
    }

    /// The offset in the notation of ufs-utils; empty if the field has none.
    pub fn place(&self) -> String {
        self.offset.map_or_else(String::new, |offset| format!("{offset:#04x}"))
    }
}

macro_rules! fields {
    ($($part:ident $offset:literal $bytes:literal $name:literal $sysfs:literal: $meaning:literal;)*) => {
        &[$(DescriptorField {
            part: $part,
            name: $name,
            sysfs: $sysfs,
            offset: match $part {
                Device | Geometry | Unit | Interconnect | Health => Some($offset),
                Strings | Attributes | Flags | Link => None,
            },
            bytes: $bytes,
            meaning: $meaning,
        }),*]
    };
}

/// All descriptor fields that are read.
pub(crate) static FIELDS: &[DescriptorField] = fields! {
    Device 0x02 1 "bDevice" "device_type": "type of the device";
    Device 0x03 1 "bDeviceClass" "device_class": "class of the device";
    Device 0x06 1 "bNumberLU" "number_of_luns": "number of logical units";
    Device 0x07 1 "bNumberWLU" "number_of_wluns": "number of well known logical units";
    Device 0x08 1 "bBootEnable" "boot_enable": "1: it can boot";
    Device 0x0b 1 "bHighPriorityLUN" "high_priority_lun": "logical unit with high priority; 0x7f: none";
    Device 0x10 2 "wSpecVersion" "specification_version": "version of the standard, in decimal digits of four bits";
    Device 0x12 2 "wManufactureDate" "manufacturing_date": "month and year of manufacture";
    Device 0x18 2 "wManufacturerID" "manufacturer_id": "number of the manufacturer";
    Device 0x1f 1 "bUFSFeaturesSupport" "ufs_features": "bit 0: firmware updates, bit 1: loading before soldering, bit 2: life span mode, bit 4: early start of the host, bit 7: HPB";
    Device 0x21 1 "bQueueDepth" "queue_depth": "depth of the queue that all logical units share; 0: each has its own queue";
    Device 0x22 2 "wDeviceVersion" "device_version": "version of the device";
    Device 0x40 2 "wHPBVersion" "hpb_version": "version of HPB, in decimal digits of four bits";
    Device 0x42 1 "bHPBControl" "hpb_control": "HPB: 0: the host chooses regions, 1: the device does";
    Device 0x4f 4 "dExtendedUFSFeaturesSupport" "ext_feature_sup": "bit 7: HPB, bit 8: WriteBooster";
    Device 0x53 1 "bWriteBoosterBufferPreserveUserSpaceEn" "wb_presv_us_en": "1: WriteBooster does not reduce the capacity";
    Device 0x54 1 "bWriteBoosterBufferType" "wb_type": "WriteBooster: 0: of one logical unit, 1: shared by all";
    Device 0x55 4 "dNumSharedWriteBoosterBufferAllocUnits" "wb_shared_alloc_units": "size of the shared WriteBooster, in allocation units";
    Geometry 0x04 8 "qTotalRawDeviceCapacity" "raw_device_capacity": "capacity of the device, in 512 bytes";
    Geometry 0x0d 4 "dSegmentSize" "segment_size": "size of a segment, in 512 bytes";
    Geometry 0x11 1 "bAllocationUnitSize" "allocation_unit_size": "size of an allocation unit, in segments";
    Geometry 0x12 1 "bMinAddrBlockSize" "min_addressable_block_size": "smallest logical block, in 512 bytes";
    Geometry 0x13 1 "bOptimalReadBlockSize" "optimal_read_block_size": "size that the device prefers to read, in 512 bytes";
    Geometry 0x14 1 "bOptimalWriteBlockSize" "optimal_write_block_size": "size that the device prefers to write, in 512 bytes";
    Geometry 0x15 1 "bMaxInBufferSize" "max_in_buffer_size": "maximum data sent at once, in 512 bytes";
    Geometry 0x16 1 "bMaxOutBufferSize" "max_out_buffer_size": "maximum data received at once, in 512 bytes";
    Geometry 0x1e 2 "wSupportedMemoryTypes" "memory_types": "types of memory";
    Geometry 0x48 1 "bHPBRegionSize" "hpb_region_size": "size of a region of HPB, as a power of 2 of 512 bytes";
    Geometry 0x49 1 "bHPBNumberLU" "hpb_number_lu": "number of logical units that may use HPB";
    Geometry 0x4a 1 "bHPBSubRegionSize" "hpb_subregion_size": "size of a subregion of HPB, as a power of 2 of 512 bytes";
    Geometry 0x4b 2 "wDeviceMaxActiveHPBRegions" "hpb_max_active_regions": "maximum number of active regions of HPB";
    Geometry 0x4f 4 "dWriteBoosterBufferMaxNAllocUnits" "wb_max_alloc_units": "largest WriteBooster, in allocation units";
    Geometry 0x53 1 "bDeviceMaxWriteBoosterLUs" "wb_max_wb_luns": "number of logical units that may have a WriteBooster";
    Geometry 0x54 1 "bWriteBoosterBufferCapAdjFac" "wb_buff_cap_adj": "capacity that a unit of WriteBooster takes, in units: bits per cell";
    Geometry 0x55 1 "bSupportedWriteBoosterBufferUserSpaceReductionTypes" "wb_sup_red_type": "whether WriteBooster may reduce the capacity";
    Geometry 0x56 1 "bSupportedWriteBoosterBufferTypes" "wb_sup_wb_type": "supported types of WriteBooster";
    Unit 0x03 1 "bLUEnable" "lu_enable": "0: the logical unit is off";
    Unit 0x04 1 "bBootLunID" "boot_lun_id": "1, 2: boot units A and B";
    Unit 0x06 1 "bLUQueueDepth" "lun_queue_depth": "depth of the queue of this logical unit; 0: it uses the shared queue";
    Unit 0x08 1 "bMemoryType" "lun_memory_type": "type of memory: 0: normal, 3 to 6: enhanced";
    Unit 0x0a 1 "bLogicalBlockSize" "logical_block_size": "size of a logical block, as a power of 2 of bytes";
    Unit 0x0b 8 "qLogicalBlockCount" "logical_block_count": "number of logical blocks";
    Unit 0x13 4 "dEraseBlockSize" "erase_block_size": "size of an erase block, in logical blocks";
    Unit 0x17 1 "bProvisioningType" "provisioning_type": "0: full, 2 and 3: thin provisioning";
    Unit 0x18 8 "qPhyMemResourceCount" "physical_memory_resourse_count": "physical memory, in logical blocks";
    Unit 0x23 2 "wLUMaxActiveHPBRegions" "hpb_lu_max_active_regions": "maximum number of active regions of HPB";
    Unit 0x29 4 "dLUNumWriteBoosterBufferAllocUnits" "wb_buf_alloc_units": "size of the WriteBooster of this logical unit, in allocation units";
    Interconnect 0x02 2 "bcdUniproVersion" "unipro_version": "version of UniPro";
    Interconnect 0x04 2 "bcdMphyVersion" "mphy_version": "version of M-PHY";
    Health 0x02 1 "bPreEOLInfo" "eol_info": "spare blocks: 1: normal, 2: 80 % used, 3: 90 % used";
    Health 0x03 1 "bDeviceLifeTimeEstA" "life_time_estimation_a": "life used of the flash of type A (mostly SLC), in steps of 10 %; 11: beyond it";
    Health 0x04 1 "bDeviceLifeTimeEstB" "life_time_estimation_b": "life used of the flash of type B (mostly MLC or TLC), in steps of 10 %; 11: beyond it";
    Strings 0 0 "iManufacturerName" "manufacturer_name": "name of the manufacturer";
    Strings 0 0 "iProductName" "product_name": "name of the product";
    Strings 0 0 "iProductRevisionLevel" "product_revision": "revision of the product";
    Attributes 0 1 "bCurrentPowerMode" "current_power_mode": "power mode in use";
    Attributes 0 1 "bBackgroundOpStatus" "bkops_status": "background operations: 0: none, 1: not urgent, 2: performance suffers, 3: urgent";
    Attributes 0 1 "bWriteBoosterBufferFlushStatus" "wb_flush_status": "state of the flush of WriteBooster";
    Attributes 0 1 "bAvailableWriteBoosterBufferSize" "wb_avail_buf": "free part of WriteBooster, in 10 %";
    Attributes 0 1 "bWriteBoosterBufferLifeTimeEst" "wb_life_time_est": "life used of WriteBooster, in steps of 10 %; 11: beyond it";
    Attributes 0 4 "dCurrentWriteBoosterBufferSize" "wb_cur_buf": "current size of WriteBooster, in allocation units";
    Flags 0 1 "fBackgroundOpsEn" "bkops_enable": "background operations are on";
    Flags 0 1 "fWriteBoosterEn" "wb_enable": "WriteBooster is on";
    Flags 0 1 "fWriteBoosterBufferFlushEn" "wb_flush_en": "WriteBooster is flushed at once";
    Flags 0 1 "fWriteBoosterBufferFlushDuringHibernate" "wb_flush_during_h8": "WriteBooster is flushed in hibernation";
    Flags 0 1 "fHPBEn" "hpb_enable": "HPB is on";
    Link 0 1 "PA_ActiveTxDataLanes" "lane": "lanes in each direction";
    Link 0 0 "PA_TxGear" "gear": "gear of every lane";
    Link 0 0 "PA_HSSeries" "rate": "rate series";
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_once() {
        for (at, field) in FIELDS.iter().enumerate() {
            assert_eq!(DescriptorField::of_sysfs(field.part, field.sysfs), Some(&FIELDS[at]), "{}", field.sysfs);
            assert_eq!(DescriptorField::of_standard(field.name), Some(&FIELDS[at]), "{}", field.name);
        }
    }
}
