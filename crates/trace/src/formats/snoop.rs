//! The tables of snoop tools: a heading, then a line for each request when it completes. `biosnoop` and `iosnoop` share this
//! reader, because only their column names differ.
//!
//! The heading states the columns, in any order, and their units. A process name may contain blanks, so the columns after it are
//! counted from the end of the line. Lines of other programs before, between and after the lines of the table are skipped and counted;
//! losses that the tool reports are counted as lost.

use super::line_format::{
    NameIdCache, ParseContext, bad_number, blank_separated, decimal_time, has_decimal_comma, is_decimal, is_digits,
    sectors, text, unsigned,
};
use super::rwbs::{self, RwbsMeaning};
use super::time_unit::TimeUnit;
use crate::{Error, ErrorClass, Nanos, Op, Request, RequestFlags, Result, SECTOR_BYTES, Sector};

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnoopColumn {
    /// Time of issue.
    Start(TimeUnit),
    /// Time of completion.
    End(TimeUnit),
    /// Time of completion, as the time of day: `HH:MM:SS.mmm`.
    Clock,
    Process,
    Pid,
    Device,
    Letters,
    Sector,
    Bytes,
    /// The time in the queues of the operating system.
    Queue(TimeUnit),
    /// The time from issue to completion.
    Latency(TimeUnit),
    Other,
}

impl SnoopColumn {
    fn is_time(self) -> bool {
        matches!(self, SnoopColumn::Start(_) | SnoopColumn::End(_) | SnoopColumn::Clock)
    }

    /// Whether two columns have the same meaning, maybe in different units.
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// More columns than any tool prints.
const MOST_COLUMNS: usize = 16;
/// More words than any line of a table has: a process name has at most 16 bytes.
const MOST_WORDS: usize = MOST_COLUMNS + 8;
/// One hour: a longer latency means that the tool matched the completion of another request.
const LONGEST_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;
/// The sector that the kernel states for a request without an address.
const NO_SECTOR: u64 = u64::MAX;

/// The unit after the name of a column, with or without brackets; `None` if the column is not `stem`.
fn unit(name: &[u8], stem: &[u8]) -> Option<TimeUnit> {
    let rest = name.strip_prefix(stem)?;
    let unit = rest.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")")).unwrap_or(rest);
    match unit {
        b"s" => Some(TimeUnit::Seconds),
        b"ms" => Some(TimeUnit::Millis),
        b"us" => Some(TimeUnit::Micros),
        b"ns" => Some(TimeUnit::Nanos),
        _ => None,
    }
}

fn column(name: &[u8]) -> SnoopColumn {
    match name {
        b"TIMESTAMP" | b"TIME" => SnoopColumn::Clock,
        b"STARTs" => SnoopColumn::Start(TimeUnit::Seconds),
        b"ENDs" => SnoopColumn::End(TimeUnit::Seconds),
        b"COMM" => SnoopColumn::Process,
        b"PID" | b"TID" => SnoopColumn::Pid,
        b"DISK" | b"DEV" => SnoopColumn::Device,
        b"T" | b"TYPE" | b"RWBS" => SnoopColumn::Letters,
        b"SECTOR" | b"BLOCK" => SnoopColumn::Sector,
        b"BYTES" => SnoopColumn::Bytes,
        name => unit(name, b"TIME")
            .map(SnoopColumn::End)
            .or_else(|| unit(name, b"QUE").map(SnoopColumn::Queue))
            .or_else(|| unit(name, b"LAT").map(SnoopColumn::Latency))
            .unwrap_or(SnoopColumn::Other),
    }
}

/// The columns that a heading names, in any order; `None` for any other line. Each is named once. A table has a device and a latency,
/// and names processes, as that of bpftrace, or places.
pub(super) fn heading(line: &[u8]) -> Option<Vec<SnoopColumn>> {
    let columns: Vec<_> = blank_separated(line).take(MOST_COLUMNS + 1).map(column).collect();
    let has = |wanted: SnoopColumn| columns.contains(&wanted);
    let is_once = |(at, column): (usize, &SnoopColumn)| {
        *column == SnoopColumn::Other || !columns[..at].iter().any(|other| other.is_like(*column))
    };
    let of_requests =
        has(SnoopColumn::Process) && has(SnoopColumn::Pid) || has(SnoopColumn::Sector) && has(SnoopColumn::Bytes);
    let latency = columns.iter().any(|column| matches!(column, SnoopColumn::Latency(_)));
    let fits = has(SnoopColumn::Device) && latency && of_requests && columns.len() <= MOST_COLUMNS;
    (fits && columns.iter().enumerate().all(is_once)).then_some(columns)
}

