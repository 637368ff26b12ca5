//! Writing a trace in any format that can hold it.

use std::path::Path;

use crate::atomic_file::AtomicFile;
use crate::batch::Batch;
use crate::error::{Error, Kind, Result};
use crate::formats;
use crate::ledger::Ledger;
use crate::reader::Header;

/// How to write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Name of a format; by the ending of the file name where `None`.
    pub format: Option<String>,
}

/// Encodes batches; what each writable format implements.
pub trait Sink: Send {
    /// Adds a batch.
    ///
    /// # Errors
    /// Where the disk is full or the format cannot hold a request.
    fn write(&mut self, batch: &Batch) -> Result<()>;
    /// Ends the file with the final ledger and header.
    ///
    /// # Errors
    /// Where the disk is full.
    fn finish(self: Box<Self>, ledger: &Ledger, header: &Header) -> Result<()>;
}

/// A trace being written; appears under its name only on [`TraceWriter::finish`].
pub struct TraceWriter {
    sink: Box<dyn Sink>,
}

impl TraceWriter {
    /// Starts a trace at `path`.
    ///
    /// # Errors
    /// Where the format is unknown or cannot be written, or the folder cannot be written to.
    pub fn create(path: &Path, header: &Header, options: &WriteOptions) -> Result<Self> {
        let _ = (AtomicFile::create(path)?, header, options, formats::FORMATS);
        Err(Error::new(Kind::Unsupported, "no format can be written"))
    }

    /// Adds a batch; batches come in order of arrival.
    ///
    /// # Errors
    /// Where the disk is full or the format cannot hold a request.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        self.sink.write(batch)
    }

    /// Ends the file and puts it in place.
    ///
    /// # Errors
    /// Where the disk is full; nothing is then left behind.
    pub fn finish(self, ledger: &Ledger, header: &Header) -> Result<()> {
        self.sink.finish(ledger, header)
    }
}
