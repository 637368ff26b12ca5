//! Splits a CSV line into its fields.

use std::borrow::Cow;

use crate::formats::fields::{blank_separated, decimal_time, has_lost_digits, is_blank, text, unsigned};
use crate::formats::trace_format::TimeUnit;
use crate::{Error, ErrorClass, Op, Result, opcodes};

/// A field as it is in the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct CsvField<'a> {
    /// The field without its enclosing quotes; quotes inside it are still doubled.
    pub raw: &'a [u8],
    pub quoted: bool,
}

impl<'a> CsvField<'a> {
    /// Whether the field is empty and not quoted.
    pub fn is_missing(self) -> bool {
        self.raw.is_empty() && !self.quoted
    }

    /// Whether `raw` contains doubled quotes, so that the text differs from it.
    pub fn is_escaped(self) -> bool {
        self.quoted && memchr::memchr(b'"', self.raw).is_some()
    }

    /// The text of the field, with doubled quotes replaced.
    pub fn text(self) -> Cow<'a, str> {
        let text = text(self.raw);
        if self.is_escaped() { Cow::Owned(text.replace("\"\"", "\"")) } else { text }
    }
}

/// Possible separators of fields; a file has the first one that gives enough fields.
const SEPARATORS: [u8; 3] = *b",;\t";
/// Represents a separator of any number of blanks and tabs. It is used for files whose fields are not separated by commas, semicolons or
/// single tabs.
pub(super) const BLANK: u8 = b' ';

/// The separator of a file, from its first line. A line has at least `least` fields.
pub(super) fn separator(line: &[u8], least: usize) -> u8 {
    let splits = |separator: &u8| line.split(|byte| byte == separator).count() >= least;
    let words = || blank_separated(line).count();
    SEPARATORS.into_iter().find(splits).unwrap_or_else(|| if words() >= least { BLANK } else { SEPARATORS[0] })
}

/// The fields of a line, split at separators outside of quotes.
pub(super) struct CsvFields<'a> {
    separator: u8,
    /// `None` after the last field.
    rest: Option<&'a [u8]>,
}

impl<'a> CsvFields<'a> {
    pub fn of(line: &'a [u8], separator: u8) -> Self {
        Self { separator, rest: Some(line) }
    }

    /// The next field; `None` after the last.
    #[inline]
    pub fn next(&mut self) -> Result<Option<CsvField<'a>>> {
        let Some(mut rest) = self.rest else { return Ok(None) };
        if self.separator == BLANK {
            rest = &rest[rest.iter().position(|byte| !is_blank(*byte)).unwrap_or(rest.len())..];
            if rest.is_empty() {
                return Ok(None);
            }
        }
        // Some tools write blanks after a comma, for example fio in its logs. A name that begins with a blank must be quoted.
        while let ([b' ', more @ ..], b',' | b';') = (rest, self.separator) {
            rest = more;
        }
        if let [b'"', quoted @ ..] = rest {
            return self.quoted(quoted).map(Some);
        }
        // Fields are so short that a search by machine words would be slower.
        let end = rest.iter().position(|byte| *byte == self.separator || self.separator == BLANK && *byte == b'\t');
        self.rest = end.map(|end| &rest[end + 1..]);
        Ok(Some(CsvField { raw: &rest[..end.unwrap_or(rest.len())], quoted: false }))
    }

    fn quoted(&mut self, from: &'a [u8]) -> Result<CsvField<'a>> {
        let bad = |problem, at: &[u8]| Err(Error::new(ErrorClass::Syntax, problem).of_field("", 0, at));
        let mut end = 0;
        loop {
            match memchr::memchr(b'"', &from[end..]) {
                None => return bad("the quote is not closed", from),
                Some(length) if from.get(end + length + 1) == Some(&b'"') => end += length + 2,
                Some(length) => {
                    end += length;
                    break;
                }
            }
        }
        self.rest = match &from[end + 1..] {
            [] => None,
            [separator, more @ ..] if *separator == self.separator => Some(more),
            [b'\t', more @ ..] if self.separator == BLANK => Some(more),
            other => return bad("a separator is missing after the quote", other),
        };
        Ok(CsvField { raw: &from[..end], quoted: true })
    }

    /// The number of fields of a line.
    pub fn count(line: &[u8], separator: u8) -> Result<usize> {
        let (mut fields, mut count) = (CsvFields::of(line, separator), 0);
        while fields.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeColumnUnit {
    Decimal(TimeUnit),
    /// A unit of this many seconds.
    Seconds(u32),
}

impl TimeColumnUnit {
    /// The unit with this suffix of column names; `None` if there is none.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "ticks" => TimeColumnUnit::Decimal(TimeUnit::Ticks),
            "min" => TimeColumnUnit::Seconds(60),
            "h" => TimeColumnUnit::Seconds(3_600),
            "d" => TimeColumnUnit::Seconds(86_400),
            name => TimeColumnUnit::Decimal(TimeUnit::by_name(name).ok()?),
        })
    }

    /// Parses a time. It may be negative, because a trace may begin before time 0 of its clock.
    pub fn time(self, field: &[u8], name: &str, column: u64) -> Result<i64> {
        match field {
            [b'-', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
                self.positive(digits, name, column).map(|time| -time)
            }
            field => self.positive(field, name, column),
        }
    }

    #[inline]
    fn positive(self, field: &[u8], name: &str, column: u64) -> Result<i64> {
        match self {
            TimeColumnUnit::Decimal(unit) => decimal_time(field, unit, name, column)
                .or_else(|error| in_powers_of_ten(field, unit, name, column).unwrap_or(Err(error))),
            TimeColumnUnit::Seconds(seconds) => long_time(field, seconds, name, column),
        }
    }
}

