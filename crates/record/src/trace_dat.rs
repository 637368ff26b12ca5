//! `trace.dat` of trace-cmd, versions 6 and 7: the same ring-buffer pages in a file. Source: `trace-cmd.dat.v6(5)` and
//! `trace-cmd.dat.v7(5)`.
//!
//! Of several buffers, the first that holds pages is read.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use emmclab_trace::{
    BATCH_ROWS, Batch, Error, Header, Kind, Ledger, Names, Progress, Request, Result, Source,
};

use crate::byte_order::ByteOrder;
use crate::kernel::{Files, Kernel};
use crate::pipeline::Pipeline;
use crate::stats::Meter;

/// The first bytes of every `trace.dat`.
pub(crate) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Event formats and symbols of a large kernel take some 10 MB; a size beyond this is nonsense.
const LARGEST_PART: u64 = 1 << 28;
const MOST_CPUS: u32 = 1 << 13;

/// Sections and options of version 7.
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const BUFFER: u16 = 3;
const DONE: u16 = 0;
/// Flag of a section that is compressed.
const COMPRESSED: u16 = 1;

/// How a version 7 file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Zlib,
    Zstd,
}

/// Reads numbers in the byte order of the file.
struct Parser<R> {
    input: R,
    order: ByteOrder,
}

fn damaged(error: &io::Error) -> Error {
    Error::new(Kind::Truncated, format!("the file ends too early: {error}"))
        .hint("was trace-cmd ended with SIGKILL?")
}

fn nonsense(what: &str, value: u64) -> Error {
    Error::new(Kind::Value, "cannot be").of_field(what, 0, value.to_string().as_bytes())
}

impl<R: Read> Parser<R> {
    fn number(&mut self, size: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes[..size]).map_err(|error| damaged(&error))?;
        Ok(self.order.unsigned(&bytes, 0, size).unwrap_or(0))
    }

    fn bytes(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > LARGEST_PART {
            return Err(nonsense("size", size));
        }
        let mut out = Vec::new();
        let read = self.input.by_ref().take(size).read_to_end(&mut out).map_err(|error| damaged(&error))?;
        if read as u64 == size {
            Ok(out)
        } else {
            Err(damaged(&io::Error::from(io::ErrorKind::UnexpectedEof)))
        }
    }

    /// A text that ends with a zero byte.
    fn word(&mut self) -> Result<String> {
        let mut out = Vec::new();
        while out.len() < 256 {
            match self.number(1)? as u8 {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                byte => out.push(byte),
            }
        }
        Err(Error::new(Kind::Syntax, "is no name of a trace.dat").of_field("name", 0, &out))
    }

    /// A text behind its length.
    fn text(&mut self) -> Result<String> {
        let size = self.number(8)?;
        Ok(String::from_utf8_lossy(&self.bytes(size)?).into_owned())
    }

    fn header_info(&mut self, files: &mut Files) -> Result<()> {
        for name in ["header_page", "header_event"] {
            let found = self.word()?;
            if found != name {
                return Err(Error::new(Kind::Syntax, format!("stands where `{name}` should")).of_field(
                    "section",
                    0,
                    found.as_bytes(),
                ));
            }
            files.insert(format!("events/{name}"), self.text()?);
        }
        Ok(())
    }

    fn event_formats(&mut self, files: &mut Files) -> Result<()> {
        for _ in 0..self.number(4)? {
            let system = self.word()?;
            for _ in 0..self.number(4)? {
                let text = self.text()?;
                if let Some(name) = text.lines().find_map(|line| line.strip_prefix("name:")) {
                    files.insert(format!("events/{system}/{}/format", name.trim()), text);
                }
            }
        }
        Ok(())
    }

    /// The data of an option.
    fn option(&mut self) -> Result<(u16, Vec<u8>)> {
        let id = self.number(2)? as u16;
        let size = self.number(4)?;
        Ok((id, self.bytes(size)?))
    }

    /// A piece of compressed data behind its two sizes.
    fn chunk(&mut self, compression: Compression) -> Result<Vec<u8>> {
        let (packed, plain) = (self.number(4)?, self.number(4)?);
        if plain > LARGEST_PART {
            return Err(nonsense("chunk size", plain));
        }
        let packed = self.bytes(packed)?;
        let mut out = Vec::new();
        let unpacked = match compression {
            Compression::None => return Ok(packed),
            Compression::Zlib => {
                flate2::read::ZlibDecoder::new(&packed[..]).take(plain).read_to_end(&mut out)
            }
            Compression::Zstd => {
                zstd::Decoder::new(&packed[..]).and_then(|decoder| decoder.take(plain).read_to_end(&mut out))
            }
        };
        unpacked.map_err(|error| damaged(&error))?;
        Ok(out)
    }
}