/// The heading in the first lines; `device` is the name of its device column.
pub(super) fn heading_with<'a>(head: &'a [u8], device: &[u8]) -> Option<&'a [u8]> {
    const LINES: usize = 200;
    let mut lines = head.split(|byte| *byte == b'\n').take(LINES).map(<[u8]>::trim_ascii_end);
    lines.find(|line| blank_separated(line).any(|name| name == device) && heading(line).is_some())
}

/// The words of a line, with their positions, so that those of a process name can be joined again.
struct LineWords<'a> {
    line: &'a [u8],
    word_spans: [(usize, usize); MOST_WORDS],
    count: usize,
}

impl<'a> LineWords<'a> {
    /// `None` if there are more words than in any line of a table.
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut words = Self { line, word_spans: [(0, 0); MOST_WORDS], count: 0 };
        let is_blank = |at: usize| matches!(line[at], b' ' | b'\t');
        let mut at = 0;
        while at < line.len() {
            if is_blank(at) {
                at += 1;
                continue;
            }
            let begin = at;
            while at < line.len() && !is_blank(at) {
                at += 1;
            }
            *words.word_spans.get_mut(words.count)? = (begin, at);
            words.count += 1;
        }
        Some(words)
    }

    /// The text from the word `from` to the word before `to`, with the blanks between them.
    fn range(&self, from: usize, to: usize) -> &'a [u8] {
        if from < to { &self.line[self.word_spans[from].0..self.word_spans[to - 1].1] } else { &[] }
    }
}

/// A field of a line: its text and, for errors, its column.
#[derive(Clone, Copy, Default)]
struct SnoopField<'a> {
    bytes: &'a [u8],
    column: u64,
}

/// The fields of a line that are read.
#[derive(Default)]
struct SnoopRow<'a> {
    start: Option<i64>,
    end: Option<i64>,
    process: &'a [u8],
    pid: SnoopField<'a>,
    device: &'a [u8],
    letters: SnoopField<'a>,
    sector: SnoopField<'a>,
    bytes: SnoopField<'a>,
    queue: Option<i64>,
    latency: SnoopField<'a>,
    latency_ns: i64,
}

/// Reads the lines of such a table.
pub(super) struct SnoopTable {
    columns: Vec<SnoopColumn>,
    /// The places of the columns of processes and of the time, if the table has them.
    process_at: Option<usize>,
    time_at: Option<usize>,
    process: NameIdCache,
    device: NameIdCache,
    /// Number of midnights so far, and the previous time of day.
    midnights: i64,
    time_of_day: i64,
    /// If the tool prints no times: the end of the previous request.
    laid: i64,
}

impl SnoopTable {
    pub fn new(columns: Vec<SnoopColumn>) -> Self {
        let (process, device) = (NameIdCache::default(), NameIdCache::default());
        let (process_at, time_at) = (None, None);
        let mut table =
            Self { columns: Vec::new(), process_at, time_at, process, device, midnights: 0, time_of_day: 0, laid: 0 };
        table.begin(columns);
        table
    }

    /// Reads the following lines by these columns.
    fn begin(&mut self, columns: Vec<SnoopColumn>) {
        self.process_at = columns.iter().position(|column| *column == SnoopColumn::Process);
        self.time_at = columns.iter().position(|column| column.is_time());
        self.columns = columns;
    }

    fn has(&self, wanted: impl Fn(&SnoopColumn) -> bool) -> bool {
        self.columns.iter().any(wanted)
    }

    /// Whether the time of a request is stated.
    pub fn is_timed(&self) -> bool {
        self.time_at.is_some()
    }

    /// Whether the time in the queue is stated.
    pub fn is_queued(&self) -> bool {
        self.has(|column| matches!(column, SnoopColumn::Queue(_)))
    }

