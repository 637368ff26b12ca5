//! The common part of all line-by-line formats: lines, fields, numbers, and errors that name the place.

use std::borrow::Cow;
use std::io::Read;

use emmclab_base::{Error, Kind, NameId, Request, Result, SECTOR_BYTES, Sector};

use super::format::ReadOptions;
use super::input::{Input, damaged};
use super::time_unit::TimeUnit;
use crate::header::Header;
use crate::ledger::Ledger;
use crate::names::Names;
use crate::source::{Progress, Source};

/// Longest line accepted; a longer one is no text.
const MAX_LINE: usize = 1 << 16;
const CHUNK: usize = 1 << 18;
/// Requests parsed at a time: they stay in the cache until the reader has taken them.
const ROWS: usize = 1 << 8;

/// The state that a line format keeps and fills while it reads.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub processes: Names,
    pub devices: Names,
    pub ledger: Ledger,
}

impl Context {
    /// Takes back the count of a line that is a heading, a comment or a summary.
    pub(crate) fn no_record(&mut self) {
        self.ledger.seen -= 1;
    }

    /// Counts a record of a kind that is no request.
    pub(crate) fn skip(&mut self) {
        self.ledger.skipped += 1;
    }
}

/// A format in which a line is a record. `parse` appends the requests that the line yields (often one, maybe none).
pub(crate) trait LineFormat: Send {
    /// Parses a line without its end; never called with an empty line.
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()>;
    /// Parses the first of the lines, where it is well formed and gives one request, and returns the others; `None` also
    /// where the text ends within the line. [`LineFormat::parse`] then takes the line and names its fault.
    #[inline]
    fn parse_fast<'a>(&mut self, _lines: &'a [u8], _context: &mut Context) -> Option<(Request, &'a [u8])> {
        None
    }
    /// Called once at the end of the input, for formats that pair events.
    fn finish(&mut self, _context: &mut Context, _out: &mut Vec<Request>) -> Result<()> {
        Ok(())
    }
    /// As [`Source::in_file_order`].
    fn in_file_order(&self) -> bool {
        true
    }
    /// Format name, clock and device for the header.
    fn header(&self) -> Header;
}

/// Drives a [`LineFormat`] over an input.
pub(crate) struct LineSource<F> {
    format: F,
    context: Context,
    lenient: bool,
    name: String,
    path: std::path::PathBuf,
    reader: Box<dyn Read + Send>,
    meter: Box<dyn Fn() -> Progress + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    line: u64,
    ended: bool,
    finished: bool,
}

impl<F: LineFormat> LineSource<F> {
    pub(crate) fn new(format: F, input: Input, options: &ReadOptions) -> Self {
        Self::over(format, input, options, |bytes| bytes)
    }

    /// Reads the lines that `text` makes of the bytes of the file.
    pub(crate) fn over(
        format: F,
        input: Input,
        options: &ReadOptions,
        text: impl FnOnce(Box<dyn Read + Send>) -> Box<dyn Read + Send>,
    ) -> Self {
        Self {
            format,
            context: Context::default(),
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
        }
    }