/// Parses a time with an exponent, such as `1.5e-05`; `None` if the field has none.
#[cold]
fn in_powers_of_ten(field: &[u8], unit: TimeUnit, name: &str, column: u64) -> Option<Result<i64>> {
    const FARTHEST: u32 = 30;
    if has_lost_digits(field) {
        return None;
    }
    let at = field.iter().position(|byte| matches!(byte, b'e' | b'E'))?;
    let exponent: i32 = std::str::from_utf8(&field[at + 1..]).ok()?.parse().ok()?;
    let number = &field[..at];
    let dot = number.iter().position(|byte| *byte == b'.').unwrap_or(number.len());
    let digits: Vec<u8> = [&number[..dot], number.get(dot + 1..).unwrap_or(&[])].concat();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) || exponent.unsigned_abs() > FARTHEST {
        return None;
    }
    let point = dot as i32 + exponent;
    let digit = |at: i32| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(b'0');
    let whole = (0..point).map(digit).skip_while(|byte| *byte == b'0');
    let part = (point..(digits.len() as i32).max(point)).map(digit);
    let plain: Vec<u8> = [b'0'].into_iter().chain(whole).chain([b'.']).chain(part).collect();
    Some(decimal_time(&plain, unit, name, column))
}

/// Parses a time in units of `seconds` seconds, rounded to the nearest nanosecond.
fn long_time(field: &[u8], seconds: u32, name: &str, column: u64) -> Result<i64> {
    const PLACES: usize = 18;
    let bad = |problem| Error::new(ErrorClass::Value, problem).of_field(name, column, field);
    let (whole, fraction) = match field.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&field[..dot], &field[dot + 1..]),
        None => (field, &[][..]),
    };
    if whole.is_empty() && fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return Err(bad("this is not a valid time"));
    }
    let whole = if whole.is_empty() { 0 } else { unsigned(whole, name, column)? };
    let digit = |at: usize| u128::from(fraction.get(at).map_or(0, |byte| byte - b'0'));
    let part = (0..PLACES).fold(0, |part, at| part * 10 + digit(at));
    let unit = u128::from(seconds) * 1_000_000_000;
    let scale = 10_u128.pow(PLACES as u32);
    let ns = u128::from(whole) * unit + (part * unit + scale / 2) / scale;
    i64::try_from(ns).map_err(|_| bad("the time is beyond the year 2262"))
}

