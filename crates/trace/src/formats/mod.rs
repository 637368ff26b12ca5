//! The formats: one file each, and the list that names them.

mod biotracer;
mod guard;
mod input;
mod text;

use std::path::Path;

pub(crate) use guard::UnitGuard;
pub use input::Input;

use crate::error::{Error, Kind, Result};
use crate::reader::{Header, ReadOptions, Source};
use crate::writer::Sink;

/// A trace format: how to know it, read it and write it.
pub struct Format {
    /// The name for `--format`, in lower case.
    pub name: &'static str,
    /// One line on what it is and who writes it.
    pub about: &'static str,
    /// File-name endings that [`crate::TraceWriter`] takes as this format, without the dot.
    pub extensions: &'static [&'static str],
    /// Whether the first bytes (decompressed) and the file name look like this format.
    pub sniff: fn(&[u8], &Path) -> bool,
    /// Starts reading.
    pub open: fn(Input, &ReadOptions) -> Result<Box<dyn Source>>,
    /// Starts writing, where the format can be written.
    pub create: Option<fn(Box<dyn std::io::Write + Send>, &Header) -> Result<Box<dyn Sink>>>,
}

/// Every format, the most telling first: the first whose `sniff` holds is taken.
pub static FORMATS: &[&Format] = &[&biotracer::FORMAT];

/// The format of this name.
///
/// # Errors
/// [`Kind::UnknownFormat`] with the names there are.
pub fn by_name(name: &str) -> Result<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        Error::new(Kind::UnknownFormat, format!("there is no format `{name}`"))
            .hint(format!("choose one of: {}", names.join(", ")))
    })
}

/// Opens `path` for reading with the format asked for or found.
pub(crate) fn open(path: &Path, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let input = Input::open(path)?;
    if input.head().is_empty() {
        return Err(
            Error::new(Kind::Empty, "the file is empty").hint("was the recording stopped before any I/O?")
        );
    }
    let format = match &options.format {
        Some(name) => by_name(name)?,
        None => {
            FORMATS.iter().copied().find(|format| (format.sniff)(input.head(), path)).ok_or_else(|| {
                Error::new(Kind::UnknownFormat, "this is no trace format that is known here").hint(
                    "name it with --format (see `emmclab formats`), or describe its columns with --columns",
                )
            })?
        }
    };
    (format.open)(input, options)
}
