//! The `EXT_CSD` register of an eMMC (JESD84-B51, 7.4) in the forms that programs print: 512 bytes, the hexadecimal digits of
//! debugfs, tables of U-Boot, words of vendors' tools, and the sentences of mmc-utils.

use super::{FileKind, Head};

const BYTES: usize = 512;
/// Offsets of registers with few possible values.
const REVISION: usize = 192;
const STRUCTURE: usize = 194;
const COMMAND_SETS: usize = 504;
const SECTORS: usize = 212;

pub(super) static KINDS: &[FileKind] = &[FileKind {
    what: "an EXT_CSD register, which says what an eMMC is and can do",
    is,
    cure: "no command reads it yet: `emmclab explain emmc51-cache` prints a device with the settings to set by hand (capacity, \
           cache, packed commands, queue); for its I/O record with `emmclab record`, blktrace or trace-cmd",
}];

fn is(head: &Head) -> bool {
    let sentences =
        ["Extended CSD rev", "[EXT_CSD_REV", "[S_CMD_SET:", "[CACHE_SIZE", "eMMC Life Time Estimation"];
    let is_printed = sentences.iter().any(|sentence| head.holds(sentence));
    is_printed || is_register(head.bytes) || dump(head).is_some_and(|bytes| is_register(&bytes))
}

/// Whether these are the bytes of a register: the values of some fields are few, and the reserved ones are zero.
fn is_register(bytes: &[u8]) -> bool {
    let [revision, structure, sets] = [REVISION, STRUCTURE, COMMAND_SETS].map(|at| bytes.get(at).copied());
    let sectors = bytes.get(SECTORS..SECTORS + 4);
    bytes.len() == BYTES
        && matches!(revision, Some(1..=9))
        && matches!(structure, Some(0..=2))
        && matches!(sets, Some(1..=31))
        && sectors.is_some_and(|sectors| sectors != [0; 4])
        && bytes[..14].iter().all(|byte| *byte == 0)
        && !bytes.ends_with(&[0x55, 0xaa])
}

/// The bytes of a dump in hexadecimal digits: in one run, in rows behind an offset, or in words of 8 digits, lowest byte last. The
/// rows are those of U-Boot, `hexdump -C`, `od -t x1` and `xxd`, some of which put characters behind the digits, or `*` in place of
/// rows that are like the one before.
fn dump(head: &Head) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BYTES);
    let mut repeats = false;
    for line in head.lines() {
        if line == b"*" {
            repeats = true;
            continue;
        }
        let Row { offset, words } = Row::of(line);
        if std::mem::take(&mut repeats) {
            repeat(&mut bytes, offset?);
        }
        let length = words.first().map_or(0, |word| word.len());
        let is_row = words.iter().all(|word| word.len() == length && word.iter().all(u8::is_ascii_hexdigit));
        if !is_row || !matches!(length, 2 | 4 | 8 | 1024) {
            // A command or a heading before the dump.
            if bytes.is_empty() {
                continue;
            }
            break;
        }
        for word in words {
            let at = bytes.len();
            bytes.extend(word.chunks_exact(2).filter_map(|pair| {
                let digits = std::str::from_utf8(pair).ok()?;
                u8::from_str_radix(digits, 16).ok()
            }));
            if length == 8 {
                bytes[at..].reverse();
            }
        }
    }
    // Tables of ten columns end in a row that is not full, or filled up.
    (bytes.len() >= BYTES && bytes.len() < BYTES + 16).then(|| {
        bytes.truncate(BYTES);
        bytes
    })
}

/// Repeats the last row up to this offset.
fn repeat(bytes: &mut Vec<u8>, offset: usize) {
    const ROW: usize = 16;
    while bytes.len() >= ROW && bytes.len() < offset.min(BYTES) {
        bytes.extend_from_within(bytes.len() - ROW..);
    }
}