    /// Moves the unfinished line to the front and reads more behind it.
    fn refill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end > MAX_LINE {
            return Err(Error::new(Kind::Syntax, format!("the line is longer than {MAX_LINE} bytes"))
                .at_line(self.line + 1)
                .hint("see `emmclab formats` for what can be read; this is not a text trace"));
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

    fn one(&mut self, from: usize, to: usize, out: &mut Vec<Request>) -> Result<()> {
        self.line += 1;
        let mut line = &self.buffer[from..to];
        if let [rest @ .., b'\r'] = line {
            line = rest;
        }
        if line.is_empty() {
            return Ok(());
        }
        self.context.ledger.seen += 1;
        let rows = out.len();
        match self.format.parse(line, &mut self.context, out) {
            Err(_) if self.lenient => {
                out.truncate(rows);
                self.context.ledger.skipped += 1;
                Ok(())
            }
            result => result
                .map_err(|error| error.at_line(self.line).hint("give --lenient to skip and count bad lines")),
        }
    }
}

impl<F: LineFormat> Source for LineSource<F> {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let goal = out.len() + ROWS;
        while out.len() < goal {
            let mut text = &self.buffer[self.start..self.end];
            let before = out.len();
            while let Some((request, rest)) = self.format.parse_fast(text, &mut self.context) {
                out.push(request);
                text = rest;
                if out.len() == goal {
                    break;
                }
            }
            let lines = (out.len() - before) as u64;
            self.line += lines;
            self.context.ledger.seen += lines;
            self.start = self.end - text.len();
            if out.len() == goal {
                break;
            }
            match memchr::memchr(b'\n', text) {
                Some(length) => {
                    let from = self.start;
                    self.start += length + 1;
                    self.one(from, from + length, out)?;
                }
                None if !self.ended => self.refill()?,
                None => {
                    // The last line may lack its end.
                    let (from, to) = (self.start, self.end);
                    self.start = self.end;
                    if to > from {
                        self.one(from, to, out)?;
                    }
                    if !self.finished {
                        self.finished = true;
                        self.format.finish(&mut self.context, out)?;
                    }
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn in_file_order(&self) -> bool {
        self.format.in_file_order()
    }

    fn names(&self) -> (&Names, &Names) {
        (&self.context.processes, &self.context.devices)
    }

    fn ledger(&self) -> Ledger {
        self.context.ledger.clone()
    }

    fn header(&self) -> Header {
        Header { source: self.name.clone(), ..self.format.header() }
    }

    fn progress(&self) -> Progress {
        (self.meter)()
    }
}

/// The fields of a line, split at runs of blanks and tabs.
pub(crate) fn blank_separated(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// The fields of a line, split at commas.
pub(crate) fn comma_separated(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',')
}

/// The first line that is not empty, without its end.
pub(crate) fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).find(|line| !line.is_empty()).unwrap_or(&[])
}

/// True for a field of decimal digits.
pub(crate) fn is_digits(field: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(u8::is_ascii_digit)
}

/// True for digits with at most one point.
pub(crate) fn is_decimal(field: &[u8]) -> bool {
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    is_digits(whole) && fraction.iter().all(u8::is_ascii_digit)
}

/// Takes the next field or says which one is missing.
#[inline]
pub(crate) fn need<'a>(
    fields: &mut impl Iterator<Item = &'a [u8]>,
    name: &str,
    column: u64,
) -> Result<&'a [u8]> {
    fields.next().ok_or_else(|| {
        Error::new(Kind::Syntax, "the line ends before this field").of_field(name, column, b"")
    })
}

/// Refuses fields behind the last one.
#[inline]
pub(crate) fn no_more<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, column: u64) -> Result<()> {
    match fields.next() {
        Some(extra) => {
            Err(Error::new(Kind::Syntax, "the line goes on after the last field").of_field("", column, extra))
        }
        None => Ok(()),
    }
}

/// A field that is nothing but an unsigned decimal number.
#[inline]
pub(crate) fn unsigned(field: &[u8], name: &str, column: u64) -> Result<u64> {
    let mut value = 0u64;
    // 19 digits always fit.
    if field.is_empty() || field.len() > 19 {
        return unsigned_checked(field, name, column);
    }
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(not_a_number(field, name, column, false));
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(value)
}

#[cold]
fn unsigned_checked(field: &[u8], name: &str, column: u64) -> Result<u64> {
    let text = std::str::from_utf8(field).ok().filter(|_| is_digits(field));
    let Some(text) = text else { return Err(not_a_number(field, name, column, false)) };
    text.parse().map_err(|_| not_a_number(field, name, column, true))
}

#[cold]
fn not_a_number(field: &[u8], name: &str, column: u64, too_large: bool) -> Error {
    let problem = if too_large { "is 2^64 or more" } else { "is not an unsigned whole number" };
    Error::new(Kind::Value, problem).of_field(name, column, field)
}

/// A process or thread id.
#[inline]
pub(crate) fn pid(field: &[u8], name: &str, column: u64) -> Result<i32> {
    i32::try_from(unsigned(field, name, column)?)
        .map_err(|_| Error::new(Kind::Value, "is not a process id").of_field(name, column, field))
}

