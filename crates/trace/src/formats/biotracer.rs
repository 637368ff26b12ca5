//! The text log of BIOtracer, the recorder of the IISWC 2015 study on a Nexus 5 (SNIA IOTTA "Nexus 5 Smartphone Traces").
//!
//! A line has eight fields separated by tabs: start address in sectors, size in sectors, size in bytes, flags (bit 0: write, bit
//! 2: the queue was empty on arrival), and four Unix times in seconds: queued, fetched by the MMC driver, submitted, complete. A
//! size that is one sector above a multiple of 4 KB includes the header block of an eMMC packed command, which is subtracted and
//! counted. The lines are in order of completion.

use std::io::Write;

use super::fast_fields::FastFields;
use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "biotracer",
    about: "BIOtracer text log (IISWC 2015, SNIA Nexus 5 smartphone traces)",
    known_by: "eight fields: four numbers, four decimal times",
    from: "BIOtracer (SNIA IOTTA, Nexus 5 smartphone traces)",
    gives: &[TraceColumn::Start, TraceColumn::Issue, TraceColumn::Complete, TraceColumn::Flags],
    unknown: "processes",
    extensions: &["biotracer"],
    recorded: RecordedFeatures::of(&[], RequestFlags::PACKED.union(RequestFlags::NO_WAIT).union(RequestFlags::NO_WAIT_KNOWN)),
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open: |input, options| LineSource::open(FORMAT.name, BiotracerFormat, input, options),
    writes: Some((HOLDS, |file, _| LineSink::create(file, BiotracerWriter))),
};

const HOLDS: FormatCapabilities = FormatCapabilities {
    ops: &[Op::Read, Op::Write],
    columns: &[TraceColumn::Start, TraceColumn::Issue, TraceColumn::Complete],
    flags: RequestFlags::PACKED.union(RequestFlags::NO_WAIT).union(RequestFlags::NO_WAIT_KNOWN),
    tick_ns: 1,
};

const WRITE: u64 = 1;
const NO_WAIT: u64 = 1 << 2;

fn sniff(head: &[u8], _path: &Path) -> bool {
    let fields: Vec<_> = blank_separated(first_line(head)).collect();
    fields.len() == 8 && fields[..4].iter().all(|field| is_digits(field)) && fields[4..].iter().all(|field| field.contains(&b'.'))
}

struct BiotracerFormat;

/// The numbers of a line; times are in the order of the fields.
struct BiotracerRecord {
    sector: u64,
    sectors: u64,
    bits: u64,
    times: [Nanos; 4],
}

impl BiotracerRecord {
    /// Parses the first line; returns it and the lines after it. `None` if the line is not well formed; then the strict parser reads it.
    #[inline]
    fn fast(lines: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = FastFields::new(lines);
        let mut number = || fields.tab().number();
        let (sector, sectors, bytes, bits) = (number()?, number()?, number()?, number()?);
        let mut time = || fields.tab().time(TimeUnit::Seconds).map(Nanos);
        let times = [time()?, time()?, time()?, time()?];
        let rest = fields.ended()?;
        let right = times.is_sorted() && (1..1 << 31).contains(&sectors) && bytes == sectors * SECTOR_BYTES;
        right.then_some((Self { sector, sectors, bits, times }, rest))
    }

    /// Parses a line field by field; an error contains the invalid field.
    #[cold]
    fn strict(line: &[u8]) -> Result<Self> {
        let mut fields = FieldReader::along(blank_separated(line));
        let (sector, size) = (fields.next("sector")?, fields.next("sectors")?);
        let (bytes, flags) = (fields.next("bytes")?, fields.next("flags")?);
        let mut time = |name| {
            let field = fields.next(name)?;
            Ok::<_, Error>((Nanos(field.time(TimeUnit::Seconds)?), field))
        };
        let times = [time("arrival")?, time("start")?, time("issue")?, time("complete")?];
        fields.end()?;
        if let Some(pair) = times.windows(2).find(|pair| pair[1].0 < pair[0].0) {
            return Err(pair[1].1.refused("the time is earlier than the time before it"));
        }
        let count = size.unsigned()?;
        if count.checked_mul(SECTOR_BYTES) != Some(bytes.unsigned()?) {
            return Err(bytes.refused(format!("the size is not {count} sectors of 512 bytes")));
        }
        let bits = flags.unsigned()?;
        size.sectors()?;
        Ok(Self { sector: sector.unsigned()?, sectors: count, bits, times: times.map(|(time, _)| time) })
    }

