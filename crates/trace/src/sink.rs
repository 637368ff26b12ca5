//! The interface of writers: encodes a trace in one format.

use crate::{AtomicFile, Batch, Ledger, Result, TraceHeader};

/// Encodes batches; implemented by each writable format.
pub trait TraceSink: Send {
    /// Adds a batch. All its operations must be in the format's [`crate::formats::FormatCapabilities`].
    ///
    /// # Errors
    /// If the disk is full or the format cannot represent a request.
    fn write(&mut self, batch: &Batch) -> Result<()>;
    /// Completes the content with the final ledger and header, and returns the file for its commit.
    ///
    /// # Errors
    /// If the disk is full.
    fn finish(self: Box<Self>, ledger: &Ledger, header: &TraceHeader) -> Result<AtomicFile>;
}