    /// The name of a needed column that is missing; `None` if all are present.
    pub fn missing(&self) -> Option<&'static str> {
        let needed =
            [(SnoopColumn::Sector, "address"), (SnoopColumn::Bytes, "size"), (SnoopColumn::Letters, "operation")];
        needed.into_iter().find(|(column, _)| !self.columns.contains(column)).map(|(_, name)| name)
    }

    /// Reads a line, which may be of the table or not.
    pub fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if let Some(lost) = lost_events(line) {
            context.no_record();
            context.ledger.lost += lost;
            return Ok(());
        }
        let words = LineWords::of(line).filter(|words| self.is_row(words));
        let Some(words) = words else {
            match heading(line) {
                Some(columns) => {
                    self.begin(columns);
                    context.no_record();
                    context.restarts = true;
                }
                None if line.trim_ascii().is_empty() => context.no_record(),
                None => context.skip(),
            }
            return Ok(());
        };
        let process = self.process_at.map(|at| self.word(at, words.count));
        let unknown = process.is_some_and(|process| words.range(process, process + 1) == b"?");
        if words.count + 1 == self.columns.len() && unknown {
            // bcc prints neither disk nor address of a request whose start it did not record.
            context.skip();
            return Ok(());
        }
        let row = self.row(&words)?;
        let Some(request) = self.request(&row, context)? else {
            context.skip();
            return Ok(());
        };
        out.push(request);
        Ok(())
    }

    /// The index of a column; `None` if the table lacks it.
    fn position(&self, wanted: SnoopColumn) -> Option<usize> {
        self.columns.iter().position(|column| *column == wanted)
    }

    /// The index of the first word of column `at` in a line of `words` words.
    fn word(&self, at: usize, words: usize) -> usize {
        let is_after_name = self.process_at.is_some_and(|process| at > process);
        if is_after_name { (words + at).saturating_sub(self.columns.len()) } else { at }
    }

    /// Whether a line is of the table: it has as many words as columns, only the name of a process may have none or several, and
    /// begins like a row in the column of the time, or in tables without times in those of address and length.
    fn is_row(&self, words: &LineWords) -> bool {
        let fits = match self.process_at {
            Some(_) => words.count + 1 >= self.columns.len(),
            None => words.count == self.columns.len(),
        };
        let word = |at: usize| {
            let first = self.word(at, words.count);
            words.range(first, (first + 1).min(words.count))
        };
        let is_number = |field: &[u8]| is_decimal(field) || has_decimal_comma(field);
        let is_time = |field: &[u8]| {
            let mut parts = field.rsplit(|byte| *byte == b':');
            parts.next().is_some_and(is_number) && parts.all(is_digits)
        };
        fits && match self.time_at {
            Some(time) => is_time(word(time)),
            None => [SnoopColumn::Sector, SnoopColumn::Bytes].into_iter().all(|column| {
                let field = self.position(column).map_or(&[][..], word);
                is_digits(field.strip_prefix(b"-").unwrap_or(field))
            }),
        }
    }

    /// Reads the fields of a line.
    fn row<'a>(&mut self, words: &LineWords<'a>) -> Result<SnoopRow<'a>> {
        let mut row = SnoopRow::default();
        let extra = (words.count + 1).saturating_sub(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let first = self.word(at, words.count);
            let field =
                SnoopField { bytes: words.range(first, (first + 1).min(words.count)), column: first as u64 + 1 };
            let time = |unit, name| decimal_time(field.bytes, unit, name, field.column);
            match *column {
                SnoopColumn::Start(unit) => row.start = Some(time(unit, "start")?),
                SnoopColumn::End(unit) => row.end = Some(time(unit, "time")?),
                SnoopColumn::Clock => {
                    let now = time_of_day(field.bytes).ok_or_else(|| {
                        let seconds = field.bytes.rsplit(|byte| *byte == b':').next().unwrap_or_default();
                        bad_number(seconds, "is not a time of day such as 23:59:59.000").of_field(
                            "time",
                            field.column,
                            field.bytes,
                        )
                    })?;
                    // Lines of about the same time may be out of order; a time half a day or more earlier is of the next day.
                    if now < self.time_of_day - DAY_NS / 2 {
                        self.midnights += 1;
                    }
                    self.time_of_day = now;
                    row.end = Some(self.midnights * DAY_NS + now);
                }
                SnoopColumn::Process => row.process = words.range(first, first + extra),
                SnoopColumn::Pid => row.pid = field,
                SnoopColumn::Device => row.device = field.bytes,
                SnoopColumn::Letters => row.letters = field,
                SnoopColumn::Sector => row.sector = field,
                SnoopColumn::Bytes => row.bytes = field,
                // It is -1 if the tool did not record when the request entered the queue.
                SnoopColumn::Queue(_) if field.bytes.starts_with(b"-") => {}
                SnoopColumn::Queue(unit) => row.queue = Some(time(unit, "queue")?),
                SnoopColumn::Latency(unit) => {
                    row.latency = field;
                    row.latency_ns = time(unit, "latency")?;
                }
                SnoopColumn::Other => {}
            }
        }
        Ok(row)
    }

    /// The request of a line; `None` for a command that has no address.
    fn request(&mut self, row: &SnoopRow, context: &mut ParseContext) -> Result<Option<Request>> {
        if row.latency_ns > LONGEST_NS {
            let problem =
                "is longer than an hour, so it is not a latency: the tool used the completion of another request";
            return Err(Error::new(ErrorClass::Value, problem).of_field(
                "latency",
                row.latency.column,
                row.latency.bytes,
            ));
        }
        let bytes = unsigned(row.bytes.bytes, "bytes", row.bytes.column)?;
        let Some((op, flags, sector, count)) = request_range(row, bytes)? else { return Ok(None) };
        let bad = || {
            Error::new(ErrorClass::Value, "puts the begin before time 0 of the clock").of_field(
                "latency",
                row.latency.column,
                row.latency.bytes,
            )
        };
        let (start, complete) = match (row.start, row.end) {
            (Some(start), Some(end)) => (start, end.max(start)),
            (Some(start), None) => (start, start.checked_add(row.latency_ns).ok_or_else(bad)?),
            (None, Some(end)) => (end.checked_sub(row.latency_ns).ok_or_else(bad)?, end),
            (None, None) => (self.laid, self.laid.checked_add(row.latency_ns).ok_or_else(bad)?),
        };
        self.laid = complete;
        let arrival = start.checked_sub(row.queue.unwrap_or(0)).ok_or_else(bad)?;
        let process = match row.process {
            b"" | b"?" => None,
            name => Some(self.process.id(name, &mut context.processes, |raw| Ok(text(raw)))?),
        };
        let device = self.device.id(row.device, &mut context.devices, |raw| Ok(text(raw)))?;
        Ok(Some(Request {
            // With -Q, the start of iosnoop is that of the queue, and its output does not show whether -Q was given.
            start: row.start.is_none().then_some(Nanos(start)),
            complete: Some(Nanos(complete)),
            flags,
            pid: signed(row.pid)?.filter(|pid| *pid > 0 || process.is_some()),
            process,
            device: Some(device),
            ..Request::new(Nanos(arrival), op, sector, count)
        }))
    }
}