    #[inline]
    fn request(self, context: &mut ParseContext) -> Request {
        let BiotracerRecord { sector, mut sectors, bits, times } = self;
        let mut flags = RequestFlags::NO_WAIT_KNOWN;
        flags.set(RequestFlags::NO_WAIT, bits & NO_WAIT != 0);
        if sectors * SECTOR_BYTES % 4096 == SECTOR_BYTES && sectors > 1 {
            sectors -= 1;
            context.ledger.headers_stripped += 1;
            flags = flags.union(RequestFlags::PACKED);
        }
        let [arrival, start, issue, complete] = times;
        let op = if bits & WRITE == 0 { Op::Read } else { Op::Write };
        Request {
            start: Some(start),
            issue: Some(issue),
            complete: Some(complete),
            flags,
            // `sectors` is at most 2^32 - 1, which was checked when the record was read.
            ..Request::new(arrival, op, Sector(sector), sectors as u32)
        }
    }
}

impl LineFormat for BiotracerFormat {
    #[inline]
    fn parse_fast<'a>(&mut self, lines: &'a [u8], context: &mut ParseContext) -> Option<(Request, &'a [u8])> {
        let (record, rest) = BiotracerRecord::fast(lines)?;
        Some((record.request(context), rest))
    }

    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        out.push(BiotracerRecord::strict(line)?.request(context));
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "unix".into(), ..TraceHeader::default() }
    }
}

/// Writes a log as BIOtracer does. Packed requests include the header block. If it is not known whether a request waited, it is written as
/// one that waited.
struct BiotracerWriter;

impl LineWriter for BiotracerWriter {
    fn line(&mut self, request: &Request, _batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let time = |name: &str, time: Option<Nanos>| {
            let missing = || {
                Error::new(ErrorClass::Unsupported, "a BIOtracer log needs all times of a request; this one is missing")
                    .of_field(name, 0, b"")
                    .hint("write the trace as Parquet or CSV, which need not have all times")
            };
            let Nanos(ns) = time.ok_or_else(missing)?;
            if ns < 0 {
                return Err(Error::new(ErrorClass::Unsupported, "a BIOtracer log cannot contain negative times")
                    .of_field(name, 0, ns.to_string().as_bytes())
                    .hint("write the trace as Parquet or CSV, which can contain any time"));
            }
            Ok((ns / 1_000_000_000, ns % 1_000_000_000))
        };
        let (arrival, arrival_ns) = time("arrival", Some(request.arrival))?;
        let (start, start_ns) = time("start", request.start)?;
        let (issue, issue_ns) = time("issue", request.issue)?;
        let (complete, complete_ns) = time("complete", request.complete)?;
        let packed = request.flags.contains(RequestFlags::PACKED);
        let sectors = u64::from(request.sectors) + u64::from(packed);
        let bytes = sectors * SECTOR_BYTES;
        if packed != (bytes % 4096 == SECTOR_BYTES && sectors > 1) {
            let problem = "a BIOtracer log marks packed requests by one sector above a multiple of 4 KB";
            return Err(Error::new(ErrorClass::Unsupported, problem)
                .of_field("sectors", 0, request.sectors.to_string().as_bytes())
                .hint("write the trace as Parquet or CSV, which can contain any size and flag"));
        }
        let write = if request.op == Op::Write { WRITE } else { 0 };
        let no_wait = if request.flags.contains(RequestFlags::NO_WAIT) { NO_WAIT } else { 0 };
        let _ = writeln!(
            out,
            "{}\t\t{sectors}\t\t{bytes}\t\t{}\t\t{arrival}.{arrival_ns:09}\t\t{start}.{start_ns:09}\t\t\
             {issue}.{issue_ns:09}\t\t{complete}.{complete_ns:09}",
            request.sector.0,
            write | no_wait,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fast_fields::both_ways::agree;
    use super::*;

    /// A line that is usually valid and whose times rarely decrease.
    fn line() -> impl Strategy<Value = String> {
        let times = prop::collection::vec(0..3_000_000_000u64, 4);
        let gap = prop::sample::select(&["\t\t", "\t", " ", "\t \t"][..]);
        (0..u64::MAX, 0..40u64, 0..20u8, 0..9u8, times, any::<bool>(), gap, "\\PC{0,2}").prop_map(
            |(sector, sectors, off, bits, mut times, sorted, gap, rest)| {
                if sorted {
                    times.sort_unstable();
                }
                let bytes = sectors * SECTOR_BYTES + u64::from(off == 0);
                let mut fields = vec![sector.to_string(), sectors.to_string(), bytes.to_string(), bits.to_string()];
                fields.extend(times.iter().map(|ns| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)));
                fields.join(gap) + if off == 1 { &rest } else { "" }
            },
        )
    }

    proptest! {
        #[test]
        fn lines_give_the_same_both_ways(lines in prop::collection::vec(line(), 0..8)) {
            agree(|| BiotracerFormat, &(lines.join("\n") + "\n"));
        }
    }
}
