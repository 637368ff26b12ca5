//! The memory of the guest as the controller's DMA sees it.

/// An access outside what the guest has mapped, or one that the guest does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped;

/// Memory by bus address.
pub(crate) trait GuestMemory {
    /// Reads all of the bytes, or fails.
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), Unmapped>;
    /// Writes all of the bytes, or fails.
    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Unmapped>;
}
