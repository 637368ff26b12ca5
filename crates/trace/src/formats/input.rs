//! Opens a file and decompresses it while it is read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ByteCount, Error, ErrorClass, InputFile, ReadProgress, Result, interrupt, open_seekable};

/// Number of bytes at the start of a file that are examined to recognise the format.
const HEAD_BYTES: usize = 1 << 16;

/// The marks of the first block of a bzip2 file: a data block, or the end block of a file without data.
const BZIP2_BLOCKS: [&[u8]; 2] = [&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59], &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90]];

/// Number of bytes up to which every compressed file is unpacked. Larger ones are unpacked only up to [`MOST_RATIO`] times the
/// compressed size, so that a small file cannot fill the disk.
const MOST_UNPACKED: u64 = 256 << 20;
/// Maximum ratio of unpacked to compressed bytes. Traces as text reach about 50; gzip cannot exceed 1,032.
const MOST_RATIO: u64 = 1_000;
/// Memory limit for decompressing xz in bytes: `xz -9` needs 65 MiB. zstd itself limits its window to 128 MiB.
const XZ_BYTES: u64 = 256 << 20;

/// An open input, possibly compressed, with its first bytes in memory.
pub struct DecompressedInput {
    path: PathBuf,
    head: Vec<u8>,
    rest: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
    total: u64,
    regular: bool,
    /// Whether the bytes are those of the file, neither decompressed nor converted.
    plain: bool,
}

/// Counts the bytes that are read from the file itself, so that progress is also correct for compressed input.
struct CountingInputFile {
    file: InputFile,
    bytes_read: Arc<AtomicU64>,
}

impl Read for CountingInputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.bytes_read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Decompresses data, but fails if the decompressed data exceeds the limits of size and ratio.
struct BoundedDecoder<R> {
    decoder: R,
    /// Bytes unpacked so far.
    bytes: u64,
    bytes_read: Arc<AtomicU64>,
    /// Name of the command that decompresses the format.
    tool: &'static str,
}

impl<R: Read> BoundedDecoder<R> {
    fn refused(&self, problem: String) -> io::Error {
        let tool = self.tool;
        let hint = format!("if that is intended, unpack it with `{tool} -dc FILE > UNPACKED` and use that file");
        io::Error::other(Error::new(ErrorClass::Value, problem).hint(hint))
    }
}

impl<R: Read> Read for BoundedDecoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(buffer).map_err(|error| {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
            if !matches!(cause, Some(liblzma::stream::Error::MemLimit)) {
                return error;
            }
            self.refused(format!("it needs more than {} of memory to be unpacked", ByteCount(XZ_BYTES)))
        })?;
        self.bytes += count as u64;
        let done = self.bytes_read.load(Ordering::Relaxed);
        if self.bytes > MOST_UNPACKED && self.bytes / MOST_RATIO > done {
            let problem = format!(
                "it unpacks to more than {MOST_RATIO} times its size: {} from {}",
                ByteCount(self.bytes),
                ByteCount(done)
            );
            return Err(self.refused(problem));
        }
        Ok(count)
    }
}

