//! `MobileBlockIOTraces`: block traces of apps on a Pixel 6a ("Space-efficient FTL for Mobile Storage via Tiny Neural
//! Nets"; public repository `MobileBlockIOTraces`).
//!
//! CSV with the heading `proces,device,rw_flag,sector,size,timestamp` (spelled so). The process is `NAME-PID` or only the name,
//! which may contain dashes; `<...>` is the kernel's text for an unknown name. The device is the kernel's number (major << 20 |
//! minor); sector and size are in units of 512 bytes. The time is in seconds since boot, printed from a double, so that its last
//! digits may be rounding errors. A request has only the time of its record; there are no service times.

use std::borrow::Cow;

use super::prelude::*;
use super::rwbs;
use crate::name_table::device_label;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "pixel",
    about: "MobileBlockIOTraces CSV (Pixel 6a)",
    known_by: "its heading (with `proces`)",
    from: "MobileBlockIOTraces (Pixel 6a)",
    gives: &[TraceColumn::Flags, TraceColumn::Pid, TraceColumn::Process, TraceColumn::Device],
    unknown: "response times",
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff,
    open: |input, options| LineSource::open(FORMAT.name, PixelFormat, input, options),
    ..TraceFormat::READ_ONLY
};

const HEADING: &[u8] = b"proces,device,rw_flag,sector,size,timestamp";
const UNKNOWN: &[u8] = b"<...>";

fn sniff(head: &[u8], _path: &Path) -> bool {
    first_line(head) == HEADING
}

struct PixelFormat;

/// Splits a process into name and id. Some threads with a blank in their name are listed with only its first word and without an id.
fn split_process(field: &[u8]) -> Result<(&[u8], Option<i32>)> {
    match memchr::memrchr(b'-', field) {
        Some(dash) if is_digits(&field[dash + 1..]) => Ok((&field[..dash], Some(pid(&field[dash + 1..], "proces", 1)?))),
        _ => Ok((field, None)),
    }
}

impl LineFormat for PixelFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line == HEADING {
            context.no_record();
            return Ok(());
        }
        // Only the name may contain commas, so the fields are counted from the end.
        let mut fields = line.rsplitn(6, |byte| *byte == b',');
        let mut next = |name, column| need(&mut fields, name, column);
        let time = next("timestamp", 6)?;
        let size = next("size", 5)?;
        let sector = next("sector", 4)?;
        let operation = next("rw_flag", 3)?;
        let device = next("device", 2)?;
        let process = next("proces", 1)?;
        let arrival = Nanos(decimal_time(time, TimeUnit::Seconds, "timestamp", 6)?);
        let operation = rwbs::parse(operation, 3)?;
        let sector = Sector(unsigned(sector, "sector", 4)?);
        let (op, flags, count) = match (unsigned(size, "size", 5)?, operation.without_sectors()) {
            (0, Some((Op::Flush, flags))) => (Op::Flush, flags, 0),
            (0, None) => {
                context.skip();
                return Ok(());
            }
            (count, _) => {
                let count = sectors(count, size, "size", 5)?;
                let (op, flags) = operation.of(count);
                (op, flags, count)
            }
        };
        let (name, id) = split_process(process)?;
        let device = context.device_named(device, |raw| {
            let number = unsigned(raw, "device", 2)?;
            Ok(Cow::Owned(device_label(number >> 20, number & 0xf_ffff)))
        })?;
        let process = match name {
            UNKNOWN => None,
            name => Some(context.process(name)?),
        };
        out.push(Request { flags, pid: id, process, device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }

    fn header(&self) -> TraceHeader {
        TraceHeader { clock: "monotonic".into(), ..TraceHeader::default() }
    }
}
