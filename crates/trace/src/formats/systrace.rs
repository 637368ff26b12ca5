//! Output of Android's systrace and atrace: the text of the kernel's tracer in an HTML page, or after the output of atrace.
//!
//! A page has the text between `<script class="trace-data" type="application/text">` and `</script>` (one of several such
//! scripts; the others have data of other agents). Before 2015 it was a string, `var linuxPerfData = "\`, whose lines end in
//! `\n\`. Compressed pages have it as gzip in base64 between `<script id="viewer-data" type="application/json">` and `</script>`.
//! atrace prints `TRACE:` before the text, and with `-z` compresses the text with deflate. Source: `systrace.py`,
//! `output_generator.py`, `trace2html.py` of the Catapult project and `atrace.cpp` of Android.
//!
//! Other lines of the page are returned as empty lines, so that errors have the line number in the file.

use std::io::{self, BufRead, BufReader, Read};

use memchr::memmem;

use super::ftrace::FtraceFormat;
use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "systrace",
    about: "Android systrace HTML and atrace output (plain or -z) with block events",
    known_by: "a page of HTML, or `TRACE:` in a line of its own",
    from: "`systrace.py -o page.html disk`, `atrace -t 10 disk` ([guide](../guides/read-what-others-recorded.md#systrace-and-atrace))",
    gives: TraceColumn::OF_EVENTS,
    unknown: "the wait in the queue: the category `disk` has issues and completions only",
    recorded: RecordedFeatures::BLOCK_EVENTS,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head, _| is_page(head) || begin_of_atrace(head).is_some(),
    open,
    ..TraceFormat::READ_ONLY
};

/// Maximum length of a trace line in bytes. Longer lines of the HTML page belong to its scripts.
const LONGEST_LINE: usize = 1 << 16;

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let format = Box::new(FtraceFormat::default());
    let begin = begin_of_atrace(input.head());
    Ok(Box::new(LineSource::over(FORMAT.name, format, input, options, |text| match begin {
        Some(begin) => after_words(text, begin),
        None => Box::new(SystracePage::new(text)),
    })))
}

/// Whether the file is an HTML page.
fn is_page(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    let start = &head[..head.len().min(15)].to_ascii_lowercase();
    start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
}

/// The offset at which the trace begins in the output of atrace, after the line `TRACE:`; `None` if the file is not from atrace.
fn begin_of_atrace(head: &[u8]) -> Option<usize> {
    const WORDS: usize = 1 << 10;
    const MARK: &[u8] = b"TRACE:";
    let at = memmem::find(&head[..head.len().min(WORDS)], MARK)?;
    let own_line = at == 0 || head[at - 1] == b'\n';
    let end = at + MARK.len();
    let end = end + usize::from(head.get(end) == Some(&b'\r'));
    (own_line && head.get(end) == Some(&b'\n') && head[..at].is_ascii()).then_some(end + 1)
}