impl DecompressedInput {
    /// Opens a file. Compression by gzip, bzip2, zstd and xz, and text in UTF-16 are recognised by the first bytes. Fails if the
    /// file cannot be read or is a directory.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |error| Error::io(path, error);
        let file = InputFile::open(path).map_err(fail)?;
        let meta = file.file().metadata().map_err(fail)?;
        if meta.is_dir() {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(fail(error).hint("name a trace file in this folder"));
        }
        let done = Arc::new(AtomicU64::new(0));
        let mut raw = BufReader::with_capacity(1 << 16, CountingInputFile { file, bytes_read: done.clone() });
        let magic = raw.fill_buf().map_err(fail)?;
        let mut tool = None;
        let mut rest: Box<dyn Read + Send> = if magic.starts_with(&[0x1f, 0x8b]) {
            tool = Some("gzip");
            Box::new(flate2::bufread::MultiGzDecoder::new(raw))
        } else if magic.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            tool = Some("zstd");
            Box::new(zstd::Decoder::with_buffer(raw).map_err(fail)?)
        } else if magic.starts_with(b"BZh") && magic.get(4..10).is_some_and(|mark| BZIP2_BLOCKS.contains(&mark)) {
            tool = Some("bzip2");
            Box::new(bzip2::bufread::MultiBzDecoder::new(raw))
        } else if magic.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
            tool = Some("xz");
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_BYTES, liblzma::stream::CONCATENATED);
            Box::new(liblzma::bufread::XzDecoder::new_stream(raw, stream.map_err(|error| fail(error.into()))?))
        } else {
            Box::new(raw)
        };
        let mut plain = tool.is_none();
        if let Some(tool) = tool {
            rest = Box::new(BoundedDecoder { decoder: rest, bytes: 0, bytes_read: done.clone(), tool });
        }
        let mut head = Vec::new();
        let cut = |error, done: &AtomicU64| damaged(path, error).at_offset(done.load(Ordering::Relaxed));
        rest.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(|error| cut(error, &done))?;
        if let Some(order) = Utf16ByteOrder::of(&head) {
            plain = false;
            rest = Box::new(Utf16Decoder::new(io::Cursor::new(std::mem::take(&mut head)).chain(rest), order));
            rest.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(|error| cut(error, &done))?;
        }
        // Some editors and spreadsheets begin the text with a byte order mark.
        if head.starts_with(&[0xef, 0xbb, 0xbf]) {
            plain = false;
            head.drain(..3);
        }
        let (total, regular) = (meta.len(), meta.is_file());
        Ok(Self { path: path.to_owned(), head, rest, bytes_read: done, total, regular, plain })
    }

    /// The first bytes of the file, decompressed; all bytes if the file is short.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the input is a regular file, which can be read at any offset and repeatedly.
    pub fn is_regular(&self) -> bool {
        self.regular
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name without its folders.
    pub fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns a function that reports the progress of reading. `total` is not known for pipes.
    pub fn meter(&self) -> impl Fn() -> ReadProgress + Send + use<> {
        let done = self.bytes_read.clone();
        let total = Some(self.total).filter(|total| *total > 0);
        move || ReadProgress { done: done.load(Ordering::Relaxed), total }
    }

    /// The content as a file that can be read at any offset: the file itself if it is regular and not compressed, otherwise an unnamed
    /// temporary copy, which is deleted when it is closed. Fails if it cannot be read, or there is not enough space for the copy.
    pub fn into_file(self) -> Result<File> {
        let path = self.path.clone();
        if self.regular && self.plain {
            return open_seekable(&path).map_err(|error| Error::io(&path, error));
        }
        let no_room = |error: io::Error| {
            let folder = std::env::temp_dir();
            Error::io(&folder, error).hint(
                "the file is unpacked into this folder before it is read: set TMPDIR to a folder with more space, or unpack the file yourself",
            )
        };
        let mut copy = tempfile::tempfile().map_err(no_room)?;
        let done = self.bytes_read.clone();
        let mut content = self.into_reader();
        let mut buffer = vec![0; 1 << 18];
        loop {
            interrupt::check()?;
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => copy.write_all(&buffer[..count]).map_err(no_room)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(damaged(&path, error).at_offset(done.load(Ordering::Relaxed))),
            }
        }
        copy.rewind().map_err(no_room)?;
        Ok(copy)
    }

    /// The whole content from the first byte on.
    pub fn into_reader(self) -> impl Read + Send {
        io::Cursor::new(self.head).chain(self.rest)
    }
}

/// The error for a failed read, with a hint if the compressed file is truncated or damaged.
pub(crate) fn damaged(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let cut = matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput);
    let error = Error::io(path, error);
    if cut { error.hint("copy the compressed file again: it is truncated or damaged") } else { error }
}

/// Fills the buffer except at the end of the input; returns the number of bytes. An error comes with the number of bytes before it.
pub(super) fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> std::result::Result<usize, (usize, io::Error)> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((got, error)),
        }
    }
    Ok(got)
}

/// Number of UTF-16 code units that are examined if there is no byte order mark.
const LOOKED_AT: usize = 32;
const CHUNK: usize = 1 << 13;
/// Character that replaces invalid UTF-16 code units.
const REPLACEMENT: char = '\u{fffd}';

/// Order of the two bytes of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Utf16ByteOrder {
    Little,
    Big,
}

