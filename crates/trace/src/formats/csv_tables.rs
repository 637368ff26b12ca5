//! Published block traces in simple CSV files. They differ in column order, units, and words for operations, so each format is a
//! row of a table. None has processes or flags.

use CsvField::{Block, ByteOffset, Bytes, DeviceName, DeviceNumber, Operation, Response, Sectors, Time, WholeTime};

use super::prelude::*;

/// Content of a column. In a line, the address precedes the size, and the arrival precedes the response.
#[derive(Clone, Copy)]
enum CsvField {
    DeviceNumber,
    DeviceName,
    /// Time of arrival.
    Time,
    /// Time of arrival without decimals.
    WholeTime,
    /// Response time; empty if not recorded.
    Response,
    /// Operation: the words for a read and a write.
    Operation(&'static [[&'static [u8]; 2]]),
    ByteOffset,
    /// First sector.
    Block,
    Bytes,
    Sectors,
}

const CAPITAL: &[[&[u8]; 2]] = &[[b"R", b"W"]];
const EITHER_CASE: &[[&[u8]; 2]] = &[[b"R", b"W"], [b"r", b"w"]];
const ZERO_ONE: &[[&[u8]; 2]] = &[[b"0", b"1"]];

#[derive(Clone, Copy, PartialEq, Eq)]
enum HeadingRule {
    Never,
    Possible,
    /// The file always has a heading, which identifies the format.
    Always,
}

struct CsvTable {
    name: &'static str,
    about: &'static str,
    known_by: &'static str,
    from: &'static str,
    gives: &'static [TraceColumn],
    unknown: &'static str,
    columns: &'static [(&'static str, CsvField)],
    heading: HeadingRule,
    unit: TimeUnit,
    clock: &'static str,
    /// Whether fields may have white space around them.
    trimmed: bool,
    /// Whether lines may have additional columns.
    open_ended: bool,
    /// Whether records without an operation are skipped and counted instead of rejected.
    skips_lost: bool,
    /// Returns the error for a file that belongs to the same collection but is not a trace, such as a list of devices.
    no_trace: fn(&[u8], &Path) -> Option<Error>,
}

/// The values that most formats in the table share.
const PLAIN: CsvTable = CsvTable {
    name: "",
    about: "",
    known_by: "",
    from: "",
    gives: &[TraceColumn::Device],
    unknown: "response times, processes, flags",
    columns: &[],
    heading: HeadingRule::Never,
    unit: TimeUnit::Seconds,
    clock: "unix",
    trimmed: false,
    open_ended: false,
    skips_lost: false,
    no_trace: |_, _| None,
};