/// The text after the first `begin` bytes of atrace's output, decompressed if necessary.
fn after_words(mut text: Box<dyn Read + Send>, begin: usize) -> Box<dyn Read + Send> {
    let mut words = Vec::new();
    let mut first = [0; 2];
    let mut got = 0;
    let result = text.by_ref().take(begin as u64).read_to_end(&mut words).and_then(|_| {
        while got < first.len() {
            match text.read(&mut first[got..])? {
                0 => break,
                more => got += more,
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        return Box::new(FailingReader(Some(error)));
    }
    // The lines that atrace itself prints become empty lines, so that line numbers stay correct.
    words.retain(|byte| *byte == b'\n');
    let rest = io::Cursor::new(first[..got].to_vec()).chain(text);
    let deflated = first[0] == 0x78 && u16::from_be_bytes(first).is_multiple_of(31);
    let text: Box<dyn Read + Send> = if deflated { Box::new(flate2::read::ZlibDecoder::new(rest)) } else { Box::new(rest) };
    Box::new(io::Cursor::new(words).chain(text))
}

/// An input that returns the error that occurred while its beginning was read.
struct FailingReader(Option<io::Error>);

impl Read for FailingReader {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The part of a page that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SystracePart {
    /// The reader is outside of the trace.
    Outside,
    /// The reader is in a script that contains the data of a tracing agent, possibly of the kernel's tracer.
    Unknown,
    /// The reader is in the text of the tracer.
    Text,
    /// The reader is in a string that contains the text of the tracer, as in pages from before 2015.
    Quoted,
}

/// Reads the text in a page; each line keeps its line number.
struct SystracePage {
    input: BufReader<Box<dyn Read + Send>>,
    part: SystracePart,
    line: Vec<u8>,
    returned_bytes: usize,
    /// The text of a compressed page; it is read instead of the rest of the page.
    inner: Option<Box<dyn Read + Send>>,
}

impl SystracePage {
    fn new(page: Box<dyn Read + Send>) -> Self {
        Self {
            input: BufReader::with_capacity(1 << 18, page),
            part: SystracePart::Outside,
            line: Vec::new(),
            returned_bytes: 0,
            inner: None,
        }
    }

    /// Reads the next line with its line end, or only the beginning of a very long line. Returns false at the end of the page.
    fn next_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        self.returned_bytes = 0;
        let limit = LONGEST_LINE as u64 + 1;
        if self.input.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        let mut ended = self.line.ends_with(b"\n");
        if !ended && self.line.len() > LONGEST_LINE && self.part != SystracePart::Text {
            while !ended {
                let buffer = self.input.fill_buf()?;
                let end = memchr::memchr(b'\n', buffer);
                let used = end.map_or(buffer.len(), |end| end + 1);
                ended = end.is_some() || buffer.is_empty();
                self.input.consume(used);
            }
            self.line.push(b'\n');
        }
        Ok(true)
    }

    /// Replaces the line by the trace text that it contains, or by an empty line if it contains none.
    fn sort_out(&mut self) {
        let line = self.line.trim_ascii();
        let is_text = match self.part {
            SystracePart::Outside => {
                if line.starts_with(b"<script") && memmem::find(line, b"trace-data").is_some() {
                    self.part = SystracePart::Unknown;
                } else if line.starts_with(b"var linuxPerfData") {
                    self.part = SystracePart::Quoted;
                } else if line.starts_with(b"<script") && memmem::find(line, b"viewer-data").is_some() {
                    let rest = std::mem::replace(&mut self.input, BufReader::new(Box::new(io::empty())));
                    self.inner = Some(inflate(Base64Decoder { input: rest, ended: false, bits: 0, bit_count: 0 }));
                }
                false
            }
            _ if line.ends_with(b"</script>") => {
                self.part = SystracePart::Outside;
                false
            }
            SystracePart::Unknown if line.is_empty() => false,
            SystracePart::Unknown => {
                let is_text = line.starts_with(b"#") || line == b"TRACE:";
                self.part = if is_text { SystracePart::Text } else { SystracePart::Outside };
                is_text && line != b"TRACE:"
            }
            SystracePart::Text => true,
            SystracePart::Quoted if line == b"\";" || line == b"\"" => {
                self.part = SystracePart::Outside;
                false
            }
            SystracePart::Quoted => {
                const END: &[u8] = br#"\n";"#;
                let ends = line.ends_with(END);
                if ends || line.ends_with(br"\n\") {
                    let filling = if ends { END.len() } else { END.len() - 1 };
                    self.line.truncate(self.line.trim_ascii_end().len() - filling);
                    self.line.push(b'\n');
                }
                if ends {
                    self.part = SystracePart::Outside;
                }
                true
            }
        };
        if !is_text {
            self.line.clear();
            self.line.push(b'\n');
        }
    }
}

impl Read for SystracePage {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.returned_bytes >= self.line.len() {
            if let Some(inner) = &mut self.inner {
                return inner.read(buffer);
            }
            if !self.next_line()? {
                return Ok(0);
            }
            self.sort_out();
        }
        let length = buffer.len().min(self.line.len() - self.returned_bytes);
        buffer[..length].copy_from_slice(&self.line[self.returned_bytes..self.returned_bytes + length]);
        self.returned_bytes += length;
        Ok(length)
    }
}

/// The text in the decoded base64, which is gzipped or plain.
fn inflate(data: Base64Decoder<BufReader<Box<dyn Read + Send>>>) -> Box<dyn Read + Send> {
    let mut data = BufReader::new(data);
    let gzipped = data.fill_buf().is_ok_and(|start| start.starts_with(&[0x1f, 0x8b]));
    if gzipped { Box::new(flate2::bufread::MultiGzDecoder::new(data)) } else { Box::new(data) }
}

/// Decodes base64 text up to the first other character. Source: RFC 4648, section 4.
struct Base64Decoder<R> {
    input: R,
    ended: bool,
    /// Bits of an incomplete byte.
    bits: u32,
    /// Number of bits in `bits`.
    bit_count: u32,
}

impl<R: BufRead> Read for Base64Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() && !self.ended {
            let text = self.input.fill_buf()?;
            self.ended = text.is_empty();
            let mut used = 0;
            for &byte in text {
                if filled == buffer.len() {
                    break;
                }
                used += 1;
                let value = match byte {
                    b'A'..=b'Z' => byte - b'A',
                    b'a'..=b'z' => byte - b'a' + 26,
                    b'0'..=b'9' => byte - b'0' + 52,
                    b'+' => 62,
                    b'/' => 63,
                    b'\n' | b'\r' | b' ' | b'\t' => continue,
                    _ => {
                        self.ended = true;
                        break;
                    }
                };
                self.bits = self.bits << 6 | u32::from(value);
                self.bit_count += 6;
                if self.bit_count >= 8 {
                    self.bit_count -= 8;
                    buffer[filled] = (self.bits >> self.bit_count) as u8;
                    filled += 1;
                }
            }
            self.input.consume(used);
        }
        Ok(filled)
    }
}
