//! The tables of snoop tools: a heading, then a line for each request at its completion. `biosnoop` and `iosnoop` share this
//! reader, because they differ only in the names of the columns.
//!
//! The heading contains the columns, in any order, and their units. A process name may contain blanks, so the columns after it
//! are counted from the end of the line. Lines of other programs before, between and after the lines of the table are skipped and
//! counted; losses that the tool reports are counted as lost.
//!
//! The table of `biosnoop` from bcc (tools/biosnoop.py and its manual page) and libbpf-tools (biosnoop.c):
//!
//! `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)`; `-Q` adds `QUE(ms)` before `LAT(ms)`; `-P` adds a pattern `P` after `BYTES`.
//! `TIME` is the completion, in seconds since the first line; with `-t` of libbpf-tools it is `TIMESTAMP`, the time of day. `LAT`
//! is the time from issue to completion, so that the issue is `TIME - LAT`; `QUE` is the time in the queue before the issue (-1
//! if not recorded). Without `-Q`, the arrival is the issue. Sectors have 512 bytes. `T` is `R` or `W` in bcc, the kernel's
//! letters in libbpf-tools. A flush has no bytes and often the sector 2^64-1, which is not an address. A table without a heading
//! is read with the columns of bcc. The biosnoop of bpftrace prints neither addresses nor sizes and is rejected.
//!
//! The table of `iosnoop` from perf-tools (its script and manual page iosnoop(8)):
//!
//! `COMM PID TYPE DEV BLOCK BYTES LATms`; `-s` adds `STARTs` and `-t` adds `ENDs` before it, both in seconds on the clock of ftrace. `LATms`
//! is the time from issue to completion; with `-Q`, start and latency include the time in the queue. The output does not show whether `-Q`
//! was used, so with `STARTs` the start at the driver is not set. Blocks are sectors of 512 bytes, `DEV` is `major,minor`, `TYPE` the
//! kernel's letters. A flush has no bytes, and the block 2^64-1 is not an address. Without `-s` and `-t` there are no times: then each
//! request begins at the end of the previous one, in the order of completion, and the note of the trace states this.

use super::fields::{bad_number, has_decimal_comma};
use super::prelude::*;
use super::rwbs::{self, RwbsMeaning};

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnoopColumn {
    /// Time of issue.
    Start(TimeUnit),
    /// Time of completion.
    End(TimeUnit),
    /// Time of completion as the time of day: `HH:MM:SS.mmm`.
    Clock,
    Process,
    Pid,
    Device,
    Letters,
    Sector,
    Bytes,
    /// Time in the queues of the operating system.
    Queue(TimeUnit),
    /// Time from issue to completion.
    Latency(TimeUnit),
    Other,
}

impl SnoopColumn {
    fn is_time(self) -> bool {
        matches!(self, SnoopColumn::Start(_) | SnoopColumn::End(_) | SnoopColumn::Clock)
    }

    fn name(self) -> &'static str {
        match self {
            SnoopColumn::Start(_) => "start",
            SnoopColumn::End(_) | SnoopColumn::Clock => "time",
            SnoopColumn::Queue(_) => "queue",
            SnoopColumn::Latency(_) => "latency",
            SnoopColumn::Sector => "sector",
            SnoopColumn::Bytes => "bytes",
            _ => "pid",
        }
    }
}

/// Maximum number of columns, more than any tool prints.
const MOST_COLUMNS: usize = 16;
/// Maximum number of words in a line of a table. A process name has at most 16 bytes, so it has at most 8 words.
const MOST_WORDS: usize = MOST_COLUMNS + 8;
/// Maximum latency, one hour: a longer latency means that the tool matched the completion of another request.
const LONGEST_NS: i64 = 3_600_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;
/// The sector that the kernel reports for a request without an address.
const NO_SECTOR: u64 = u64::MAX;

/// Returns the time unit in a column name that consists of `stem` and a unit, with or without brackets around the unit; `None` for other
/// names.
fn unit(name: &[u8], stem: &[u8]) -> Option<TimeUnit> {
    let rest = name.strip_prefix(stem)?;
    let unit = rest.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")")).unwrap_or(rest);
    std::str::from_utf8(unit).ok().and_then(|unit| TimeUnit::by_name(unit).ok())
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

