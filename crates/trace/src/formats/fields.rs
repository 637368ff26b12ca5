//! Splits a line into fields and parses the numbers, times and names in them; errors contain name and column of the field.

use std::borrow::Cow;

use super::trace_format::TimeUnit;
use crate::{Error, ErrorClass, NameId, NameTable, Op, Result, SECTOR_BYTES, Sector};

pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The fields of a line, split at runs of blanks and tabs.
pub(crate) fn blank_separated(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| is_blank(*byte)).filter(|field| !field.is_empty())
}

/// The fields of a line, split at commas.
pub(crate) fn comma_separated(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',')
}

/// The first non-empty line, without its line end.
pub(crate) fn first_line(head: &[u8]) -> &[u8] {
    head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).find(|line| !line.is_empty()).unwrap_or(&[])
}

/// Whether the field consists of decimal digits.
pub(crate) fn is_digits(field: &[u8]) -> bool {
    !field.is_empty() && field.iter().all(u8::is_ascii_digit)
}

/// Whether the field consists of digits with at most one decimal point.
pub(crate) fn is_decimal(field: &[u8]) -> bool {
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    is_digits(whole) && fraction.iter().all(u8::is_ascii_digit)
}

/// The next field; an error with its name if it is missing.
#[inline]
pub(crate) fn need<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, name: &str, column: u64) -> Result<&'a [u8]> {
    fields.next().ok_or_else(|| Error::new(ErrorClass::Syntax, "the line ends before this field").of_field(name, column, b""))
}

#[inline]
pub(crate) fn no_more<'a>(fields: &mut impl Iterator<Item = &'a [u8]>, column: u64) -> Result<()> {
    match fields.next() {
        Some(extra) => Err(Error::new(ErrorClass::Syntax, "the line continues after the last field").of_field("", column, extra)),
        None => Ok(()),
    }
}

/// Whether another number follows the length after `+`, because a number was split in two.
pub(crate) fn cuts_a_length(line: &[u8]) -> bool {
    let mut fields = blank_separated(line).skip_while(|field| *field != b"+").skip(1);
    fields.next().is_some_and(is_digits) && fields.next().is_some_and(is_digits)
}

/// Parses an unsigned decimal number.
#[inline]
pub(crate) fn unsigned(field: &[u8], name: &str, column: u64) -> Result<u64> {
    let mut value = 0u64;
    // Numbers of up to 19 digits always fit into 64 bits.
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
    let problem = if too_large { "the number is 2^64 or more" } else { "this is not an unsigned whole number" };
    bad_number(field, problem).of_field(name, column, field)
}

/// The hint for a number that a spreadsheet rounded.
pub(crate) const LOST_DIGITS: &str = "use the file from before the spreadsheet: lost digits cannot be restored";

/// The error for a field that is not a number. It states the cause if another program has changed the number, otherwise `problem`.
#[cold]
pub(crate) fn bad_number(field: &[u8], problem: &str) -> Error {
    let error = |problem| Error::new(ErrorClass::Value, problem);
    if has_decimal_comma(field) {
        error("the number has a decimal comma").hint("print with decimal points, for example with LC_ALL=C before the command")
    } else if has_lost_digits(field) {
        error("the number has lost its last digits in a spreadsheet").hint(LOST_DIGITS)
    } else {
        error(problem)
    }
}

pub(crate) fn has_decimal_comma(field: &[u8]) -> bool {
    let field = field.strip_prefix(b"-").unwrap_or(field);
    let comma = memchr::memchr(b',', field);
    comma.is_some_and(|comma| is_digits(&field[..comma]) && is_digits(&field[comma + 1..]))
}

/// Whether a number has the form in which spreadsheets write whole numbers of 12 or more digits, which loses digits.
pub(crate) fn has_lost_digits(field: &[u8]) -> bool {
    const LEAST_EXPONENT: usize = 11;
    let Some(at) = memchr::memmem::find(field, b"E+") else { return false };
    let (number, exponent) = (&field[..at], &field[at + 2..]);
    let decimals = memchr::memchr(b'.', number).map_or(0, |dot| number.len() - dot - 1);
    let exponent = std::str::from_utf8(exponent).ok().and_then(|digits| digits.parse::<usize>().ok());
    is_decimal(number) && exponent.is_some_and(|exponent| exponent >= LEAST_EXPONENT && exponent > decimals)
}

/// Parses a process or thread id.
#[inline]
pub(crate) fn pid(field: &[u8], name: &str, column: u64) -> Result<i32> {
    i32::try_from(unsigned(field, name, column)?)
        .map_err(|_| Error::new(ErrorClass::Value, "a process ID must be below 2^31").of_field(name, column, field))
}