/// Operation, flags and range of a line. `None` for a command without an address or without data.
fn request_range(row: &SnoopRow, bytes: u64) -> Result<Option<(Op, RequestFlags, Sector, u32)>> {
    let RwbsMeaning::Request(operation) = rwbs::read(row.letters.bytes, row.letters.column)? else {
        return Ok(None);
    };
    let sector = match row.sector.bytes {
        b"-1" => NO_SECTOR,
        digits => unsigned(digits, "sector", row.sector.column)?,
    };
    if bytes == 0 {
        // biosnoop of bcc prints no more than R or W of a flush.
        return Ok(match operation.without_sectors() {
            Some((Op::Read | Op::Write | Op::Flush, flags)) => Some((Op::Flush, flags, Sector(0), 0)),
            _ => None,
        });
    }
    if sector == NO_SECTOR {
        // A passthrough command of a program.
        return Ok(None);
    }
    let count = sectors(bytes.div_ceil(SECTOR_BYTES), row.bytes.bytes, "bytes", row.bytes.column)?;
    let (op, flags) = operation.of(count);
    Ok(Some((op, flags, Sector(sector), count)))
}

/// The process id of a field; `None` if the table has no such column.
fn signed(field: SnoopField) -> Result<Option<i32>> {
    if field.column == 0 {
        return Ok(None);
    }
    let digits = field.bytes.strip_prefix(b"-").unwrap_or(field.bytes);
    let id = super::line_format::pid(digits, "pid", field.column)?;
    Ok(Some(if digits.len() < field.bytes.len() { -id } else { id }))
}

/// Parses `HH:MM:SS`, with or without decimals, into nanoseconds since midnight.
fn time_of_day(field: &[u8]) -> Option<i64> {
    let mut parts = field.split(|byte| *byte == b':');
    let (hours, minutes, rest) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || ![hours, minutes].iter().all(|part| part.len() == 2 && is_digits(part)) {
        return None;
    }
    let number = |part| unsigned(part, "", 0).ok().and_then(|number| i64::try_from(number).ok());
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let seconds = decimal_time(rest, TimeUnit::Seconds, "", 0).ok()?;
    let valid = hours < 24 && minutes < 60 && seconds < 61_000_000_000;
    valid.then_some((hours * 60 + minutes) * 60_000_000_000 + seconds)
}

/// The number of lost events that a line reports; `None` for other lines.
fn lost_events(line: &[u8]) -> Option<u64> {
    // Most lines are requests, which begin with a number.
    if line.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut words = blank_separated(line);
    let mut first = words.next()?;
    if first == b"Possibly" {
        first = words.next()?;
    }
    if !first.eq_ignore_ascii_case(b"lost") {
        return None;
    }
    let count = unsigned(words.next()?, "", 0).ok()?;
    words.next().is_some_and(|word| word.starts_with(b"event") || word.starts_with(b"sample")).then_some(count)
}