/// A row of a dump.
struct Row<'a> {
    /// Its offset, where it is hexadecimal and stands in front.
    offset: Option<usize>,
    /// The digits, without the characters behind them.
    words: Vec<&'a [u8]>,
}

impl<'a> Row<'a> {
    fn of(line: &'a [u8]) -> Self {
        /// Digits of the offsets of `hexdump` and `od`.
        const OFFSETS: std::ops::RangeInclusive<usize> = 5..=8;
        /// Words in a row of `xxd`, of 4 digits each.
        const WORDS_OF_XXD: usize = 8;
        let (before, rest) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&[][..], line),
        };
        let rest = memchr::memchr(b'|', rest).map_or(rest, |bar| &rest[..bar]);
        let mut words: Vec<_> = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let mut offset = before;
        let stands_alone = words.len() == 1 || words.len() > 1 && words[0].len() != words[1].len();
        if before.is_empty() && stands_alone && OFFSETS.contains(&words[0].len()) {
            offset = words.remove(0);
        } else if !before.is_empty() && words.first().is_some_and(|word| word.len() == 4) {
            words.truncate(WORDS_OF_XXD);
        }
        let offset =
            std::str::from_utf8(offset).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        Row { offset, words }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::super::tests::named;
    use super::*;

    fn register() -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        (bytes[REVISION], bytes[STRUCTURE], bytes[COMMAND_SETS]) = (8, 2, 1);
        bytes[SECTORS..SECTORS + 4].copy_from_slice(&[0, 0, 0xe9, 0]);
        bytes[226] = 1;
        bytes
    }

    #[test]
    fn the_register_is_known_in_each_form() {
        let bytes = register();
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let debugfs = hex(&bytes) + "\n";
        let mut table = "=> mmc reg read extcsd all\n".to_owned();
        for (row, part) in bytes.chunks(10).enumerate() {
            let columns: Vec<_> = part.iter().map(|byte| hex(&[*byte])).collect();
            let _ = writeln!(table, "{:03}: {}", row * 10, columns.join(" "));
        }
        let mut words = String::new();
        for row in bytes.chunks(32) {
            let row: Vec<_> = row.chunks(4).map(|word| hex(&[word[3], word[2], word[1], word[0]])).collect();
            let _ = writeln!(words, "{}", row.join(" "));
        }
        let (mut hexdump, mut xxd) = (String::new(), String::new());
        for (row, part) in bytes.chunks(16).enumerate() {
            let columns: Vec<_> = part.iter().map(|byte| hex(&[*byte])).collect();
            let pairs: Vec<_> = part.chunks(2).map(hex).collect();
            // Rows like the one before stand as a star.
            if row == 0 || part != &bytes[row * 16 - 16..row * 16] {
                let _ = writeln!(hexdump, "{:08x}  {}  |................|", row * 16, columns.join(" "));
            } else if !hexdump.ends_with("*\n") {
                hexdump += "*\n";
            }
            let _ = writeln!(xxd, "{:08x}: {}  ................", row * 16, pairs.join(" "));
        }
        hexdump += "00000200\n";
        let sentences = "=====\n  Extended CSD rev 1.8 (MMC 5.1)\n=====\n\nCard Supported Command sets [S_CMD_SET: 0x01]\n";
        for head in [
            &bytes[..],
            debugfs.as_bytes(),
            table.as_bytes(),
            words.as_bytes(),
            hexdump.as_bytes(),
            xxd.as_bytes(),
            sentences.as_bytes(),
        ] {
            assert!(named(head).contains("EXT_CSD"), "{:?}", String::from_utf8_lossy(&head[..40]));
        }
    }

    #[test]
    fn other_dumps_are_not_taken_for_it() {
        let mut bytes = register();
        bytes[REVISION] = 77;
        assert_eq!(named(&bytes), "unknown");
        assert_eq!(named(b"00000000: 7f 45 4c 46\n"), "unknown");
    }
}
