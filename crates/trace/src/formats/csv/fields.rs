//! Splits a CSV line into its fields.

use std::borrow::Cow;

use super::super::line_format::text;
use crate::{Error, ErrorClass, Result};

/// A field in the form that it has in the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct CsvField<'a> {
    /// The field without the quotes around it; quotes in it are still doubled.
    pub raw: &'a [u8],
    pub quoted: bool,
}

impl<'a> CsvField<'a> {
    /// True if the field is empty and has no quotes.
    pub fn is_missing(self) -> bool {
        self.raw.is_empty() && !self.quoted
    }

    /// True if the text differs from `raw`, because it has doubled quotes.
    pub fn is_escaped(self) -> bool {
        self.quoted && memchr::memchr(b'"', self.raw).is_some()
    }

    /// The text of the field.
    pub fn text(self) -> Cow<'a, str> {
        let text = text(self.raw);
        if self.is_escaped() { Cow::Owned(text.replace("\"\"", "\"")) } else { text }
    }
}

/// The separators of fields; the first one that results in enough fields is that of the file.
const SEPARATORS: [u8; 3] = *b",;\t";
/// Separator that matches any run of blanks and tabs, for files without commas, semicolons or single tabs between fields.
pub(super) const BLANK: u8 = b' ';

/// Whether a byte is a blank or a tab.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The separator of a file, from its first line; `least` is the minimum number of fields of a line.
pub(super) fn separator(line: &[u8], least: usize) -> u8 {
    let splits = |separator: &u8| line.split(|byte| byte == separator).count() >= least;
    let words = || line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty()).count();
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
        // Some tools write blanks after a comma, for example fio in its logs. A name that begins with a blank is quoted.
        while let ([b' ', more @ ..], b',' | b';') = (rest, self.separator) {
            rest = more;
        }
        if let [b'"', quoted @ ..] = rest {
            return self.quoted(quoted).map(Some);
        }
        // Fields are short, so a search by machine words would be slower.
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
}
