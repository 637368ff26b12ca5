//! The checksum that seals records on disk.

/// Multiply-rotate over words of 8 bytes; finds torn and misplaced records, not forgeries.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut sum = bytes.len() as u64 ^ PRIME;
    for word in bytes.chunks(8) {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        sum = (sum ^ u64::from_le_bytes(padded)).wrapping_mul(PRIME).rotate_left(29);
    }
    sum ^ (sum >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

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
