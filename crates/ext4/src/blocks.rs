//! The seam to whatever holds the bytes: a file, a slice, a crash state, another view.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of a disk, read at any offset; never written.
pub trait Blocks {
    /// The size in bytes.
    ///
    /// # Errors
    ///
    /// Where the operating system cannot tell.
    fn size(&self) -> io::Result<u64>;

    /// Fills `buffer` from `offset` on, both in bytes.
    ///
    /// # Errors
    ///
    /// Where the range goes past the end, or the read fails.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// A name for what stands in the `length` bytes at `offset`: equal names promise equal bytes, in every disk that one
    /// [`crate::Recovery`] sees. Blocks with a name are checksummed once.
    fn content(&self, offset: u64, length: usize) -> Option<u64> {
        let _ = (offset, length);
        None
    }
}

impl<T: Blocks + ?Sized> Blocks for &T {
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
impl Blocks for File {
    fn size(&self) -> io::Result<u64> {
        let about = self.metadata()?;
        // The metadata of a device says 0. Reads are positioned, so the cursor is free to move.
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

impl Blocks for [u8] {
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

impl Blocks for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_at(offset, buffer)
    }
}
