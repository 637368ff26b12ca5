//! The common part of all text writers: a line per request, buffered.

use std::io::Write;

use crate::{AtomicFile, Batch, Error, Ledger, Request, Result, TraceHeader, TraceSink};

/// The part of writing that differs between text formats.
pub(crate) trait LineWriter: Send {
    /// Appends the lines before the first request.
    fn heading(&mut self, _out: &mut Vec<u8>) {}
    /// Appends the line of a request, with the line end.
    fn line(&mut self, request: &Request, batch: &Batch, out: &mut Vec<u8>) -> Result<()>;
    /// Appends the lines after the last request.
    fn ending(&mut self, _out: &mut Vec<u8>) {}
}

/// Writes a file with a [`LineWriter`].
pub(crate) struct LineSink<W> {
    file: AtomicFile,
    writer: W,
    buffer: Vec<u8>,
}

impl<W: LineWriter> LineSink<W> {
    pub(crate) fn new(file: AtomicFile, mut writer: W) -> Self {
        let mut buffer = Vec::new();
        writer.heading(&mut buffer);
        Self { file, writer, buffer }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer).map_err(|error| Error::io(self.file.path(), error))?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: LineWriter> TraceSink for LineSink<W> {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        for request in batch {
            self.writer.line(&request, batch, &mut self.buffer)?;
        }
        self.flush()
    }

    fn finish(mut self: Box<Self>, _ledger: &Ledger, _header: &TraceHeader) -> Result<AtomicFile> {
        self.writer.ending(&mut self.buffer);
        self.flush()?;
        Ok(self.file)
    }
}