/// The pages of one CPU.
struct Cpu {
    number: usize,
    /// Where reading goes on in the file, and where it ends.
    at: u64,
    end: u64,
    /// Unpacked and not yet read, of a compressed file.
    unpacked: Vec<u8>,
    used: usize,
    /// Latest time read, to take the CPU that is furthest behind.
    latest: u64,
}

/// A `trace.dat` being read.
pub(crate) struct TraceDat {
    parser: Parser<File>,
    compression: Compression,
    page: Vec<u8>,
    cpus: Vec<Cpu>,
    pipeline: Pipeline,
    header: Header,
    total: u64,
    done: u64,
    ended: bool,
}

impl TraceDat {
    /// Reads everything but the pages.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
        let total = file.metadata().map_err(|error| Error::io(path, error))?.len();
        let mut start = [0; 10];
        file.read_exact(&mut start).map_err(|error| damaged(&error))?;
        if start != MAGIC {
            return Err(Error::new(Kind::UnknownFormat, "is no trace.dat of trace-cmd"));
        }
        let mut parser = Parser { input: file, order: ByteOrder::Little };
        let version = parser.word()?;
        let order = parser.number(1)?;
        parser.order = if order == 0 { ByteOrder::Little } else { ByteOrder::Big };
        let _long_bytes = parser.number(1)?;
        let page_bytes = parser.number(4)?;
        let mut files = Files::new();
        let byte_order = if order == 0 { "\u{1}" } else { "\u{2}" };
        files.insert("byte_order".to_owned(), byte_order.to_owned());
        let mut compression = Compression::None;
        let (cpus, clock) = match version.as_str() {
            "6" => (version_6(&mut parser, &mut files)?, String::new()),
            "7" => {
                compression = match parser.word()?.as_str() {
                    "none" => Compression::None,
                    "zlib" => Compression::Zlib,
                    "zstd" => Compression::Zstd,
                    other => {
                        return Err(Error::new(Kind::Unsupported, "is no compression that is known here")
                            .of_field("compression", 0, other.as_bytes()));
                    }
                };
                parser.word()?;
                version_7(&mut parser, &mut files, compression)?
            }
            other => {
                return Err(Error::new(Kind::Unsupported, "is neither version 6 nor 7")
                    .of_field("version", 0, other.as_bytes())
                    .hint("`trace-cmd convert` writes version 7"));
            }
        };
        let kernel = Kernel::from_files(&files)?;
        if kernel.layout().page_bytes() as u64 != page_bytes {
            return Err(nonsense("page size", page_bytes));
        }
        let source = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let clock = if clock == "mono" { "monotonic" } else { "relative" }.to_owned();
        Ok(Self {
            parser,
            compression,
            page: vec![0; page_bytes as usize],
            cpus,
            pipeline: Pipeline::new(kernel, std::collections::BTreeMap::new()),
            header: Header { source, format: "trace-cmd".to_owned(), clock, ..Header::default() },
            total,
            done: 0,
            ended: false,
        })
    }

    /// Reads a page of the CPU that is furthest behind; false at the end of all.
    fn advance(&mut self) -> Result<bool> {
        let Some(cpu) = self.cpus.iter_mut().filter(|cpu| !cpu.is_empty()).min_by_key(|cpu| cpu.latest)
        else {
            return Ok(false);
        };
        let before = cpu.at;
        if cpu.page(&mut self.parser, self.compression, &mut self.page)? {
            self.pipeline.page(cpu.number, &self.page);
            cpu.latest = self.pipeline.latest(cpu.number);
        }
        self.done += cpu.at - before;
        let behind: Vec<_> = self.cpus.iter().filter(|cpu| !cpu.is_empty()).map(|cpu| cpu.number).collect();
        self.pipeline.end_round(&behind);
        Ok(true)
    }
}

impl Cpu {
    fn new(number: usize, at: u64, size: u64) -> Self {
        Self { number, at, end: at.saturating_add(size), unpacked: Vec::new(), used: 0, latest: 0 }
    }

    fn is_empty(&self) -> bool {
        self.at >= self.end && self.used >= self.unpacked.len()
    }

    /// Reads the next page; false where what is left is none.
    fn page(&mut self, parser: &mut Parser<File>, compression: Compression, page: &mut [u8]) -> Result<bool> {
        parser.input.seek(SeekFrom::Start(self.at)).map_err(|error| damaged(&error))?;
        if compression == Compression::None {
            self.at = self.at.saturating_add(page.len() as u64);
            parser.input.read_exact(page).map_err(|error| damaged(&error))?;
            return Ok(true);
        }
        if self.used >= self.unpacked.len() {
            self.unpacked = parser.chunk(compression)?;
            self.used = 0;
            self.at = parser.input.stream_position().map_err(|error| damaged(&error))?;
        }
        let left = &self.unpacked[self.used..];
        let whole = left.len() >= page.len();
        if whole {
            page.copy_from_slice(&left[..page.len()]);
        }
        self.used += page.len();
        Ok(whole)
    }
}