const TABLES: [CsvTable; 5] = [
    // Li et al., IISWC 2020; repository alibaba/block-traces, whose README describes the columns ("Schema"). Times are those at which the
    // server received the requests.
    CsvTable {
        name: "alibaba",
        about: "Alibaba block traces CSV",
        known_by: "five columns, the second `R` or `W`, the others numbers; or their heading",
        from: "Alibaba's block traces",
        columns: &[
            ("device_id", DeviceNumber),
            ("opcode", Operation(CAPITAL)),
            ("offset", ByteOffset),
            ("length", Bytes),
            ("timestamp", WholeTime),
        ],
        heading: HeadingRule::Possible,
        unit: TimeUnit::Micros,
        no_trace: alibaba_devices,
        ..PLAIN
    },
    // SNIA IOTTA 27917; Zhang et al., "OSCA", ATC 2020; README of the set, section 3. Times have a resolution of a second, within
    // which the order is that of the file.
    CsvTable {
        name: "tencent",
        about: "Tencent block storage CSV (SNIA IOTTA)",
        known_by: "five numbers between commas, the fourth 0 or 1",
        from: "SNIA IOTTA, Tencent block storage",
        unknown: "response times, processes, flags; times are whole seconds",
        columns: &[
            ("Timestamp", WholeTime),
            ("Offset", Block),
            ("Size", Sectors),
            ("IOType", Operation(ZERO_ONE)),
            ("VolumeID", DeviceNumber),
        ],
        ..PLAIN
    },
    // SNIA IOTTA 26930, of Fujitsu; README of the set, section 3. Times are seconds since the first request of all files.
    CsvTable {
        name: "k5cloud",
        about: "K5cloud CSV of Fujitsu (SNIA IOTTA)",
        known_by: "a number, a time, `R` or `W`, and two numbers, between commas",
        from: "SNIA IOTTA, K5cloud",
        columns: &[
            ("ID", DeviceNumber),
            ("Timestamp", Time),
            ("Type", Operation(CAPITAL)),
            ("Offset", ByteOffset),
            ("Length", Bytes),
        ],
        clock: "relative",
        trimmed: true,
        ..PLAIN
    },
    // Storage Performance Council, "SPC Trace File Format Specification", revision 1.0.1. Blocks have 512 bytes, as in the UMass traces.
    // Times are seconds since the start of the trace.
    CsvTable {
        name: "spc1",
        about: "SPC-1 trace file (Storage Performance Council, UMass)",
        known_by: "three numbers, `R` or `W`, and a time, between commas",
        from: "Storage Performance Council; UMass trace repository",
        columns: &[
            ("ASU", DeviceNumber),
            ("LBA", Block),
            ("size", Bytes),
            ("opcode", Operation(EITHER_CASE)),
            ("timestamp", Time),
        ],
        clock: "relative",
        trimmed: true,
        open_ended: true,
        ..PLAIN
    },
    // SNIA IOTTA 4964; Lee et al., "Understanding Storage Traffic Characteristics on Enterprise Virtual Desktop Infrastructure";
    // README of the set, section 3. The last three of nine decimals have no meaning. If the response was lost on the monitored
    // network port, the response time is empty or irregular, and the operation may be empty.
    CsvTable {
        name: "systor17",
        about: "SNIA Systor '17 CSV (virtual desktops)",
        known_by: "its heading (`Timestamp,Response,IOType,...`)",
        from: "SNIA IOTTA, Systor '17",
        gives: &[TraceColumn::Complete, TraceColumn::Device],
        unknown: "processes, flags",
        columns: &[
            ("Timestamp", Time),
            ("Response", Response),
            ("IOType", Operation(CAPITAL)),
            ("LUN", DeviceName),
            ("Offset", ByteOffset),
            ("Size", Bytes),
        ],
        heading: HeadingRule::Always,
        skips_lost: true,
        ..PLAIN
    },
];

pub(super) static ALIBABA: TraceFormat = format_of::<0>();
pub(super) static TENCENT: TraceFormat = format_of::<1>();
pub(super) static K5CLOUD: TraceFormat = format_of::<2>();
pub(super) static SPC1: TraceFormat = format_of::<3>();
pub(super) static SYSTOR17: TraceFormat = format_of::<4>();

const fn format_of<const ROW: usize>() -> TraceFormat {
    let table = &TABLES[ROW];
    TraceFormat {
        name: table.name,
        about: table.about,
        known_by: table.known_by,
        from: table.from,
        gives: table.gives,
        unknown: table.unknown,
        times: FormatTimes::Fixed(table.unit),
        sniff: |head, path| TABLES[ROW].accepts(head, path),
        open: |input, options| CsvTableReader::open(&TABLES[ROW], input, options),
        ..TraceFormat::READ_ONLY
    }
}

impl CsvTable {
    fn is_heading(&self, line: &[u8]) -> bool {
        self.heading != HeadingRule::Never && comma_separated(line).eq(self.columns.iter().map(|(name, _)| name.as_bytes()))
    }

    fn fields<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let trimmed = self.trimmed;
        comma_separated(line).map(move |field| if trimmed { field.trim_ascii() } else { field })
    }

    fn accepts(&self, head: &[u8], path: &Path) -> bool {
        let line = first_line(head);
        if self.is_heading(line) || (self.no_trace)(head, path).is_some() {
            return true;
        }
        let count = self.fields(line).count();
        self.heading != HeadingRule::Always
            && (count == self.columns.len() || self.open_ended && count > self.columns.len())
            && self.fields(line).zip(self.columns).all(|(field, (_, column))| column.accepts(field))
    }
}

