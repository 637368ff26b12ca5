//! Assigns addresses in traces of caches and file servers, which contain objects instead of addresses of a device.
//!
//! Objects, or parts of them, are placed one after the other in the order of first use. A reused object keeps its address, and
//! adjacent data within a part stays adjacent; distances between parts have no meaning.
//!
//! Traces of Tectonic, the storage of Meta, as published with Baleen (Wong et al., "Baleen: ML Admission & Prefetching for Flash
//! Caches", FAST 2024).
//!
//! Fields are separated by blanks after a heading: `block_id io_offset io_size op_time op_name user_namespace user_name
//! rs_shard_id op_count host_name`. These fields are read: block, offset and size in bytes, from which addresses are derived; the
//! time in seconds; the number of the operation (1, 2 and 5 read data, 3, 4 and 6 write it; others are skipped and counted); and
//! the user's namespace, which becomes the process. There are no response times.
//!
//! Thesios: I/O of Google's storage servers, synthesised from samples (repository google-research-datasets/thesios; ASPLOS 2024).
//!
//! CSV with a heading, whose columns the README of the repository describes ("Data Description"). These columns are read: `start_time`, the
//! arrival at the server in Unix seconds; `op_type`, `READ` or `WRITE`; `request_io_size_bytes`; `simulated_latency`, from arrival to
//! response in seconds; `simulated_disk_start_time`, the start of the disk read (0 for a write or a hit in the server's cache);
//! `application`. Addresses are derived from the file (`filename`, hashed) and `file_offset`.
//!
//! The binary traces of libCacheSim (repository 1a1a11a/libCacheSim): `oracleGeneral` and `lcs`, versions 1 to 8.
//!
//! Little-endian records without padding. `oracleGeneral` has 24 bytes: seconds (u32), object (u64), its size in bytes (u32), and the number
//! of the next request for it (i64, -1 for none). It has no magic number, so it is recognised by its usual file name and plausible records.
//! `lcs` has a header of 8,192 bytes between two equal marks, with the version after the first one. Version 1 has the records of
//! `oracleGeneral`; 2 has operation (8 bits) and tenant (24 bits) before the last field; 3 has a size of 64 bits and a time to live; 4 to 8
//! append 1 to 16 numbers. Operations are numbered as in libCacheSim's `req_op_e`; a delete becomes a discard.
//!
//! Addresses are derived from the objects. Without operations, all requests are reads. The note of the trace states both.

use std::collections::HashMap;

use super::binary::{RecordFormat, RecordSource, bytes, refused};
use super::fields::ColumnPositions;
use super::prelude::*;

/// The text on addresses for the note of a trace that contains objects instead of addresses.
pub(super) const NOTE: &str = "the trace names objects and has no addresses: they are placed one after the other in the order of first \
                               use, so that reuse is as recorded and distances are not";

