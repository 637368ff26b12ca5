//! A format: how it is recognised, read and written, and the options of reading.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::{
    AtomicFile, BlockNote, DecompressedInput, Error, ErrorClass, MendClock, Nanos, Op, RecordedFeatures, ReissueWindow, Request,
    RequestFilter, RequestFlags, Result, TraceColumn, TraceHeader, TraceSink, TraceSource,
};

/// A trace format: how it is recognised, read and written.
pub struct TraceFormat {
    /// The name for `--format`, in lower case.
    pub name: &'static str,
    /// One line on the format and the program that writes it.
    pub about: &'static str,
    /// The mark by which `sniff` recognises its content, in words.
    pub known_by: &'static str,
    /// The program with the command that writes such a file, or the collection of traces; in Markdown.
    pub from: &'static str,
    /// The optional columns that a file can contain.
    pub gives: &'static [TraceColumn],
    /// What remains unknown, except for the missing columns; in Markdown.
    pub unknown: &'static str,
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

impl TraceFormat {
    /// What most formats share: they are only read, and record reads and writes.
    pub(super) const READ_ONLY: Self = Self {
        name: "",
        about: "",
        known_by: "",
        from: "",
        gives: &[],
        unknown: "",
        extensions: &[],
        recorded: RecordedFeatures::NONE,
        times: FormatTimes::Stored,
        sniff: |_, _| false,
        open: |_, _| Err(Error::new(ErrorClass::Unsupported, "the format has no reader")),
        writes: None,
    };
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

/// The values that a format can represent; [`crate::TraceWriter`] counts all others as lost.
#[derive(Clone, Copy, Debug)]
pub struct FormatCapabilities {
    /// The operations; requests with other operations are left out.
    pub ops: &'static [Op],
    /// The columns, except arrival, sector, sectors, op and flags.
    pub columns: &'static [TraceColumn],
    /// The flags that the format can represent.
    pub flags: RequestFlags,
    /// Resolution of its times, in nanoseconds.
    pub tick_ns: i64,
}

impl FormatCapabilities {
    /// All values of a trace.
    pub const EVERYTHING: FormatCapabilities =
        FormatCapabilities { ops: &Op::ALL, columns: &TraceColumn::ALL, flags: RequestFlags(u16::MAX), tick_ns: 1 };

    /// All values of a trace except block notes.
    pub const ALL_BUT_NOTES: FormatCapabilities =
        FormatCapabilities { columns: TraceColumn::OF_REQUEST, ..FormatCapabilities::EVERYTHING };

    /// True for a format that loses nothing of a batch with or without block notes.
    pub const fn is_everything(&self, notes: bool) -> bool {
        let columns = if notes { TraceColumn::ALL.len() } else { TraceColumn::OF_REQUEST.len() };
        self.ops.len() == Op::ALL.len() && self.columns.len() >= columns && self.tick_ns == 1
    }

    pub(crate) fn loses(&self, column: TraceColumn, request: &Request, notes: &[BlockNote]) -> bool {
        let time = |time: Option<Nanos>| time.is_some_and(|time| !self.columns.contains(&column) || time.0 % self.tick_ns != 0);
        let noted = |has: fn(&BlockNote) -> bool| notes.iter().any(has) && !self.columns.contains(&column);
        match column {
            TraceColumn::Arrival => request.arrival.0 % self.tick_ns != 0,
            TraceColumn::Start => time(request.start),
            TraceColumn::Issue => time(request.issue),
            TraceColumn::Served => time(request.served),
            TraceColumn::Complete => time(request.complete),
            TraceColumn::Sector | TraceColumn::Sectors | TraceColumn::Op => false,
            // Suspected re-issues are no loss: they are found again when the file is read.
            TraceColumn::Flags => !self.flags.union(RequestFlags::REISSUED).contains(request.flags),
            TraceColumn::Pid => request.pid.is_some() && !self.columns.contains(&column),
            TraceColumn::Process => request.process.is_some() && !self.columns.contains(&column),
            TraceColumn::Device => request.device.is_some() && !self.columns.contains(&column),
            TraceColumn::Role | TraceColumn::RoleSectors => noted(|_| true),
            TraceColumn::HomeSector => noted(|note| note.home.is_some()),
            TraceColumn::ChangedSectors => noted(|note| note.changed.is_some()),
            TraceColumn::Transaction => noted(|note| note.transaction.is_some()),
        }
    }
}

/// The unit in which a file states its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Windows FILETIME ticks of 100 ns.
    Ticks,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// The power of ten of nanoseconds in this unit.
    pub(crate) const fn digits(self) -> u32 {
        match self {
            TimeUnit::Seconds => 9,
            TimeUnit::Millis => 6,
            TimeUnit::Micros => 3,
            TimeUnit::Ticks => 2,
            TimeUnit::Nanos => 0,
        }
    }

    /// The name for `--time-unit`; ticks cannot be chosen.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Ticks => "100 ns",
            TimeUnit::Nanos => "ns",
        }
    }

    /// The units that can be chosen, the coarsest first.
    pub(crate) const CHOICES: [TimeUnit; 4] = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos];

    pub(crate) fn by_name(name: &str) -> Result<TimeUnit> {
        TimeUnit::CHOICES.into_iter().find(|unit| unit.name() == name).ok_or_else(|| {
            Error::new(ErrorClass::Config, "is not a unit of time")
                .of_field("--time-unit", 0, name.as_bytes())
                .hint("choose one of: s, ms, us, ns; `none` if a table has no times")
        })
    }
}
