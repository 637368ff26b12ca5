//! The fast parser reads well-formed lines of numbers in one pass. Other lines are left to the strict parser, which reports the
//! malformed field. If both succeed, they return the same requests.
#![expect(clippy::inline_always, reason = "the hottest path of reading; the rest of the text stays in registers")]

use super::trace_format::TimeUnit;

/// The rest of a text, from the current field on. Numbers are read in groups of eight bytes, so that a number in the last seven
/// bytes of the text is left to the strict parser.
#[derive(Clone, Debug)]
pub(crate) struct FastFields<'a>(&'a [u8]);

/// Number of digits that always fit in a `u64`.
const MOST_DIGITS: usize = 19;
const POWERS: [u64; 10] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

impl<'a> FastFields<'a> {
    /// `text` must contain the end of the line; a field at the end of the text could be incomplete.
    #[inline(always)]
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self(text)
    }

    /// Skips the blanks before a field; in most files there is a single blank.
    #[inline(always)]
    fn gap(&mut self) {
        if let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if let [..=b' ', ..] = self.0 {
            *self = Self(self.0).wide_gap();
        }
    }

    /// Skips any number of blanks and tabs. Takes `self` by value, like the functions below, so that it can stay in registers.
    #[inline(never)]
    fn wide_gap(mut self) -> Self {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        self
    }

    /// Skips a tab if there is one, for fields that are separated by two tabs.
    #[inline(always)]
    pub(crate) fn tab(&mut self) -> &mut Self {
        if let [b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        self
    }

    /// Reads digits; returns their value and their number. `None` if there are none or too many.
    #[inline(always)]
    fn digits(&mut self) -> Option<(u64, usize)> {
        let (mut value, mut count) = leading_digits(*self.0.first_chunk()?);
        self.0 = &self.0[count..];
        if count == 8 {
            // Times in nanoseconds have up to 16 digits, so eight more digits are read.
            if let Some(eight) = self.0.first_chunk() {
                let (more, further) = leading_digits(*eight);
                value = value * POWERS[further] + more;
                count += further;
                self.0 = &self.0[further..];
            }
            while let [digit @ b'0'..=b'9', rest @ ..] = self.0 {
                value = value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
                count += 1;
                self.0 = rest;
            }
        }
        (1..=MOST_DIGITS).contains(&count).then_some((value, count))
    }

    /// The next field as an unsigned number.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        // Fast path: one blank and up to seven digits.
        if let Some([b' ' | b'\t', eight @ ..]) = self.0.first_chunk::<9>()
            && let (value, count @ 1..8) = leading_digits(*eight)
        {
            self.0 = &self.0[1 + count..];
            return Some(value);
        }
        let (value, _) = self.number_and_text()?;
        Some(value)
    }

    /// The next field as an unsigned number, with its text.
    #[inline(always)]
    pub(crate) fn number_and_text(&mut self) -> Option<(u64, &'a [u8])> {
        let number;
        (number, *self) = Self(self.0).any_number()?;
        Some(number)
    }

    #[inline(never)]
    fn any_number(mut self) -> Option<((u64, &'a [u8]), Self)> {
        self.gap();
        let text = self.0;
        let (value, count) = self.digits()?;
        Some(((value, &text[..count]), self))
    }

    /// Skips the next field and the blank before it, if the field equals `text` and another field follows. Returns whether the field was
    /// skipped.
    #[inline(always)]
    pub(crate) fn is(&mut self, text: &[u8]) -> bool {
        // Fast path: a field of one byte.
        if let [b' ' | b'\t', field, b' ' | b'\t', ..] = self.0
            && let [byte] = text
            && field == byte
        {
            self.0 = &self.0[2..];
            return true;
        }
        let rest = self.0.strip_prefix(b" ").and_then(|field| field.strip_prefix(text));
        let Some(rest @ [b' ', ..]) = rest else { return false };
        self.0 = rest;
        true
    }

    /// The next field as a time in `unit`s, converted to nanoseconds; `None` if it has digits below a nanosecond.
    #[inline(always)]
    pub(crate) fn time(&mut self, unit: TimeUnit) -> Option<i64> {
        self.gap();
        let (whole, _) = self.digits()?;
        let places = unit.digits() as usize;
        let mut part = 0;
        if let [b'.', rest @ ..] = self.0 {
            self.0 = rest;
            let (digits, count) = self.digits()?;
            part = digits * POWERS.get(places.checked_sub(count)?)?;
        }
        let ns = whole.checked_mul(POWERS[places])?.checked_add(part)?;
        i64::try_from(ns).ok()
    }

    /// Parses the last field of the line, which must be a single byte. Returns this byte, and the text after the line.
    #[inline(always)]
    pub(crate) fn last_byte(mut self) -> Option<(u8, &'a [u8])> {
        if let [b' ', byte, b'\n', rest @ ..] = self.0 {
            return Some((*byte, rest));
        }
        self.gap();
        let (byte, rest) = self.0.split_first()?;
        Some((*byte, Self(rest).ended()?))
    }

    /// The text after the line; `None` if the line does not end here.
    #[inline(always)]
    pub(crate) fn ended(mut self) -> Option<&'a [u8]> {
        self.gap();
        match self.0 {
            [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => Some(rest),
            _ => None,
        }
    }
}

/// The value of the leading digits, and their number. All digits are combined together: first into pairs, then into fours, then
/// into the whole number.
#[inline(always)]
fn leading_digits(text: [u8; 8]) -> (u64, usize) {
    let word = u64::from_le_bytes(text) ^ 0x3030_3030_3030_3030;
    // The addition sets the high bit of each byte that is above 9 and therefore not a digit. A carry from such a byte can change only later
    // bytes, which are not used.
    let others = (word | word.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080;
    if others == 0 {
        return (eight_digits(word), 8);
    }
    // Shifts out the bytes after the digits and shifts in zeros before the digits.
    let bit = others.trailing_zeros();
    (eight_digits(word << 1 << (70 - bit)), bit as usize / 8)
}

/// The value of eight digits, the first in the lowest byte.
#[inline(always)]
fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(10_000 << 32 | 1) >> 32
}

