//! The writer of a file of one format.

use emmclab_base::Result;

use crate::atomic_file::AtomicFile;
use crate::batch::Batch;
use crate::header::Header;
use crate::ledger::Ledger;

/// Encodes batches; what each writable format implements.
pub trait Sink: Send {
    /// Adds a batch. It holds no operation that the format's [`crate::formats::Holds`] leaves out.
    ///
    /// # Errors
    /// Where the disk is full or the format cannot hold a request.
    fn write(&mut self, batch: &Batch) -> Result<()>;
    /// Ends the content with the final ledger and header and gives the file back, to be committed.
    ///
    /// # Errors
    /// Where the disk is full.
    fn finish(self: Box<Self>, ledger: &Ledger, header: &Header) -> Result<AtomicFile>;
}
