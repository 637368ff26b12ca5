//! Reading structures from a disk: access to its bytes (a file, a slice, a crash state or another view), names of structures in errors,
//! fields and checksums.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use crc::{CRC_16_MODBUS, CRC_32_MPEG_2, Crc, Table};
use emmclab_base::{Error, ErrorClass, Result};

/// The bytes of a disk, which can be read at any offset. They are never written.
pub trait DiskReader {
    /// The size in bytes.
    /// Errors: if the operating system cannot determine it.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from byte `offset` on.
    /// Errors: if the range exceeds the disk, or the read fails.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns a number that identifies the contents of the `length` bytes at `offset`; `None` if the contents have no number. Equal
    /// numbers mean equal bytes, on all disks that are passed to the same [`crate::JournalRecovery`]. The checksums of numbered blocks are
    /// computed only once.
    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        let _ = (offset, length);
        None
    }
}

impl<T: DiskReader + ?Sized> DiskReader for &T {
    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }

    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        (**self).content(offset, length)
    }
}

/// A file or a block device.
impl DiskReader for File {
    fn size(&self) -> io::Result<u64> {
        let about = self.metadata()?;
        // The metadata of a device file has the size 0, so the size of a device is the position of its end. Moving the cursor does no harm,
        // because all reads have explicit offsets.
        if about.is_file() {
            Ok(about.len())
        } else {
            let mut cursor = self;
            cursor.seek(SeekFrom::End(0))
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl DiskReader for [u8] {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(offset).ok();
        let bytes = from.and_then(|from| self.get(from..)?.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl DiskReader for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}

/// A structure on disk, with its name for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DiskStructure {
    Superblock,
    Group(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    Inode(u32),
    ExtentBlock(u32),
    IndirectBlock(u32),
    Directory(u32),
    Attributes(u32),
    Data(u32),
    JournalDevice,
    JournalSuperblock,
    /// A block of the journal, by its number in the journal.
    JournalBlock(u64),
    FastCommit(u64),
    /// A replayed block of the file system.
    HomeBlock(u64),
}

impl fmt::Display for DiskStructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => f.write_str("superblock"),
            Self::Group(group) => write!(f, "descriptor of block group {group}"),
            Self::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Self::Inode(inode) => write!(f, "inode {inode}"),
            Self::ExtentBlock(inode) => write!(f, "extent block of inode {inode}"),
            Self::IndirectBlock(inode) => write!(f, "indirect block of inode {inode}"),
            Self::Directory(inode) => write!(f, "directory block of inode {inode}"),
            Self::Attributes(inode) => write!(f, "attributes of inode {inode}"),
            Self::Data(inode) => write!(f, "data of inode {inode}"),
            Self::JournalDevice => f.write_str("superblock of the journal device"),
            Self::JournalSuperblock => f.write_str("journal superblock"),
            Self::JournalBlock(block) => write!(f, "journal block {block}"),
            Self::FastCommit(block) => write!(f, "fast-commit block {block} of the journal"),
            Self::HomeBlock(block) => write!(f, "replayed block {block}"),
        }
    }
}

impl DiskStructure {
    /// Returns an error: the value at byte `offset` is impossible.
    pub fn fault(self, offset: u64, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Value, problem).in_field(&self.to_string()).at_offset(offset)
    }

    /// Returns an error: the value at byte `offset` may be valid, but is not supported.
    pub fn unsupported(self, offset: u64, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Unsupported, problem).in_field(&self.to_string()).at_offset(offset)
    }

    /// Returns an error: the checksum of the structure at byte `offset` is wrong.
    pub fn bad_checksum(self, offset: u64, stored: u32, computed: u32) -> Error {
        self.fault(offset, format!("the stored checksum is {stored:#010x}, the computed one is {computed:#010x}"))
    }

    /// Reads the structure at byte `offset`.
    pub fn read(self, disk: &(impl DiskReader + ?Sized), offset: u64, buffer: &mut [u8]) -> Result<()> {
        disk.read_at(offset, buffer).map_err(|error| self.unread(offset, &error))
    }

    fn unread(self, offset: u64, error: &io::Error) -> Error {
        let kind = if error.kind() == io::ErrorKind::UnexpectedEof { ErrorClass::Truncated } else { ErrorClass::Io };
        Error::new(kind, format!("not read: {error}")).in_field(&self.to_string()).at_offset(offset)
    }
}

/// Reads a field of a structure. Bytes beyond the end of the structure read as zeros.
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

/// Combines the two halves of a number that are stored separately.
pub(crate) fn wide(high: impl Into<u64>, low: u32) -> u64 {
    high.into() << 32 | u64::from(low)
}

/// CRC32C of `bytes`, continued from `state`; the initial state is `!0`. As in ext4, neither end is inverted, so the state after one part
/// (seed, number, block) can be passed on to the next.
pub(crate) fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!state, bytes)
}

/// The checksum of group descriptors before `metadata_csum`: CRC-16 with polynomial 0x8005, reflected, initial value `!0`.
pub(crate) static CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_MODBUS);

/// The checksum of journals with `COMPAT_CHECKSUM`: CRC-32 with polynomial 0x04c11db7, not reflected, initial value `!0`.
pub(crate) static CRC32_BE: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_MPEG_2);

/// Computes the CRC32C state after a block of zero bytes. CRCs are linear: the checksum of a block that starts with state S is its checksum
/// from state 0, `XORed` with the state after S and a block of zeros. Therefore each block is read only once, whatever state precedes it.
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
