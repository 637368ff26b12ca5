//! The trace formats, each in its own file or together with similar ones, and the list of all formats.

// All formats use the same function types. Some of their functions return a `Result` or take an input by value without need.
#![allow(clippy::unnecessary_wraps, clippy::needless_pass_by_value)]

mod binary;
mod biotracer;
mod blkparse;
mod blktrace;
mod csv;
mod csv_tables;
mod fast_fields;
mod fields;
mod fio;
mod fiu;
mod ftrace;
mod hfplayer;
mod input;
mod iotrace;
mod line_format;
mod msr;
mod parquet;
mod perfetto;
mod pixel;
mod placement;
mod rwbs;
mod snoop;
mod ssdsim;
mod systrace;
mod trace_format;
mod unit_guard;
mod vscsi;

use std::path::{Path, PathBuf};

pub(crate) use blkparse::is_action;
pub use csv::{ColumnName as CsvColumn, NAMES as CSV_COLUMNS};
pub use input::DecompressedInput;
pub use parquet::{check_parquet, parquet_error, row_groups};
pub use perfetto::{RequestSender, picture_file};
pub use rwbs::{RwbsMeaning, read as read_rwbs};
pub use trace_format::{Create, FormatCapabilities, FormatTimes, ReadOptions, TimeUnit, TraceFormat, TraceSlice};
pub(crate) use unit_guard::{FARTHEST_NS, UnitGuard};

use crate::{
    Error, ErrorClass, MendClock, OutputCompression, RecognisedFormat, RecordedFeatures, Result, TraceSource, file_kinds,
};

/// Imports for most formats.
mod prelude {
    pub(super) use std::path::Path;

    pub(super) use super::fields::{
        FieldReader, LineField, blank_separated, comma_separated, decimal_time, first_line, is_decimal, is_digits, need, no_more,
        pid, sectors, stream_span, text, unsigned,
    };
    pub(super) use super::line_format::{LineFormat, LineSink, LineSource, LineWriter, ParseContext};
    pub(super) use super::trace_format::{FormatCapabilities, FormatTimes, TimeUnit, TraceFormat};
    pub(super) use crate::{
        AtomicFile, Batch, DecompressedInput, Error, ErrorClass, EventTally, Ledger, NameTable, Nanos, Op, ReadOptions,
        ReadProgress, RecordedFeatures, Request, RequestFlags, Result, SECTOR_BYTES, Sector, TraceColumn, TraceHeader, TraceSink,
        TraceSource,
    };
}

/// All formats, those with the most specific marks first. A file is read in the first format whose `sniff` accepts it.
pub static FORMATS: &[&TraceFormat] = &[
    &parquet::FORMAT,
    &blktrace::FORMAT,
    &perfetto::FORMAT,
    &placement::LCS,
    &placement::ORACLE_GENERAL,
    &vscsi::FORMAT,
    &fio::FORMAT,
    &snoop::BIOSNOOP,
    &snoop::IOSNOOP,
    &iotrace::FORMAT,
    &hfplayer::FORMAT,
    &placement::THESIOS,
    &placement::TECTONIC,
    &vscsi::CSV,
    &csv::FORMAT,
    &pixel::FORMAT,
    &csv_tables::SYSTOR17,
    &msr::FORMAT,
    &csv_tables::ALIBABA,
    &csv_tables::K5CLOUD,
    &csv_tables::SPC1,
    &csv_tables::TENCENT,
    &fiu::FORMAT,
    &biotracer::FORMAT,
    &systrace::FORMAT,
    &ftrace::FORMAT,
    &blkparse::FORMAT,
    &ssdsim::MQSIM,
    &ssdsim::SSDSIM,
    &ssdsim::DISKSIM,
];

/// The format with this name, in [`FORMATS`] or `further`. Fails with [`ErrorClass::UnknownFormat`]; the error lists the names.
pub fn by_name(name: &str, further: &'static [&'static TraceFormat]) -> Result<&'static TraceFormat> {
    let all = further.iter().chain(FORMATS).copied();
    all.clone().find(|format| format.name == name).ok_or_else(|| {
        let names: Vec<_> = all.map(|format| format.name).collect();
        Error::new(ErrorClass::UnknownFormat, format!("there is no format `{name}`"))
            .hint(format!("choose one of the formats: {}", names.join(", ")))
    })
}

/// The formats that can be written.
pub fn writable() -> impl Iterator<Item = &'static TraceFormat> {
    FORMATS.iter().copied().filter(|format| format.writes.is_some())
}

