//! Reads the wire format of Protocol Buffers without copies and without knowledge of the message type. Source:
//! protobuf.dev/programming-guides/encoding.

use std::io::{self, Read};

use crate::{Error, ErrorClass, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireValue<'a> {
    /// A number; signed numbers as two's complement.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// The value of a number; 0 for bytes.
    #[inline]
    pub(super) fn number(self) -> u64 {
        match self {
            WireValue::Number(number) => number,
            WireValue::Bytes(_) => 0,
        }
    }

    /// The value of bytes; empty for a number.
    #[inline]
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            WireValue::Number(_) => &[],
            WireValue::Bytes(bytes) => bytes,
        }
    }
}

/// Iterator over the fields of a message, in order. It ends with an error if the message is damaged.
#[derive(Clone, Debug)]
pub(super) struct WireFields<'a> {
    rest: &'a [u8],
}

impl<'a> WireFields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.rest.split_first()?;
        if first < 0x80 {
            self.rest = rest;
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for (place, &byte) in rest.iter().take(9).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * (place + 1));
            if byte < 0x80 {
                self.rest = &rest[place + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline]
    fn field(&mut self) -> Option<(u32, WireValue<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
        let value = match key & 7 {
            0 => WireValue::Number(self.varint()?),
            1 => WireValue::Number(self.take(8)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
            2 => {
                let length = self.varint()?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Number(self.take(4)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
            // The group types of Protocol Buffers were deprecated before Perfetto existed.
            _ => return None,
        };
        Some((number, value))
    }
}

impl<'a> Iterator for WireFields<'a> {
    type Item = Result<(u32, WireValue<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or_else(damaged))
    }
}

#[cold]
fn damaged() -> Error {
    Error::new(ErrorClass::Syntax, "a protobuf message has a bad field").hint("copy or record the file again: it is damaged")
}

/// `Trace.packet`: the key of a length-delimited field.
const PACKET: u8 = 1 << 3 | 2;
/// Maximum size of a packet in bytes. Packets have at most some hundred KB; a larger length means that the file is damaged.
const LARGEST_PACKET: u64 = 1 << 28;

/// The next key in a trace and the length after it; `None` at the end.
fn key_and_length(input: &mut impl Read) -> io::Result<Option<(u8, u64)>> {
    let mut byte = [0];
    if input.read(&mut byte)? == 0 {
        return Ok(None);
    }
    let key = byte[0];
    let mut length = 0;
    for place in 0..10 {
        input.read_exact(&mut byte)?;
        length |= u64::from(byte[0] & 0x7f).checked_shl(7 * place).unwrap_or(0);
        if byte[0] < 0x80 {
            return Ok(Some((key, length)));
        }
    }
    Ok(Some((key, u64::MAX)))
}

/// Reads the next packet into `content`; returns false at the end. Never allocates more memory than there are bytes in the file.
pub(super) fn next_packet(input: &mut impl Read, content: &mut Vec<u8>) -> Result<bool> {
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(ErrorClass::Truncated, "the file ends in the middle of a packet")
            .hint("the recording is incomplete: use --lenient to read the part before its end"),
        kind => Error::new(ErrorClass::Io, error.to_string()).hint(match kind {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => "the compressed data is damaged",
            _ => "reading the file failed",
        }),
    };
    let Some((key, length)) = key_and_length(input).map_err(cut)? else { return Ok(false) };
    if key != PACKET || length > LARGEST_PACKET {
        let problem = if key == PACKET {
            format!("a packet has {length} bytes, but at most {LARGEST_PACKET} are allowed")
        } else {
            "this is not a packet".to_owned()
        };
        return Err(Error::new(ErrorClass::Syntax, problem).hint("copy the file again: it is damaged, or not a Perfetto trace"));
    }
    content.clear();
    let read = input.by_ref().take(length).read_to_end(content).map_err(cut)?;
    if (read as u64) < length {
        return Err(cut(io::Error::from(io::ErrorKind::UnexpectedEof)));
    }
    Ok(true)
}

pub(super) struct CountingReader<R> {
    input: R,
    at: u64,
}

impl<R> CountingReader<R> {
    pub fn new(input: R) -> Self {
        Self { input, at: 0 }
    }

    /// Number of bytes read so far.
    pub fn at(&self) -> u64 {
        self.at
    }
}

impl<R: Read> Read for CountingReader<R> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.inspect(|read| self.at += *read as u64),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use emmclab_testing::ProtobufMessage;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(
            fields in prop::collection::vec((1u32..1 << 29, any::<Option<u64>>(), prop::collection::vec(any::<u8>(), 0..200)), 0..20)
        ) {
            let message = fields.iter().fold(ProtobufMessage::default(), |message, (number, value, bytes)| match value {
                Some(value) => message.number(*number, *value),
                None => message.bytes(*number, bytes),
            });
            let read: Vec<_> = WireFields::of(&message.0).map(Result::unwrap).collect();
            let written = fields.iter().map(|(number, value, bytes)| {
                (*number, value.map_or(WireValue::Bytes(bytes), WireValue::Number))
            });
            prop_assert_eq!(read, written.collect::<Vec<_>>());
        }

        #[test]
        fn foreign_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(WireFields::of(&bytes).count() <= bytes.len());
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_damage() {
        let mut fields = WireFields::of(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(fields.next().unwrap().unwrap_err().kind(), ErrorClass::Syntax);
        assert!(fields.next().is_none());
    }
}