/// The number of an object: its name if that is a number, otherwise a hash of its name.
pub(super) fn object(name: &[u8]) -> u64 {
    // The FNV-1a hash of the name.
    let hash =
        || name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    std::str::from_utf8(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(hash)
}

/// Addresses of parts of objects; all parts have the same size.
pub(super) struct PartAddresses {
    addresses: HashMap<(u64, u64), u64>,
    bytes: u64,
}

impl PartAddresses {
    /// Addresses for parts of `bytes` bytes.
    pub fn of(bytes: u64) -> Self {
        Self { addresses: HashMap::new(), bytes }
    }

    /// The sectors of a byte range in an object. `offset` and `size` are the fields of the range, in bytes.
    fn span(&mut self, object: u64, offset: LineField, size: LineField, context: &mut ParseContext) -> Result<(Sector, u32)> {
        let begin = offset.unsigned()?;
        if begin.checked_add(size.unsigned()?).is_none() {
            return Err(offset.refused("the request reaches beyond byte 2^64"));
        }
        let (sector, count, rounded) = size.stream_span(self.offset(object, begin))?;
        context.round(rounded);
        Ok((sector, count))
    }

    /// The address of an offset in an object; both in bytes.
    pub fn offset(&mut self, object: u64, offset: u64) -> u64 {
        let next = self.addresses.len() as u64;
        let part = *self.addresses.entry((object, offset / self.bytes)).or_insert(next);
        part.saturating_mul(self.bytes).saturating_add(offset % self.bytes)
    }
}

/// Addresses of objects that are used as a whole.
#[derive(Default)]
pub(super) struct ObjectAddresses {
    /// First sector and number of reserved sectors of each object.
    addresses: HashMap<u64, (u64, u32)>,
    next: u64,
}

impl ObjectAddresses {
    /// The first sector of an object that now has `sectors` sectors. An object that no longer fits into its reserved space is moved.
    pub fn sector(&mut self, object: u64, sectors: u32) -> Sector {
        const PAGE: u32 = 4096 / SECTOR_BYTES as u32;
        let next = self.next;
        let place = self.addresses.entry(object).or_insert((next, 0));
        if place.1 < sectors {
            *place = (next, sectors.div_ceil(PAGE).saturating_mul(PAGE));
            self.next = next.saturating_add(u64::from(place.1));
        }
        Sector(place.0)
    }
}

pub(super) static TECTONIC: TraceFormat = TraceFormat {
    name: "tectonic",
    about: "Traces of Meta's Tectonic, as Baleen uses them",
    known_by: "a heading with `block_id io_offset io_size op_time op_name ...`",
    from: "Meta's Tectonic, as Baleen uses it",
    gives: &[TraceColumn::Process],
    unknown: "addresses: blocks are placed in the order of their first use; response times",
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| tectonic_columns(head).is_some(),
    open: open_tectonic,
    ..TraceFormat::READ_ONLY
};

const TECTONIC_COLUMNS: [&str; 6] = ["block_id", "io_offset", "io_size", "op_time", "op_name", "user_namespace"];
/// Size of the address range that is reserved for each block, in bytes. It is larger than a block, which has at most 8 MB.
const TECTONIC_PART_BYTES: u64 = 16 << 20;

fn tectonic_columns(head: &[u8]) -> Option<ColumnPositions<6>> {
    let line = first_line(head);
    ColumnPositions::of(TECTONIC_COLUMNS, blank_separated(line.strip_prefix(b"#").unwrap_or(line)))
}

fn open_tectonic(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = tectonic_columns(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the first line does not contain the columns of a trace of Tectonic")
            .at_line(1)
            .hint("keep the heading of the file (`block_id io_offset io_size op_time op_name ...`)")
    })?;
    let tectonic = TectonicFormat { columns, parts: PartAddresses::of(TECTONIC_PART_BYTES) };
    LineSource::open(TECTONIC.name, tectonic, input, options)
}

struct TectonicFormat {
    columns: ColumnPositions<6>,
    parts: PartAddresses,
}

impl LineFormat for TectonicFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line.starts_with(b"block_id") || line.starts_with(b"#") {
            context.no_record();
            return Ok(());
        }
        let [block, offset, size, time, op, user] = self.columns.read(blank_separated(line))?;
        let op = match op.unsigned()? {
            1 | 2 | 5 => Op::Read,
            3 | 4 | 6 => Op::Write,
            _ => {
                context.skip();
                return Ok(());
            }
        };
        let arrival = Nanos(time.time(TimeUnit::Seconds)?);
        let (sector, count) = self.parts.span(block.unsigned()?, offset, size, context)?;
        let process = context.process(user.bytes)?;
        out.push(Request { process: Some(process), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "unix".into(), note: Some(NOTE.into()), ..TraceHeader::default() }
    }
}

pub(super) static THESIOS: TraceFormat = TraceFormat {
    name: "thesios",
    about: "Thesios CSV: I/O of Google's storage servers",
    known_by: "a heading with `filename`, `file_offset`, `start_time`, `simulated_latency`, ...",
    from: "Google's Thesios (repository google-research-datasets/thesios)",
    gives: &[TraceColumn::Start, TraceColumn::Complete, TraceColumn::Process],
    unknown: "addresses: parts of files are placed in the order of their first use",
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| thesios_columns(head).is_some(),
    open: open_thesios,
    ..TraceFormat::READ_ONLY
};

const THESIOS_COLUMNS: [&str; 8] = [
    "filename", "file_offset", "application", "op_type", "request_io_size_bytes", "start_time", "simulated_disk_start_time",
    "simulated_latency",
];
/// Size in bytes of the parts into which files are divided. Addresses are sequential within a part. A part is larger than any request.
const THESIOS_PART_BYTES: u64 = 64 << 20;

fn thesios_columns(head: &[u8]) -> Option<ColumnPositions<8>> {
    ColumnPositions::of(THESIOS_COLUMNS, comma_separated(first_line(head)))
}

fn open_thesios(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = thesios_columns(input.head()).ok_or_else(|| {
        let problem = "the first line does not contain the columns of Thesios";
        Error::new(ErrorClass::Syntax, problem)
            .at_line(1)
            .hint("keep the heading of the file (`filename,file_offset,application,...`)")
    })?;
    let thesios = ThesiosFormat { columns, heading: true, parts: PartAddresses::of(THESIOS_PART_BYTES) };
    LineSource::open(THESIOS.name, thesios, input, options)
}

