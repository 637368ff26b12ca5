//! Reads everything of a `trace.dat` file except the pages: texts of the kernel, buffers and the offsets of their pages. Also contains the
//! parser for numbers, texts and compressed chunks of the file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use emmclab_trace::{Error, ErrorClass, Result, unfilled};

use crate::event_format::KernelByteOrder;
use crate::kernel_format::Files;

/// The first bytes of every `trace.dat`.
pub(super) const MAGIC: &[u8] = b"\x17\x08\x44tracing";

const MOST_CPUS: u64 = 1 << 13;
/// Maximum number of option sections. The sections are linked; a greater number means that the links form a cycle.
const MOST_OPTION_SECTIONS: usize = 1000;

/// Ids of options in a `trace.dat` file. Options without a comment exist in both versions, 6 and 7.
const DONE: u16 = 0;
const CPU_STATISTICS: u16 = 2;
const BUFFER: u16 = 3;
const TRACE_CLOCK: u16 = 4;
/// Ids of options that contain the offset of a section, in version 7.
const HEADER_INFO: u16 = 16;
const EVENT_FORMATS: u16 = 18;
const NAMES_OF_TASKS: u16 = 21;
/// Flag of a compressed section in a `trace.dat` file.
const COMPRESSED: u16 = 1;

/// A recorded tracefs instance; the name of the main instance is empty.
#[derive(Debug, Default)]
pub(super) struct TraceBuffer {
    pub(super) name: String,
    /// Name of the clock; empty if the file does not specify it.
    pub(super) clock: String,
    pub(super) cpus: Vec<CpuPages>,
}

/// Offset and length of the pages of a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuPages {
    pub(super) cpu: usize,
    pub(super) at: u64,
    pub(super) end: u64,
}

/// The contents of a `trace.dat` file without its pages.
pub(super) struct TraceDatContents {
    pub(super) compression: TraceDatCompression,
    pub(super) page_bytes: u64,
    /// Texts that describe the format of events, for [`crate::KernelFormat::from_files`]: event formats, page layout, byte order.
    pub(super) files: Files,
    /// The main buffer and the buffers of other tracefs instances; empty buffers are omitted.
    pub(super) buffers: Vec<TraceBuffer>,
    /// The `per_cpu/cpuN/stats` texts of the main buffer.
    pub(super) statistics: Vec<String>,
    /// The text of `saved_cmdlines`: ids and names of tasks.
    pub(super) saved_names: String,
    /// The text of `trace_clock`.
    clock: String,
}

impl TraceDatContents {
    /// Reads everything of a `trace.dat` file except the pages.
    pub(super) fn read(parser: &mut TraceDatParser<File>) -> Result<Self> {
        if parser.bytes(MAGIC.len() as u64)? != MAGIC {
            return Err(Error::new(ErrorClass::UnknownFormat, "the file is not a trace.dat of trace-cmd")
                .hint("leave out --format, so that the format is recognised by the contents of the file"));
        }
        let version = parser.word()?;
        let order = parser.number(1)?;
        parser.order = if order == 0 { KernelByteOrder::Little } else { KernelByteOrder::Big };
        let _long_bytes = parser.number(1)?;
        let page_bytes = parser.number(4)?;
        let byte_order = if order == 0 { "\u{1}" } else { "\u{2}" };
        let mut contents = Self {
            compression: TraceDatCompression::None,
            page_bytes,
            files: Files::from([("byte_order".to_owned(), byte_order.to_owned())]),
            buffers: Vec::new(),
            statistics: Vec::new(),
            saved_names: String::new(),
            clock: String::new(),
        };
        match version.as_str() {
            "6" => contents.version_6(parser)?,
            "7" => {
                contents.compression = TraceDatCompression::by_name(&parser.word()?)?;
                let _compression_version = parser.word()?;
                contents.version_7(parser)?;
            }
            other => {
                return Err(Error::new(ErrorClass::Unsupported, "only versions 6 and 7 of trace.dat are supported")
                    .of_field("version", 0, other.as_bytes())
                    .hint("convert the file with `trace-cmd convert`, which writes version 7"));
            }
        }
        contents.set_clocks();
        Ok(contents)
    }