/// The writable format for the file-name extension of `path`. Fails with [`ErrorClass::UnknownFormat`]; the error lists the extensions.
pub fn by_extension(path: &Path) -> Result<&'static TraceFormat> {
    let name = path.to_string_lossy();
    let (name, _) = OutputCompression::split(&name);
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let ending = ending.unwrap_or_default();
    writable().find(|format| format.extensions.contains(&ending.as_str())).ok_or_else(|| {
        let endings: Vec<_> = writable().flat_map(|format| format.extensions).map(|ending| format!(".{ending}")).collect();
        Error::new(ErrorClass::UnknownFormat, format!("the name `{}` does not determine the format to write", path.display()))
            .hint(format!(
                "choose the format with --to, or use one of these extensions: {}; text formats also with .gz, .zst or .xz after it",
                endings.join(", ")
            ))
    })
}

pub(crate) fn compresses_itself(format: &TraceFormat) -> bool {
    std::ptr::eq(format, &raw const parquet::FORMAT)
}

/// Kinds of files that are recognised but are not traces: name and hint of each.
pub fn file_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    file_kinds::named()
}

/// The name of the format of generated traces, in their headers.
pub const GENERATED: &str = "synthetic";

/// A trace that is open for reading.
pub(crate) struct OpenedTrace {
    pub source: Box<dyn TraceSource>,
    pub guard: UnitGuard,
    pub recognised: RecognisedFormat,
    pub recorded: RecordedFeatures,
}

/// The files of the recording at `path`: `path` itself, or the files of all CPUs.
pub fn files(path: &Path) -> Vec<PathBuf> {
    blktrace::files(path)
}

/// Opens `path` for reading in the requested or recognised format, and checks its units.
pub(crate) fn open(path: &Path, options: &ReadOptions) -> Result<OpenedTrace> {
    let input = DecompressedInput::open(&blktrace::first_of(path))?;
    if input.head().is_empty() {
        return Err(Error::new(ErrorClass::Empty, "the file is empty").hint("record or copy the trace again"));
    }
    if options.mend_clock == Some(MendClock::Jumps) && !input.is_regular() {
        return Err(Error::new(
            ErrorClass::Unsupported,
            "clock jumps are found in a first pass over the file, but a pipe can be read only once",
        )
        .of_field("--mend-clock", 0, b"auto")
        .hint("give a length, such as `--mend-clock 1h` to cut all gaps of more than 1 h, or write the trace to a file first"));
    }
    let (format, by) = match &options.format {
        Some(name) => (by_name(name, options.further)?, "--format"),
        // Only the CSV reader uses a list of columns, so `--columns` selects it.
        None if options.columns.is_some() => (&csv::FORMAT, "--columns"),
        None => {
            if let Some(error) = file_kinds::recognise_first(input.head()) {
                return Err(error);
            }
            let mut all = options.further.iter().chain(FORMATS).copied();
            let format = all.find(|format| (format.sniff)(input.head(), path)).ok_or_else(|| unknown(input.head(), path));
            (format?, "content")
        }
    };
    unused_options(format, options)?;
    let source = (format.open)(input, options)?;
    let header = source.header();
    let by_name = |name: &str| options.further.iter().chain(FORMATS).find(|format| format.name == name);
    // If the times of the original format are inexact, so are those of a converted trace. A generated trace has no unit that could be wrong.
    let loose = header.format == GENERATED || by_name(&header.format).is_some_and(|first| first.times == FormatTimes::Loose);
    let times = source.times().unwrap_or(if loose { FormatTimes::Loose } else { format.times });
    let guard = UnitGuard::new(times, options)?;
    let of_format = |name: &str| by_name(name).map_or_else(|| of_own(name), |format| format.recorded);
    // The format of a combined trace may name several formats, such as `a + b`.
    let of_formats = || header.format.split(" + ").map(of_format).reduce(RecordedFeatures::intersection);
    let recorded = header.recorded.or_else(of_formats).unwrap_or_default();
    Ok(OpenedTrace { source, guard, recognised: RecognisedFormat { format: format.name, by }, recorded })
}

/// The features that emmclab's own traces record, for files that do not state them.
fn of_own(format: &str) -> RecordedFeatures {
    match format {
        "record" => RecordedFeatures::BLOCK_EVENTS,
        // Traces that were recorded from served devices have no format name.
        "" => RecordedFeatures::SERVED,
        _ => RecordedFeatures::NONE,
    }
}

