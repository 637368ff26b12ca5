//! The guest's memory by bus address: ranges of files that the client shares.
//!
//! The protocol also has messages to access memory that is not shared. QEMU cannot answer them while a guest CPU waits for a register
//! access, which is most of the time (tested with 11.1), so the memory must be shared.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use rustix::io::{Errno, pread, pwrite};

use crate::sdhci::controller::{GuestMemory, UnmappedAccess};

/// Maximum number of mappings of a client: the usual value in the protocol.
const MOST_MAPPINGS: usize = 65535;

/// Flags of a mapping.
const READABLE: u32 = 1;
const WRITABLE: u32 = 1 << 1;

struct DmaMapping {
    bytes: u64,
    flags: u32,
    /// The shared file, and the offset of the mapping in it.
    file: Option<(OwnedFd, u64)>,
}

/// The mappings of a client, by their address.
#[derive(Default)]
pub(super) struct DmaMappings {
    mappings: BTreeMap<u64, DmaMapping>,
}

impl DmaMappings {
    /// Adds a mapping. Returns an error if it wraps around, is empty or overlaps another one.
    pub fn map(&mut self, address: u64, bytes: u64, flags: u32, file: Option<(OwnedFd, u64)>) -> Result<(), Errno> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(Errno::INVAL)?;
        let before = self.mappings.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.bytes > address) {
            return Err(Errno::EXIST);
        }
        if let Some((file, offset)) = &file {
            // A write after the end would extend the file.
            let size = fstat(file)?.st_size as u64;
            offset.checked_add(bytes).filter(|end| *end <= size).ok_or(Errno::INVAL)?;
        }
        if self.mappings.len() == MOST_MAPPINGS {
            return Err(Errno::NOMEM);
        }
        self.mappings.insert(address, DmaMapping { bytes, flags, file });
        Ok(())
    }

    /// Removes the mappings in a range. Returns an error if the range contains only a part of a mapping.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Errno> {
        let end = address.checked_add(bytes).ok_or(Errno::INVAL)?;
        let inside: Vec<_> = self.mappings.range(address..end).map(|(start, one)| (*start, one.bytes)).collect();
        let cut_before =
            self.mappings.range(..address).next_back().is_some_and(|(start, one)| start + one.bytes > address);
        if inside.is_empty() {
            return Err(if cut_before { Errno::INVAL } else { Errno::NOENT });
        }
        if cut_before || inside.iter().any(|(start, bytes)| start + bytes > end) {
            return Err(Errno::INVAL);
        }
        for (start, _) in inside {
            self.mappings.remove(&start);
        }
        Ok(())
    }

    pub fn clear(&mut self) {
        self.mappings.clear();
    }

    /// The mapping at an address, the offset in it, and the number of bytes from there to its end.
    fn find(&self, address: u64, flag: u32) -> Result<(&DmaMapping, u64, u64), UnmappedAccess> {
        let (start, mapping) = self.mappings.range(..=address).next_back().ok_or(UnmappedAccess)?;
        let offset = address - start;
        let rest = mapping.bytes.checked_sub(offset).filter(|rest| *rest > 0).ok_or(UnmappedAccess)?;
        if mapping.flags & flag == 0 { Err(UnmappedAccess) } else { Ok((mapping, offset, rest)) }
    }
}

/// The guest's memory, while a message is processed.
pub(super) struct GuestDma<'a> {
    pub memory: &'a DmaMappings,
    /// Whether the guest lets the function access memory at all.
    pub allowed: bool,
    /// Whether an access failed because the client does not share that memory.
    pub unshared: bool,
}

impl GuestDma<'_> {
    /// Splits an access at mappings and at partial transfers of the system. `each` is called with the file, the offset in it, and a range
    /// of the bytes; it returns the number of bytes that it moved.
    fn parts(
        &mut self,
        address: u64,
        bytes: usize,
        flag: u32,
        mut each: impl FnMut(&OwnedFd, u64, Range<usize>) -> rustix::io::Result<usize>,
    ) -> Result<(), UnmappedAccess> {
        let mut done = 0;
        while done < bytes {
            let at = address.checked_add(done as u64).filter(|_| self.allowed).ok_or(UnmappedAccess)?;
            let (mapping, offset, rest) = self.memory.find(at, flag)?;
            let Some((file, start)) = &mapping.file else {
                self.unshared = true;
                return Err(UnmappedAccess);
            };
            let end = bytes.min(done.saturating_add(usize::try_from(rest).unwrap_or(usize::MAX)));
            match each(file, start + offset, done..end) {
                Ok(0) => return Err(UnmappedAccess),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(_) => return Err(UnmappedAccess),
            }
        }
        Ok(())
    }
}

impl GuestMemory for GuestDma<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), UnmappedAccess> {
        self.parts(address, into.len(), READABLE, |file, at, part| pread(file, &mut into[part], at))
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), UnmappedAccess> {
        self.parts(address, from.len(), WRITABLE, |file, at, part| pwrite(file, &from[part], at))
    }
}