impl Utf16ByteOrder {
    /// The byte order according to the byte order mark, or the one in which the first code units are ASCII text; `None` if the
    /// text is not UTF-16.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => return Some(Self::Little),
            [0xfe, 0xff, ..] => return Some(Self::Big),
            _ => {}
        }
        let units = head.get(..2 * LOOKED_AT)?;
        let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
        let all = |high: usize| units.chunks_exact(2).all(|unit| unit[high] == 0 && is_text(unit[1 - high]));
        if all(1) {
            Some(Self::Little)
        } else if all(0) {
            Some(Self::Big)
        } else {
            None
        }
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// Reads UTF-16 and returns UTF-8 without the byte order mark.
pub(super) struct Utf16Decoder<R> {
    input: R,
    order: Utf16ByteOrder,
    raw: Vec<u8>,
    /// A high surrogate whose low surrogate is not read yet.
    high: Option<u16>,
    text: Vec<u8>,
    returned_bytes: usize,
    begun: bool,
}

impl<R: Read> Utf16Decoder<R> {
    pub(super) fn new(input: R, order: Utf16ByteOrder) -> Self {
        Self { input, order, raw: Vec::new(), high: None, text: Vec::new(), returned_bytes: 0, begun: false }
    }

    /// Reads and converts the next part; returns false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let held = self.raw.len();
        let read = self.input.by_ref().take(CHUNK as u64).read_to_end(&mut self.raw)?;
        self.text.clear();
        self.returned_bytes = 0;
        let whole = (held + read) & !1;
        for unit in self.raw[..whole].chunks_exact(2) {
            let unit = self.order.unit([unit[0], unit[1]]);
            if std::mem::replace(&mut self.begun, true) || unit != 0xfeff {
                Self::push(&mut self.high, &mut self.text, unit);
            }
        }
        self.raw.drain(..whole);
        if read == 0 {
            // The text ends within a code unit or a surrogate pair.
            if !self.raw.is_empty() || self.high.take().is_some() {
                self.raw.clear();
                push_char(&mut self.text, REPLACEMENT);
            }
            return Ok(!self.text.is_empty());
        }
        Ok(true)
    }

    fn push(high: &mut Option<u16>, text: &mut Vec<u8>, unit: u16) {
        let units = high.take().into_iter().chain([unit]);
        for decoded in char::decode_utf16(units) {
            match decoded {
                Ok(character) => push_char(text, character),
                Err(error) if matches!(error.unpaired_surrogate(), 0xd800..=0xdbff) && error.unpaired_surrogate() == unit => {
                    *high = Some(unit);
                }
                Err(_) => push_char(text, REPLACEMENT),
            }
        }
    }
}

fn push_char(text: &mut Vec<u8>, character: char) {
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

impl<R: Read> Read for Utf16Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.returned_bytes >= self.text.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.text.len() - self.returned_bytes);
        buffer[..length].copy_from_slice(&self.text[self.returned_bytes..self.returned_bytes + length]);
        self.returned_bytes += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, order: Utf16ByteOrder) -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| match order {
                Utf16ByteOrder::Little => unit.to_le_bytes(),
                Utf16ByteOrder::Big => unit.to_be_bytes(),
            })
            .collect()
    }

    fn decoded(bytes: &[u8], order: Utf16ByteOrder) -> String {
        let mut text = String::new();
        Utf16Decoder::new(bytes, order).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn text_reads_the_same_in_both_orders_and_beyond_one_chunk() {
        let text = "a\u{fc}\u{1f600}\r\n".repeat(5_000);
        for order in [Utf16ByteOrder::Little, Utf16ByteOrder::Big] {
            assert_eq!(decoded(&encoded(&text, order), order), text);
            assert_eq!(decoded(&encoded(&format!("\u{feff}{text}"), order), order), text);
        }
    }

    #[test]
    fn halves_of_characters_are_replaced() {
        assert_eq!(decoded(&[b'a', 0, 0x3d, 0xd8], Utf16ByteOrder::Little), "a\u{fffd}");
        assert_eq!(decoded(&[0x3d, 0xd8, b'a', 0], Utf16ByteOrder::Little), "\u{fffd}a");
        assert_eq!(decoded(&[0x00, 0xde, b'a', 0, 7], Utf16ByteOrder::Little), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn the_order_is_known_by_the_mark_or_by_plain_text() {
        let text = "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n";
        for order in [Utf16ByteOrder::Little, Utf16ByteOrder::Big] {
            assert_eq!(Utf16ByteOrder::of(&encoded(text, order)), Some(order));
            assert_eq!(Utf16ByteOrder::of(&encoded("\u{feff}x", order)), Some(order));
        }
        assert_eq!(Utf16ByteOrder::of(text.as_bytes()), None);
        assert_eq!(Utf16ByteOrder::of(&[0; 512]), None);
    }
}
