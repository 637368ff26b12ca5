//! Describes a format: how it is recognised, read and written. Also the options of reading.

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
    /// A line on the format and the program that writes it.
    pub about: &'static str,
    /// How `sniff` recognises the contents, in words.
    pub known_by: &'static str,
    /// The program, with the command that writes such a file, or the collection of traces; Markdown.
    pub from: &'static str,
    /// The optional columns that a file may contain.
    pub gives: &'static [TraceColumn],
    /// What the format does not record, in addition to the missing columns; Markdown.
    pub unknown: &'static str,
    /// File-name extensions for which [`crate::TraceWriter`] writes this format, without the dot.
    pub extensions: &'static [&'static str],
    /// What every file records in addition to reads and writes. If a file contains other operations or flags, it counts as recording them.
    pub recorded: RecordedFeatures,
    /// The unit and meaning of times.
    pub times: FormatTimes,
    /// Whether the first bytes (decompressed) and the file name look like this format.
    pub sniff: fn(&[u8], &Path) -> bool,
    /// Starts reading a file in this format.
    pub open: fn(DecompressedInput, &ReadOptions) -> Result<Box<dyn TraceSource>>,
    /// The values that the format can represent, and the function that starts writing; `None` if the format cannot be written.
    pub writes: Option<(FormatCapabilities, Create)>,
}

impl TraceFormat {
    /// Default values for a format that can only be read. Such a format records reads and writes, but no other operations.
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
        open: |_, _| Err(Error::new(ErrorClass::Unsupported, "the format can only be written, not read")),
        writes: None,
    };
}

/// Prints only the name, because addresses of functions differ between runs.
impl fmt::Debug for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The unit and meaning of the times in a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatTimes {
    /// Times are always in this unit.
    Fixed(TimeUnit),
    /// Times are in this unit unless `--time-unit` gives another one.
    Open(TimeUnit),
    /// Like `Open`, for benchmarks, which issue one request after the other.
    Busy(TimeUnit),
    /// Times give only the order of requests, so that rates have no meaning.
    Loose,
    /// Times are in nanoseconds, unless another tool has written the column in a wrong unit.
    Stored,
}

/// Function that starts writing a file.
pub type Create = fn(AtomicFile, &TraceHeader) -> Result<Box<dyn TraceSink>>;

/// A part of a trace that is read in parallel with the others. It may contain no request, or none that is selected.
#[derive(Clone, Debug)]
pub struct TraceSlice {
    /// The first arrival of the whole trace, to which times of [`ReadOptions::only`] are relative.
    pub origin: Nanos,
    /// Row groups of a Parquet file; `None` for all.
    pub groups: Option<Range<usize>>,
}

/// Options of reading a trace. By default, the format is recognised and all requests are read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Name of a format (`emmclab formats`); `None` to recognise it by the contents.
    pub format: Option<String>,
    /// Whether invalid records are skipped and counted; otherwise reading stops at the first one.
    pub lenient: bool,
    /// Column names of a CSV file in order, separated by commas (`arrival,op,sector,sectors,...`).
    pub columns: Option<String>,
    /// Unit of times if the format does not define it: `s`, `ms`, `us`, `ns`.
    pub time_unit: Option<String>,
    /// Unit of addresses and sizes if the format does not define it: `sector`, `byte`, `kb`, `page`.
    pub size_unit: Option<String>,
    /// Number of requests that may be kept back to sort them by arrival; `None` for [`crate::REORDER_WINDOW`].
    pub reorder_window: Option<usize>,
    /// Clock jumps to remove from the trace; `None` to remove none.
    pub mend_clock: Option<MendClock>,
    /// Time range in which a request may be issued again; `None` for [`ReissueWindow::default`].
    pub reissue_window: Option<ReissueWindow>,
    /// Whether suspected re-issues are dropped.
    pub drop_reissued: bool,
    /// The requests to read; `None` for all.
    pub only: Option<RequestFilter>,
    /// Whether a trace with several devices is rejected, because each has its own address space.
    pub one_device: bool,
    /// The part of the trace to read: one file of several, or a part of a file. `None` to read the whole file.
    pub slice: Option<TraceSlice>,
    /// Formats of other crates; they are tried before [`crate::formats::FORMATS`].
    pub further: &'static [&'static TraceFormat],
}

impl ReadOptions {
    /// The unit of times from the option; `usual` if there is none.
    pub(crate) fn time_unit_or(&self, usual: TimeUnit) -> Result<TimeUnit> {
        self.time_unit.as_deref().map_or(Ok(usual), TimeUnit::by_name)
    }
}

/// The values that a format can represent; [`crate::TraceWriter`] counts other values as lost.
#[derive(Clone, Copy, Debug)]
pub struct FormatCapabilities {
    /// The operations that the format can represent; requests with other operations are not written.
    pub ops: &'static [Op],
    /// The columns that the format can represent, in addition to arrival, sector, sectors, op and flags.
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

    /// All values of a trace except block notes (roles of the blocks of a write).
    pub const ALL_BUT_NOTES: FormatCapabilities =
        FormatCapabilities { columns: TraceColumn::OF_REQUEST, ..FormatCapabilities::EVERYTHING };

    /// Whether the format can store every value of a batch. `notes` states whether this includes block notes (roles of the blocks of
    /// writes).
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
            // A re-issue flag does not count as lost, because the reader of the written file detects the re-issue again.
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

/// The unit of the times in a file.
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
    /// Decimal exponent of the nanoseconds in this unit.
    pub(crate) const fn digits(self) -> u32 {
        match self {
            TimeUnit::Seconds => 9,
            TimeUnit::Millis => 6,
            TimeUnit::Micros => 3,
            TimeUnit::Ticks => 2,
            TimeUnit::Nanos => 0,
        }
    }

    /// The name for `--time-unit`; ticks cannot be selected.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Ticks => "100 ns",
            TimeUnit::Nanos => "ns",
        }
    }

    /// The units that can be selected, coarsest first.
    pub(crate) const CHOICES: [TimeUnit; 4] = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos];

    pub(crate) fn by_name(name: &str) -> Result<TimeUnit> {
        TimeUnit::CHOICES.into_iter().find(|unit| unit.name() == name).ok_or_else(|| {
            Error::new(ErrorClass::Config, "unknown unit of time")
                .of_field("--time-unit", 0, name.as_bytes())
                .hint("choose one of the units of time s, ms, us and ns, or `none` if the table has no times")
        })
    }
}
