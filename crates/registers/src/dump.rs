//! Reads the bytes of a hexadecimal dump: a run of digits, rows with an offset, or words of several bytes.
//!
//! Rows may come from U-Boot (its tables of ten columns, and `md`), `hexdump`, `od -t x1` or `xxd`. Some of these print
//! characters after the digits, or `*` in place of rows that equal the row before. Words of 8 digits have their lowest byte last,
//! and so have words of 4 digits if no colon follows the offset (`hexdump`, `od -x`).

use emmclab_base::{Error, ErrorClass, Result};

/// Maximum number of bytes in a row that begins with an offset and a colon; the rest of such a row is a column of characters.
pub(crate) const MOST_IN_ROW: usize = 16;
/// Possible numbers of digits of a word in a row; a longer word is a run of digits without an offset.
const WORDS: [usize; 3] = [2, 4, 8];
/// Radixes of the offsets of rows: 16 (hexdump and xxd), 10 (U-Boot) and 8 (od).
const RADIXES: [u32; 3] = [16, 10, 8];

/// A row of hexadecimal digits in a dump.
struct DumpRow<'a> {
    line: u64,
    /// The digits of the offset at the beginning of the row; `None` if the row has no offset.
    offset: Option<&'a str>,
    bytes: Vec<u8>,
    /// Whether a line with only `*` precedes the row.
    after_star: bool,
}

/// The bytes of the first hexadecimal dump in a text.
pub(crate) struct HexDump<'a> {
    pub bytes: Vec<u8>,
    /// Number and content of the line that ended the dump, because it is not a row of digits.
    pub end: Option<(u64, &'a str)>,
}

/// Reads the first dump in a text, up to `most` bytes. Returns `None` if no line of the text is a row of hexadecimal digits.
pub(crate) fn read(text: &str, most: usize) -> Result<Option<HexDump<'_>>> {
    let mut rows = Vec::new();
    let mut after_star = false;
    let mut end = None;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
        if content.is_empty() {
            continue;
        }
        if content == "*" && !rows.is_empty() {
            after_star = true;
            continue;
        }
        match row(content, line, after_star) {
            Some(row) => rows.push(row),
            // Lines before the dump, such as a command or a heading, are skipped.
            None if rows.is_empty() => continue,
            None => {
                end = Some((line, content));
                break;
            }
        }
        after_star = false;
        // All expected bytes have been read. The file may continue, for example with the next command of a log.
        if rows.iter().map(|row| row.bytes.len()).sum::<usize>() >= most {
            break;
        }
    }
    if rows.iter().all(|row| row.bytes.is_empty()) {
        return Ok(None);
    }
    assemble(&rows, most).map(|bytes| Some(HexDump { bytes, end }))
}

/// Whether a text is a dump of at least `least` bytes and nothing else.
pub(crate) fn is_dump(text: &str, least: usize) -> bool {
    let mut bytes = 0;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "*");
    lines.all(|line| row(line, 0, false).inspect(|row| bytes += row.bytes.len()).is_some()) && bytes >= least
}

/// Parses a line as a row of hexadecimal digits; `None` if the line is something else.
fn row(content: &str, line: u64, after_star: bool) -> Option<DumpRow<'_>> {
    let (before, rest) = content.split_once(':').map_or((None, content), |(before, rest)| (Some(before), rest));
    if before.is_some_and(|before| !is_number(before)) {
        return None;
    }
    let rest = rest.split(['|', '>']).next().unwrap_or_default();
    let mut words: Vec<_> = rest
        .split(|letter: char| letter.is_whitespace() || ",{};".contains(letter))
        .filter(|word| !word.is_empty())
        .map(|word| word.strip_prefix("0x").unwrap_or(word))
        .collect();
    let mut offset = before;
    let first_differs = words.len() == 1 || words.len() > 1 && words[0].len() != words[1].len();
    if before.is_none() && first_differs && (5..=8).contains(&words[0].len()) && is_number(words[0]) {
        offset = Some(words.remove(0));
    }
    let length = words.first().map_or(0, |word| word.len());
    if before.is_some() && WORDS.contains(&length) {
        words.truncate(2 * MOST_IN_ROW / length);
    }
    let is_run = words.len() == 1 && length > 8 && length.is_multiple_of(2);
    if !words.is_empty() && !is_run && !WORDS.contains(&length) {
        return None;
    }
    let mut bytes = Vec::new();
    for word in words {
        if word.len() != length || !is_number(word) {
            return None;
        }
        let begin = bytes.len();
        bytes.extend((0..length).step_by(2).map_while(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok()));
        if length == 8 || length == 4 && before.is_none() {
            bytes[begin..].reverse();
        }
    }
    (offset.is_some() || !bytes.is_empty()).then_some(DumpRow { line, offset, bytes, after_star })
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Assembles the bytes of rows, in the first radix that fits all offsets. If none fits, returns the error of the radix that fits most rows.
fn assemble(rows: &[DumpRow<'_>], most: usize) -> Result<Vec<u8>> {
    let mut furthest: Option<(usize, Error)> = None;
    for radix in RADIXES {
        match with_radix(rows, radix, most) {
            Ok(bytes) => return Ok(bytes),
            Err((row, error)) => {
                if furthest.as_ref().is_none_or(|(other, _)| row > *other) {
                    furthest = Some((row, error));
                }
            }
        }
    }
    Err(furthest.map_or_else(|| Error::new(ErrorClass::Empty, "the dump has no row of hex digits"), |(_, error)| error))
}

fn with_radix(rows: &[DumpRow<'_>], radix: u32, most: usize) -> std::result::Result<Vec<u8>, (usize, Error)> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut base = None;
    for (number, row) in rows.iter().enumerate() {
        let place = row.offset.and_then(|digits| usize::from_str_radix(digits, radix).ok());
        let place = place.map(|place| place.wrapping_sub(*base.get_or_insert(place)));
        if row.after_star {
            // The hex dump omitted rows that equal the previous row, up to this offset.
            while bytes.len() >= MOST_IN_ROW && bytes.len() < place.unwrap_or(0).min(most) {
                bytes.extend_from_within(bytes.len() - MOST_IN_ROW..);
            }
        }
        let misplaced = row.offset.is_some() && place != Some(bytes.len());
        if misplaced || row.after_star && row.offset.is_none() {
            let problem = format!("the rows before it have {} bytes: a row is missing or damaged", bytes.len());
            let error = Error::new(ErrorClass::Syntax, problem)
                .at_line(row.line)
                .of_field("offset", 1, row.offset.unwrap_or("*").as_bytes())
                .hint("dump the whole register again");
            return Err((number, error));
        }
        bytes.extend_from_slice(&row.bytes);
    }
    Ok(bytes)
}
