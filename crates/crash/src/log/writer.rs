//! Writes a log, a block at a time.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use emmclab_base::{Error, Kind, Result};

use super::{LogHeader, MARK, Record, VERSION};

/// Bytes of a block before compression, but for a longer record.
const BLOCK: usize = 1 << 18;
/// Longest time that a record waits for its block to fill.
const WAIT: Duration = Duration::from_millis(100);
/// Compression level of the blocks: the log must keep up with the device.
const LEVEL: i32 = 1;

/// A log in progress. What was added longer than a tenth of a second ago is in the file, whatever ends the process.
pub struct LogWriter {
    file: File,
    path: PathBuf,
    block: Vec<u8>,
    since: Instant,
    compressor: zstd::bulk::Compressor<'static>,
}

impl LogWriter {
    /// Begins a log; what the file held is lost.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn create(path: &Path, header: &LogHeader) -> Result<Self> {
        let fail = |error| Error::io(path, error);
        let json = serde_json::to_vec(header).map_err(|error| Error::new(Kind::Value, error.to_string()))?;
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(fail)?;
        let mut file = File::create(path).map_err(fail)?;
        file.write_all(MARK).and_then(|()| file.write_all(&VERSION.to_le_bytes())).map_err(fail)?;
        let mut writer = Self { file, path: path.to_owned(), block: json, since: Instant::now(), compressor };
        writer.end_block()?;
        Ok(writer)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn add(&mut self, record: &Record<'_>) -> Result<()> {
        if self.block.is_empty() {
            self.since = Instant::now();
        }
        let block = std::mem::take(&mut self.block);
        self.block = postcard::to_extend(record, block)
            .map_err(|error| Error::new(Kind::Value, error.to_string()).in_file(&self.path))?;
        if self.block.len() >= BLOCK || self.since.elapsed() >= WAIT { self.end_block() } else { Ok(()) }
    }

    /// Puts what was added into the file.
    ///
    /// # Errors
    /// Where the file cannot be written.
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
        let mut whole = Vec::with_capacity(stored.len() + 12);
        whole.extend((stored.len() as u32).to_le_bytes());
        whole.extend((self.block.len() as u32).to_le_bytes());
        whole.extend(crc32c::crc32c(&stored).to_le_bytes());
        whole.extend(stored);
        self.file.write_all(&whole)
    }

    /// Has the disk keep the log as it is.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn finish(&mut self) -> Result<()> {
        self.end_block()?;
        self.file.sync_data().map_err(|error| Error::io(&self.path, error))
    }
}
