//! Checksums of Parquet files, by which readers detect bytes that changed after they were written.
//!
//! A file that emmclab writes has a *seal* between its data and its footer, where other readers of Parquet do not look. All numbers in the
//! seal are little-endian `u32`: the CRC-32C of each 8 KiB block before it, the CRC-32C of the footer (up to the end of the file), the
//! number of blocks, and the CRC-32C of the seal itself; a mark of 8 bytes follows. The seal covers every byte of the file; the page
//! checksums of Parquet do not cover page headers, statistics and the footer. A reader that reads only a part of a file checks the blocks
//! of that part.
//!
//! Files of other tools have no seal and are read without a check, also copies of sealed files: the name of the writer in the footer states
//! whether a file must have a seal.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use crc32c::{crc32c, crc32c_append};
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use crate::{AtomicFile, Error, ErrorClass, Result};

/// The name of the writer in the footer of a sealed file.
pub const SEALED_WRITER: &str = concat!("emmclab ", env!("CARGO_PKG_VERSION"), ", sealed");
/// The start and the end of the writer's name in sealed files of all versions.
const WRITER_ENDS: (&str, &str) = ("emmclab ", ", sealed");
/// Number of bytes that a checksum covers.
const BLOCK: usize = 1 << 13;
const MARK: &[u8; 8] = b"EMMCSEAL";
/// Size of the seal in bytes, without the checksums of the blocks.
const SEAL_BYTES: usize = 20;
/// Size of the length and the mark at the end of a Parquet file, in bytes.
const END_BYTES: usize = 8;
/// Number of bytes that are read for a page header; most are shorter.
const HEADER_BYTES: u64 = 512;
/// Value of [`CheckedFileInner::damaged`] for an intact file.
const INTACT: u64 = u64::MAX;

#[derive(Default)]
struct BlockChecksums {
    whole: Vec<u32>,
    last: u32,
    filled: usize,
}

impl BlockChecksums {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.last = crc32c_append(self.last, part);
            self.filled += part.len();
            if self.filled == BLOCK {
                self.whole.push(std::mem::take(&mut self.last));
                self.filled = 0;
            }
            bytes = rest;
        }
    }

    /// The checksum seal of the collected blocks and of `footer`, the footer of the file.
    fn seal(mut self, footer: &[u8]) -> Vec<u8> {
        if self.filled > 0 {
            self.whole.push(self.last);
        }
        let blocks = self.whole.len() as u32;
        let numbers = self.whole.into_iter().chain([crc32c(footer), blocks]);
        let mut seal: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        seal.extend(crc32c(&seal).to_le_bytes());
        seal.extend(MARK);
        seal
    }
}

/// A Parquet file that is being written and will be sealed by [`finish_sealed`].
pub struct SealedFile {
    file: AtomicFile,
    sums: BlockChecksums,
    /// The end of the file, with the footer; `None` until it is written.
    end: Option<Vec<u8>>,
}

impl SealedFile {
    /// Seals the bytes that are written to `file`.
    pub fn new(file: AtomicFile) -> Self {
        Self { file, sums: BlockChecksums::default(), end: None }
    }

    fn write_data(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sums.add(bytes);
        self.file.write_all(bytes)
    }

    fn seal(mut self) -> io::Result<AtomicFile> {
        let end = self.end.take().unwrap_or_default();
        let footer = footer_bytes(&end).filter(|footer| *footer <= end.len());
        let footer = footer.ok_or_else(|| io::Error::other("the footer of the Parquet file is incomplete"))?;
        let (data, footer) = end.split_at(end.len() - footer);
        self.write_data(data)?;
        let seal = std::mem::take(&mut self.sums).seal(footer);
        self.file.write_all(&seal)?;
        self.file.write_all(footer)?;
        Ok(self.file)
    }
}

