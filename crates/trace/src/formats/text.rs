//! What all line-by-line formats share: lines, fields, numbers, and errors that name the place.

use std::io::Read;

use super::input::{Input, damaged};
use crate::batch::BATCH_ROWS;
use crate::error::{Error, Kind, Result};
use crate::ledger::Ledger;
use crate::names::Names;
use crate::reader::{Header, Progress, ReadOptions, Source};
use crate::request::Request;

/// Longest line accepted; a longer one is no text.
const MAX_LINE: usize = 1 << 16;
const CHUNK: usize = 1 << 20;

/// What a line format keeps and fills while it reads.
#[derive(Debug, Default)]
pub(crate) struct Context {
    pub processes: Names,
    pub devices: Names,
    pub ledger: Ledger,
}

/// A format in which a line is a record. `parse` appends the requests that the line yields (often one, maybe none).
pub(crate) trait LineFormat: Send {
    /// Parses a line without its end; never called with an empty line.
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()>;
    /// Called once at the end of the input, for formats that pair events.
    fn finish(&mut self, _context: &mut Context, _out: &mut Vec<Request>) -> Result<()> {
        Ok(())
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
        Self {
            format,
            context: Context::default(),
            lenient: options.lenient,
            name: input.name(),
            path: input.path().to_owned(),
            meter: Box::new(input.meter()),
            reader: Box::new(input.into_reader()),
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
                .hint("this is not a text trace; `emmclab formats` lists what can be read"));
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
        let goal = out.len() + BATCH_ROWS;
        while out.len() < goal {
            match memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
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

/// Takes the next field or says which one is missing.
pub(crate) fn need<'a>(
    fields: &mut impl Iterator<Item = &'a [u8]>,
    name: &str,
    column: u64,
) -> Result<&'a [u8]> {
    fields.next().ok_or_else(|| {
        Error::new(Kind::Syntax, "the line ends before this field").of_field(name, column, b"")
    })
}

/// A field that is nothing but an unsigned decimal number.
#[inline]
pub(crate) fn unsigned(field: &[u8], name: &str, column: u64) -> Result<u64> {
    let mut value = 0u64;
    for &byte in field {
        let digit = byte.wrapping_sub(b'0');
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit)));
        match next {
            Some(next) if digit < 10 => value = next,
            _ => return Err(not_a_number(field, name, column, digit < 10)),
        }
    }
    if field.is_empty() { Err(not_a_number(field, name, column, false)) } else { Ok(value) }
}

#[cold]
fn not_a_number(field: &[u8], name: &str, column: u64, too_large: bool) -> Error {
    let problem = if too_large { "is larger than 2^64" } else { "is not an unsigned whole number" };
    Error::new(Kind::Value, problem).of_field(name, column, field)
}

/// A decimal number of seconds (or of another unit of `unit_ns` nanoseconds), exact to the nanosecond, as
/// nanoseconds. Digits beyond the nanosecond are rounded half up: some tools print doubles.
#[inline]
pub(crate) fn decimal_time(field: &[u8], unit_ns: i64, name: &str, column: u64) -> Result<i64> {
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    if let Some(b'-') = field.first() {
        return Err(Error::new(Kind::Value, "is a negative time").of_field(name, column, field));
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(Error::new(Kind::Value, "is not a time").of_field(name, column, field));
    }
    let whole = if whole.is_empty() { 0 } else { unsigned(whole, name, column)? };
    let mut rest: i128 = 0;
    let mut scale: i128 = 1;
    for &byte in fraction {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Error::new(Kind::Value, "is not a time").of_field(name, column, field));
        }
        if scale < 1_000_000_000_000_000_000 {
            rest = rest * 10 + i128::from(digit);
            scale *= 10;
        }
    }
    let unit = i128::from(unit_ns);
    let ns = i128::from(whole) * unit + (2 * rest * unit + scale) / (2 * scale);
    i64::try_from(ns).map_err(|_| {
        Error::new(Kind::Value, "is beyond the year 2262")
            .of_field(name, column, field)
            .hint("is it in another unit?")
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
            .hint("is the size in another unit? see --size-unit")
    })
}