/// A decimal number of `unit`s as nanoseconds, exact. Digits beyond the nanosecond are rounded half up: some tools
/// print doubles.
#[inline]
pub(crate) fn decimal_time(field: &[u8], unit: TimeUnit, name: &str, column: u64) -> Result<i64> {
    let bad = |problem| Err(Error::new(Kind::Value, problem).of_field(name, column, field));
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    if field.first() == Some(&b'-') {
        return bad("is a negative time");
    }
    if whole.is_empty() && fraction.is_empty() {
        return bad("is not a time");
    }
    let whole = if whole.is_empty() { 0 } else { unsigned(whole, name, column)? };
    let places = unit.digits() as usize;
    let mut rest = 0u64;
    for i in 0..places {
        let digit = fraction.get(i).map_or(0, |byte| byte.wrapping_sub(b'0'));
        if digit > 9 {
            return bad("is not a time");
        }
        rest = rest * 10 + u64::from(digit);
    }
    if let Some(beyond) = fraction.get(places..) {
        if !beyond.iter().all(u8::is_ascii_digit) {
            return bad("is not a time");
        }
        rest += u64::from(beyond.first().is_some_and(|digit| *digit >= b'5'));
    }
    let ns = whole.checked_mul(10u64.pow(unit.digits())).and_then(|ns| ns.checked_add(rest));
    ns.and_then(|ns| i64::try_from(ns).ok()).ok_or_else(|| {
        Error::new(Kind::Value, "is beyond the year 2262")
            .of_field(name, column, field)
            .hint("give --time-unit if it is in another unit")
    })
}

/// A size in sectors that is neither zero nor absurd.
#[inline]
pub(crate) fn sectors(value: u64, field: &[u8], name: &str, column: u64) -> Result<u32> {
    if value == 0 {
        return Err(Error::new(Kind::Value, "is a request without data").of_field(name, column, field));
    }
    u32::try_from(value).map_err(|_| {
        Error::new(Kind::Value, "is a request of more than 2 TB")
            .of_field(name, column, field)
            .hint("give --size-unit if the size is in another unit")
    })
}

/// The sectors that a range of bytes touches: begin rounded down, end rounded up.
#[inline]
pub(crate) fn sector_span(
    offset: u64,
    bytes: u64,
    (field, name, column): (&[u8], &str, u64),
) -> Result<(Sector, u32)> {
    if bytes == 0 {
        return Err(Error::new(Kind::Value, "is a request without data").of_field(name, column, field));
    }
    let end = offset
        .checked_add(bytes)
        .ok_or_else(|| Error::new(Kind::Value, "reaches beyond byte 2^64").of_field(name, column, field))?;
    let first = offset / SECTOR_BYTES;
    let count = sectors(end.div_ceil(SECTOR_BYTES) - first, field, name, column)?;
    Ok((Sector(first), count))
}

/// Bytes as text: UTF-8, and where it is not, Latin-1, which gives every byte a character.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// Remembers the last name looked up, which is most often the next one too.
#[derive(Debug, Default)]
pub(crate) struct LastName {
    raw: Vec<u8>,
    id: Option<NameId>,
}

impl LastName {
    /// The id of the name that `label` makes of `raw`.
    #[inline]
    pub(crate) fn id<'a>(
        &mut self,
        raw: &'a [u8],
        names: &mut Names,
        label: impl FnOnce(&'a [u8]) -> Result<Cow<'a, str>>,
    ) -> Result<NameId> {
        match self.id {
            Some(id) if self.raw == raw => Ok(id),
            _ => {
                let id = names.intern(&label(raw)?);
                self.raw.clear();
                self.raw.extend_from_slice(raw);
                self.id = Some(id);
                Ok(id)
            }
        }
    }

    /// The id that was given last, and its name as it stood.
    #[inline]
    pub(crate) fn last(&self) -> Option<(NameId, &[u8])> {
        Some((self.id?, &self.raw))
    }

    /// The id of a name that is in the table as it stands; adds none.
    #[inline(never)]
    pub(crate) fn known(&mut self, raw: &[u8], names: &Names) -> Option<NameId> {
        let id = names.id(std::str::from_utf8(raw).ok()?)?;
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.id = Some(id);
        self.id
    }
}
