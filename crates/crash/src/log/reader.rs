//! Reads a log, a block at a time.

use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use emmclab_base::{Error, ErrorClass, InputFile, Result};
use xxhash_rust::xxh3::Xxh3;

use super::{CrashLogHeader, CrashLogRecord, HEAD, LogBlockHeads, MARK, MOST_BLOCK, VERSION};

/// A log being read.
pub struct CrashLogReader {
    input: Box<dyn Read>,
    path: PathBuf,
    header: CrashLogHeader,
    offset: u64,
    block: Vec<u8>,
    stored: Vec<u8>,
    hash: Xxh3,
    heads: LogBlockHeads,
    ended: bool,
}

/// The records of a block.
pub struct CrashLogRecords<'a> {
    rest: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl CrashLogReader {
    /// Whether the bytes are the start of such a log.
    pub fn recognizes(first: &[u8]) -> bool {
        first.starts_with(MARK)
    }

    /// Opens a log and reads its header.
    ///
    /// # Errors
    /// If the file cannot be read, is not a log, or was written by another version.
    pub fn open(path: &Path) -> Result<Self> {
        let file = InputFile::open(path).map_err(|error| Error::io(path, error))?;
        Self::new(Box::new(BufReader::with_capacity(1 << 20, file)), path)
    }

    /// Reads a log from bytes; `path` is used in error messages.
    ///
    /// # Errors
    /// As [`CrashLogReader::open`].
    pub fn new(mut input: Box<dyn Read>, path: &Path) -> Result<Self> {
        let mut start = [0; 12];
        let fail = |problem: &str| Error::new(ErrorClass::UnknownFormat, problem).in_file(path);
        let no_log = || fail("this is not a crash log").hint("`emmclab crash` writes one; it also reads dm-log-writes");
        match input.read_exact(&mut start) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(no_log()),
            Err(error) => return Err(Error::io(path, error)),
        }
        if !Self::recognizes(&start) {
            return Err(no_log());
        }
        if start[8..] != VERSION.to_le_bytes() {
            return Err(fail("the crash log is of another version")
                .at_offset(8)
                .of_field(
                    "version",
                    0,
                    u32::from_le_bytes([start[8], start[9], start[10], start[11]]).to_string().as_bytes(),
                )
                .hint("explore it with the emmclab that wrote it, or run the workload again"));
        }
        let mut reader = Self {
            input,
            path: path.to_owned(),
            header: CrashLogHeader::default(),
            offset: 12,
            block: Vec::new(),
            stored: Vec::new(),
            hash: Xxh3::new(),
            heads: LogBlockHeads::new(),
            ended: false,
        };
        if !reader.read_block()? {
            return Err(Error::new(ErrorClass::Truncated, "the crash log is cut short in its header")
                .in_file(path)
                .hint("copy the log again, or run the workload again"));
        }
        reader.header = serde_json::from_slice(&reader.block).map_err(|error| {
            Error::new(ErrorClass::Syntax, format!("the header of the crash log is damaged: {error}"))
                .in_file(path)
                .at_offset(12 + HEAD as u64)
                .hint("copy the log again, or run the workload again")
        })?;
        reader.header.check().map_err(|error| error.in_file(path))?;
        Ok(reader)
    }

    /// The header of the log.
    pub fn header(&self) -> &CrashLogHeader {
        &self.header
    }

    /// Whether the log has no end: it was cut short, or the process that wrote it was killed; valid after the last call of
    /// [`CrashLogReader::next_block`].
    pub fn truncated(&self) -> bool {
        !self.ended
    }

    /// The file of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identifies this log: a hash of what was read so far.
    pub fn identity(&self) -> u64 {
        self.hash.digest()
    }

    /// Returns the records of the next block; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, or a block is damaged; a log that is cut short is not an error.
    pub fn next_block(&mut self) -> Result<Option<CrashLogRecords<'_>>> {
        let offset = self.offset;
        if !self.read_block()? {
            return Ok(None);
        }
        Ok(Some(CrashLogRecords { rest: &self.block, path: &self.path, offset }))
    }

    /// Reads the next block; false at the end of the log or of the file.
    fn read_block(&mut self) -> Result<bool> {
        if self.ended || !self.read(HEAD)? {
            return Ok(false);
        }
        let mut words = self.stored.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        let mut word = || words.next().unwrap_or_default();
        let (numbers, sum) = ([word(), word(), word()], word());
        if self.heads.sum_with(numbers) != sum {
            return Err(self.damaged("a block has a wrong checksum of its head"));
        }
        let [stored, raw, crc] = numbers;
        if stored == 0 {
            return self.end(crc).map(|()| false);
        }
        if stored > MOST_BLOCK || raw > MOST_BLOCK {
            return Err(self.damaged("a block has an impossible length"));
        }
        if !self.read(stored as usize)? {
            return Ok(false);
        }
        if crc32c::crc32c(&self.stored) != crc {
            return Err(self.damaged("a block has a wrong checksum"));
        }
        self.block = zstd::bulk::decompress(&self.stored, raw as usize)
            .map_err(|_| self.damaged("a block cannot be decompressed"))?;
        if self.block.len() != raw as usize {
            return Err(self.damaged("a block has another length than its head states"));
        }
        self.heads.add(numbers);
        self.hash.update(&crc.to_le_bytes());
        self.offset += HEAD as u64 + u64::from(stored);
        Ok(true)
    }

    /// Checks the end of the log, which states its number of blocks.
    fn end(&mut self, blocks: u32) -> Result<()> {
        if blocks != self.heads.blocks {
            return Err(self.damaged("the end states another number of blocks"));
        }
        self.ended = true;
        self.offset += HEAD as u64;
        if self.read(1)? {
            return Err(self.damaged("bytes follow the end"));
        }
        Ok(())
    }

    /// Reads this many bytes into `stored`; false if the file ends before.
    fn read(&mut self, bytes: usize) -> Result<bool> {
        self.stored.clear();
        let read = (&mut self.input).take(bytes as u64).read_to_end(&mut self.stored);
        Ok(read.map_err(|error| Error::io(&self.path, error))? == bytes)
    }

    fn damaged(&self, what: &str) -> Error {
        let (offset, path) = (self.offset, self.path.display());
        let hint = if self.heads.blocks == 0 {
            "copy the log again, or run the workload again".to_owned()
        } else {
            format!(
                "copy the log again; or `truncate -s {offset} {path}` leaves the part before, a log that is \
                 cut short"
            )
        };
        Error::new(ErrorClass::Syntax, format!("the crash log is damaged since it was written: {what}"))
            .in_file(&self.path)
            .at_offset(offset)
            .hint(hint)
    }
}

impl<'a> Iterator for CrashLogRecords<'a> {
    type Item = Result<CrashLogRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match postcard::take_from_bytes::<CrashLogRecord<'a>>(self.rest) {
            Ok((record, rest)) => {
                self.rest = rest;
                Some(Ok(record))
            }
            Err(error) => {
                self.rest = &[];
                let problem = format!("a record of the crash log cannot be read: {error}");
                Some(Err(Error::new(ErrorClass::Syntax, problem).in_file(self.path).at_offset(self.offset)))
            }
        }
    }
}