    /// Sets the clock of buffers that have none to the clock of the file.
    fn set_clocks(&mut self) {
        // The text has the format of tracefs, `[local] global counter ...` with the selected clock in brackets, or is only the name of the
        // clock.
        let text = self.clock.trim_matches(['\0', '\n', ' ']);
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let clock = chosen.map_or(text, |(clock, _)| clock);
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.clock.is_empty()) {
            clock.clone_into(&mut buffer.clock);
        }
        self.buffers.retain(|buffer| !buffer.cpus.is_empty());
    }

    /// Reads a version 6 file: parts in a fixed order, then options and the table of CPUs.
    fn version_6(&mut self, parser: &mut TraceDatParser<File>) -> Result<()> {
        self.header_info(parser)?;
        for _ in 0..parser.number(4)? {
            parser.text()?;
        }
        self.event_formats(parser)?;
        // Kernel symbols and printk formats are skipped.
        for _ in 0..2 {
            let size = parser.number(4)?;
            parser.bytes(size)?;
        }
        self.saved_names = parser.text()?;
        let cpus = parser.number(4)?;
        if cpus > MOST_CPUS {
            return Err(nonsense("CPUs", cpus));
        }
        let mut instances = Vec::new();
        loop {
            let tag = parser.bytes(10)?;
            match &tag[..] {
                b"options  \0" => self.options_6(parser, &mut instances)?,
                b"flyrecord\0" => break,
                _ => return Err(no_pages(&tag)),
            }
        }
        self.buffers.push(TraceBuffer { cpus: table_6(parser, cpus)?, ..TraceBuffer::default() });
        for (at, name) in instances {
            parser.input.seek(SeekFrom::Start(at)).map_err(|error| damaged(&error))?;
            let tag = parser.bytes(10)?;
            if tag != b"flyrecord\0" {
                return Err(no_pages(&tag));
            }
            self.buffers.push(TraceBuffer { name, cpus: table_6(parser, cpus)?, ..TraceBuffer::default() });
        }
        Ok(())
    }

    /// Reads the options of a version 6 file; offsets and names of the instances are added to `instances`.
    fn options_6(&mut self, parser: &mut TraceDatParser<File>, instances: &mut Vec<(u64, String)>) -> Result<()> {
        loop {
            let id = parser.number(2)? as u16;
            if id == DONE {
                return Ok(());
            }
            let size = parser.number(4)?;
            let data = parser.bytes(size)?;
            if id == BUFFER {
                let mut option = TraceDatParser { input: &data[..], order: parser.order };
                let at = option.number(8)?;
                let name = String::from_utf8_lossy(unfilled(option.input)).into_owned();
                instances.push((at, name));
            } else {
                self.text_option(id, &data);
            }
        }
    }

    fn text_option(&mut self, id: u16, data: &[u8]) {
        let text = || String::from_utf8_lossy(data).into_owned();
        match id {
            CPU_STATISTICS => self.statistics.push(text()),
            TRACE_CLOCK => self.clock = text(),
            _ => {}
        }
    }

    /// Reads the linked option sections of a version 7 file.
    fn version_7(&mut self, parser: &mut TraceDatParser<File>) -> Result<()> {
        let mut next = parser.number(8)?;
        for _ in 0..MOST_OPTION_SECTIONS {
            if next == 0 {
                return Ok(());
            }
            let order = parser.order;
            let section = self.section(parser, next)?;
            let mut options = TraceDatParser { input: &section[..], order };
            next = 0;
            while !options.input.is_empty() {
                let (id, data) = options.option()?;
                let mut option = TraceDatParser { input: &data[..], order };
                match id {
                    DONE => {
                        next = option.number(8)?;
                        break;
                    }
                    HEADER_INFO | EVENT_FORMATS | NAMES_OF_TASKS => {
                        let content = self.section(parser, option.number(8)?)?;
                        let mut content = TraceDatParser { input: &content[..], order };
                        match id {
                            HEADER_INFO => self.header_info(&mut content)?,
                            EVENT_FORMATS => self.event_formats(&mut content)?,
                            _ => self.saved_names = content.text()?,
                        }
                    }
                    BUFFER => self.buffer_7(&mut option)?,
                    _ => self.text_option(id, &data),
                }
            }
        }
        Err(Error::new(ErrorClass::Syntax, "the list of options in the file has no end")
            .hint("copy or record the file again: it is damaged"))
    }

    fn buffer_7(&mut self, option: &mut TraceDatParser<&[u8]>) -> Result<()> {
        let _section = option.number(8)?;
        let (name, clock) = (option.word()?, option.word()?);
        let _page_bytes = option.number(4)?;
        let count = option.number(4)?;
        if count > MOST_CPUS {
            return Err(nonsense("CPUs", count));
        }
        // In a compressed file, the pages of a CPU begin with the number of chunks, which is skipped.
        let skip = if self.compression == TraceDatCompression::None { 0 } else { 4 };
        let mut cpus = Vec::new();
        for _ in 0..count {
            let (cpu, at, size) = (option.number(4)?, option.number(8)?, option.number(8)?);
            if cpu >= MOST_CPUS {
                return Err(nonsense("CPU", cpu));
            }
            cpus.extend(pages(cpu, at.saturating_add(skip), size.saturating_sub(skip)));
        }
        self.buffers.push(TraceBuffer { name, clock, cpus });
        Ok(())
    }

    /// The decompressed contents of the section at `at`.
    fn section(&self, parser: &mut TraceDatParser<File>, at: u64) -> Result<Vec<u8>> {
        parser.input.seek(SeekFrom::Start(at)).map_err(|error| damaged(&error))?;
        let _id = parser.number(2)?;
        let flags = parser.number(2)? as u16;
        let _description = parser.number(4)?;
        let size = parser.number(8)?;
        if flags & COMPRESSED == 0 { parser.bytes(size) } else { parser.chunk(self.compression) }
    }

    fn header_info<R: Read>(&mut self, parser: &mut TraceDatParser<R>) -> Result<()> {
        for name in ["header_page", "header_event"] {
            let section = parser.word()?;
            if section != name {
                return Err(Error::new(ErrorClass::Syntax, format!("this section of the trace.dat must be `{name}`"))
                    .of_field("section", 0, section.as_bytes())
                    .hint("copy or record the file again: it is damaged"));
            }
            self.files.insert(format!("events/{name}"), parser.text()?);
        }
        Ok(())
    }

    fn event_formats<R: Read>(&mut self, parser: &mut TraceDatParser<R>) -> Result<()> {
        for _ in 0..parser.number(4)? {
            let system = parser.word()?;
            for _ in 0..parser.number(4)? {
                let text = parser.text()?;
                if let Some(name) = text.lines().find_map(|line| line.strip_prefix("name:")) {
                    self.files.insert(format!("events/{system}/{}/format", name.trim()), text);
                }
            }
        }
        Ok(())
    }
}

