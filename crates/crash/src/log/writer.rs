//! Writes a log, a block at a time.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, ErrorClass, Result};

use super::{CrashLogHeader, CrashLogRecord, HEAD, LogBlockHeads, MARK, VERSION};

/// Size of a block before compression in bytes; only a longer record exceeds it.
const BLOCK: usize = 1 << 18;
/// Longest time for which a record waits until its block is full.
const WAIT: Duration = Duration::from_millis(100);
/// Compression level of the blocks: low, because the log must keep up with the device.
const LEVEL: i32 = 1;

/// A log being written. If the process ends, only records that were added within a tenth of a second before the last call of
/// [`CrashLogWriter::add`] can be missing in the file.
pub struct CrashLogWriter {
    file: File,
    path: PathBuf,
    block: Vec<u8>,
    since: Instant,
    heads: LogBlockHeads,
    compressor: zstd::bulk::Compressor<'static>,
}

impl CrashLogWriter {
    /// Creates a log; existing contents of the file are lost.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, header: &CrashLogHeader) -> Result<Self> {
        let fail = |error| Error::io(path, error);
        let json = serde_json::to_vec(header).map_err(|error| Error::new(ErrorClass::Value, error.to_string()))?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(fail)?;
        let mut file = File::create(path).map_err(fail)?;
        file.write_all(MARK).and_then(|()| file.write_all(&VERSION.to_le_bytes())).map_err(fail)?;
        let (path, since, heads) = (path.to_owned(), Instant::now(), LogBlockHeads::new());
        let mut writer = Self { file, path, block: json, since, heads, compressor };
        writer.end_block()?;
        Ok(writer)
    }

    /// Adds a record.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, record: &CrashLogRecord<'_>) -> Result<()> {
        if self.block.is_empty() {
            self.since = Instant::now();
        }
        let block = std::mem::take(&mut self.block);
        self.block = postcard::to_extend(record, block)
            .map_err(|error| Error::new(ErrorClass::Value, error.to_string()).in_file(&self.path))?;
        if self.block.len() >= BLOCK || self.since.elapsed() >= WAIT { self.end_block() } else { Ok(()) }
    }

    /// Writes all added records to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.write().map_err(|error| Error::io(&self.path, error))?;
        self.block.clear();
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let stored = self.compressor.compress(&self.block)?;
        let mut whole = Vec::with_capacity(HEAD + stored.len());
        let numbers = [stored.len() as u32, self.block.len() as u32, crc32c::crc32c(&stored)];
        whole.extend(self.heads.add(numbers));
        whole.extend(stored);
        self.file.write_all(&whole)
    }

    /// Writes all records and the end of the log, and syncs the file; nothing may be added afterwards.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        self.end_block()?;
        let end = self.heads.add([0, 0, self.heads.blocks]);
        self.file.write_all(&end).and_then(|()| self.file.sync_data()).map_err(|error| Error::io(&self.path, error))
    }
}