struct ThesiosFormat {
    columns: ColumnPositions<8>,
    /// Whether the heading is still to be read.
    heading: bool,
    parts: PartAddresses,
}

impl LineFormat for ThesiosFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if std::mem::take(&mut self.heading) || line.starts_with(b"filename,") {
            context.no_record();
            return Ok(());
        }
        let [file, offset, application, op, size, arrival, disk, latency] = self.columns.read(comma_separated(line))?;
        let seconds = |field: LineField| field.time(TimeUnit::Seconds);
        let op = match op.bytes {
            b"READ" => Op::Read,
            b"WRITE" => Op::Write,
            _ => return Err(op.refused("the operation must be READ or WRITE")),
        };
        let (sector, count) = self.parts.span(object(file.bytes), offset, size, context)?;
        let (begin, took) = (seconds(arrival)?, seconds(latency)?);
        let complete = begin.checked_add(took).ok_or_else(|| latency.refused("the request ends beyond the year 2262"))?;
        // The start has one decimal less than the arrival, so it may seem to be slightly earlier and is then omitted.
        let start = Some(seconds(disk)?).filter(|start| *start >= begin && *start <= complete);
        let process = context.process(application.bytes)?;
        out.push(Request {
            start: start.map(Nanos),
            complete: Some(Nanos(complete)),
            process: Some(process),
            ..Request::new(Nanos(begin), op, sector, count)
        });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "unix".into(), note: Some(NOTE.into()), ..TraceHeader::default() }
    }
}

pub(super) static ORACLE_GENERAL: TraceFormat = TraceFormat {
    name: "oracle-general",
    about: "libCacheSim's oracleGeneral: objects in a cache",
    known_by: "`oracleGeneral` in the file's name, and records that make sense",
    from: "libCacheSim and the collections that it publishes as oracleGeneral",
    gives: &[],
    unknown: "operations (all are reads) and addresses: objects are placed in the order of their first use; response times",
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.contains("oraclegeneral") && is_plausible(head)
    },
    open: |input: DecompressedInput, options: &ReadOptions| open(input, options, ORACLE_GENERAL.name, 0, LAYOUTS[0]),
    ..TraceFormat::READ_ONLY
};

pub(super) static LCS: TraceFormat = TraceFormat {
    name: "lcs",
    about: "libCacheSim's lcs, versions 1 to 8: objects in a cache",
    known_by: "its magic number in the first 8 bytes",
    from: "libCacheSim (`tracePrint`, `traceConv`) and the collections that it publishes",
    gives: &[TraceColumn::Process],
    unknown: "addresses: objects are placed in the order of their first use; response times",
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| head.starts_with(&MARK),
    open: open_lcs,
    ..TraceFormat::READ_ONLY
};

const MARK: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const HEADER_BYTES: usize = 8192;

/// The layout of the records in one version of the format `lcs`.
#[derive(Clone, Copy)]
struct LcsRecordLayout {
    size: usize,
    wide_size: bool,
    /// Offset of operation and tenant in a record; `None` if it has none.
    op_at: Option<usize>,
}

const LAYOUTS: [LcsRecordLayout; 8] = {
    const fn wide(size: usize) -> LcsRecordLayout {
        LcsRecordLayout { size, wide_size: true, op_at: Some(20) }
    }
    [
        LcsRecordLayout { size: 24, wide_size: false, op_at: None },
        LcsRecordLayout { size: 28, wide_size: false, op_at: Some(16) },
        wide(36),
        wide(40),
        wide(44),
        wide(52),
        wide(68),
        wide(100),
    ]
};

/// Whether the first records are plausible: times do not decrease, and the field for the object's next request is at least -1.
fn is_plausible(head: &[u8]) -> bool {
    const JUDGED: usize = 256;
    let size = LAYOUTS[0].size;
    let records = || head.chunks_exact(size).take(JUDGED);
    let time = |raw: &[u8]| u32::from_le_bytes(bytes(raw, 0));
    let next = |raw: &[u8]| i64::from_le_bytes(bytes(raw, 16));
    records().count() > 0
        && records().zip(records().skip(1)).all(|(first, second)| time(first) <= time(second))
        && records().all(|raw| next(raw) >= -1)
}

fn open(
    input: DecompressedInput, options: &ReadOptions, format: &'static str, before: usize, layout: LcsRecordLayout,
) -> Result<Box<dyn TraceSource>> {
    let records = LibCacheSimFormat { format, layout, objects: ObjectAddresses::default(), tenant: String::new() };
    Ok(Box::new(RecordSource::new(records, input, options, before, layout.size)?))
}

