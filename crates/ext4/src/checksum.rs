//! The checksums of ext4 and JBD2. CRC32C is used as in ext4, without inversion at either end, so that a state can be passed on
//! from part to part (seed, number, block).

use crc::{CRC_16_MODBUS, CRC_32_MPEG_2, Crc, Table};

/// CRC32C of `bytes`, continued from `state`. Seeds start at `!0`.
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// The checksum of group descriptors before `metadata_csum`: CRC-16 with polynomial 0x8005, reflected, initial value `!0`.
pub(crate) static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_MODBUS);

/// The checksum of journals with `COMPAT_CHECKSUM`: CRC-32 with polynomial 0x04c11db7, not reflected, initial value `!0`.
pub(crate) static CRC32_BE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_MPEG_2);

/// Computes the CRC32C state after a number of zero bytes. CRCs are linear: the checksum of a block from any state is the exclusive
/// or of its checksum from state 0 and of that state shifted over the block. A block is therefore read only once, whatever precedes
/// it.
pub(crate) struct CrcShift {
    bytes: usize,
    tables: [[u32; 256]; 4],
}

impl CrcShift {
    pub fn new(bytes: usize) -> Self {
        let zeros = vec![0; bytes];
        let mut tables = [[0; 256]; 4];
        for (place, table) in tables.iter_mut().enumerate() {
            let bits: [u32; 8] = std::array::from_fn(|bit| crc32c(1 << (8 * place + bit), &zeros));
            for (value, entry) in table.iter_mut().enumerate() {
                *entry = (0..8).filter(|bit| value >> bit & 1 == 1).fold(0, |all, bit| all ^ bits[bit]);
            }
        }
        Self { bytes, tables }
    }

    /// The size of the blocks, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the state after a block of zeros.
    pub fn over_zeros(&self, state: u32) -> u32 {
        let each = state.to_le_bytes();
        self.tables.iter().zip(each).fold(0, |all, (table, byte)| all ^ table[usize::from(byte)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_agree_with_published_check_values() {
        // The check value of CRC-32C ("123456789") is 0xe3069283 with inversion at the end.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(CRC16.checksum(b"123456789"), 0x4b37);
        assert_eq!(CRC32_BE.checksum(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn a_state_shifted_over_a_block_gives_the_checksum_of_state_and_block() {
        let block: Vec<u8> = (0..4096_u32).map(|at| ((at * at) >> 3) as u8).collect();
        let shift = CrcShift::new(block.len());
        for state in [0, 1, 0x8000_0000, 0xdead_beef, !0] {
            assert_eq!(shift.over_zeros(state) ^ crc32c(0, &block), crc32c(state, &block));
        }
    }
}