/// Parses a decimal number of `unit`s exactly, in nanoseconds. Digits below a nanosecond are rounded half up, because some tools
/// print doubles.
#[inline]
pub(crate) fn decimal_time(field: &[u8], unit: TimeUnit, name: &str, column: u64) -> Result<i64> {
    let bad = |problem| Err(bad_number(field, problem).of_field(name, column, field));
    let (whole, fraction) = match memchr::memchr(b'.', field) {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    if field.first() == Some(&b'-') {
        return bad("the time is negative");
    }
    if whole.is_empty() && fraction.is_empty() {
        return bad("this is not a valid time");
    }
    let whole = if whole.is_empty() { 0 } else { unsigned(whole, name, column)? };
    let places = unit.digits() as usize;
    let mut rest = 0u64;
    let stated = fraction.len().min(places);
    for byte in &fraction[..stated] {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return bad("this is not a valid time");
        }
        rest = rest * 10 + u64::from(digit);
    }
    rest *= 10u64.pow((places - stated) as u32);
    if let Some(beyond) = fraction.get(places..) {
        if !beyond.iter().all(u8::is_ascii_digit) {
            return bad("this is not a valid time");
        }
        rest += u64::from(beyond.first().is_some_and(|digit| *digit >= b'5'));
    }
    let ns = whole.checked_mul(10u64.pow(unit.digits())).and_then(|ns| ns.checked_add(rest));
    ns.and_then(|ns| i64::try_from(ns).ok()).ok_or_else(|| {
        Error::new(ErrorClass::Value, "the time is beyond the year 2262")
            .of_field(name, column, field)
            .hint("give --time-unit if the time is in another unit")
    })
}

/// Checks a size in sectors: it must not be 0, and must fit into 32 bits.
#[inline]
pub(crate) fn sectors(value: u64, field: &[u8], name: &str, column: u64) -> Result<u32> {
    if value == 0 {
        return Err(Error::new(ErrorClass::Value, "the request transfers no data").of_field(name, column, field));
    }
    u32::try_from(value).map_err(|_| {
        Error::new(ErrorClass::Value, "the request exceeds 2 TB")
            .of_field(name, column, field)
            .hint("give --size-unit if the size is in another unit")
    })
}

/// The end of a range of bytes, which must not be empty.
#[inline]
fn end_of_range(offset: u64, bytes: u64, (field, name, column): (&[u8], &str, u64)) -> Result<u64> {
    let bad = |problem| Error::new(ErrorClass::Value, problem).of_field(name, column, field);
    if bytes == 0 {
        return Err(bad("the request transfers no data"));
    }
    offset.checked_add(bytes).ok_or_else(|| bad("the request reaches beyond byte 2^64"))
}

/// The sectors that contain a range of bytes: the start is rounded down, the end up.
#[inline]
pub(crate) fn sector_span(offset: u64, bytes: u64, place: (&[u8], &str, u64)) -> Result<(Sector, u32)> {
    let (end, first) = (end_of_range(offset, bytes, place)?, offset / SECTOR_BYTES);
    Ok((Sector(first), sectors(end.div_ceil(SECTOR_BYTES) - first, place.0, place.1, place.2)?))
}

/// The sectors of a range of bytes, at least one, and whether the range was rounded. Both ends are rounded down to sectors, so
/// that sequential ranges stay sequential and a stream keeps its length.
#[inline]
pub(crate) fn stream_span(offset: u64, bytes: u64, place: (&[u8], &str, u64)) -> Result<(Sector, u32, bool)> {
    let (end, first) = (end_of_range(offset, bytes, place)?, offset / SECTOR_BYTES);
    let count = sectors((end / SECTOR_BYTES - first).max(1), place.0, place.1, place.2)?;
    Ok((Sector(first), count, !(offset | end).is_multiple_of(SECTOR_BYTES)))
}

/// Decodes text as UTF-8; if it is invalid, as Latin-1, in which every byte is a character.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

/// Caches the last name that was looked up, because the next one is usually the same.
#[derive(Debug, Default)]
pub(crate) struct NameIdCache {
    raw: Vec<u8>,
    id: Option<NameId>,
}

impl NameIdCache {
    /// The id of a name; `label` converts the raw text `raw` into the name.
    #[inline]
    pub(crate) fn id<'a>(
        &mut self, raw: &'a [u8], names: &mut NameTable, label: impl FnOnce(&'a [u8]) -> Result<Cow<'a, str>>,
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

    /// The id that was returned last, and its raw text.
    #[inline]
    pub(crate) fn last(&self) -> Option<(NameId, &[u8])> {
        Some((self.id?, &self.raw))
    }

    /// The id of a name if it is already in the table; does not add it.
    #[inline(never)]
    pub(crate) fn id_if_known(&mut self, raw: &[u8], names: &NameTable) -> Option<NameId> {
        let id = names.id(std::str::from_utf8(raw).ok()?)?;
        self.raw.clear();
        self.raw.extend_from_slice(raw);
        self.id = Some(id);
        self.id
    }
}

