//! The settings of a card's registers.

use emmclab_base::{Error, ErrorClass, Result, SECTOR_BYTES};

use crate::device::BlockDeviceLimits;

/// Unit of the sizes of boot and RPMB partitions, in bytes (JESD84-B51, `BOOT_SIZE_MULT [226]`, `RPMB_SIZE_MULT [168]`).
pub(super) const PARTITION_UNIT: u32 = 128 << 10;
/// Unit of the size of an erase group, in bytes (JESD84-B51, `HC_ERASE_GRP_SIZE [224]`).
pub(super) const ERASE_UNIT: u32 = 512 << 10;

/// Properties of an eMMC card, as its CID and `EXT_CSD` registers state them. The size comes from the block device.
///
/// Command queueing and packed commands are always off, and erased memory reads as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own")]
pub struct CardSettings {
    /// Product name in the CID (PNM), at most six printable ASCII characters.
    pub name: String,
    /// Product revision in the CID (PRV), two decimal digits of four bits each: 0x10 is 1.0.
    pub revision: u8,
    /// Serial number in the CID (PSN).
    pub serial: u32,
    /// Volatile cache in bytes (`CACHE_SIZE [252:249]`), a multiple of 128; 0: none, and the host sends no flush, so
    /// that the device must make writes durable before it completes them.
    pub cache_bytes: u64,
    /// Whether data leaves the cache in the order of the writes (`CACHE_FLUSH_POLICY [240]` bit 0).
    pub cache_in_order: bool,
    /// Whether the card supports reliable writes of any length (`WR_REL_PARAM [166]` bit 2, `EN_REL_WR`).
    pub reliable_write: bool,
    /// Sectors that a reliable write treats as one (`REL_WR_SEC_C [222]`), at least 1.
    pub reliable_sectors: u8,
    /// Bytes of an erase group (`HC_ERASE_GRP_SIZE [224]`), a multiple of 512 KiB up to 127.5 MiB.
    pub erase_group_bytes: u32,
    /// Bytes that the card prefers to write at once (`OPTIMAL_WRITE_SIZE [265]`), a multiple of 4096; 0: not stated.
    pub optimal_write_bytes: u32,
    /// Bytes of each of the two boot partitions (`BOOT_SIZE_MULT [226]`), a multiple of 128 KiB; 0: none.
    pub boot_bytes: u32,
    /// Bytes of the RPMB partition (`RPMB_SIZE_MULT [168]`), a multiple of 128 KiB up to 16 MiB; 0: none.
    pub rpmb_bytes: u32,
    /// Whether a long operation can be interrupted by a CMD12 (`HPI_FEATURES [503]`).
    pub high_priority_interrupt: bool,
    /// Whether the host may start and allow background operations (`BKOPS_SUPPORT [502]`).
    pub background_operations: bool,
    /// Whether the card supports cache barriers (`BARRIER_SUPPORT [486]`); requires a cache.
    pub barrier: bool,
    /// Whether the card supports tagging writes as system data (`DATA_TAG_SUPPORT [499]`).
    pub data_tags: bool,
    /// Whether the card supports TRIM (`SEC_FEATURE_SUPPORT [231]`, bit 4). It always supports DISCARD.
    pub trim: bool,
    /// Whether the card supports secure erase and, together with `trim`, secure trim (bit 0).
    pub secure_erase: bool,
    /// Whether the card supports SANITIZE (bit 6).
    pub sanitize: bool,
}

impl Default for CardSettings {
    /// A card of eMMC 5.1 with a cache of 512 KiB, boot partitions of 4 MiB and an RPMB partition of 4 MiB.
    fn default() -> Self {
        Self {
            name: "EMCLAB".to_owned(),
            revision: 0x10,
            serial: 1,
            cache_bytes: 512 << 10,
            cache_in_order: false,
            reliable_write: true,
            reliable_sectors: 1,
            erase_group_bytes: ERASE_UNIT,
            optimal_write_bytes: 0,
            boot_bytes: 4 << 20,
            rpmb_bytes: 4 << 20,
            high_priority_interrupt: true,
            background_operations: true,
            barrier: true,
            data_tags: true,
            trim: true,
            secure_erase: true,
            sanitize: true,
        }
    }
}

impl CardSettings {
    /// Checks that the registers can encode these settings and the size of the device.
    pub(super) fn check(&self, limits: &BlockDeviceLimits) -> Result<()> {
        let refuse = |field: &str, value: String, hint: &str| {
            Err(Error::new(ErrorClass::Config, "a card cannot state this")
                .of_field(field, 0, value.as_bytes())
                .hint(hint))
        };
        if !self.name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || self.name.len() > 6 {
            return refuse("name", self.name.clone(), "use at most six printable ASCII characters");
        }
        if self.revision & 0xf > 9 || self.revision >> 4 > 9 {
            return refuse("revision", format!("{:#x}", self.revision), "use two decimal digits, such as 0x10");
        }
        let cache_units = self.cache_bytes / 128;
        if !self.cache_bytes.is_multiple_of(128) || cache_units > u64::from(u32::MAX) {
            return refuse("cache_bytes", self.cache_bytes.to_string(), "use a multiple of 128 below 512 GiB");
        }
        if self.barrier && self.cache_bytes == 0 {
            return refuse("barrier", "true".to_owned(), "give the card a cache, or switch barriers off");
        }
        if self.cache_in_order && self.cache_bytes == 0 {
            return refuse("cache_in_order", "true".to_owned(), "give the card a cache, or switch its order off");
        }
        if self.reliable_sectors == 0 {
            return refuse("reliable_sectors", "0".to_owned(), "use at least 1");
        }
        let units = |bytes: u32, unit: u32, most: u32| bytes.is_multiple_of(unit) && bytes / unit <= most;
        if self.erase_group_bytes == 0 || !units(self.erase_group_bytes, ERASE_UNIT, 255) {
            let hint = "use a multiple of 512 KiB up to 127.5 MiB";
            return refuse("erase_group_bytes", self.erase_group_bytes.to_string(), hint);
        }
        if !units(self.optimal_write_bytes, 4096, 255) {
            let hint = "use a multiple of 4 KiB up to 1020 KiB, or 0";
            return refuse("optimal_write_bytes", self.optimal_write_bytes.to_string(), hint);
        }
        if !units(self.boot_bytes, PARTITION_UNIT, 255) {
            let hint = "use a multiple of 128 KiB up to 31.875 MiB, or 0";
            return refuse("boot_bytes", self.boot_bytes.to_string(), hint);
        }
        if !units(self.rpmb_bytes, PARTITION_UNIT, 128) {
            let hint = "use a multiple of 128 KiB up to 16 MiB, or 0";
            return refuse("rpmb_bytes", self.rpmb_bytes.to_string(), hint);
        }
        // SEC_COUNT [215:212] has 32 bits.
        if limits.sectors == 0 || limits.sectors > u64::from(u32::MAX) {
            let size = limits.sectors.saturating_mul(SECTOR_BYTES).to_string();
            return refuse("size", size, "use a device of at least one sector and less than 2 TiB");
        }
        Ok(())
    }
}
