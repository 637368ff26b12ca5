//! The checksum that seals records on disk.

use crate::plan::CommandPlan;

/// CRC-32C (Castagnoli) of the bytes, in the lower half of the stored word; detects torn and misplaced records.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    u64::from(crc32c::crc32c(bytes))
}

/// Whether the checksum of a header is correct.
pub(crate) fn has_valid_header_checksum(header: &[u8]) -> bool {
    stored_checksum(header, CommandPlan::CHECKSUM_AT).is_some_and(|stored| {
        let mut bare = header.to_vec();
        bare[CommandPlan::CHECKSUM_AT..CommandPlan::CHECKSUM_AT + 8].fill(0);
        checksum(&bare) == stored
    })
}

/// Whether the data after a header has the checksum that is stored in the header.
pub(crate) fn has_valid_data_checksum(header: &[u8], data: &[u8]) -> bool {
    stored_checksum(header, CommandPlan::DATA_CHECKSUM_AT) == Some(checksum(data))
}

fn stored_checksum(header: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_value_is_the_standard_one() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283, "the check value of the CRC catalogue");
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA, "RFC 3720, B.4");
    }

    #[test]
    fn every_bit_and_the_order_of_words_count() {
        let mut bytes = [7_u8; 1024];
        bytes[0] = 1;
        let whole = checksum(&bytes);
        for bit in 0..8192 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(checksum(&bytes), whole);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.swap(0, 512);
        assert_ne!(checksum(&bytes), whole);
    }
}
