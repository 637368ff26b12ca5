//! Alibaba Block Traces (Li et al., IISWC 2020; repository alibaba/block-traces).
//!
//! `device_id,opcode,offset,length,timestamp` without a heading, as the repository's README describes ("Schema"): number of a
//! virtual disk, `R` or `W`, offset and length in bytes, and the Unix time in microseconds at which the server received it; no
//! response times.

use std::path::Path;

use emmclab_base::{Error, ErrorClass, Nanos, Request, Result};

use super::field_reader::FieldReader;
use super::input::DecompressedInput;
use super::line_format::{
    LineFormat, LineSource, NameIdCache, ParseContext, comma_separated, first_line, is_digits, text,
};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, ReadOptions, TraceFormat};
use crate::columns::TraceColumn;
use crate::header::TraceHeader;
use crate::recorded_features::RecordedFeatures;
use crate::source::TraceSource;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "alibaba",
    about: "Alibaba block traces CSV",
    known_by: "five columns, the second `R` or `W`, the others numbers; or their heading",
    origin: FormatOrigin {
        from: "Alibaba's block traces",
        gives: &[TraceColumn::Device],
        unknown: "response times, processes, flags",
    },
    extensions: &[],
    recorded: RecordedFeatures::NONE,
    times: FormatTimes::Fixed(TimeUnit::Micros),
    sniff,
    open,
    writes: None,
};

const HEADING: &[u8] = b"device_id,opcode,offset,length,timestamp";
/// Heading of the list of devices that is part of the traces; then the text in its file name.
const DEVICES: &[u8] = b"device_id,capacity";
const DEVICES_FILE: &str = "device_size";

fn sniff(head: &[u8], path: &Path) -> bool {
    let line = first_line(head);
    let fields: Vec<_> = comma_separated(line).collect();
    line == HEADING
        || lists_devices(head, path)
        || fields.len() == 5
            && [0, 2, 3, 4].iter().all(|i| is_digits(fields[*i]))
            && matches!(fields[1], b"R" | b"W")
}

/// Whether this is the list of devices with their capacities.
fn lists_devices(head: &[u8], path: &Path) -> bool {
    let line = first_line(head);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let two_numbers = || comma_separated(line).count() == 2 && comma_separated(line).all(is_digits);
    line == DEVICES || name.contains(DEVICES_FILE) && two_numbers()
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    if lists_devices(input.head(), input.path()) {
        let problem =
            "is no trace: it lists the devices of the Alibaba traces with their capacities in bytes";
        return Err(Error::new(ErrorClass::UnknownFormat, problem)
            .hint("the requests are in io_traces.csv of the same archive"));
    }
    Ok(Box::new(LineSource::new(AlibabaFormat::default(), input, options)))
}

#[derive(Default)]
struct AlibabaFormat {
    device: NameIdCache,
}

impl LineFormat for AlibabaFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        let mut fields = FieldReader::along(comma_separated(line));
        let device = fields.next("device_id")?;
        let op = fields.next("opcode")?.op(b"R", b"W")?;
        let offset = fields.next("offset")?.unsigned()?;
        let length = fields.next("length")?;
        let time = fields.next("timestamp")?;
        fields.end()?;
        device.unsigned()?;
        let arrival = Nanos(time.time(TimeUnit::Micros)?);
        let (sector, count) = length.span(offset)?;
        let device = self.device.id(device.bytes, &mut context.devices, |raw| Ok(text(raw)))?;
        out.push(Request { device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { format: FORMAT.name.into(), clock: "unix".into(), ..TraceHeader::default() }
    }
}
