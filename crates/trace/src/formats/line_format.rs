//! The common part of all line-based formats: lines, fields, numbers, and errors with their position.

use std::borrow::Cow;
use std::io::{Read, Write};

use super::fields::{NameIdCache, text};
use super::{FormatTimes, input::damaged};
use crate::{
    AtomicFile, Batch, DecompressedInput, Error, ErrorClass, EventTally, Ledger, NameId, NameTable, ReadOptions, ReadProgress,
    Request, Result, TraceHeader, TraceSink, TraceSource,
};

/// State of a reader that its line format updates.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct ParseContext {
    pub processes: NameTable,
    pub devices: NameTable,
    pub last_process: NameIdCache,
    pub last_device: NameIdCache,
    pub ledger: Ledger,
    /// Number of the current line.
    pub line: u64,
    /// Set by the format if a line seems to be only a part of one; the following lines are then tried as its rest.
    pub broken: bool,
    /// If set, a line is parsed without the following lines, even if it seems to be incomplete.
    pub parse_unjoined: bool,
    /// Set while the parsed line is joined with the lines after it. Such a line is accepted only if it is certainly an event.
    pub joining: bool,
    /// Set by the format at a repeated heading, or at a record after the end of a recording.
    pub restarts: bool,
}

impl ParseContext {
    /// Excludes a line from the number of lines seen, because it is a heading, a comment or a summary.
    pub(crate) fn no_record(&mut self) {
        self.ledger.seen -= 1;
    }

    /// The id of the process with this name.
    #[inline]
    pub(crate) fn process(&mut self, name: &[u8]) -> Result<NameId> {
        self.last_process.id(name, &mut self.processes, |raw| Ok(text(raw)))
    }

    /// The id of the device with this name.
    #[inline]
    pub(crate) fn device(&mut self, name: &[u8]) -> Result<NameId> {
        self.device_named(name, |raw| Ok(text(raw)))
    }

    /// The id of a device; `label` converts `raw` into its name.
    #[inline]
    pub(crate) fn device_named<'a>(
        &mut self, raw: &'a [u8], label: impl FnOnce(&'a [u8]) -> Result<Cow<'a, str>>,
    ) -> Result<NameId> {
        self.last_device.id(raw, &mut self.devices, label)
    }

    /// Counts a record that is not a request.
    pub(crate) fn skip(&mut self) {
        self.ledger.skipped += 1;
    }

    /// If `rounded` is set, counts a request whose start or end was rounded to a whole sector.
    #[inline]
    pub(crate) fn round(&mut self, rounded: bool) {
        self.ledger.rounded += u64::from(rounded);
    }

    /// Counts a line that does not belong to the trace.
    pub(crate) fn foreign(&mut self) {
        self.no_record();
        self.ledger.foreign += 1;
    }

    /// Marks the line as broken unless it must be parsed without the following lines; returns whether it was marked. If so, the caller
    /// stops, and the line is tried again joined with the following lines.
    pub(crate) fn waits_for_rest(&mut self) -> bool {
        self.broken = !self.parse_unjoined;
        self.broken
    }
}

/// A format in which each line is a record. `parse` appends the requests of a line, usually one or none.
pub(crate) trait LineFormat: Send + 'static {
    /// Parses a non-empty line without its line end.
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()>;
    /// Parses the first line. Returns its request and the lines after it. Returns `None` if the line is not well formed, does not contain
    /// exactly one request, or is not complete in the text. Then [`LineFormat::parse`] reads the line.
    #[inline]
    fn parse_fast<'a>(&mut self, _lines: &'a [u8], _context: &mut ParseContext) -> Option<(Request, &'a [u8])> {
        None
    }
    /// Parses lines with [`LineFormat::parse_fast`] and appends their requests. Stops at a line that needs [`LineFormat::parse`], or when
    /// `out` has `goal` requests. Returns the remaining lines. This loop is compiled for each format, so many lines need only one call
    /// through a pointer.
    fn parse_fast_run<'a>(
        &mut self, mut lines: &'a [u8], goal: usize, context: &mut ParseContext, out: &mut Vec<Request>,
    ) -> &'a [u8] {
        while out.len() < goal
            && let Some((request, rest)) = self.parse_fast(lines, context)
        {
            out.push(request);
            lines = rest;
        }
        lines
    }
    /// Called once at the end of the input, for formats that pair events.
    fn finish(&mut self, _context: &mut ParseContext, _out: &mut Vec<Request>) -> Result<()> {
        Ok(())
    }
    /// Whether a line that is not a record may be the rest of a broken line before it.
    fn may_be_rest(&self, _line: &[u8]) -> bool {
        false
    }
    /// Like [`TraceSource::in_file_order`].
    fn in_file_order(&self) -> bool {
        true
    }
    /// Like [`TraceSource::times`].
    fn times(&self) -> Option<FormatTimes> {
        None
    }
    /// Like [`TraceSource::tally`].
    fn tally(&self) -> EventTally {
        EventTally::default()
    }
    /// The entries of the trace header that the format determines. By default, the header only states that the clock is relative.
    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "relative".into(), ..TraceHeader::default() }
    }
}

