//! Parses numbers, texts and compressed chunks of a `trace.dat`.

use std::io::{self, Read};

use emmclab_trace::{Error, ErrorClass, Result};

use crate::byte_order::KernelByteOrder;

/// Maximum size of a part, in bytes. Event formats and symbols of a large kernel have some 10 MB.
const LARGEST_PART: u64 = 1 << 28;

/// How a version 7 file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceDatCompression {
    None,
    Zlib,
    Zstd,
}

impl TraceDatCompression {
    /// The compression with this name in the file.
    pub(super) fn by_name(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(TraceDatCompression::None),
            "zlib" => Ok(TraceDatCompression::Zlib),
            "zstd" => Ok(TraceDatCompression::Zstd),
            other => Err(Error::new(ErrorClass::Unsupported, "is not a known compression")
                .of_field("compression", 0, other.as_bytes())
                .hint("write the file without one: `trace-cmd convert --compression none`")),
        }
    }
}

/// Reads numbers in the byte order of the file.
pub(super) struct TraceDatParser<R> {
    pub(super) input: R,
    pub(super) order: KernelByteOrder,
}

/// The error for input that is cut short or cannot be decompressed.
pub(super) fn damaged(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new(ErrorClass::Truncated, "the file ends too early")
            .hint("if trace-cmd was killed, `trace-cmd restore` makes a whole file of what it left"),
        _ => Error::new(ErrorClass::Io, format!("reading failed: {error}"))
            .hint("copy or record the file again: it is cut short or damaged"),
    }
}

/// The error for a number that is impossible in such a file.
pub(super) fn nonsense(what: &str, value: u64) -> Error {
    Error::new(ErrorClass::Value, "is impossible in a trace.dat")
        .of_field(what, 0, value.to_string().as_bytes())
        .hint("copy or record the file again: it is damaged")
}

impl<R: Read> TraceDatParser<R> {
    pub(super) fn number(&mut self, size: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.input.read_exact(&mut bytes[..size]).map_err(|error| damaged(&error))?;
        Ok(self.order.unsigned(&bytes, 0, size).unwrap_or(0))
    }

    /// Reads this number of bytes; memory is allocated only for bytes that exist.
    pub(super) fn bytes(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > LARGEST_PART {
            return Err(nonsense("size", size));
        }
        let mut out = Vec::new();
        let read = self.input.by_ref().take(size).read_to_end(&mut out).map_err(|error| damaged(&error))?;
        if read as u64 == size { Ok(out) } else { Err(damaged(&io::Error::from(io::ErrorKind::UnexpectedEof))) }
    }

    /// Reads a zero-terminated text.
    pub(super) fn word(&mut self) -> Result<String> {
        let mut out = Vec::new();
        while out.len() < 256 {
            match self.number(1)? as u8 {
                0 => return Ok(String::from_utf8_lossy(&out).into_owned()),
                byte => out.push(byte),
            }
        }
        Err(Error::new(ErrorClass::Syntax, "is not a name: a name has at most 255 bytes")
            .of_field("name", 0, &out)
            .hint("copy or record the file again: it is damaged"))
    }

    /// Reads a text with its length before it.
    pub(super) fn text(&mut self) -> Result<String> {
        let size = self.number(8)?;
        Ok(String::from_utf8_lossy(&self.bytes(size)?).into_owned())
    }

    /// Reads the id and the data of an option.
    pub(super) fn option(&mut self) -> Result<(u16, Vec<u8>)> {
        let id = self.number(2)? as u16;
        let size = self.number(4)?;
        Ok((id, self.bytes(size)?))
    }

    /// Reads a chunk of compressed data with its two sizes before it.
    pub(super) fn chunk(&mut self, compression: TraceDatCompression) -> Result<Vec<u8>> {
        let (packed, plain) = (self.number(4)?, self.number(4)?);
        if plain > LARGEST_PART {
            return Err(nonsense("chunk size", plain));
        }
        let packed = self.bytes(packed)?;
        let mut out = Vec::new();
        let unpacked = match compression {
            TraceDatCompression::None => return Ok(packed),
            TraceDatCompression::Zlib => flate2::read::ZlibDecoder::new(&packed[..]).take(plain).read_to_end(&mut out),
            TraceDatCompression::Zstd => {
                zstd::Decoder::new(&packed[..]).and_then(|decoder| decoder.take(plain).read_to_end(&mut out))
            }
        };
        match unpacked {
            Ok(unpacked) if unpacked as u64 == plain => Ok(out),
            Ok(_) => Err(damaged(&io::Error::from(io::ErrorKind::UnexpectedEof))),
            Err(error) => Err(damaged(&error)),
        }
    }
}