impl CsvField {
    fn accepts(self, field: &[u8]) -> bool {
        match self {
            Operation(words) => words.as_flattened().contains(&field),
            Time | Response => is_decimal(field),
            _ => is_digits(field),
        }
    }
}

/// The error for the list of devices in Alibaba's traces, which is recognised by its heading or its file name.
fn alibaba_devices(head: &[u8], path: &Path) -> Option<Error> {
    let line = first_line(head);
    let is_named = || path.file_name().is_some_and(|name| name.to_string_lossy().contains("device_size"));
    let two_numbers = || comma_separated(line).count() == 2 && comma_separated(line).all(is_digits);
    (line == b"device_id,capacity" || is_named() && two_numbers()).then(|| {
        let problem = "is not a trace: it lists the devices of the Alibaba traces with their capacities in bytes";
        Error::new(ErrorClass::UnknownFormat, problem).hint("read io_traces.csv of the same archive, which contains the requests")
    })
}

/// Reads the lines of a file of the table's format.
struct CsvTableReader {
    table: &'static CsvTable,
    /// Number of records without an operation.
    lost: u64,
    /// Line of the first record without an operation.
    first_lost: u64,
}

impl CsvTableReader {
    fn open(table: &'static CsvTable, input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
        if let Some(error) = (table.no_trace)(input.head(), input.path()) {
            return Err(error);
        }
        let reader = Self { table, lost: 0, first_lost: 0 };
        LineSource::open(table.name, reader, input, options)
    }
}

impl LineFormat for CsvTableReader {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if self.table.is_heading(line) {
            context.no_record();
            return Ok(());
        }
        let mut fields = FieldReader::along(self.table.fields(line));
        let mut request = Request::new(Nanos::ZERO, Op::Read, Sector(0), 0);
        let (mut device, mut offset, mut is_lost) = (&[][..], 0, false);
        for (name, column) in self.table.columns {
            let field = fields.next(name)?;
            if is_lost {
                continue;
            }
            match column {
                DeviceName => device = field.bytes,
                DeviceNumber => {
                    field.unsigned()?;
                    device = field.bytes;
                }
                Time | WholeTime => request.arrival = Nanos(field.time(self.table.unit)?),
                Response if field.bytes.is_empty() => {}
                Response => {
                    let end = request.arrival.0.checked_add(field.time(self.table.unit)?);
                    let end = end.ok_or_else(|| field.refused("ends beyond the year 2262"))?;
                    request.complete = Some(Nanos(end));
                }
                Operation(_) if self.table.skips_lost && field.bytes.is_empty() => is_lost = true,
                Operation(words) => {
                    let each = words.iter().map(|[read, write]| field.op(read, write));
                    request.op = each.reduce(Result::or).unwrap_or_else(|| Err(field.refused("is no operation")))?;
                }
                ByteOffset => offset = field.unsigned()?,
                Block => {
                    request.sector = Sector(field.unsigned()?);
                    let bytes = request.sector.0.checked_mul(SECTOR_BYTES);
                    offset = bytes.ok_or_else(|| field.refused("is beyond byte 2^64"))?;
                }
                Bytes => (request.sector, request.sectors) = field.span(offset)?,
                Sectors => request.sectors = field.sectors()?,
            }
        }
        if !self.table.open_ended {
            fields.end()?;
        }
        if is_lost {
            if self.lost == 0 {
                self.first_lost = context.line;
            }
            self.lost += 1;
            context.skip();
            return Ok(());
        }
        request.device = Some(context.device(device)?);
        out.push(request);
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        let (count, line) = (self.lost, self.first_lost);
        let note = (count > 0)
            .then(|| format!("{count} of the records have no operation (IOType) and were skipped, the first in line {line}"));
        TraceHeader { clock: self.table.clock.into(), note, ..TraceHeader::default() }
    }
}
