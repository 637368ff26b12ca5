//! Compression of output files, selected by the extension of their names.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;

/// Compression level of xz, which is the default of the `xz` command.
const XZ_LEVEL: u32 = 6;

/// The compression of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputCompression {
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
    /// xz.
    Xz,
}

impl OutputCompression {
    /// Extensions of file names, without the dot. Extensions of the same compression are adjacent, the usual one first.
    pub const ENDINGS: [(&'static str, OutputCompression); 4] =
        [("gz", Self::Gzip), ("zst", Self::Zstd), ("zstd", Self::Zstd), ("xz", Self::Xz)];

    /// Splits off the extension of a compression and returns the name and the compression; `None` if there is no such extension.
    pub fn split(name: &str) -> (&str, Option<OutputCompression>) {
        let ended = name.rsplit_once('.').and_then(|(rest, ending)| {
            let ending = ending.to_ascii_lowercase();
            Self::ENDINGS.iter().find(|(known, _)| *known == ending).map(|(_, compression)| (rest, *compression))
        });
        ended.map_or((name, None), |(rest, compression)| (rest, Some(compression)))
    }
}

/// Compresses parts of a file with zstd and adds a checksum, which `zstd::decode_all` verifies; by default, zstd adds none. Fails if there
/// is not enough memory.
pub fn compress_checked(parts: &[&[u8]], level: i32) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), level)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(parts.iter().map(|part| part.len() as u64).sum()))?;
    parts.iter().try_for_each(|part| encoder.write_all(part))?;
    encoder.finish()
}

/// A writer that compresses, or writes the bytes unchanged.
pub(crate) enum CompressingWriter<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
    Xz(XzEncoder<W>),
}

impl<W: Write> CompressingWriter<W> {
    /// Starts compressing into `out`. The same input always results in the same output: no time or name is stored.
    pub(crate) fn new(out: W, compression: Option<OutputCompression>) -> io::Result<Self> {
        Ok(match compression {
            None => Self::Plain(out),
            Some(OutputCompression::Gzip) => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Some(OutputCompression::Zstd) => {
                let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
            Some(OutputCompression::Xz) => Self::Xz(XzEncoder::new(out, XZ_LEVEL)),
        })
    }

    /// Ends the compressed stream and returns the inner writer.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(encoder) => encoder.finish(),
            Self::Xz(encoder) => encoder.finish(),
        }
    }

    fn inner(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Gzip(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
            Self::Xz(encoder) => encoder,
        }
    }
}

impl<W: Write> Write for CompressingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().flush()
    }
}