/// Parses an unsigned number; hexadecimal after `0x`.
#[inline]
fn number(field: &[u8], name: &str, column: u64) -> Result<u64> {
    match field {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits, name, column),
        field => unsigned(field, name, column).map_err(|error| {
            let hexadecimal = !field.is_empty() && field.iter().all(u8::is_ascii_hexdigit) && field.len() <= 16;
            if hexadecimal && field.iter().any(u8::is_ascii_alphabetic) {
                error.hint(
                    "write hexadecimal numbers with 0x, or let the name of the column end in _hex, for example `sector_hex`",
                )
            } else {
                error
            }
        }),
    }
}

/// Parses an unsigned hexadecimal number, with or without `0x`.
fn hexadecimal(field: &[u8], name: &str, column: u64) -> Result<u64> {
    let digits = field.strip_prefix(b"0x").unwrap_or(field);
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or_else(|| {
        Error::new(ErrorClass::Value, "the value must be an unsigned hexadecimal number below 2^64").of_field(name, column, field)
    })
}

/// The base of the numbers in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberBase {
    /// Decimal, or hexadecimal after `0x`.
    Stated,
    /// Hexadecimal with or without `0x`.
    Sixteen,
}

impl NumberBase {
    /// Parses an unsigned number.
    #[inline]
    pub fn number(self, field: &[u8], name: &str, column: u64) -> Result<u64> {
        if self == NumberBase::Sixteen { hexadecimal(field, name, column) } else { number(field, name, column) }
    }
}

/// The encoding of operations in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationCoding {
    /// Names, or the letters of the kernel.
    Names,
    /// 0 is a read, 1 a write.
    ReadIsZero,
    /// 1 is a read, 0 a write.
    ReadIsOne,
    /// The operation code of a SCSI command, in hexadecimal.
    Scsi,
    /// The operation code of an NVM Express command, in hexadecimal.
    Nvme,
    /// The number of an MMC command, in decimal.
    Mmc,
}

