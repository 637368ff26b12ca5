//! One pass over a well-formed line of numbers. Whatever it does not understand is left to the careful way through the
//! fields, which says what is wrong; both give the same where both succeed.

use super::text::TimeUnit;

/// A text that begins with a line, and a place in that line.
#[derive(Clone, Debug)]
pub(crate) struct Quick<'a> {
    text: &'a [u8],
    at: usize,
}

/// So many digits always fit.
const MOST_DIGITS: usize = 18;
const POWERS: [u64; 10] =
    [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];

impl<'a> Quick<'a> {
    /// The line's end has to be in the text: what stands before the end of the text may go on behind it.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// A run of digits, and how many there are; the first eight at once where it is likely to be `long`.
    #[inline]
    fn digits(&mut self, long: bool) -> Option<(u64, usize)> {
        let rest = &self.text[self.at..];
        let (mut value, mut count) = (0u64, 0);
        if long
            && let Some((eight, _)) = rest.split_first_chunk::<8>()
            && let Some(digits) = eight_digits(*eight)
        {
            (value, count) = (digits, 8);
        }
        for byte in &rest[count..] {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            count += 1;
        }
        self.at += count;
        (count.wrapping_sub(1) < MOST_DIGITS).then_some((value, count))
    }

    /// Goes over the blanks behind a field; `None` where something else stands there.
    #[inline]
    fn blanks(&mut self) -> Option<()> {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        match self.text.get(self.at)? {
            b'\n' | b'\r' => return Some(()),
            byte if blank(byte) => self.at += 1,
            _ => return None,
        }
        while self.text.get(self.at).is_some_and(blank) {
            self.at += 1;
        }
        Some(())
    }

    /// The next field, an unsigned number.
    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        self.number_and_text().map(|(value, _)| value)
    }

    /// The next field, an unsigned number, with its text.
    #[inline]
    pub(crate) fn number_and_text(&mut self) -> Option<(u64, &'a [u8])> {
        let from = self.at;
        let (value, count) = self.digits(false)?;
        self.blanks()?;
        Some((value, &self.text[from..from + count]))
    }

    /// The next field, a time in `unit`s with no more decimals than make nanoseconds.
    #[inline]
    pub(crate) fn time(&mut self, unit: TimeUnit) -> Option<i64> {
        let (whole, _) = self.digits(true)?;
        let places = unit.digits() as usize;
        let mut rest = 0;
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            let (digits, count) = self.digits(true)?;
            rest = digits * POWERS.get(places.checked_sub(count)?)?;
        }
        self.blanks()?;
        let ns = whole.checked_mul(POWERS[places])?.checked_add(rest)?;
        i64::try_from(ns).ok()
    }

    /// The length of the line with its end, where it ends here.
    #[inline]
    pub(crate) fn ended(&self) -> Option<usize> {
        match self.text.get(self.at..)? {
            [b'\n', ..] => Some(self.at + 1),
            [b'\r', b'\n', ..] => Some(self.at + 2),
            _ => None,
        }
    }
}

/// The number that eight digits make: pairs, fours, then the whole, each step for all at once.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(text);
    let digits = word.wrapping_sub(0x3030_3030_3030_3030);
    // A byte below `0` borrows, one above `9` carries into its high bit.
    if (digits | word.wrapping_add(0x4646_4646_4646_4646)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::text::{blank_separated, decimal_time, unsigned};
    use super::*;

    #[test]
    fn eight_digits_are_nothing_but_digits() {
        for place in 0..8 {
            for byte in 0..=255 {
                let mut text = *b"31415926";
                text[place] = byte;
                let plain = std::str::from_utf8(&text).ok().filter(|_| text.iter().all(u8::is_ascii_digit));
                assert_eq!(eight_digits(text), plain.and_then(|text| text.parse().ok()), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_it_reads_is_what_the_careful_way_reads(
            line in "([0-9]{0,20}(\\.[0-9]{0,11})?[ \t]{0,2}){0,4}[ a\\.-]?",
            unit in prop::sample::select(&[TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Nanos][..]),
        ) {
            let text = format!("{line}\n123");
            let line = line.as_bytes();
            let (mut numbers, mut times) = (Quick::new(text.as_bytes()), Quick::new(text.as_bytes()));
            for field in blank_separated(line) {
                let mut both = numbers.clone();
                let Some(number) = numbers.number() else { break };
                prop_assert_eq!(unsigned(field, "", 0).ok(), Some(number));
                prop_assert_eq!(both.number_and_text(), Some((number, field)));
            }
            for field in blank_separated(line) {
                let Some(time) = times.time(unit) else { break };
                prop_assert_eq!(decimal_time(field, unit, "", 0).ok(), Some(time));
            }
        }

        #[test]
        fn it_reads_whatever_is_well_formed(
            fields in prop::collection::vec((0..10u64.pow(18), 0..9_000_000_000u64, 0..1_000_000_000u32), 1..5),
            end in prop::sample::select(&["\n", "\r\n"][..]),
        ) {
            let text: Vec<String> =
                fields.iter().map(|(number, whole, rest)| format!("{number}\t\t{whole}.{rest:09}")).collect();
            let line = text.join(" ") + end;
            let text = line.clone() + "1";
            let mut quick = Quick::new(text.as_bytes());
            for (number, whole, rest) in fields {
                prop_assert_eq!(quick.number(), Some(number));
                let ns = whole as i64 * 1_000_000_000 + i64::from(rest);
                prop_assert_eq!(quick.time(TimeUnit::Seconds), Some(ns));
            }
            prop_assert_eq!(quick.ended(), Some(line.len()));
            prop_assert_eq!(Quick { text: line.trim_end().as_bytes(), ..quick }.ended(), None);
        }
    }
}
