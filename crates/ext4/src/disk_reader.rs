//! The interface to the bytes of a disk: a file, a slice, a crash state, or another view.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// The bytes of a disk, which can be read at any offset and are never written.
pub trait DiskReader {
    /// The size in bytes.
    ///
    /// # Errors
    ///
    /// If the operating system cannot determine it.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Errors
    ///
    /// If the range exceeds the disk, or the read fails.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Identifies the contents of the `length` bytes at `offset`. Equal values mean equal bytes, on every disk that is passed to
    /// the same [`crate::JournalRecovery`]. The checksums of identified blocks are computed only once. `None` if the contents are not
    /// identified.
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
        // The metadata of a device gives a size of 0. Reads have explicit offsets, so the cursor may be moved.
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
        let found = from.and_then(|from| self.get(from..)?.get(..buffer.len()));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
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