/// The rest of a version 6 file up to the pages.
fn version_6(parser: &mut Parser<File>, files: &mut Files) -> Result<Vec<Cpu>> {
    parser.header_info(files)?;
    for _ in 0..parser.number(4)? {
        parser.text()?;
    }
    parser.event_formats(files)?;
    // Symbols, formats of printk, names of tasks.
    for size_bytes in [4, 4, 8] {
        let size = parser.number(size_bytes)?;
        parser.bytes(size)?;
    }
    let count = parser.number(4)?;
    loop {
        let tag = parser.bytes(10)?;
        match &tag[..] {
            b"options  \0" => {
                while parser.number(2)? != u64::from(DONE) {
                    let size = parser.number(4)?;
                    parser.bytes(size)?;
                }
            }
            b"flyrecord\0" => break,
            _ => {
                return Err(Error::new(Kind::Unsupported, "holds no pages (a latency trace?)")
                    .of_field("data", 0, &tag));
            }
        }
    }
    if count > u64::from(MOST_CPUS) {
        return Err(nonsense("CPUs", count));
    }
    (0..count as usize).map(|number| Ok(Cpu::new(number, parser.number(8)?, parser.number(8)?))).collect()
}

/// Follows the options of a version 7 file; the CPUs of the first buffer with pages and its clock.
fn version_7(
    parser: &mut Parser<File>,
    files: &mut Files,
    compression: Compression,
) -> Result<(Vec<Cpu>, String)> {
    let mut next = parser.number(8)?;
    let (mut cpus, mut clock) = (Vec::new(), String::new());
    // Each section of options names a later one; a ring of them would not end.
    for _ in 0..1000 {
        if next == 0 {
            return Ok((cpus, clock));
        }
        let order = parser.order;
        let (_, section) = section(parser, next, compression)?;
        let mut options = Parser { input: &section[..], order };
        next = 0;
        while !options.input.is_empty() {
            let (id, data) = options.option()?;
            let mut option = Parser { input: &data[..], order };
            match id {
                DONE => {
                    next = option.number(8)?;
                    break;
                }
                HEADER_INFO | EVENT_FORMATS => {
                    let at = option.number(8)?;
                    let (_, content) = self::section(parser, at, compression)?;
                    let mut content = Parser { input: &content[..], order };
                    if id == HEADER_INFO {
                        content.header_info(files)?;
                    } else {
                        content.event_formats(files)?;
                    }
                }
                BUFFER if cpus.is_empty() => {
                    option.number(8)?;
                    option.word()?;
                    clock = option.word()?;
                    option.number(4)?;
                    for _ in 0..option.number(4)?.min(u64::from(MOST_CPUS)) {
                        let (number, at, size) = (option.number(4)?, option.number(8)?, option.number(8)?);
                        if size > 0 {
                            // Of compressed pages, the number of their chunks comes first.
                            let skip = if compression == Compression::None { 0 } else { 4 };
                            cpus.push(Cpu::new(
                                number as usize,
                                at.saturating_add(skip),
                                size.saturating_sub(skip),
                            ));
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Err(Error::new(Kind::Syntax, "the options of the file do not end"))
}

/// The number and content of the section at `at`, unpacked.
fn section(parser: &mut Parser<File>, at: u64, compression: Compression) -> Result<(u16, Vec<u8>)> {
    parser.input.seek(SeekFrom::Start(at)).map_err(|error| damaged(&error))?;
    let (id, flags) = (parser.number(2)? as u16, parser.number(2)? as u16);
    parser.number(4)?;
    let size = parser.number(8)?;
    if flags & COMPRESSED == 0 {
        return Ok((id, parser.bytes(size)?));
    }
    Ok((id, parser.chunk(compression)?))
}

impl Source for TraceDat {
    fn fill(&mut self, _out: &mut Vec<Request>) -> Result<bool> {
        // Its batches are in order already: see below.
        Ok(false)
    }

    fn names(&self) -> (&Names, &Names) {
        self.pipeline.names()
    }

    fn ledger(&self) -> Ledger {
        self.pipeline.ledger().clone()
    }

    fn header(&self) -> Header {
        self.header.clone()
    }

    fn progress(&self) -> Progress {
        Progress { done: self.done, total: Some(self.total) }
    }

    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        loop {
            let at_least = if self.ended { 1 } else { BATCH_ROWS };
            let batch = self.pipeline.take_batch(at_least, |_| false, &mut Meter::default());
            if batch.is_some() || self.ended {
                return Some(Ok(batch));
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.pipeline.finish();
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
