//! The binary traces of libCacheSim (repository 1a1a11a/libCacheSim): `oracleGeneral` and `lcs`, versions 1 to 8.
//!
//! Little-endian records without padding. `oracleGeneral` has 24 bytes: seconds (u32), object (u64), its size in bytes (u32),
//! and the number of the request that uses it next (i64, -1 for none). It has no magic number, so it is recognised by its usual
//! file name and by plausible records. `lcs` has a header of 8,192 bytes between two equal marks, with the version after the
//! first; version 1 has the records of `oracleGeneral`; 2 has operation (8 bits) and tenant (24 bits) before the last field; 3
//! has a size of 64 bits and a time to live; 4 to 8 append 1 to 16 numbers. Operations are numbered as in libCacheSim's
//! `req_op_e`; a delete is a discard here.
//!
//! Such a trace names objects, from which addresses are made ([`super::placement`]). Without operations, all requests are
//! reads. The trace's note states both.

use std::path::Path;

use super::binary::{RecordFormat, RecordSource, bytes, refused};
use super::line_format::ParseContext;
use super::placement::{NOTE, ObjectAddresses};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    DecompressedInput, Error, ErrorClass, Nanos, Op, ReadOptions, RecordedFeatures, Request, Result, SECTOR_BYTES,
    TraceColumn, TraceHeader, TraceSource,
};

pub(super) static ORACLE_GENERAL: TraceFormat = TraceFormat {
    name: "oracle-general",
    about: "libCacheSim's oracleGeneral: objects in a cache",
    known_by: "`oracleGeneral` in the file's name, and records that make sense",
    origin: FormatOrigin {
        from: "libCacheSim and the collections that it publishes as oracleGeneral",
        gives: &[],
        unknown: "operations (all are reads) and addresses: objects are placed in the order of their first use; response times",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        name.contains("oraclegeneral") && is_plausible(head)
    },
    open: |input: DecompressedInput, options: &ReadOptions| open(input, options, ORACLE_GENERAL.name, 0, LAYOUTS[0]),
    writes: None,
};

pub(super) static LCS: TraceFormat = TraceFormat {
    name: "lcs",
    about: "libCacheSim's lcs, versions 1 to 8: objects in a cache",
    known_by: "its magic number in the first 8 bytes",
    origin: FormatOrigin {
        from: "libCacheSim (`tracePrint`, `traceConv`) and the collections that it publishes",
        gives: &[TraceColumn::Process],
        unknown: "addresses: objects are placed in the order of their first use; response times",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| head.starts_with(&MARK),
    open: open_lcs,
    writes: None,
};

const MARK: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const HEADER_BYTES: usize = 8192;

/// The layout of a version's records.
#[derive(Clone, Copy)]
struct LcsRecordLayout {
    size: usize,
    wide_size: bool,
    /// Offset of operation and tenant in a record.
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

/// Whether the first records have times in order and valid next uses.
fn is_plausible(head: &[u8]) -> bool {
    const JUDGED: usize = 256;
    let size = LAYOUTS[0].size;
    let records = || head.chunks_exact(size).take(JUDGED);
    let time = |raw: &[u8]| u32::from_le_bytes(bytes(raw, 0));
    let next = |raw: &[u8]| i64::from_le_bytes(bytes(raw, 16));
    records().count() > 0
        && records().zip(records().skip(1)).all(|(one, other)| time(one) <= time(other))
        && records().all(|raw| next(raw) >= -1)
}

fn open(
    input: DecompressedInput,
    options: &ReadOptions,
    format: &'static str,
    before: usize,
    layout: LcsRecordLayout,
) -> Result<Box<dyn TraceSource>> {
    let records = LibCacheSimFormat { format, layout, objects: ObjectAddresses::default(), tenant: String::new() };
    Ok(Box::new(RecordSource::new(records, input, options, before, layout.size)?))
}

fn open_lcs(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let head = input.head();
    if head.len() < HEADER_BYTES {
        let problem = format!("the file ends within its header of {HEADER_BYTES} bytes");
        return Err(Error::new(ErrorClass::Truncated, problem).at_offset(head.len() as u64).hint("copy it again"));
    }
    if !head.starts_with(&MARK) || head[HEADER_BYTES - MARK.len()..HEADER_BYTES] != MARK {
        return Err(Error::new(
            ErrorClass::Syntax,
            "the header has no magic number at its end: it is of an older layout, or damaged",
        )
        .at_offset((HEADER_BYTES - MARK.len()) as u64)
        .hint("convert the original trace again with a current traceConv of libCacheSim"));
    }
    let version = u64::from_le_bytes(bytes(head, MARK.len()));
    let at = usize::try_from(version).ok().and_then(|version| version.checked_sub(1));
    let layout = at.and_then(|at| LAYOUTS.get(at)).copied();
    let layout = layout.ok_or_else(|| refused("version", version, "is not a version from 1 to 8").at_offset(8))?;
    open(input, options, LCS.name, HEADER_BYTES, layout)
}

struct LibCacheSimFormat {
    format: &'static str,
    layout: LcsRecordLayout,
    objects: ObjectAddresses,
    tenant: String,
}

/// The operation with this number in libCacheSim; `None` for unknown numbers.
fn operation(code: u32) -> Option<Op> {
    Some(match code {
        // Not stated, get, gets, read.
        0..=2 | 12 => Op::Read,
        // Set, add, cas, replace, append, prepend, incr, decr, write, update.
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
        let sectors = u32::try_from(size.div_ceil(SECTOR_BYTES))
            .map_err(|_| refused("obj_size", size, "is an object of more than 2 TB"))?;
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