fn table_6(parser: &mut TraceDatParser<File>, cpus: u64) -> Result<Vec<CpuPages>> {
    let mut out = Vec::new();
    for cpu in 0..cpus {
        let (at, size) = (parser.number(8)?, parser.number(8)?);
        out.extend(pages(cpu, at, size));
    }
    Ok(out)
}

fn pages(cpu: u64, at: u64, size: u64) -> Option<CpuPages> {
    (size > 0).then(|| CpuPages { cpu: cpu as usize, at, end: at.saturating_add(size) })
}

fn no_pages(tag: &[u8]) -> Error {
    Error::new(ErrorClass::Unsupported, "the trace.dat contains no pages of events")
        .of_field("data", 0, tag)
        .hint("record events in place of this latency trace, with `trace-cmd record -e block`")
}

/// Maximum size of a part, in bytes. Event formats and symbols of a large kernel have about 10 MB.
const LARGEST_PART: u64 = 1 << 28;

/// The compression of a version 7 `trace.dat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceDatCompression {
    None,
    Zlib,
    Zstd,
}

impl TraceDatCompression {
    /// Returns the compression that has this name in the file.
    pub(super) fn by_name(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(TraceDatCompression::None),
            "zlib" => Ok(TraceDatCompression::Zlib),
            "zstd" => Ok(TraceDatCompression::Zstd),
            other => Err(Error::new(ErrorClass::Unsupported, "the compression of the trace.dat is not supported")
                .of_field("compression", 0, other.as_bytes())
                .hint("write the file without compression: `trace-cmd convert --compression none`")),
        }
    }
}