/// Reads texts with the fast and the strict parser, for tests of formats.
#[cfg(test)]
pub(super) mod both_ways {
    use emmclab_base::{Request, Result};

    use super::super::input::DecompressedInput;
    use super::super::line_format::{LineFormat, LineSource, ParseContext};
    use super::super::trace_format::ReadOptions;
    use crate::{Ledger, TraceSource};

    /// A format with the strict parser only.
    struct StrictOnly<F>(F);

    impl<F: LineFormat> LineFormat for StrictOnly<F> {
        fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
            self.0.parse(line, context, out)
        }
    }

    /// The result of reading: requests, devices, counts and the first error.
    type Outcome = (Vec<Request>, Vec<String>, Ledger, Option<String>);

    fn read(format: impl LineFormat, text: &str, lenient: bool) -> Outcome {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        let options = ReadOptions { lenient, ..ReadOptions::default() };
        let input = DecompressedInput::open(file.path()).unwrap();
        let mut source = LineSource::over("", Box::new(format), input, &options, |bytes| bytes);
        let mut requests = Vec::new();
        let end = loop {
            match source.fill(&mut requests) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        let devices: Vec<String> = source.names().1.iter().map(str::to_owned).collect();
        (requests, devices, source.ledger(), end)
    }

    /// Asserts that the fast and the strict parser give the same result, including errors and counts.
    pub fn agree<F: LineFormat>(format: impl Fn() -> F, text: &str) {
        for lenient in [false, true] {
            let strict = read(StrictOnly(format()), text, lenient);
            assert_eq!(read(format(), text, lenient), strict, "{text:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fields::{blank_separated, decimal_time, unsigned};
    use super::*;

    #[test]
    fn leading_digits_end_at_any_other_byte() {
        for place in 0..8 {
            for byte in 0..=255 {
                let mut text = *b"31415926";
                text[place] = byte;
                let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
                let digits = std::str::from_utf8(&text[..count]).unwrap();
                assert_eq!(leading_digits(text), (digits.parse().unwrap_or(0), count), "{text:?}");
            }
        }
    }

    /// The kind of a field: `None` for a number, otherwise the unit of a time.
    type Kind = Option<TimeUnit>;

    fn fast<'a>(text: &'a [u8], kinds: &[Kind]) -> Option<(Vec<i128>, &'a [u8])> {
        let mut fields = FastFields::new(text);
        let mut next = |kind: &Kind| match kind {
            None => fields.number().map(i128::from),
            Some(unit) => fields.time(*unit).map(i128::from),
        };
        let values = kinds.iter().map(&mut next).collect::<Option<_>>()?;
        Some((values, fields.ended()?))
    }

    fn strict(line: &[u8], kinds: &[Kind]) -> Option<Vec<i128>> {
        let fields: Vec<_> = blank_separated(line).collect();
        let value = |(field, kind): (&&[u8], &Kind)| match kind {
            None => unsigned(field, "", 0).ok().map(i128::from),
            Some(unit) => decimal_time(field, *unit, "", 0).ok().map(i128::from),
        };
        if fields.len() == kinds.len() { fields.iter().zip(kinds).map(value).collect() } else { None }
    }

    fn kinds() -> impl Strategy<Value = Vec<Kind>> {
        let kind = prop::sample::select(&[None, Some(TimeUnit::Seconds), Some(TimeUnit::Millis), Some(TimeUnit::Nanos)]);
        prop::collection::vec(kind, 0..5)
    }

    proptest! {
        #[test]
        fn what_the_fast_parser_reads_the_strict_one_reads_too(
            line in "[ \t]{0,2}([0-9]{0,20}(\\.[0-9]{0,11})?[ \t]{0,3}){0,4}[ a\\.-]?",
            kinds in kinds(),
        ) {
            let text = format!("{line}\n12345678");
            if let Some((values, rest)) = fast(text.as_bytes(), &kinds) {
                prop_assert_eq!(Some(values), strict(line.as_bytes(), &kinds));
                prop_assert_eq!(rest, b"12345678");
            }
        }

        #[test]
        fn it_reads_whatever_is_well_formed(
            fields in prop::collection::vec((0..18u32, 0..u64::MAX, 0..9_000_000_000u64, 0..1_000_000_000u32), 1..5),
            gap in prop::sample::select(&[" ", "\t", "\t\t", "   "][..]),
            end in prop::sample::select(&["\n", "\r\n", " \n"][..]),
        ) {
            let fields: Vec<_> =
                fields.into_iter().map(|(digits, number, whole, rest)| (number % 10u64.pow(digits + 1), whole, rest)).collect();
            let text: Vec<String> =
                fields.iter().map(|(number, whole, rest)| format!("{number}{gap}{whole}.{rest:09}")).collect();
            let line = text.join(gap);
            let text = format!("{line}{end}1234567");
            let kinds = [None, Some(TimeUnit::Seconds)].repeat(fields.len());
            let values = fields.iter().flat_map(|(number, whole, rest)| {
                [i128::from(*number), i128::from(*whole) * 1_000_000_000 + i128::from(*rest)]
            });
            prop_assert_eq!(fast(text.as_bytes(), &kinds), Some((values.collect(), &b"1234567"[..])));
            prop_assert_eq!(fast(line.as_bytes(), &kinds), None);
        }
    }
}
