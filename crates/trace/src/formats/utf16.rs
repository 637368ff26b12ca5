//! Converts text in UTF-16 to UTF-8. PowerShell and some editors write UTF-16.

use std::io::{self, Read};

/// Number of code units that are examined if there is no byte-order mark.
const LOOKED_AT: usize = 32;
const CHUNK: usize = 1 << 13;
/// Replaces invalid code units (U+FFFD).
const REPLACEMENT: char = '\u{fffd}';

/// Order of the two bytes of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Utf16ByteOrder {
    Little,
    Big,
}

impl Utf16ByteOrder {
    /// The byte order from the byte-order mark, or the one in which all of the first code units are ASCII text; `None` if there
    /// is none.
    pub(super) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => return Some(Self::Little),
            [0xfe, 0xff, ..] => return Some(Self::Big),
            _ => {}
        }
        let units = head.get(..2 * LOOKED_AT)?;
        let is_text = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
        let all = |high: usize| units.chunks_exact(2).all(|unit| unit[high] == 0 && is_text(unit[1 - high]));
        if all(1) {
            Some(Self::Little)
        } else if all(0) {
            Some(Self::Big)
        } else {
            None
        }
    }

    fn unit(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }
}

/// Reads UTF-16 and returns UTF-8, without the byte-order mark.
pub(super) struct Utf16Decoder<R> {
    input: R,
    order: Utf16ByteOrder,
    raw: Vec<u8>,
    /// A high surrogate whose low surrogate has not been read yet.
    high: Option<u16>,
    text: Vec<u8>,
    returned_bytes: usize,
    begun: bool,
}

impl<R: Read> Utf16Decoder<R> {
    pub(super) fn new(input: R, order: Utf16ByteOrder) -> Self {
        Self { input, order, raw: Vec::new(), high: None, text: Vec::new(), returned_bytes: 0, begun: false }
    }

    /// Reads and converts the next part; false at the end.
    fn advance(&mut self) -> io::Result<bool> {
        let held = self.raw.len();
        let read = self.input.by_ref().take(CHUNK as u64).read_to_end(&mut self.raw)?;
        self.text.clear();
        self.returned_bytes = 0;
        let whole = (held + read) & !1;
        for unit in self.raw[..whole].chunks_exact(2) {
            let unit = self.order.unit([unit[0], unit[1]]);
            if std::mem::replace(&mut self.begun, true) || unit != 0xfeff {
                Self::push(&mut self.high, &mut self.text, unit);
            }
        }
        self.raw.drain(..whole);
        if read == 0 {
            // The text ends with half a code unit, or half a surrogate pair.
            if !self.raw.is_empty() || self.high.take().is_some() {
                self.raw.clear();
                push_char(&mut self.text, REPLACEMENT);
            }
            return Ok(!self.text.is_empty());
        }
        Ok(true)
    }

    fn push(high: &mut Option<u16>, text: &mut Vec<u8>, unit: u16) {
        let units = high.take().into_iter().chain([unit]);
        for decoded in char::decode_utf16(units) {
            match decoded {
                Ok(character) => push_char(text, character),
                Err(error)
                    if matches!(error.unpaired_surrogate(), 0xd800..=0xdbff) && error.unpaired_surrogate() == unit =>
                {
                    *high = Some(unit);
                }
                Err(_) => push_char(text, REPLACEMENT),
            }
        }
    }
}

fn push_char(text: &mut Vec<u8>, character: char) {
    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}

impl<R: Read> Read for Utf16Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.returned_bytes >= self.text.len() {
            if !self.advance()? {
                return Ok(0);
            }
        }
        let length = buffer.len().min(self.text.len() - self.returned_bytes);
        buffer[..length].copy_from_slice(&self.text[self.returned_bytes..self.returned_bytes + length]);
        self.returned_bytes += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(text: &str, order: Utf16ByteOrder) -> Vec<u8> {
        text.encode_utf16()
            .flat_map(|unit| match order {
                Utf16ByteOrder::Little => unit.to_le_bytes(),
                Utf16ByteOrder::Big => unit.to_be_bytes(),
            })
            .collect()
    }

    fn decoded(bytes: &[u8], order: Utf16ByteOrder) -> String {
        let mut text = String::new();
        Utf16Decoder::new(bytes, order).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn text_reads_the_same_in_both_orders_and_beyond_one_chunk() {
        let text = "a\u{fc}\u{1f600}\r\n".repeat(5_000);
        for order in [Utf16ByteOrder::Little, Utf16ByteOrder::Big] {
            assert_eq!(decoded(&encoded(&text, order), order), text);
            assert_eq!(decoded(&encoded(&format!("\u{feff}{text}"), order), order), text);
        }
    }

    #[test]
    fn halves_of_characters_are_replaced() {
        assert_eq!(decoded(&[b'a', 0, 0x3d, 0xd8], Utf16ByteOrder::Little), "a\u{fffd}");
        assert_eq!(decoded(&[0x3d, 0xd8, b'a', 0], Utf16ByteOrder::Little), "\u{fffd}a");
        assert_eq!(decoded(&[0x00, 0xde, b'a', 0, 7], Utf16ByteOrder::Little), "\u{fffd}a\u{fffd}");
    }

    #[test]
    fn the_order_is_known_by_the_mark_or_by_plain_text() {
        let text = "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n";
        for order in [Utf16ByteOrder::Little, Utf16ByteOrder::Big] {
            assert_eq!(Utf16ByteOrder::of(&encoded(text, order)), Some(order));
            assert_eq!(Utf16ByteOrder::of(&encoded("\u{feff}x", order)), Some(order));
        }
        assert_eq!(Utf16ByteOrder::of(text.as_bytes()), None);
        assert_eq!(Utf16ByteOrder::of(&[0; 512]), None);
    }
}
