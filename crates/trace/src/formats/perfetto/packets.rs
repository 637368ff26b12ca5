//! Reads the packets of a file.

use std::io::{self, Read};

use crate::{Error, ErrorClass, Result};

/// `Trace.packet`: the key of a field with a length.
const PACKET: u8 = 1 << 3 | 2;
/// Maximum size of a packet in bytes. Packets have at most some hundred KB; a larger length means that the file is damaged.
const LARGEST_PACKET: u64 = 1 << 28;

/// The next key of a trace and the length after it; `None` at the end.
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

/// Reads the next packet into `content`; false at the end. Never allocates more memory than there are bytes.
pub(super) fn next_packet(input: &mut impl Read, content: &mut Vec<u8>) -> Result<bool> {
    let cut = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(ErrorClass::Truncated, "the file ends in the middle of a packet")
            .hint("give --lenient to read up to there: the recording was cut off"),
        kind => Error::new(ErrorClass::Io, error.to_string()).hint(match kind {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => "the compressed data are damaged",
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
        return Err(Error::new(ErrorClass::Syntax, problem).hint("the file is damaged, or not a Perfetto trace"));
    }
    content.clear();
    let read = input.by_ref().take(length).read_to_end(content).map_err(cut)?;
    if (read as u64) < length {
        return Err(cut(io::Error::from(io::ErrorKind::UnexpectedEof)));
    }
    Ok(true)
}

/// A reader that counts the bytes read.
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
