//! A format: how it is recognised, read and written, and the options of reading.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use super::capabilities::FormatCapabilities;
use super::time_unit::TimeUnit;
use crate::{
    AtomicFile, DecompressedInput, MendClock, Nanos, RecordedFeatures, ReissueWindow, RequestFilter, Result,
    TraceColumn, TraceHeader, TraceSink, TraceSource,
};

/// A trace format: how it is recognised, read and written.
pub struct TraceFormat {
    /// The name for `--format`, in lower case.
    pub name: &'static str,
    /// One line on the format and the program that writes it.
    pub about: &'static str,
    /// The mark by which `sniff` recognises its content, in words.
    pub known_by: &'static str,
    /// The origin and content of its files.
    pub origin: FormatOrigin,
    /// File-name extensions for which [`crate::TraceWriter`] writes this format, without the dot.
    pub extensions: &'static [&'static str],
    /// What it records besides reads and writes, in every file; a file that contains more records it, too.
    pub recorded: RecordedFeatures,
    /// How the format states times.
    pub times: FormatTimes,
    /// Whether the first bytes (decompressed) and the file name look like this format.
    pub sniff: fn(&[u8], &Path) -> bool,
    /// Starts reading.
    pub open: fn(DecompressedInput, &ReadOptions) -> Result<Box<dyn TraceSource>>,
    /// The values that it can represent and how writing starts; `None` if the format cannot be written.
    pub writes: Option<(FormatCapabilities, Create)>,
}

/// The origin and content of the files of a format, in Markdown for the page of formats.
#[derive(Clone, Copy, Debug)]
pub struct FormatOrigin {
    /// The program with the command that writes such a file, or the collection of traces.
    pub from: &'static str,
    /// The optional columns that a file can contain.
    pub gives: &'static [TraceColumn],
    /// What remains unknown, except for the missing columns.
    pub unknown: &'static str,
}

/// Prints the name alone, because addresses of functions differ from run to run.
impl fmt::Debug for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// How a format states times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatTimes {
    /// Always in this unit.
    Fixed(TimeUnit),
    /// In this unit unless `--time-unit` names another.
    Open(TimeUnit),
    /// As `Open`, in the file of a benchmark, which issues one request after the other.
    Busy(TimeUnit),
    /// Times only state the order of requests, so that rates mean nothing.
    Loose,
    /// In nanoseconds, in a column that may be written by any tool.
    Stored,
}

/// Starts writing a file.
pub type Create = fn(AtomicFile, &TraceHeader) -> Result<Box<dyn TraceSink>>;

/// A part of a trace that is read in parallel with the others. It may contain no request, or none that is wanted.
#[derive(Clone, Debug)]
pub struct TraceSlice {
    /// The first arrival of the whole trace, from which [`ReadOptions::only`] counts.
    pub origin: Nanos,
    /// Row groups of a Parquet file; all if `None`.
    pub groups: Option<Range<usize>>,
}

/// Options of reading a trace. By default, the format is recognised and nothing is left out.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name of a format (`emmclab formats`); recognised by its content if `None`.
    pub format: Option<String>,
    /// Skip bad records and count them, instead of stopping at the first.
    pub lenient: bool,
    /// Column names of a generic CSV in order, comma separated (`arrival,op,sector,sectors,...`).
    pub columns: Option<String>,
    /// Unit of times, if the format does not define it: `s`, `ms`, `us`, `ns`.
    pub time_unit: Option<String>,
    /// Unit of addresses and sizes, if the format does not define it: `sector`, `byte`, `kb`, `page`.
    pub size_unit: Option<String>,
    /// Number of requests that may be held back to sort them by arrival; [`crate::REORDER_WINDOW`] if `None`.
    pub reorder_window: Option<usize>,
    /// Clock jumps that are removed from the trace; none if `None`.
    pub mend_clock: Option<MendClock>,
    /// Time range in which a request may be issued again; [`ReissueWindow::default`] if `None`.
    pub reissue_window: Option<ReissueWindow>,
    /// Drop suspected re-issues.
    pub drop_reissued: bool,
    /// The requests that are wanted; all if `None`.
    pub only: Option<RequestFilter>,
    /// Refuse a trace of several devices, because their addresses are not of one space.
    pub one_device: bool,
    /// Set if the file is a part of a trace, or a part of the file is read; `None` to read the whole file.
    pub slice: Option<TraceSlice>,
    /// Formats of other crates, which are tried before those of [`crate::formats::FORMATS`].
    pub further: &'static [&'static TraceFormat],
}

impl ReadOptions {
    /// The unit of times from the option, or `usual` without it.
    pub(crate) fn time_unit_or(&self, usual: TimeUnit) -> Result<TimeUnit> {
        self.time_unit.as_deref().map_or(Ok(usual), TimeUnit::by_name)
    }
}
