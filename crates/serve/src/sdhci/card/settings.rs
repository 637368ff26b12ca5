//! The settings of a card's registers, and the registers CID and CSD (JESD84-B51, 7.2 and 7.3).

use std::fmt::Display;

use emmclab_base::{Error, ErrorClass, Result, SECTOR_BYTES};
use emmclab_registers::crc7;

use crate::device::BlockDeviceLimits;

/// A register of 128 bits that is filled field by field.
struct IdentityRegister(u128);

impl IdentityRegister {
    fn set(&mut self, low: u32, value: u128) {
        self.0 |= value << low;
    }

    /// Returns the bytes of the register, most significant first, with the checksum in bits 7:1 and a 1 in bit 0.
    fn finish(self) -> [u8; 16] {
        let mut bytes = self.0.to_be_bytes();
        bytes[15] = crc7(&bytes[..15]) << 1 | 1;
        bytes
    }
}

/// The CID: manufacturer 0 (unassigned), a BGA package, manufactured in January 2021.
pub(super) fn cid(settings: &CardSettings) -> [u8; 16] {
    let mut cid = IdentityRegister(0);
    cid.set(112, 1);
    for at in 0..6 {
        let letter = settings.name.as_bytes().get(at).copied().unwrap_or(b' ');
        cid.set(96 - 8 * at as u32, u128::from(letter));
    }
    cid.set(48, u128::from(settings.revision));
    cid.set(16, u128::from(settings.serial));
    cid.set(8, 0x18);
    cid.finish()
}

/// Creates the CSD. It contains the size of devices up to 2 GiB; the size of larger devices is only in `SEC_COUNT`.
pub(super) fn csd(sectors: u64) -> [u8; 16] {
    let bytes = sectors * SECTOR_BYTES;
    let read_block_log2 = if bytes > 1 << 30 { 10 } else { 9 };
    let (mut size, mut multiplier) = (0xfff, 7);
    if bytes <= 2 << 30 {
        let blocks = bytes >> read_block_log2;
        multiplier = (0..7).find(|multiplier| blocks >> (multiplier + 2) <= 0x1000).unwrap_or(7);
        size = (blocks >> (multiplier + 2)).saturating_sub(1);
    }
    let mut csd = IdentityRegister(0);
    csd.set(126, 3); // CSD_STRUCTURE: see the byte in EXT_CSD
    csd.set(122, 4); // SPEC_VERS: 4.1 and later
    csd.set(112, 0x27); // TAAC: 1.5 ms
    csd.set(104, 1); // NSAC: 100 clocks
    csd.set(96, 0x32); // TRAN_SPEED: 26 MHz
    csd.set(84, 0x35); // CCC: basic, block read, block write, erase
    csd.set(80, read_block_log2);
    csd.set(62, u128::from(size));
    csd.set(50, 0xfff); // supply currents: the highest class
    csd.set(47, multiplier as u128);
    // The erase group for hosts that leave ERASE_GROUP_DEF clear: 32 * 32 sectors.
    csd.set(42, 31); // ERASE_GRP_SIZE
    csd.set(37, 31); // ERASE_GRP_MULT
    csd.set(26, 2); // R2W_FACTOR
    csd.set(22, 9); // WRITE_BL_LEN
    csd.finish()
}

/// Unit of the sizes of boot and RPMB partitions, in bytes (JESD84-B51, `BOOT_SIZE_MULT [226]`, `RPMB_SIZE_MULT [168]`).
pub(super) const PARTITION_UNIT: u32 = 128 << 10;
/// Unit of the size of an erase group, in bytes (JESD84-B51, `HC_ERASE_GRP_SIZE [224]`).
pub(super) const ERASE_UNIT: u32 = 512 << 10;

