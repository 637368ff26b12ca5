//! Reads numbers in the byte order of the recorded kernel.

/// The byte order of the recorded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelByteOrder {
    /// Lowest byte first: x86, and every Arm phone.
    Little,
    /// Highest byte first.
    Big,
}

impl KernelByteOrder {
    /// The order of this machine.
    pub const NATIVE: KernelByteOrder =
        if cfg!(target_endian = "little") { KernelByteOrder::Little } else { KernelByteOrder::Big };

    /// The unsigned number of `size` (1 to 8) bytes at `at`; `None` if it is beyond the end or for another size.
    #[inline]
    pub fn unsigned(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        if size == 0 || size > 8 {
            return None;
        }
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        let mut wide = [0; 8];
        Some(match self {
            KernelByteOrder::Little => {
                wide[..size].copy_from_slice(bytes);
                u64::from_le_bytes(wide)
            }
            KernelByteOrder::Big => {
                wide[8 - size..].copy_from_slice(bytes);
                u64::from_be_bytes(wide)
            }
        })
    }

    /// As [`KernelByteOrder::unsigned`], for a signed number (sign-extended).
    #[inline]
    pub fn signed(self, bytes: &[u8], at: usize, size: usize) -> Option<i64> {
        self.unsigned(bytes, at, size).map(|value| {
            let unused = 64 - 8 * size as u32;
            (value << unused) as i64 >> unused
        })
    }

    /// The 32-bit number at `at`.
    #[inline]
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        self.unsigned(bytes, at, 4).map(|value| value as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_are_read_in_both_orders() {
        let bytes = [0xff, 0xfe, 3, 4, 5, 6, 7, 8];
        assert_eq!(KernelByteOrder::Little.unsigned(&bytes, 0, 2), Some(0xfeff));
        assert_eq!(KernelByteOrder::Big.unsigned(&bytes, 0, 2), Some(0xfffe));
        assert_eq!(KernelByteOrder::Big.signed(&bytes, 0, 2), Some(-2));
        assert_eq!(KernelByteOrder::Little.signed(&bytes, 2, 4), Some(0x0605_0403));
        assert_eq!(KernelByteOrder::Big.unsigned(&bytes, 0, 8), Some(0xfffe_0304_0506_0708));
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(KernelByteOrder::Little.u32(&[1, 2, 3], 0), None);
        assert_eq!(KernelByteOrder::Little.u32(&[1, 2, 3, 4], usize::MAX), None);
        assert_eq!(KernelByteOrder::Little.unsigned(&[0; 16], 0, 9), None);
    }
}
