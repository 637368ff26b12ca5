//! The interface of the simulated block device for the engine.

use emmclab_base::{BlockNote, Nanos, Request, Result};

/// A block device in simulated time.
pub trait SimulatedBlockDevice {
    /// Size in sectors.
    fn sectors(&self) -> u64;

    /// Submits a request at a time that is not before the previous one, with a unique number. `notes` are the roles of the blocks of a
    /// write.
    ///
    /// # Errors
    /// For a request beyond the end of the device, and if the device has stopped.
    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()>;

    /// When the device next does something that may complete a request.
    fn next_event(&self) -> Option<Nanos>;

    /// Simulates everything up to and including this time.
    ///
    /// # Errors
    /// As [`SimulatedBlockDevice::submit`].
    fn advance(&mut self, until: Nanos) -> Result<()>;

    /// Appends the known completions, by the numbers of their requests; their times may be in the future.
    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>);
}