/// Reads numbers in the byte order of the file.
pub(super) struct TraceDatParser<R> {
    pub(super) input: R,
    pub(super) order: KernelByteOrder,
}

/// The error for input that is truncated or cannot be decompressed.
pub(super) fn damaged(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(ErrorClass::Truncated, "the file ends too early")
            .hint("if trace-cmd was killed, `trace-cmd restore` creates a complete file from its temporary files"),
        _ => Error::new(ErrorClass::Io, format!("reading the trace.dat failed: {error}"))
            .hint("copy or record the file again: it is cut short or damaged"),
    }
}

/// The error for a number that cannot occur in a valid `trace.dat` file.
pub(super) fn nonsense(what: &str, value: u64) -> Error {
    Error::new(ErrorClass::Value, "a trace.dat cannot contain this value")
        .of_field(what, 0, value.to_string().as_bytes())
        .hint("copy or record the file again: it is damaged")
}

impl<R: Read> TraceDatParser<R> {
    pub(super) fn number(&mut self, size: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes[..size]).map_err(|error| damaged(&error))?;
        Ok(self.order.unsigned(&bytes, 0, size).unwrap_or(0))
    }

    /// Reads `size` bytes; memory is allocated only for bytes that exist.
    pub(super) fn bytes(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > LARGEST_PART {
            return Err(nonsense("size", size));
        }
        let mut out = Vec::new();
        let read = self.input.by_ref().take(size).read_to_end(&mut out).map_err(|error| damaged(&error))?;
        if read as u64 == size { Ok(out) } else { Err(damaged(&io::Error::from(io::ErrorKind::UnexpectedEof))) }
    }

    /// Reads a zero-terminated text.
    pub(super) fn word(&mut self) -> Result<String> {
        let mut out = Vec::new();
        while out.len() < 256 {
            match self.number(1)? as u8 {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                byte => out.push(byte),
            }
        }
        Err(Error::new(ErrorClass::Syntax, "a name in a trace.dat has at most 255 bytes")
            .of_field("name", 0, &out)
            .hint("copy or record the file again: it is damaged"))
    }

    /// Reads a text that is preceded by its length.
    pub(super) fn text(&mut self) -> Result<String> {
        let size = self.number(8)?;
        Ok(String::from_utf8_lossy(&self.bytes(size)?).into_owned())
    }

    /// Reads the id and the data of an option.
    pub(super) fn option(&mut self) -> Result<(u16, Vec<u8>)> {
        let id = self.number(2)? as u16;
        let size = self.number(4)?;
        Ok((id, self.bytes(size)?))
    }

    /// Reads a chunk of compressed data, which is preceded by its two sizes.
    pub(super) fn chunk(&mut self, compression: TraceDatCompression) -> Result<Vec<u8>> {
        let (packed, plain) = (self.number(4)?, self.number(4)?);
        if plain > LARGEST_PART {
            return Err(nonsense("chunk size", plain));
        }
        let packed = self.bytes(packed)?;
        let mut out = Vec::new();
        let unpacked = match compression {
            TraceDatCompression::None => return Ok(packed),
            TraceDatCompression::Zlib => flate2::read::ZlibDecoder::new(&packed[..]).take(plain).read_to_end(&mut out),
            TraceDatCompression::Zstd => {
                zstd::Decoder::new(&packed[..]).and_then(|decoder| decoder.take(plain).read_to_end(&mut out))
            }
        };
        match unpacked {
            Ok(unpacked) if unpacked as u64 == plain => Ok(out),
            Ok(_) => Err(damaged(&io::Error::from(io::ErrorKind::UnexpectedEof))),
            Err(error) => Err(damaged(&error)),
        }
    }
}
