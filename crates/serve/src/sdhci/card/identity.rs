//! The CID and CSD registers (JESD84-B51, 7.2 and 7.3).

use emmclab_base::SECTOR_BYTES;

use crate::sdhci::settings::CardSettings;

/// A register of 128 bits, written field by field.
struct IdentityRegister(u128);

impl IdentityRegister {
    fn set(&mut self, low: u32, value: u128) {
        self.0 |= value << low;
    }

    /// The bytes, the highest first, with the checksum in bits 7:1 and a 1 in bit 0.
    fn finish(self) -> [u8; 16] {
        let mut bytes = self.0.to_be_bytes();
        bytes[15] = crc7(&bytes[..15]) << 1 | 1;
        bytes
    }
}

/// CRC7 of commands and registers: x^7 + x^3 + 1 (JESD84-B51, 8.2).
fn crc7(bytes: &[u8]) -> u8 {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    bits.fold(0, |crc, bit| {
        let carry = crc >> 6 & 1 ^ bit;
        ((crc << 1) ^ (carry * 0x09)) & 0x7f
    })
}

/// The CID: manufacturer 0 (unassigned), a BGA package, made in January 2021.
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

/// The CSD. It holds the size of devices up to 2 GiB; the size of larger ones is only in `SEC_COUNT`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_command_is_that_of_the_standard() {
        assert_eq!(crc7(&[0x40, 0, 0, 0, 0]), 0x4a);
        assert_eq!(crc7(&[0x51, 0, 0, 0, 0]), 0x2a);
        assert_eq!(crc7(&[0x11, 0, 0, 9, 0]), 0x33);
    }

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