pub(super) struct FieldReader<I> {
    fields: I,
    column: u64,
}

impl<'a, I: Iterator<Item = &'a [u8]>> FieldReader<I> {
    /// Creates a reader that starts at the first of these fields.
    pub fn along(fields: I) -> Self {
        Self { fields, column: 0 }
    }

    /// The next field; an error with its name if it is missing.
    #[inline]
    pub fn next(&mut self, name: &'static str) -> Result<LineField<'a>> {
        self.column += 1;
        let bytes = need(&mut self.fields, name, self.column)?;
        Ok(LineField { bytes, name, column: self.column })
    }

    /// Returns an error if there is another field.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        no_more(&mut self.fields, self.column + 1)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct LineField<'a> {
    pub bytes: &'a [u8],
    pub name: &'static str,
    pub column: u64,
}

impl LineField<'_> {
    /// Parses the field as an unsigned whole number.
    #[inline]
    pub fn unsigned(self) -> Result<u64> {
        unsigned(self.bytes, self.name, self.column)
    }

    /// Parses the field as a decimal number of `unit`s, into nanoseconds.
    #[inline]
    pub fn time(self, unit: TimeUnit) -> Result<i64> {
        decimal_time(self.bytes, unit, self.name, self.column)
    }

    /// Parses the field as a size in sectors.
    #[inline]
    pub fn sectors(self) -> Result<u32> {
        sectors(self.unsigned()?, self.bytes, self.name, self.column)
    }

    /// The sectors of a range: the field is its size in bytes, and `offset` its start in bytes.
    #[inline]
    pub fn span(self, offset: u64) -> Result<(Sector, u32)> {
        sector_span(offset, self.unsigned()?, (self.bytes, self.name, self.column))
    }

    /// Converts a byte range to sectors like [`LineField::span`], but rounds down both ends as in [`stream_span`]. The last value is
    /// whether an end was rounded.
    pub fn stream_span(self, offset: u64) -> Result<(Sector, u32, bool)> {
        stream_span(offset, self.unsigned()?, (self.bytes, self.name, self.column))
    }

    /// The operation: a read if the field equals `read`, a write if it equals `write`.
    #[inline]
    pub fn op(self, read: &[u8], write: &[u8]) -> Result<Op> {
        match self.bytes {
            bytes if bytes == read => Ok(Op::Read),
            bytes if bytes == write => Ok(Op::Write),
            _ => {
                let [read, write] = [read, write].map(String::from_utf8_lossy);
                Err(self.refused(format!("the operation is neither {read}, a read, nor {write}, a write")))
            }
        }
    }

    /// An error on this field.
    #[cold]
    pub fn refused(self, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Value, problem).of_field(self.name, self.column, self.bytes)
    }
}

/// Maximum number of columns; all formats have fewer.
const MOST: usize = 32;

/// The positions of `N` columns in a line, by their names in the heading; the order of columns may differ between files.
pub(super) struct ColumnPositions<const N: usize> {
    names: [&'static str; N],
    /// For each column of the file, the index of its name in `names`; `None` if the column is not needed.
    name_of_column: Vec<Option<usize>>,
}

impl<const N: usize> ColumnPositions<N> {
    /// Determines the positions from a heading; `None` if a column is missing.
    pub fn of<'a>(names: [&'static str; N], heading: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let known = |name: &[u8]| names.iter().position(|known| known.as_bytes() == name);
        let wanted: Vec<_> = heading.take(MOST).map(|name| known(name.trim_ascii())).collect();
        (0..N).all(|name| wanted.contains(&Some(name))).then_some(Self { names, name_of_column: wanted })
    }

    /// The fields of a line in the order of the names.
    pub fn read<'a>(&self, fields: impl Iterator<Item = &'a [u8]>) -> Result<[LineField<'a>; N]> {
        let mut values = [LineField::default(); N];
        let mut count = 0;
        for (at, bytes) in fields.enumerate() {
            count += 1;
            if let Some(Some(name)) = self.name_of_column.get(at) {
                values[*name] = LineField { bytes, name: self.names[*name], column: at as u64 + 1 };
            }
        }
        if count == self.name_of_column.len() {
            return Ok(values);
        }
        let problem = format!("the line has {count} fields, but the heading has {}", self.name_of_column.len());
        Err(Error::new(ErrorClass::Syntax, problem).of_field("line", count as u64, b""))
    }
}
