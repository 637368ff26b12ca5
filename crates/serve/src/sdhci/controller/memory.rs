//! The memory of the guest, as accessed by the controller's DMA.

/// An access to memory that the guest has not mapped, or that it does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnmappedAccess;

/// Memory, accessed by bus address.
pub(crate) trait GuestMemory {
    /// Reads all of the bytes, or fails.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), UnmappedAccess>;
    /// Writes all of the bytes, or fails.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), UnmappedAccess>;
}
