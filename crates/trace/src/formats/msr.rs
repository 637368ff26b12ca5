//! MSR Cambridge CSV (SNIA IOTTA 388; Narayanan et al., "Write Off-Loading", FAST 2008).
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` without a heading, as the README of the set describes: time of
//! issue as Windows FILETIME (ticks of 100 ns since 1601), `Read` or `Write`, offset and size in bytes, and the time to
//! completion in ticks. Small times, as in copies whose clock begins at 0, are taken as relative. Copies may have a heading with
//! these names, blanks and quotes around fields, or other separators.

use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "msr",
    about: "MSR Cambridge CSV (SNIA IOTTA)",
    known_by: "seven columns, the fourth `Read` or `Write`; with or without the heading `Timestamp,Hostname,...`",
    from: "SNIA IOTTA, MSR Cambridge (also the revised form)",
    gives: &[TraceColumn::Complete, TraceColumn::Device],
    unknown: "processes, flags",
    times: FormatTimes::Fixed(TimeUnit::Ticks),
    sniff,
    open: |input, options| LineSource::open(FORMAT.name, MsrFormat::default(), input, options),
    ..TraceFormat::READ_ONLY
};

/// Ticks between 1601 and 1970.
const UNIX_EPOCH_TICKS: u64 = 116_444_736_000_000_000;

const HEADING: &[u8] = b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

fn sniff(head: &[u8], _path: &Path) -> bool {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let Some(mut line) = lines.next().map(usual) else { return false };
    if line.eq_ignore_ascii_case(HEADING) {
        line = lines.next().map(usual).unwrap_or_default();
    }
    let fields: Vec<_> = comma_separated(&line).collect();
    fields.len() == 7 && [0, 2, 4, 5, 6].iter().all(|i| is_digits(fields[*i])) && matches!(fields[3], b"Read" | b"Write")
}

/// The line in its usual form: commas between the fields, and no quotes or blanks around them.
fn usual(line: &[u8]) -> Vec<u8> {
    let fields = line.split(|byte| matches!(byte, b',' | b';' | b'\t')).map(<[u8]>::trim_ascii);
    let unquoted =
        |field: &'_ [u8]| field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(field).to_vec();
    fields.map(unquoted).collect::<Vec<_>>().join(&b',')
}

#[derive(Default)]
struct MsrFormat {
    raw: Vec<u8>,
    /// Ticks to subtract from each time; determined from the first line.
    epoch: Option<u64>,
}

impl LineFormat for MsrFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let Err(error) = self.record(line, context, out) else { return Ok(()) };
        let usual = usual(line);
        if usual.eq_ignore_ascii_case(HEADING) {
            context.no_record();
            return Ok(());
        }
        if usual == line { Err(error) } else { self.record(&usual, context, out) }
    }

    fn header(&self) -> TraceHeader {
        let clock = if self.epoch == Some(0) { "relative" } else { "unix" };
        TraceHeader { clock: clock.into(), ..TraceHeader::default() }
    }
}

impl MsrFormat {
    fn record(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = FieldReader::along(comma_separated(line));
        let time = fields.next("Timestamp")?;
        let host = fields.next("Hostname")?.bytes;
        let disk = fields.next("DiskNumber")?;
        let op = fields.next("Type")?.op(b"Read", b"Write")?;
        let offset = fields.next("Offset")?.unsigned()?;
        let size = fields.next("Size")?;
        let response = fields.next("ResponseTime")?;
        fields.end()?;
        let ticks = time.unsigned()?;
        disk.unsigned()?;
        let epoch = *self.epoch.get_or_insert(if ticks < UNIX_EPOCH_TICKS { 0 } else { UNIX_EPOCH_TICKS });
        let ns = |ticks: u64| i64::try_from(ticks).ok().and_then(|ticks| ticks.checked_mul(100));
        let arrival = ticks.checked_sub(epoch).and_then(ns);
        let arrival = arrival.ok_or_else(|| time.refused("the time is outside the years 1970 to 2262"))?;
        let complete = ns(response.unsigned()?).and_then(|took| arrival.checked_add(took));
        let complete = complete.ok_or_else(|| response.refused("the time exceeds 292 years"))?;
        let (sector, count) = size.span(offset)?;
        self.raw.clear();
        self.raw.extend_from_slice(host);
        self.raw.push(b'_');
        self.raw.extend_from_slice(disk.bytes);
        let device = context.device(&self.raw)?;
        out.push(Request {
            complete: Some(Nanos(complete)),
            device: Some(device),
            ..Request::new(Nanos(arrival), op, sector, count)
        });
        Ok(())
    }
}