fn open_lcs(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let head = input.head();
    if head.len() < HEADER_BYTES {
        let problem = format!("the file ends within its header of {HEADER_BYTES} bytes");
        return Err(Error::new(ErrorClass::Truncated, problem).at_offset(head.len() as u64).hint("copy the trace file again"));
    }
    if !head.starts_with(&MARK) || head[HEADER_BYTES - MARK.len()..HEADER_BYTES] != MARK {
        return Err(Error::new(
            ErrorClass::Syntax,
            "the file header has no magic number at its end: it has an older layout, or is damaged",
        )
        .at_offset((HEADER_BYTES - MARK.len()) as u64)
        .hint("convert the original trace again with a current traceConv of libCacheSim"));
    }
    let version = u64::from_le_bytes(bytes(head, MARK.len()));
    let at = usize::try_from(version).ok().and_then(|version| version.checked_sub(1));
    let layout = at.and_then(|at| LAYOUTS.get(at)).copied();
    let layout = layout.ok_or_else(|| refused("version", version, "the version must be 1 to 8").at_offset(8))?;
    open(input, options, LCS.name, HEADER_BYTES, layout)
}

struct LibCacheSimFormat {
    format: &'static str,
    layout: LcsRecordLayout,
    objects: ObjectAddresses,
    tenant: String,
}

/// The operation with this number in libCacheSim; `None` if the number is not known.
fn operation(code: u32) -> Option<Op> {
    Some(match code {
        // Operation codes of libCacheSim: none, get, gets, read.
        0..=2 | 12 => Op::Read,
        // Operation codes of libCacheSim: set, add, cas, replace, append, prepend, incr, decr, write, update.
        3..=8 | 10 | 11 | 13 | 14 => Op::Write,
        9 => Op::Discard,
        _ => return None,
    })
}

impl RecordFormat for LibCacheSimFormat {
    fn parse(&mut self, raw: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let size = if self.layout.wide_size {
            u64::from_le_bytes(bytes(raw, 12))
        } else {
            u64::from(u32::from_le_bytes(bytes(raw, 12)))
        };
        let mut op = Some(Op::Read);
        let mut process = None;
        if let Some(at) = self.layout.op_at {
            let word = u32::from_le_bytes(bytes(raw, at));
            op = operation(word & 0xff);
            if word >> 8 > 0 {
                self.tenant.clear();
                let _ = std::fmt::Write::write_fmt(&mut self.tenant, format_args!("tenant {}", word >> 8));
                process = Some(context.processes.intern(&self.tenant));
            }
        }
        let Some(op) = op.filter(|_| size > 0) else {
            context.skip();
            return Ok(());
        };
        let sectors =
            u32::try_from(size.div_ceil(SECTOR_BYTES)).map_err(|_| refused("obj_size", size, "the object exceeds 2 TB"))?;
        let object = u64::from_le_bytes(bytes(raw, 4));
        let arrival = Nanos(i64::from(u32::from_le_bytes(bytes(raw, 0))) * 1_000_000_000);
        let sector = self.objects.sector(object, sectors);
        out.push(Request { process, ..Request::new(arrival, op, sector, sectors) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        let reads = if self.layout.op_at.is_none() { "; it states no operations: all are reads here" } else { "" };
        let (format, clock) = (self.format.into(), "relative".into());
        TraceHeader { format, clock, note: Some(format!("{NOTE}{reads}")), ..TraceHeader::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_again_is_found_at_the_same_address() {
        let mut parts = PartAddresses::of(1 << 20);
        assert_eq!(parts.offset(7, 4096), 4096);
        assert_eq!(parts.offset(9, 0), 1 << 20);
        assert_eq!(parts.offset(7, 8192), 8192);
        assert_eq!(parts.offset(7, 1 << 20), 2 << 20);
    }

    #[test]
    fn names_that_are_no_numbers_name_objects_too() {
        assert_eq!(object(b"77"), 77);
        assert!(object(b"a") != object(b"b") && object(b"a") == object(b"a"));
    }

    #[test]
    fn an_object_that_outgrows_its_room_moves() {
        let mut objects = ObjectAddresses::default();
        assert_eq!((objects.sector(5, 1), objects.sector(6, 9), objects.sector(5, 8)), (Sector(0), Sector(8), Sector(0)));
        assert_eq!((objects.sector(5, 9), objects.sector(7, 1)), (Sector(24), Sector(40)));
    }
}