/// Maximum length of a line in bytes; a file with longer lines is not text.
const MAX_LINE: usize = 1 << 16;
const CHUNK: usize = 1 << 18;
/// Number of requests that are parsed together: few enough to stay in the cache until the reader processes them.
const ROWS: usize = 1 << 8;
/// Maximum number of lines that are joined to a broken line.
const MOST_PARTS: u64 = 12;
/// Maximum number of lines after an invalid one that are parsed to decide whether the hint suggests skipping invalid lines.
const MOST_TRIED: usize = 1 << 12;

/// Reads an input in a [`LineFormat`].
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct LineSource {
    format_name: &'static str,
    format: Box<dyn LineFormat>,
    context: ParseContext,
    lenient: bool,
    name: String,
    path: std::path::PathBuf,
    reader: Box<dyn Read + Send>,
    meter: Box<dyn Fn() -> ReadProgress + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    line: u64,
    ended: bool,
    finished: bool,
    has_returned_requests: bool,
    /// The first non-empty line.
    first_line: Option<FirstLine>,
    /// Arrival and end of the last returned request.
    last: Option<RequestSpan>,
    /// The line at which another recording may begin, with the times of the request before it.
    restart_at: Option<(u64, Option<RequestSpan>)>,
}

struct FirstLine {
    text: Vec<u8>,
    /// Whether the first line is not a record, but a heading.
    is_heading: bool,
}

/// Arrival and end of a request; without an end, the arrival twice.
type RequestSpan = (i64, i64);

/// Minimum length of a first line whose repetition is recognised; shorter lines are separators.
const LEAST_FIRST: usize = 8;

fn times_of(request: &Request) -> RequestSpan {
    (request.arrival.0, request.complete.unwrap_or(request.arrival).0)
}

impl LineSource {
    /// Reads the lines of a file in this format.
    pub(crate) fn open(
        format_name: &'static str, format: impl LineFormat, input: DecompressedInput, options: &ReadOptions,
    ) -> Result<Box<dyn TraceSource>> {
        Ok(Box::new(Self::over(format_name, Box::new(format), input, options, |bytes| bytes)))
    }

    /// Creates a reader of text lines. The function `text` converts the bytes of the file to text.
    pub(crate) fn over(
        format_name: &'static str, format: Box<dyn LineFormat>, input: DecompressedInput, options: &ReadOptions,
        text: impl FnOnce(Box<dyn Read + Send>) -> Box<dyn Read + Send>,
    ) -> Self {
        Self {
            format_name,
            format,
            context: ParseContext::default(),
            lenient: options.lenient,
            name: input.name(),
            path: input.path().to_owned(),
            meter: Box::new(input.meter()),
            reader: text(Box::new(input.into_reader())),
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            line: 0,
            ended: false,
            finished: false,
            has_returned_requests: false,
            first_line: None,
            last: None,
            restart_at: None,
        }
    }