/// The error for a file of unknown format.
fn unknown(head: &[u8], path: &Path) -> Error {
    let error = |problem: String| Error::new(ErrorClass::UnknownFormat, problem);
    let heading = || csv::unknown_heading(head).map(|error| error.at_line(1));
    let known = file_kinds::recognise(head).or_else(|| changed_numbers(head, path)).or_else(heading);
    known.unwrap_or_else(|| {
        if head.iter().any(|byte| *byte < b'\t') {
            return error("unrecognised trace format: a binary file".to_owned())
                .hint("`emmclab formats` lists the formats that can be read");
        }
        error("unrecognised trace format".to_owned())
            .hint("name the format with --format (`emmclab formats` lists all), or describe the columns with --columns")
    })
}

/// The error for a text in which another program has changed numbers: it has decimal commas instead of points, or numbers that a
/// spreadsheet rounded.
fn changed_numbers(head: &[u8], path: &Path) -> Option<Error> {
    /// Minimum numbers of digits after a decimal comma, tried one after the other. Times of recorders have at least four decimals; device
    /// numbers such as `259,12` have fewer digits after the comma.
    const DECIMALS: [usize; 2] = [4, 1];
    const LINES: usize = 50;
    for decimals in DECIMALS {
        let changed = with_points(head, decimals);
        if changed == head {
            continue;
        }
        if let Some(format) = FORMATS.iter().find(|format| (format.sniff)(&changed, path)) {
            let problem = format!("its numbers have decimal commas; with points it is of the format `{}`", format.name);
            let digits = if decimals > 1 { format!("{{{decimals}}}") } else { String::new() };
            return Some(
                Error::new(ErrorClass::UnknownFormat, problem)
                    .hint(format!("replace the commas: `sed -E 's/([0-9]),([0-9]{digits})/\\1.\\2/g' FILE > points.txt`")),
            );
        }
    }
    let lines = head.split(|byte| *byte == b'\n').zip(1..).take(LINES);
    let words = lines.flat_map(|(line, number)| {
        let words = line.split(|byte| byte.is_ascii_whitespace() || b",;".contains(byte));
        words.map(move |word| (word, number))
    });
    let (word, line) = words.into_iter().find(|(word, _)| fields::has_lost_digits(word))?;
    let error = Error::new(ErrorClass::UnknownFormat, "the number has lost its last digits in a spreadsheet").at_line(line);
    Some(error.of_field("number", 0, word).hint(fields::LOST_DIGITS))
}

/// The text in which commas between a digit and `digits` digits are replaced by points.
fn with_points(text: &[u8], digits: usize) -> Vec<u8> {
    let (mut out, mut at) = (text.to_vec(), 1);
    while at + digits < text.len() {
        let is_decimal = text[at] == b',' && text[at - 1].is_ascii_digit() && fields::is_digits(&text[at + 1..=at + digits]);
        if is_decimal {
            out[at] = b'.';
        }
        // The digits after a replaced comma are skipped, because no other decimal number can begin with them.
        at += if is_decimal { digits + 2 } else { 1 };
    }
    out
}

/// Returns an error for an option that the format does not use.
fn unused_options(format: &TraceFormat, options: &ReadOptions) -> Result<()> {
    let refuse = |option: &str, value: &str| {
        Err(Error::new(ErrorClass::Config, format!("the format `{}` already determines what this option sets", format.name))
            .of_field(option, 0, value.as_bytes())
            .hint("leave this option out, or read the file with --format csv"))
    };
    let is_csv = std::ptr::eq(format, &raw const csv::FORMAT);
    match options {
        ReadOptions { time_unit: Some(unit), .. } if !matches!(format.times, FormatTimes::Open(_) | FormatTimes::Loose) => {
            refuse("--time-unit", unit)
        }
        ReadOptions { size_unit: Some(unit), .. } if !is_csv => refuse("--size-unit", unit),
        ReadOptions { columns: Some(columns), .. } if !is_csv => refuse("--columns", columns),
        ReadOptions { slice: Some(TraceSlice { groups: Some(_), .. }), .. }
            if !std::ptr::eq(format, &raw const parquet::FORMAT) =>
        {
            let problem = format!("a file of the format `{}` has no row groups", format.name);
            Err(Error::new(ErrorClass::Unsupported, problem).hint("convert the trace to Parquet"))
        }
        _ => Ok(()),
    }
}