/// Properties of an eMMC card that its registers CID and `EXT_CSD` report. The size of the card is that of its block device.
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
    /// Volatile cache in bytes (`CACHE_SIZE [252:249]`), a multiple of 128; 0: none. Without a cache the host sends no flush, so
    /// that the device must make writes durable before it completes them.
    pub cache_bytes: u64,
    /// Whether data leaves the cache in the order of the writes (`CACHE_FLUSH_POLICY [240]` bit 0).
    pub cache_in_order: bool,
    /// Whether the card supports reliable writes of any length (`WR_REL_PARAM [166]` bit 2, `EN_REL_WR`).
    pub reliable_write: bool,
    /// Size of an atomic reliable write in sectors (`REL_WR_SEC_C [222]`), at least 1.
    pub reliable_sectors: u8,
    /// Bytes of an erase group (`HC_ERASE_GRP_SIZE [224]`), a multiple of 512 KiB up to 127.5 MiB.
    pub erase_group_bytes: u32,
    /// Preferred size of writes in bytes (`OPTIMAL_WRITE_SIZE [265]`), a multiple of 4096; 0: not stated.
    pub optimal_write_bytes: u32,
    /// Bytes of each of the two boot partitions (`BOOT_SIZE_MULT [226]`), a multiple of 128 KiB; 0: none.
    pub boot_bytes: u32,
    /// Bytes of the RPMB partition (`RPMB_SIZE_MULT [168]`), a multiple of 128 KiB up to 16 MiB; 0: none.
    pub rpmb_bytes: u32,
    /// Whether CMD12 can interrupt a long operation (`HPI_FEATURES [503]`).
    pub high_priority_interrupt: bool,
    /// Whether the host may start and allow background operations (`BKOPS_SUPPORT [502]`).
    pub background_operations: bool,
    /// Whether the card supports cache barriers (`BARRIER_SUPPORT [486]`); requires a cache.
    pub barrier: bool,
    /// Whether the card supports tagging writes as system data (`DATA_TAG_SUPPORT [499]`).
    pub data_tags: bool,
    /// Whether the card supports TRIM (`SEC_FEATURE_SUPPORT [231]`, bit 4). It always supports DISCARD.
    pub trim: bool,
    /// Whether the card supports secure erase and, together with `trim`, secure trim (`SEC_FEATURE_SUPPORT [231]`, bit 0).
    pub secure_erase: bool,
    /// Whether the card supports SANITIZE (`SEC_FEATURE_SUPPORT [231]`, bit 6).
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
    pub(in crate::sdhci) fn check(&self, limits: &BlockDeviceLimits) -> Result<()> {
        let check = |fits: bool, field: &str, value: &dyn Display, hint: &str| {
            let refused = || {
                Error::new(ErrorClass::Config, "the registers of an eMMC card cannot encode this value")
                    .of_field(field, 0, value.to_string().as_bytes())
                    .hint(hint)
            };
            fits.then_some(()).ok_or_else(refused)
        };
        let is_name = self.name.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && self.name.len() <= 6;
        check(is_name, "name", &self.name, "use at most six printable ASCII characters")?;
        let revision = self.revision & 0xf <= 9 && self.revision >> 4 <= 9;
        check(revision, "revision", &format!("{:#x}", self.revision), "use two decimal digits, such as 0x10")?;
        let cache = self.cache_bytes.is_multiple_of(128) && u32::try_from(self.cache_bytes / 128).is_ok();
        check(cache, "cache_bytes", &self.cache_bytes, "use a multiple of 128 below 512 GiB")?;
        let has_cache = self.cache_bytes > 0;
        check(!self.barrier || has_cache, "barrier", &true, "give the card a cache, or disable barriers")?;
        let hint = "give the card a cache, or do not keep its order";
        check(!self.cache_in_order || has_cache, "cache_in_order", &true, hint)?;
        check(self.reliable_sectors > 0, "reliable_sectors", &0, "use at least 1")?;
        let units = |bytes: u32, unit: u32, most: u32| bytes.is_multiple_of(unit) && bytes / unit <= most;
        let group = self.erase_group_bytes > 0 && units(self.erase_group_bytes, ERASE_UNIT, 255);
        check(group, "erase_group_bytes", &self.erase_group_bytes, "use a multiple of 512 KiB up to 127.5 MiB")?;
        for (field, bytes, unit, most, hint) in [
            ("optimal_write_bytes", self.optimal_write_bytes, 4096, 255, "use a multiple of 4 KiB up to 1020 KiB, or 0"),
            ("boot_bytes", self.boot_bytes, PARTITION_UNIT, 255, "use a multiple of 128 KiB up to 31.875 MiB, or 0"),
            ("rpmb_bytes", self.rpmb_bytes, PARTITION_UNIT, 128, "use a multiple of 128 KiB up to 16 MiB, or 0"),
        ] {
            check(units(bytes, unit, most), field, &bytes, hint)?;
        }
        // The number of sectors must fit into SEC_COUNT [215:212], which has 32 bits.
        let size = limits.sectors.saturating_mul(SECTOR_BYTES);
        let hint = "use a device of at least one sector and less than 2 TiB";
        check((1..=u64::from(u32::MAX)).contains(&limits.sectors), "size", &size, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_device_states_its_size_in_the_csd() {
        for megabytes in [1, 8, 64, 1024, 2048] {
            let sectors = megabytes * 2048;
            let csd = u128::from_be_bytes(csd(sectors));
            let field = |low: u32, bits: u32| (csd >> low) as u64 & ((1 << bits) - 1);
            assert_eq!((field(62, 12) + 1) << (field(47, 3) + 2) << field(80, 4), sectors * 512);
        }
        let large = u128::from_be_bytes(csd(1 << 23));
        assert_eq!(large >> 62 & 0xfff, 0xfff);
    }
}