/// Parses a heading into its columns, which may have any order; `None` for any other line. Each column occurs only once. There must be a
/// device, a latency, and either an address with a size or a process with its pid (as in bpftrace).
fn heading(line: &[u8]) -> Option<Vec<SnoopColumn>> {
    let columns: Vec<_> = blank_separated(line).take(MOST_COLUMNS + 1).map(column).collect();
    let has = |wanted: SnoopColumn| columns.contains(&wanted);
    // Two columns of the same meaning may have different units.
    let is_like = |one: &SnoopColumn, other: &SnoopColumn| std::mem::discriminant(one) == std::mem::discriminant(other);
    let is_once = |(at, column): (usize, &SnoopColumn)| {
        *column == SnoopColumn::Other || !columns[..at].iter().any(|other| is_like(other, column))
    };
    let of_requests = has(SnoopColumn::Process) && has(SnoopColumn::Pid) || has(SnoopColumn::Sector) && has(SnoopColumn::Bytes);
    let latency = columns.iter().any(|column| matches!(column, SnoopColumn::Latency(_)));
    let fits = has(SnoopColumn::Device) && latency && of_requests && columns.len() <= MOST_COLUMNS;
    (fits && columns.iter().enumerate().all(is_once)).then_some(columns)
}

/// Finds the heading of the table in the first lines of a file. `device` is the name of the column that contains the device.
fn heading_with<'a>(head: &'a [u8], device: &[u8]) -> Option<&'a [u8]> {
    const LINES: usize = 200;
    let mut lines = head.split(|byte| *byte == b'\n').take(LINES).map(<[u8]>::trim_ascii_end);
    lines.find(|line| blank_separated(line).any(|name| name == device) && heading(line).is_some())
}

/// The words of a line with their positions, so that the words of a process name can be joined again.
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

    /// The text from the word `from` to the word before `to`, including blanks.
    fn range(&self, from: usize, to: usize) -> &'a [u8] {
        if from < to { &self.line[self.word_spans[from].0..self.word_spans[to - 1].1] } else { &[] }
    }
}

#[derive(Default)]
struct SnoopRow<'a> {
    start: Option<i64>,
    end: Option<i64>,
    process: &'a [u8],
    pid: LineField<'a>,
    device: &'a [u8],
    letters: LineField<'a>,
    sector: LineField<'a>,
    bytes: LineField<'a>,
    queue: Option<i64>,
    latency: LineField<'a>,
    latency_ns: i64,
}

/// Reads the lines of a snoop table.
#[derive(Default)]
struct SnoopTable {
    format: &'static str,
    columns: Vec<SnoopColumn>,
    /// Index of the column with the process, if there is one.
    process_at: Option<usize>,
    /// Index of the column with the time, if there is one.
    time_at: Option<usize>,
    /// Number of midnights that have passed so far.
    midnights: i64,
    /// Time of day of the previous line, in nanoseconds since midnight.
    time_of_day: i64,
    /// Time at which the previous request ended, if the tool prints no times.
    laid: i64,
}

impl SnoopTable {
    fn new(format: &'static str, columns: Vec<SnoopColumn>) -> Self {
        let mut table = Self { format, ..Self::default() };
        table.begin(columns);
        table
    }

    /// Sets the columns by which the following lines are read.
    fn begin(&mut self, columns: Vec<SnoopColumn>) {
        self.process_at = columns.iter().position(|column| *column == SnoopColumn::Process);
        self.time_at = columns.iter().position(|column| column.is_time());
        self.columns = columns;
    }

