//! Traces of `CloudPhysics` (Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015): records of `VMware`'s
//! vscsi, versions 1 and 2, and the CSV to which libCacheSim converts them.
//!
//! Little-endian records. Version 1 has 32 bytes: sequence number, length in bytes and number of segments (u32 each), SCSI operation code and
//! version (u16 each), block of 512 bytes, and microseconds since the boot of the host (u64 each). Version 2 has 40 bytes: operation code,
//! version, sequence number, length, number of segments, block, microseconds, and the response time, which is not read because its unit is
//! not documented. The version is in the upper byte of its field. Commands other than read, write, flush and unmap are skipped and counted.
//! The CSV is `version,time,op,size,lbn` with whole seconds and a hexadecimal code.

use super::binary::{RecordFormat, RecordSource, bytes, refused};
use super::prelude::*;
use crate::opcodes::scsi;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "vscsi",
    about: "CloudPhysics traces of VMware's vscsi, versions 1 and 2",
    known_by: "the version and SCSI codes of its first records, of 32 or 40 bytes",
    from: "CloudPhysics traces of VMware (`vscsiStats`), binary",
    gives: &[],
    unknown: "response times, processes; ranges of UNMAP and WRITE SAME, which are skipped",
    recorded: RecordedFeatures::of(&[Op::Flush], RequestFlags(0)),
    times: FormatTimes::Fixed(TimeUnit::Micros),
    sniff: |head: &[u8], _: &Path| version(head).is_some(),
    open,
    ..TraceFormat::READ_ONLY
};

pub(super) static CSV: TraceFormat = TraceFormat {
    name: "vscsi-csv",
    about: "CloudPhysics traces as CSV of libCacheSim",
    known_by: "its heading (`version,time,op,size,lbn`)",
    from: "CloudPhysics traces as libCacheSim prints them",
    gives: &[],
    unknown: "response times, processes; ranges of UNMAP and WRITE SAME, which are skipped",
    recorded: RecordedFeatures::of(&[Op::Flush], RequestFlags(0)),
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| first_line(head) == HEADING,
    open: |input, options| LineSource::open(CSV.name, VscsiCsvFormat, input, options),
    ..TraceFormat::READ_ONLY
};

const HEADING: &[u8] = b"version,time,op,size,lbn";

/// The layout of the records in one version of the vscsi format.
#[derive(Clone, Copy)]
struct VscsiRecordLayout {
    version: u16,
    size: usize,
    /// Offset of the version in a record, in bytes.
    version_at: usize,
    /// Offset of the operation code in a record, in bytes.
    code_at: usize,
    length_at: usize,
    block_at: usize,
    time_at: usize,
}

const LAYOUTS: [VscsiRecordLayout; 2] = [
    VscsiRecordLayout { version: 2, size: 40, version_at: 2, code_at: 0, length_at: 8, block_at: 16, time_at: 24 },
    VscsiRecordLayout { version: 1, size: 32, version_at: 14, code_at: 12, length_at: 4, block_at: 16, time_at: 24 },
];

impl VscsiRecordLayout {
    /// Whether a record has this version and an operation code of SCSI.
    fn fits(self, raw: &[u8]) -> bool {
        let short = |at| u16::from_le_bytes(bytes(raw, at));
        short(self.version_at) >> 8 == self.version && short(self.code_at) <= 0xff
    }
}

/// The layout of the first records; `None` if there are fewer than two, or none has a known operation.
fn version(head: &[u8]) -> Option<VscsiRecordLayout> {
    const JUDGED: usize = 64;
    LAYOUTS.into_iter().find(|layout| {
        let records = || head.chunks_exact(layout.size).take(JUDGED);
        records().count() >= 2
            && records().all(|raw| layout.fits(raw))
            && records().any(|raw| scsi(raw[layout.code_at]).is_some())
    })
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let layout = version(input.head())
        .ok_or_else(|| refused("version", "", "the first records are of neither version 1 nor 2 of vscsi").at_offset(0))?;
    Ok(Box::new(RecordSource::new(VscsiFormat { layout }, input, options, 0, layout.size)?))
}

struct VscsiFormat {
    layout: VscsiRecordLayout,
}

impl RecordFormat for VscsiFormat {
    fn parse(&mut self, raw: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let layout = self.layout;
        let version = u16::from_le_bytes(bytes(raw, layout.version_at)) >> 8;
        if version != layout.version {
            return Err(refused("version", version, "differs from the version of the first records"));
        }
        let op = u8::try_from(u16::from_le_bytes(bytes(raw, layout.code_at))).ok().and_then(scsi);
        let Some(op) = op else {
            context.skip();
            return Ok(());
        };
        let time = u64::from_le_bytes(bytes(raw, layout.time_at));
        let ns = i64::try_from(time).ok().and_then(|us| us.checked_mul(1_000));
        let arrival = Nanos(ns.ok_or_else(|| refused("time", time, "the time exceeds 292 years"))?);
        let sector = Sector(u64::from_le_bytes(bytes(raw, layout.block_at)));
        let length = u32::from_le_bytes(bytes(raw, layout.length_at));
        match (op, length) {
            (Op::Flush, _) => out.push(Request::new(arrival, op, Sector(0), 0)),
            // The ranges of an unmap are in its data, which is not recorded. SCSI allows transfers of length 0.
            (Op::Discard, _) | (_, 0) => context.skip(),
            (op, length) => out.push(Request::new(arrival, op, sector, length.div_ceil(SECTOR_BYTES as u32))),
        }
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { format: FORMAT.name.into(), clock: "monotonic".into(), ..TraceHeader::default() }
    }
}

struct VscsiCsvFormat;

impl LineFormat for VscsiCsvFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = FieldReader::along(comma_separated(line));
        let version = fields.next("version")?;
        let arrival = Nanos(fields.next("time")?.time(TimeUnit::Seconds)?);
        let code = fields.next("op")?;
        let size = fields.next("size")?;
        let sector = Sector(fields.next("lbn")?.unsigned()?);
        fields.end()?;
        if !matches!(version.unsigned()?, 1 | 2) {
            return Err(version.refused("the version must be 1 or 2"));
        }
        let digits = std::str::from_utf8(code.bytes).ok().filter(|text| !text.starts_with('+'));
        let digits = digits.and_then(|text| u8::from_str_radix(text, 16).ok());
        let op = scsi(digits.ok_or_else(|| code.refused("this is not a SCSI operation code in hexadecimal"))?);
        match op {
            None | Some(Op::Discard) => context.skip(),
            Some(Op::Flush) => out.push(Request::new(arrival, Op::Flush, Sector(0), 0)),
            Some(_) if size.unsigned()? == 0 => context.skip(),
            Some(op) => {
                let (_, count) = size.span(0)?;
                out.push(Request::new(arrival, op, sector, count));
            }
        }
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "monotonic".into(), ..TraceHeader::default() }
    }
}
