//! The device below, as the engine drives it.

use emmclab_base::{BlockNote, Nanos, Request, Result};

/// A block device in simulated time.
pub trait BlockDevice {
    /// Sectors that it takes requests for.
    fn sectors(&self) -> u64;

    /// Takes a request at a time, never before that of the one before it, under a number that no other has; `notes` say what the
    /// blocks of a write are.
    ///
    /// # Errors
    /// For a request beyond the device, and where the device has stopped.
    fn submit(&mut self, at: Nanos, number: u64, request: &Request, notes: &[BlockNote]) -> Result<()>;

    /// When it next does something that may complete a request.
    fn next_event(&self) -> Option<Nanos>;

    /// Does everything that happens up to a time, that time included.
    ///
    /// # Errors
    /// As [`BlockDevice::submit`].
    fn advance(&mut self, until: Nanos) -> Result<()>;

    /// Adds the completions that have become known, by the numbers of their requests; they may lie ahead.
    fn take_completed(&mut self, out: &mut Vec<(u64, Nanos)>);
}