impl Write for SealedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.end {
            Some(end) => end.extend(bytes),
            None => self.write_data(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes the footer of a Parquet file and its seal (block checksums). Fails if they cannot be written.
pub fn finish_sealed(mut writer: ArrowWriter<SealedFile>) -> std::result::Result<AtomicFile, ParquetError> {
    writer.flush()?;
    writer.inner_mut().end = Some(Vec::new());
    Ok(writer.into_inner()?.seal()?)
}

/// The size of the footer of a Parquet file, including its length and the magic number after it, from the last bytes of the file.
fn footer_bytes(end: &[u8]) -> Option<usize> {
    let length = end.len().checked_sub(END_BYTES).and_then(|at| end.get(at..at + 4))?;
    Some(u32::from_le_bytes(length.try_into().ok()?) as usize + END_BYTES)
}

/// The checksums of a file, and which blocks have been checked.
struct ChecksumSeal {
    sums: Vec<u32>,
    verified_blocks: Vec<AtomicBool>,
    /// Size of the data before the seal.
    end: u64,
}

impl ChecksumSeal {
    /// Start and end of a block in the file.
    fn range(&self, block: usize) -> (u64, u64) {
        let start = (block * BLOCK) as u64;
        (start, (start + BLOCK as u64).min(self.end))
    }

    fn knows(&self, block: usize) -> bool {
        self.verified_blocks[block].load(Ordering::Relaxed)
    }
}

struct CheckedFileInner {
    file: File,
    bytes: u64,
    seal: Option<ChecksumSeal>,
    /// Offset of the first block whose checksum is wrong; [`INTACT`] if there is none.
    damaged: AtomicU64,
}

/// A Parquet file that checks bytes when they are read.
#[derive(Clone)]
pub(crate) struct CheckedFile(Arc<CheckedFileInner>);

impl CheckedFile {
    /// Opens a file of `bytes` bytes, and checks its footer, and its checksum seal if it has one.
    pub fn new(file: File, bytes: u64) -> io::Result<Result<Self>> {
        let seal = match find_seal(&file, bytes)? {
            Ok(seal) => seal,
            Err(damaged) => return Ok(Err(damage(damaged))),
        };
        Ok(Ok(Self(Arc::new(CheckedFileInner { file, bytes, seal, damaged: AtomicU64::new(INTACT) }))))
    }

    /// Rejects a file that has no checksum seal although its writer seals files.
    pub fn check_writer(&self, writer: Option<&str>) -> Result<()> {
        let (begin, end) = WRITER_ENDS;
        let sealed = writer.is_some_and(|name| name.starts_with(begin) && name.ends_with(end));
        if sealed && self.0.seal.is_none() { Err(damage(self.0.bytes)) } else { Ok(()) }
    }

    /// The error for bytes that were read and have changed; `None` if all were intact.
    pub fn damage(&self) -> Option<Error> {
        let offset = self.0.damaged.load(Ordering::Relaxed);
        (offset != INTACT).then(|| damage(offset))
    }

    /// Checks all bytes of the file.
    pub fn check_all(&self) -> io::Result<()> {
        let mut blocks = self.0.seal.iter().flat_map(|seal| (0..seal.sums.len()).map(|block| seal.range(block)));
        blocks.try_for_each(|(start, end)| self.read(start, (end - start) as usize).map(drop))
    }

    /// Reads a part of the file; blocks that are read for the first time are read completely and checked.
    fn read(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let end = start.saturating_add(length as u64);
        if end > self.0.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(seal) = self.0.seal.as_ref().filter(|seal| start < seal.end) else {
            return Ok(bytes_at(&self.0.file, start, end)?.into());
        };
        let first = (start / BLOCK as u64) as usize;
        let last = (end.min(seal.end).div_ceil(BLOCK as u64) as usize).max(first + 1);
        let mut unknown = (first..last).filter(|block| !seal.knows(*block)).peekable();
        let from = unknown.peek().map_or(start, |block| seal.range(*block).0.min(start));
        let to = unknown.clone().last().map_or(end, |block| seal.range(block).1.max(end));
        let buffer = bytes_at(&self.0.file, from, to)?;
        for block in unknown {
            let (begin, end) = seal.range(block);
            if crc32c(&buffer[(begin - from) as usize..(end - from) as usize]) != seal.sums[block] {
                self.0.damaged.fetch_min(begin, Ordering::Relaxed);
                return Err(io::Error::other("the file is damaged"));
            }
            seal.verified_blocks[block].store(true, Ordering::Relaxed);
        }
        let skipped = (start - from) as usize;
        Ok(Bytes::from(buffer).slice(skipped..skipped + length))
    }
}

fn bytes_at(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    file.read_exact_at(&mut buffer, start).map(|()| buffer)
}

/// Reads the checksum seal of a file; `None` if the file has none. The inner error is the offset of a damaged seal or footer.
fn find_seal(file: &File, bytes: u64) -> io::Result<std::result::Result<Option<ChecksumSeal>, u64>> {
    let read = |start: u64, end: u64| bytes_at(file, start, end);
    let last = read(bytes.saturating_sub(END_BYTES as u64), bytes)?;
    let Some(footer) = footer_bytes(&last).and_then(|footer| bytes.checked_sub(footer as u64)) else {
        return Ok(Ok(None));
    };
    let Some(fixed) = footer.checked_sub(SEAL_BYTES as u64) else { return Ok(Ok(None)) };
    let numbers = read(fixed, footer)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes);
    if !numbers.ends_with(MARK) {
        return Ok(Ok(None));
    }
    let (footer_sum, blocks, own_sum) = (word(&numbers[..4]), word(&numbers[4..8]), word(&numbers[8..12]));
    let Some(end) = fixed.checked_sub(4 * u64::from(blocks)) else { return Ok(Err(fixed)) };
    let sums = read(end, fixed)?;
    let is_own = crc32c_append(crc32c(&sums), &numbers[..8]) == own_sum;
    if !is_own || u64::from(blocks) != end.div_ceil(BLOCK as u64) {
        return Ok(Err(end));
    }
    if crc32c(&read(footer, bytes)?) != footer_sum {
        return Ok(Err(footer));
    }
    let sums: Vec<u32> = sums.chunks_exact(4).map(word).collect();
    let known = sums.iter().map(|_| AtomicBool::new(false)).collect();
    Ok(Ok(Some(ChecksumSeal { sums, verified_blocks: known, end })))
}

fn damage(offset: u64) -> Error {
    Error::new(ErrorClass::Syntax, "the file was damaged after it was written: a checksum differs")
        .at_offset(offset)
        .hint("copy the file again from an intact copy, or convert or record the original again")
}

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.0.bytes
    }
}

impl ChunkReader for CheckedFile {
    type T = CheckedFileReader;

    fn get_read(&self, start: u64) -> std::result::Result<CheckedFileReader, ParquetError> {
        Ok(CheckedFileReader { file: self.clone(), at: start, buffer: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> std::result::Result<Bytes, ParquetError> {
        Ok(self.read(start, length)?)
    }
}

/// A file that is read from a position on.
pub(crate) struct CheckedFileReader {
    file: CheckedFile,
    at: u64,
    /// Bytes that are read but not returned yet.
    buffer: Bytes,
}

impl Read for CheckedFileReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.buffer.is_empty() {
            let length = (self.file.0.bytes.saturating_sub(self.at)).min(HEADER_BYTES);
            self.buffer = self.file.read(self.at, length as usize)?;
            self.at += length;
        }
        let length = out.len().min(self.buffer.len());
        out[..length].copy_from_slice(&self.buffer.split_to(length));
        Ok(length)
    }
}
