//! SSDsim (Hu et al., ICS 2011): the simulator of the IISWC 2015 paper.
//!
//! A line has five numbers, as its function `get_requests` scans them: arrival time in nanoseconds, device, first sector, number
//! of sectors, and operation (1: read, 0: write). The MQSim and DiskSim readers use the same record with other units of time.
//!
//! MQSim (Tavakkol et al., FAST 2018): trace-based workloads.
//!
//! The record of SSDsim: arrival time, device, first sector, number of sectors, and type (1: read, 0: write). MQSim's workload
//! file gives the unit of time (`Time_Unit`); here it is nanoseconds unless `--time-unit` is used. The contents of the two
//! simulators' files do not differ, so the extension `.mqsim` or `--format` selects the format.
//!
//! DiskSim's default ASCII format (Bucy et al., "The DiskSim Simulation Environment Version 4.0 Reference Manual",
//! CMU-PDL-08-101).
//!
//! Arrival time in milliseconds with decimals, device, first block (512 bytes), number of blocks, and flags, whose lowest bit is
//! 1 for a read. The record is that of SSDsim with another unit of time.

use std::io::Write;

use super::fast_fields::FastFields;
use super::prelude::*;

pub(super) static SSDSIM: TraceFormat = TraceFormat {
    name: "ssdsim",
    about: "SSDsim ASCII trace (arrival in ns, device, sector, sectors, 1 = read)",
    known_by: "five numbers, the last 0 or 1, and integer times",
    from: "SSDsim's traces",
    gives: &[TraceColumn::Device],
    unknown: "response times, processes, flags",
    extensions: &["ssdsim", "ascii"],
    times: FormatTimes::Open(TimeUnit::Nanos),
    sniff: |head, _| is_record(head) && is_digits(blank_separated(first_line(head)).next().unwrap_or(&[])),
    open: |input, options| open(&SSDSIM, TimeUnit::Nanos, input, options),
    writes: Some((HOLDS, |file, _| LineSink::create(file, SsdsimWriter { origin: None }))),
    ..TraceFormat::READ_ONLY
};

/// The values that the five numbers of a record can represent.
const HOLDS: FormatCapabilities =
    FormatCapabilities { ops: &[Op::Read, Op::Write], columns: &[], flags: RequestFlags(0), tick_ns: 1 };

/// Whether the first line is a record of SSDsim.
fn is_record(head: &[u8]) -> bool {
    let fields: Vec<_> = blank_separated(first_line(head)).collect();
    fields.len() == 5
        && is_decimal(fields[0])
        && fields[1..].iter().all(|field| is_digits(field))
        && matches!(fields[4], b"0" | b"1")
}

/// Reads records of SSDsim, with times in `unit` unless `--time-unit` is used.
fn open(format: &TraceFormat, unit: TimeUnit, input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let reader = SsdsimFormat { unit: options.time_unit_or(unit)? };
    LineSource::open(format.name, reader, input, options)
}

struct SsdsimFormat {
    unit: TimeUnit,
}

impl LineFormat for SsdsimFormat {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the hottest path of reading; the loop over lines is its only caller")]
    fn parse_fast<'a>(&mut self, lines: &'a [u8], context: &mut ParseContext) -> Option<(Request, &'a [u8])> {
        let mut fields = FastFields::new(lines);
        let arrival = Nanos(fields.time(self.unit)?);
        let device = match context.last_device.last() {
            Some((id, name)) if fields.is(name) => id,
            _ => context.last_device.id_if_known(fields.number_and_text()?.1, &context.devices)?,
        };
        let sector = Sector(fields.number()?);
        let count = u32::try_from(fields.number()?).ok().filter(|count| *count > 0)?;
        let (op, rest) = match fields.last_byte()? {
            (b'0', rest) => (Op::Write, rest),
            (b'1', rest) => (Op::Read, rest),
            _ => return None,
        };
        Some((Request { device: Some(device), ..Request::new(arrival, op, sector, count) }, rest))
    }

    /// Parses a line field by field; an error contains the invalid field.
    #[cold]
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = FieldReader::along(blank_separated(line));
        let arrival = Nanos(fields.next("arrival")?.time(self.unit)?);
        let device = fields.next("device")?;
        let sector = Sector(fields.next("sector")?.unsigned()?);
        let size = fields.next("sectors")?;
        let operation = fields.next("operation")?;
        let op = match operation.bytes {
            b"0" => Op::Write,
            b"1" => Op::Read,
            _ => return Err(operation.refused("is neither 0 (write) nor 1 (read)")),
        };
        fields.end()?;
        device.unsigned()?;
        let count = size.sectors()?;
        let device = context.device(device.bytes)?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }
}

