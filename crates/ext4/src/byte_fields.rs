//! Reads fields of structures. A field beyond the end reads as zero: structures of fixed size are always read whole, and code for
//! structures of variable size checks their bounds.

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(bytes, at))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(field(bytes, at))
}

pub(crate) fn uuid(bytes: &[u8], at: usize) -> [u8; 16] {
    field(bytes, at)
}

/// Joins the two halves of a number that are stored apart.
pub(crate) fn wide(high: impl Into<u64>, low: u32) -> u64 {
    high.into() << 32 | u64::from(low)
}