    /// The name of a required column that is missing; `None` if all are present.
    fn missing(&self) -> Option<&'static str> {
        let needed = [(SnoopColumn::Sector, "address"), (SnoopColumn::Bytes, "size"), (SnoopColumn::Letters, "operation")];
        needed.into_iter().find(|(column, _)| !self.columns.contains(column)).map(|(_, name)| name)
    }

    fn position(&self, wanted: SnoopColumn) -> Option<usize> {
        self.columns.iter().position(|column| *column == wanted)
    }

    /// The index of the first word of column `at` in a line of `words` words.
    fn word(&self, at: usize, words: usize) -> usize {
        let is_after_name = self.process_at.is_some_and(|process| at > process);
        if is_after_name { (words + at).saturating_sub(self.columns.len()) } else { at }
    }

    /// Whether a line is a row of the table. The line must have as many words as there are columns; only a process name may have no word,
    /// or several. The word in the time column must look like a time. Without a time column, the words for address and length must look
    /// like numbers.
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

    fn row<'a>(&mut self, words: &LineWords<'a>) -> Result<SnoopRow<'a>> {
        let mut row = SnoopRow::default();
        let extra = (words.count + 1).saturating_sub(self.columns.len());
        for (at, column) in self.columns.iter().enumerate() {
            let first = self.word(at, words.count);
            let bytes = words.range(first, (first + 1).min(words.count));
            let field = LineField { bytes, name: column.name(), column: first as u64 + 1 };
            match *column {
                SnoopColumn::Start(unit) => row.start = Some(field.time(unit)?),
                SnoopColumn::End(unit) => row.end = Some(field.time(unit)?),
                SnoopColumn::Clock => {
                    let now = time_of_day(field.bytes).ok_or_else(|| {
                        let seconds = field.bytes.rsplit(|byte| *byte == b':').next().unwrap_or_default();
                        bad_number(seconds, "this is not a time of day such as 23:59:59.000")
                            .of_field(field.name, field.column, field.bytes)
                    })?;
                    // Lines of about the same time may be out of order. Only a time that is more than half a day earlier belongs to the
                    // next day.
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
                // The value is -1 if the tool did not record when the request entered the queue.
                SnoopColumn::Queue(_) if field.bytes.starts_with(b"-") => {}
                SnoopColumn::Queue(unit) => row.queue = Some(field.time(unit)?),
                SnoopColumn::Latency(unit) => {
                    row.latency = field;
                    row.latency_ns = field.time(unit)?;
                }
                SnoopColumn::Other => {}
            }
        }
        Ok(row)
    }

    /// The request of a line; `None` for a command without an address.
    fn request(&mut self, row: &SnoopRow, context: &mut ParseContext) -> Result<Option<Request>> {
        if row.latency_ns > LONGEST_NS {
            let problem = "it is longer than an hour, so it is not a latency: the tool used the completion of another request";
            return Err(row.latency.refused(problem));
        }
        let bytes = row.bytes.unsigned()?;
        let Some((op, flags, sector, count)) = request_range(row, bytes)? else { return Ok(None) };
        let bad = || row.latency.refused("puts the begin before time 0 of the clock");
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
            name => Some(context.process(name)?),
        };
        let device = context.device(row.device)?;
        Ok(Some(Request {
            // With -Q, iosnoop prints the time of queueing as the start. The output does not show whether -Q was used, so the printed start
            // is ignored.
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

impl LineFormat for SnoopTable {
    /// Parses a line, which may belong to the table or not.
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
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

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> TraceHeader {
        let is_queued = self.columns.iter().any(|column| matches!(column, SnoopColumn::Queue(_)));
        let (clock, note) = match (self.format == BIOSNOOP.name, self.time_at) {
            (true, _) if is_queued => ("relative", None),
            (true, _) => {
                ("relative", Some("biosnoop without -Q: the time in the queue is unknown, so arrivals are times of issue"))
            }
            (false, Some(_)) => ("monotonic", None),
            (false, None) => (
                "relative",
                Some(
                    "iosnoop without -s and -t prints no times: requests are placed one after the other in order of completion; \
                     addresses, sizes and latencies are as recorded, arrivals and rates are not",
                ),
            ),
        };
        TraceHeader { clock: clock.into(), note: note.map(str::to_owned), ..TraceHeader::default() }
    }
}

/// Operation, flags and range in a line. `None` for a command without an address or without data.
fn request_range(row: &SnoopRow, bytes: u64) -> Result<Option<(Op, RequestFlags, Sector, u32)>> {
    let RwbsMeaning::Request(operation) = rwbs::read(row.letters.bytes, row.letters.column)? else {
        return Ok(None);
    };
    let sector = match row.sector.bytes {
        b"-1" => NO_SECTOR,
        _ => row.sector.unsigned()?,
    };
    if bytes == 0 {
        // For a flush, the tool biosnoop of bcc prints only R or W as the operation.
        return Ok(match operation.without_sectors() {
            Some((Op::Read | Op::Write | Op::Flush, flags)) => Some((Op::Flush, flags, Sector(0), 0)),
            _ => None,
        });
    }
    if sector == NO_SECTOR {
        // A pass-through command of a program, which is not block I/O.
        return Ok(None);
    }
    let count = sectors(bytes.div_ceil(SECTOR_BYTES), row.bytes.bytes, "bytes", row.bytes.column)?;
    let (op, flags) = operation.of(count);
    Ok(Some((op, flags, Sector(sector), count)))
}

/// The process id in a field; `None` if the table has no such column.
fn signed(field: LineField) -> Result<Option<i32>> {
    if field.column == 0 {
        return Ok(None);
    }
    let digits = field.bytes.strip_prefix(b"-").unwrap_or(field.bytes);
    let id = pid(digits, field.name, field.column)?;
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

/// The number of lost events in a line; `None` for other lines.
fn lost_events(line: &[u8]) -> Option<u64> {
    // Most lines contain a request and begin with a digit.
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

pub(super) static BIOSNOOP: TraceFormat = TraceFormat {
    name: "biosnoop",
    about: "biosnoop of bcc and libbpf-tools, with -Q, -P and -t too",
    known_by: "its heading (`TIME(s) COMM PID DISK ...`), or a line of its columns",
    from: "`biosnoop` of bcc, `biosnoop -Q` of bcc or libbpf-tools",
    gives: TraceColumn::OF_BLOCK_LAYER,
    unknown: "merges and errors; the wait in the queue without `-Q`; of bcc all flags but the operation",
    recorded: RecordedFeatures::of(&[Op::Flush], RequestFlags(0)),
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open: open_biosnoop,
    ..TraceFormat::READ_ONLY
};

/// The columns of a file, from its heading or recognised from its first line; `None` if the file is not such a table.
fn columns(head: &[u8]) -> Option<Vec<SnoopColumn>> {
    heading_with(head, b"DISK").and_then(heading).or_else(|| columns_of_line(first_line(head)))
}

/// The columns of a table without a heading, recognised from a line: `TIME COMM PID DISK T SECTOR BYTES [QUE] LAT`.
fn columns_of_line(line: &[u8]) -> Option<Vec<SnoopColumn>> {
    let fields: Vec<_> = blank_separated(line).collect();
    let with_point = |field: &[u8]| is_decimal(field) && field.contains(&b'.');
    let queued = with_point(fields.get(fields.len().checked_sub(2)?)?);
    let bytes = fields.len().checked_sub(if queued { 3 } else { 2 })?;
    let from_bytes = |back: usize| bytes.checked_sub(back).filter(|at| *at > 0).map(|at| fields[at]);
    let letters = from_bytes(2)?;
    let fits = with_point(fields[0])
        && with_point(fields[fields.len() - 1])
        && is_digits(fields[bytes])
        && is_digits(from_bytes(1)?)
        && letters.len() <= 8
        && letters.iter().all(u8::is_ascii_uppercase)
        && is_digits(from_bytes(4)?)
        && from_bytes(5).is_some();
    let mut columns = vec![
        SnoopColumn::End(TimeUnit::Seconds),
        SnoopColumn::Process,
        SnoopColumn::Pid,
        SnoopColumn::Device,
        SnoopColumn::Letters,
        SnoopColumn::Sector,
        SnoopColumn::Bytes,
    ];
    if queued {
        columns.push(SnoopColumn::Queue(TimeUnit::Millis));
    }
    columns.push(SnoopColumn::Latency(TimeUnit::Millis));
    fits.then_some(columns)
}

fn open_biosnoop(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = columns(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the file has no heading of biosnoop in its first lines")
            .at_line(1)
            .hint("save the whole output of biosnoop, with the line `TIME(s) COMM PID DISK ...`")
    })?;
    let table = SnoopTable::new(BIOSNOOP.name, columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this biosnoop does not print the {missing} of requests (as that of bpftrace)");
        return Err(Error::new(ErrorClass::Unsupported, problem)
            .hint("record with biosnoop of bcc (in Debian and Ubuntu `biosnoop-bpfcc -Q`), whose lines have sector and bytes"));
    }
    if table.time_at.is_none() {
        let problem = "this biosnoop does not print the time of requests";
        return Err(
            Error::new(ErrorClass::Unsupported, problem).hint("record with biosnoop of bcc, whose first column is TIME(s)")
        );
    }
    LineSource::open(BIOSNOOP.name, table, input, options)
}

pub(super) static IOSNOOP: TraceFormat = TraceFormat {
    name: "iosnoop",
    about: "iosnoop of perf-tools, with -s and -t too",
    known_by: "its heading (`COMM PID TYPE DEV BLOCK BYTES LATms`)",
    from: "`iosnoop -st` of perf-tools",
    gives: &[
        TraceColumn::Start,
        TraceColumn::Complete,
        TraceColumn::Flags,
        TraceColumn::Pid,
        TraceColumn::Process,
        TraceColumn::Device,
    ],
    unknown: "times without `-s` and `-t`; whether the start is that of the queue (`-Q`)",
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| heading_with(head, b"DEV").is_some(),
    open: open_iosnoop,
    ..TraceFormat::READ_ONLY
};

fn open_iosnoop(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = heading_with(input.head(), b"DEV").and_then(heading).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the file has no heading of iosnoop in its first lines")
            .at_line(1)
            .hint("save the whole output of iosnoop, with the line `COMM PID TYPE DEV BLOCK BYTES LATms`")
    })?;
    let table = SnoopTable::new(IOSNOOP.name, columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this table of iosnoop lacks the {missing} of requests");
        return Err(Error::new(ErrorClass::Unsupported, problem).hint("record with iosnoop of perf-tools: `iosnoop -st`"));
    }
    LineSource::open(IOSNOOP.name, table, input, options)
}