    /// Moves the incomplete line to the front of the buffer and fills the rest of the buffer.
    fn refill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > MAX_LINE {
            return Err(Error::new(ErrorClass::Syntax, format!("the line is longer than {MAX_LINE} bytes"))
                .at_line(self.line + 1)
                .hint("this is not a text trace; `emmclab formats` lists the formats that can be read"));
        }
        let n = loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => break result.map_err(|error| damaged(&self.path, error).at_line(self.line + 1))?,
            }
        };
        self.end += n;
        self.ended = n == 0;
        Ok(())
    }

    #[inline]
    fn parse_line(&mut self, length: usize, out: &mut Vec<Request>) -> Result<()> {
        let from = self.start;
        self.start = (from + length + 1).min(self.end);
        self.line += 1;
        let line = without_return(&self.buffer[from..from + length]);
        if line.is_empty() {
            return Ok(());
        }
        if self.first_line.as_ref().is_some_and(|first| first.text == line) {
            self.restart_at = Some((self.line, out.last().map(times_of).or(self.last)));
            if self.first_line.as_ref().is_some_and(|first| first.is_heading) {
                return Ok(());
            }
        }
        let seen = self.context.ledger.seen;
        self.context.ledger.seen += 1;
        self.context.line = self.line;
        let rows = out.len();
        match self.format.parse(line, &mut self.context, out) {
            Ok(()) if !self.context.broken => {}
            result => {
                out.truncate(rows);
                return self.join(from, length, result.err(), out);
            }
        }
        if self.first_line.is_none() {
            let line = without_return(&self.buffer[from..from + length]);
            let text = if line.len() < LEAST_FIRST { Vec::new() } else { line.to_vec() };
            self.first_line = Some(FirstLine { text, is_heading: self.context.ledger.seen == seen });
        }
        if self.context.restarts {
            self.context.restarts = false;
            self.restart_at = Some((self.line, out[..rows].last().map(times_of).or(self.last)));
        }
        Ok(())
    }

    /// Returns an error if the file contains a second recording. `requests` are the first requests after a line at which a second recording
    /// may begin. It does if these requests are earlier than the requests before the line.
    #[cold]
    fn check_beginning(&mut self, requests: &[Request]) -> Result<()> {
        let (Some((line, before)), Some(next)) = (self.restart_at, requests.first()) else { return Ok(()) };
        self.restart_at = None;
        let (Some((arrival, end)), next) = (before, times_of(next)) else { return Ok(()) };
        let is_heading = self.first_line.as_ref().is_none_or(|first| first.is_heading);
        let is_again = if is_heading { next.0 <= arrival && next.1 <= end } else { next.0 < arrival && next.1 < end };
        if !is_again {
            return Ok(());
        }
        let problem = "a recording begins here, but the file already contains one: its beginning is repeated, and times go back";
        Err(Error::new(ErrorClass::Syntax, problem).at_line(line).hint(format!(
            "read each alone: `head -n {} FILE > first.txt`, `tail -n +{line} FILE > second.txt`; if the second is only a copy, \
             the first is the whole recording",
            line - 1
        )))
    }

    /// Parses an invalid or probably broken line. The line is joined with the following lines if the result is certainly a whole line;
    /// otherwise it is parsed alone.
    #[cold]
    fn join(&mut self, from: usize, length: usize, fault: Option<Error>, out: &mut Vec<Request>) -> Result<()> {
        self.context.broken = false;
        let number = self.line;
        let own = without_return(&self.buffer[from..from + length]).to_vec();
        let rows = out.len();
        if self.take_with_rest(&own, out)? {
            return Ok(());
        }
        let result = fault.map_or_else(
            || {
                self.context.parse_unjoined = true;
                let result = self.format.parse(&own, &mut self.context, out);
                self.context.parse_unjoined = false;
                result
            },
            Err,
        );
        match result {
            Err(_) if self.lenient => {
                out.truncate(rows);
                self.context.ledger.skipped += 1;
                Ok(())
            }
            Err(error) => {
                let good = self.has_returned_requests || !out.is_empty() || self.others_are_good();
                Err(error.at_line(number).hint(if good {
                    "use --lenient to skip and count bad lines"
                } else {
                    "the lines after it contain no request either: check that the file is complete, and of this format \
                     (`emmclab formats` lists what can be read)"
                }))
            }
            Ok(()) => Ok(()),
        }
    }

    /// Joins a line with the following lines until the result is a complete line. Returns false, and consumes no further line, if no number
    /// of lines gives a complete one.
    fn take_with_rest(&mut self, own: &[u8], out: &mut Vec<Request>) -> Result<bool> {
        // Programs break lines at a blank, which they remove, or inside a word.
        let mut joined = [(&b" "[..], own.to_vec()), (&b""[..], own.to_vec())];
        let (mut used, rows) = (0, out.len());
        for count in 1..=MOST_PARTS {
            let Some(length) = self.line_behind(used)? else { return Ok(false) };
            let at = self.start + used;
            let mut line = without_return(&self.buffer[at..at + length]);
            if own.starts_with(b"> ") {
                line = line.strip_prefix(b"> ").unwrap_or(line);
            }
            if line.trim_ascii().is_empty() || !self.format.may_be_rest(line) {
                return Ok(false);
            }
            used += length + 1;
            for (glue, text) in &mut joined {
                text.extend_from_slice(glue);
                text.extend_from_slice(line);
                let ledger = self.context.ledger.clone();
                self.context.joining = true;
                let result = self.format.parse(text, &mut self.context, out);
                self.context.joining = false;
                if result.is_ok() && !self.context.broken {
                    self.start = (self.start + used).min(self.end);
                    self.line += count;
                    self.context.ledger.joined += count;
                    return Ok(true);
                }
                out.truncate(rows);
                self.context.broken = false;
                self.context.ledger = ledger;
            }
        }
        Ok(false)
    }

    /// Length of the line that begins `used` bytes after the current position; `None` at the end of the text.
    fn line_behind(&mut self, used: usize) -> Result<Option<usize>> {
        loop {
            let text = self.buffer.get(self.start + used..self.end).unwrap_or(&[]);
            if let Some(length) = memchr::memchr(b'\n', text) {
                return Ok(Some(length));
            }
            if self.ended || self.end - self.start > MAX_LINE {
                return Ok((!text.is_empty()).then_some(text.len()));
            }
            self.refill()?;
        }
    }

    /// Whether the buffered lines after an invalid one contain a valid request. This changes the state of the format, so reading
    /// must end afterwards.
    fn others_are_good(&mut self) -> bool {
        let mut requests = Vec::new();
        let ledger = self.context.ledger.clone();
        for line in self.buffer[self.start..self.end].split(|byte| *byte == b'\n').take(MOST_TRIED) {
            let line = without_return(line);
            if !line.is_empty() {
                self.context.ledger.seen += 1;
                let rows = requests.len();
                if self.format.parse(line, &mut self.context, &mut requests).is_err() {
                    requests.truncate(rows);
                }
            }
        }
        let _ = self.format.finish(&mut self.context, &mut requests);
        self.context.ledger = ledger;
        !requests.is_empty()
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

impl TraceSource for LineSource {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let goal = out.len() + ROWS;
        while out.len() < goal {
            let text = &self.buffer[self.start..self.end];
            let before = out.len();
            let text = self.format.parse_fast_run(text, goal, &mut self.context, out);
            let lines = (out.len() - before) as u64;
            self.line += lines;
            self.context.ledger.seen += lines;
            self.start = self.end - text.len();
            if out.len() == goal {
                self.check_beginning(&out[before..])?;
                break;
            }
            match memchr::memchr(b'\n', text) {
                Some(length) => self.parse_line(length, out)?,
                None if !self.ended => self.refill()?,
                None => {
                    // The last line may lack its line end.
                    if self.end > self.start {
                        self.parse_line(self.end - self.start, out)?;
                    }
                    if !self.finished {
                        self.finished = true;
                        self.format.finish(&mut self.context, out)?;
                    }
                    self.check_beginning(&out[before..])?;
                    return Ok(false);
                }
            }
            if self.restart_at.is_some() {
                self.check_beginning(&out[before..])?;
            }
        }
        self.last = out.last().map(times_of).or(self.last);
        self.has_returned_requests = true;
        Ok(true)
    }

    fn in_file_order(&self) -> bool {
        self.format.in_file_order()
    }

    fn times(&self) -> Option<FormatTimes> {
        self.format.times()
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (&self.context.processes, &self.context.devices)
    }

    fn ledger(&self) -> Ledger {
        self.context.ledger.clone()
    }

    fn tally(&self) -> EventTally {
        self.format.tally()
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { source: self.name.clone(), format: self.format_name.into(), ..self.format.header() }
    }

    fn progress(&self) -> ReadProgress {
        (self.meter)()
    }
}

/// The part of a text format that writes lines.
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

impl<W: LineWriter + 'static> LineSink<W> {
    /// Starts writing a file with the lines before the first request.
    pub(crate) fn create(file: AtomicFile, mut writer: W) -> Result<Box<dyn TraceSink>> {
        let mut buffer = Vec::new();
        writer.heading(&mut buffer);
        Ok(Box::new(Self { file, writer, buffer }))
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all(&self.buffer).map_err(|error| Error::io(self.file.path(), error))?;
        self.buffer.clear();
        Ok(())
    }
}

impl<W: LineWriter + 'static> TraceSink for LineSink<W> {
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
