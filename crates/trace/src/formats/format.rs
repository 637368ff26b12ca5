//! A format: how it is recognised, read and written, and the options of reading.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use emmclab_base::{Nanos, Result};

use super::holds::Holds;
use super::input::Input;
use super::time_unit::TimeUnit;
use crate::atomic_file::AtomicFile;
use crate::clock::MendClock;
use crate::columns::Column;
use crate::header::Header;
use crate::screen::{Only, ReissueWindow};
use crate::sink::Sink;
use crate::source::Source;

/// A trace format: how to know it, read it and write it.
pub struct Format {
    /// The name for `--format`, in lower case.
    pub name: &'static str,
    /// One line on what it is and who writes it.
    pub about: &'static str,
    /// The mark that its content is known by, in words for `sniff`.
    pub known_by: &'static str,
    /// Where its files come from, and what they hold.
    pub origin: Origin,
    /// File-name endings that [`crate::TraceWriter`] takes as this format, without the dot.
    pub extensions: &'static [&'static str],
    /// How it states times.
    pub times: Times,
    /// Whether the first bytes (decompressed) and the file name look like this format.
    pub sniff: fn(&[u8], &Path) -> bool,
    /// Starts reading.
    pub open: fn(Input, &ReadOptions) -> Result<Box<dyn Source>>,
    /// The values that it can hold and how writing starts, where the format can be written.
    pub writes: Option<(Holds, Create)>,
}

/// Where the files of a format come from, and what they hold; in Markdown, for the page on what can be read.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The program, with the command that makes such a file, or the collection.
    pub from: &'static str,
    /// The optional columns that a file can give.
    pub gives: &'static [Column],
    /// What stays unknown, beside the columns that are not given.
    pub unknown: &'static str,
}

/// By its name: addresses of functions would differ from run to run.
impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// How a format states times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Always in this unit.
    Fixed(TimeUnit),
    /// In this unit unless `--time-unit` names another.
    Open(TimeUnit),
    /// It orders requests rather than timing them, so that rates mean nothing.
    Loose,
    /// In nanoseconds, in a column that any tool may have written.
    Stored,
}

/// Starts writing a file.
pub type Create = fn(AtomicFile, &Header) -> Result<Box<dyn Sink>>;

/// A part of a trace that is read by itself, beside the others. It may hold no request, or none that is wanted.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The first arrival of the whole trace, from which [`ReadOptions::only`] counts.
    pub origin: Nanos,
    /// Row groups of a Parquet file; all where `None`.
    pub groups: Option<Range<usize>>,
}

/// How to read. The default finds out everything by itself.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name of a format (`emmclab formats`); found by its content where `None`.
    pub format: Option<String>,
    /// Skip bad records and count them, rather than stop at the first.
    pub lenient: bool,
    /// Column names of a generic CSV in order, comma separated (`arrival,op,sector,sectors,...`).
    pub columns: Option<String>,
    /// Unit of times, where the format leaves it open: `s`, `ms`, `us`, `ns`.
    pub time_unit: Option<String>,
    /// Unit of addresses and sizes, where the format leaves it open: `sector`, `byte`, `kb`, `page`.
    pub size_unit: Option<String>,
    /// Requests that may be held back to put them in order of arrival; [`crate::REORDER_WINDOW`] where `None`.
    pub reorder_window: Option<usize>,
    /// Jumps of the clock that are taken out of the trace; none if `None`.
    pub mend_clock: Option<MendClock>,
    /// When a request may be issued again; [`ReissueWindow::default`] where `None`.
    pub reissue_window: Option<ReissueWindow>,
    /// Suspected re-issues are dropped.
    pub drop_reissued: bool,
    /// The requests that are wanted; all where `None`.
    pub only: Option<Only>,
    /// A trace of several devices is refused, because their addresses are not of one space.
    pub one_device: bool,
    /// The file is a part of a trace, or a part of the file is read; `None` if it is read as a whole.
    pub slice: Option<Slice>,
    /// Formats that other crates read, tried before those of [`crate::formats::FORMATS`].
    pub further: &'static [&'static Format],
}

impl ReadOptions {
    /// The unit of times that was asked for, or the format's usual one.
    pub(crate) fn time_unit_or(&self, usual: TimeUnit) -> Result<TimeUnit> {
        self.time_unit.as_deref().map_or(Ok(usual), TimeUnit::by_name)
    }
}