impl OperationCoding {
    /// The encoding that a column's name gives; `None` for other names.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "op" => OperationCoding::Names,
            "op_read0" => OperationCoding::ReadIsZero,
            "op_read1" => OperationCoding::ReadIsOne,
            "op_scsi" => OperationCoding::Scsi,
            "op_nvme" => OperationCoding::Nvme,
            "op_mmc" => OperationCoding::Mmc,
            _ => return None,
        })
    }

    /// The operation for a code; `None` if the column contains names.
    pub fn operation(self, field: &[u8], column: u64) -> Result<Option<Op>> {
        let of = |code: u64, op: fn(u8) -> Option<Op>| u8::try_from(code).ok().and_then(op);
        let (op, what) = match self {
            OperationCoding::Names => return Ok(None),
            OperationCoding::ReadIsZero | OperationCoding::ReadIsOne => {
                let op = match (unsigned(field, "op", column)?, self) {
                    (0, OperationCoding::ReadIsZero) | (1, OperationCoding::ReadIsOne) => Some(Op::Read),
                    (0 | 1, _) => Some(Op::Write),
                    _ => None,
                };
                (op, "the operation must be 0 or 1")
            }
            OperationCoding::Scsi => {
                (of(hexadecimal(field, "op", column)?, opcodes::scsi), "the operation is no SCSI data, flush or unmap command")
            }
            OperationCoding::Nvme => {
                (of(hexadecimal(field, "op", column)?, opcodes::nvme), "the operation is no NVMe data, flush or discard command")
            }
            OperationCoding::Mmc => {
                (of(number(field, "op", column)?, opcodes::mmc), "the operation is no MMC read, write or erase command")
            }
        };
        let op = op.ok_or_else(|| Error::new(ErrorClass::Value, what).of_field("op", column, field))?;
        Ok(Some(op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(line: &str) -> Result<Vec<(String, bool)>> {
        let (mut fields, mut all) = (CsvFields::of(line.as_bytes(), b','), Vec::new());
        while let Some(field) = fields.next()? {
            all.push((field.text().into_owned(), field.is_missing()));
        }
        Ok(all)
    }

    #[test]
    fn commas_and_doubled_quotes_inside_of_quotes_belong_to_the_field() {
        let fields = all(r#"1,,"","a,b","say ""hi""",a"b,"#).unwrap();
        let texts: Vec<_> = fields.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["1", "", "", "a,b", r#"say "hi""#, r#"a"b"#, ""]);
        let missing: Vec<_> = fields.iter().map(|(_, missing)| *missing).collect();
        assert_eq!(missing, [false, true, false, false, false, false, true]);
        assert_eq!(CsvFields::count(br#""""",2"#, b',').unwrap(), 2);
    }

    #[test]
    fn blanks_behind_a_comma_are_no_part_of_the_field() {
        let texts: Vec<_> = all("0, 24756,  1, \"a, b\", \" c\", ").unwrap();
        let texts: Vec<_> = texts.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["0", "24756", "1", "a, b", " c", ""]);
    }

    #[test]
    fn the_separator_is_the_first_that_gives_enough_fields() {
        for (line, found) in [("a,b,c,d", b','), ("a;b;c;d,e", b';'), ("a\tb\tc\td", b'\t'), ("a b", b',')] {
            assert_eq!(separator(line.as_bytes(), 4), found, "{line}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_or_not_followed_by_a_comma_is_refused() {
        for line in [r#""a"#, r#"1,""#, r#""a""#.trim_end_matches('"'), r#""a"b,c"#, r#""a"""#] {
            assert_eq!(all(line).unwrap_err().kind(), ErrorClass::Syntax, "{line}");
        }
    }

    #[test]
    fn times_have_any_unit_from_nanoseconds_to_days() {
        for (unit, field, ns) in [
            ("ns", "7", 7),
            ("ticks", "7", 700),
            ("us", "1.5", 1_500),
            ("s", "1.5e-05", 15_000),
            ("s", "2E3", 2_000_000_000_000),
            ("s", "12.5e0", 12_500_000_000),
            ("min", "0.5", 30_000_000_000),
            ("h", "1.25", 4_500_000_000_000),
            ("d", "0.000000000000011574", 1),
            ("d", "-2", -172_800_000_000_000),
        ] {
            let scale = TimeColumnUnit::by_name(unit).unwrap();
            assert_eq!(scale.time(field.as_bytes(), "arrival", 1).unwrap(), ns, "{field} {unit}");
        }
        for field in ["", "-", ".", "1e", "e5", "1e99", "1.2.3", "x"] {
            for unit in ["s", "d"] {
                assert!(TimeColumnUnit::by_name(unit).unwrap().time(field.as_bytes(), "arrival", 1).is_err(), "{field} {unit}");
            }
        }
    }

    #[test]
    fn hexadecimal_numbers_are_marked_by_themselves_or_by_their_column() {
        assert_eq!(number(b"0x1F", "sector", 1).unwrap(), 31);
        assert_eq!(hexadecimal(b"1f", "sector", 1).unwrap(), 31);
        let error = number(b"1f", "sector", 1).unwrap_err();
        assert!(error.hint_text().unwrap().contains("sector_hex"));
        assert!(hexadecimal(b"10000000000000000", "sector", 1).is_err() && hexadecimal(b"", "sector", 1).is_err());
    }

    #[test]
    fn codes_mean_what_their_standard_says() {
        let op = |name, field: &str| OperationCoding::by_name(name).unwrap().operation(field.as_bytes(), 1);
        assert_eq!(op("op_read0", "0").unwrap(), Some(Op::Read));
        assert_eq!(op("op_read1", "0").unwrap(), Some(Op::Write));
        assert_eq!(op("op_scsi", "2a").unwrap(), Some(Op::Write));
        assert_eq!(op("op_scsi", "0x88").unwrap(), Some(Op::Read));
        assert_eq!(op("op_nvme", "2").unwrap(), Some(Op::Read));
        assert_eq!(op("op_mmc", "25").unwrap(), Some(Op::Write));
        assert!(op("op_read0", "2").is_err() && op("op_scsi", "12").is_err() && op("op_mmc", "600").is_err());
    }
}