/// Writes records of SSDsim. Times are in nanoseconds since the first request. With other times, the simulators would idle from time 0 to
/// the first request. The device column contains the index of the device in the trace's table of device names.
struct SsdsimWriter {
    /// The first arrival.
    origin: Option<Nanos>,
}

impl LineWriter for SsdsimWriter {
    fn line(&mut self, request: &Request, _batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let origin = *self.origin.get_or_insert(request.arrival);
        let Some(arrival) = request.arrival.0.checked_sub(origin.0).filter(|time| *time >= 0) else {
            let problem = format!("is before the first request, or 292 years after it ({} ns)", origin.0);
            let arrival = request.arrival.0.to_string();
            return Err(Error::new(ErrorClass::Unsupported, problem).of_field("arrival", 0, arrival.as_bytes()));
        };
        let device = request.device.map_or(0, |device| device.0);
        let read = u8::from(request.op == Op::Read);
        let _ = writeln!(out, "{arrival} {device} {} {} {read}", request.sector.0, request.sectors);
        Ok(())
    }
}

pub(super) static MQSIM: TraceFormat = TraceFormat {
    name: "mqsim",
    about: "MQSim ASCII trace (arrival, device, sector, sectors, 1 = read)",
    known_by: "five numbers, the last 0 or 1, in a file that ends in .mqsim",
    from: "MQSim's traces",
    gives: &[TraceColumn::Device],
    unknown: "response times, processes, flags",
    extensions: &["mqsim"],
    times: FormatTimes::Open(TimeUnit::Nanos),
    sniff: |head, path| path.extension().is_some_and(|ending| ending == "mqsim") && is_record(head),
    open: |input, options| open(&MQSIM, TimeUnit::Nanos, input, options),
    writes: Some((HOLDS, |file, _| LineSink::create(file, SsdsimWriter { origin: None }))),
    ..TraceFormat::READ_ONLY
};

pub(super) static DISKSIM: TraceFormat = TraceFormat {
    name: "disksim",
    about: "DiskSim ASCII trace (arrival in ms, device, block, blocks, 1 = read)",
    known_by: "five numbers, the last 0 or 1, and decimal times",
    from: "DiskSim's traces in ASCII",
    gives: &[TraceColumn::Device],
    unknown: "response times, processes, flags",
    times: FormatTimes::Open(TimeUnit::Millis),
    sniff: |head, _| is_record(head),
    open: |input, options| open(&DISKSIM, TimeUnit::Millis, input, options),
    ..TraceFormat::READ_ONLY
};

#[cfg(test)]
mod tests {
    use super::super::fast_fields::both_ways::agree;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lines_give_the_same_both_ways(
            lines in prop::collection::vec(
                "[0-9]{0,12}(\\.[0-9]{0,4})?( |\t|  )([0-2]|12|[0-9a-]{1,3})[ \t]{0,2}[0-9]{1,20}( |\t)[0-9]{1,11}( |\t|  )([01]|[0-9a]{0,3})( |)(\r|)",
                0..8,
            ),
            unit in prop::sample::select(&[TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Nanos][..]),
            end in prop::sample::select(&["", "\n"][..]),
        ) {
            let reader = || SsdsimFormat { unit };
            agree(reader, &(lines.join("\n") + end));
        }
    }
}
