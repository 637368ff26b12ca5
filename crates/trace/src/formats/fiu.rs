//! Traces of Florida International University (SNIA IOTTA 390, 391 and 414; Koller and Rangaswami, "I/O Deduplication", FAST 2010).
//!
//! Fields are separated by blanks, as the READMEs of the sets describe them: time in nanoseconds, id and name of the process,
//! address and size in blocks of 512 bytes, `W` or `R`, major and minor number of the device, and MD5 digests of the contents,
//! which are not read: one for each 4 KB (in the traces of home directories, for each 512 bytes). There are no response times.

use std::borrow::Cow;

use super::prelude::*;
use crate::name_table::device_label;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "fiu",
    about: "FIU traces (SNIA IOTTA): processes and digests of contents",
    known_by: "`time pid process lba size W|R major minor digest`",
    from: "SNIA IOTTA, FIU",
    gives: &[TraceColumn::Pid, TraceColumn::Process, TraceColumn::Device],
    unknown: "response times, flags",
    times: FormatTimes::Fixed(TimeUnit::Nanos),
    sniff,
    open: |input, options| LineSource::open(FORMAT.name, FiuFormat::default(), input, options),
    ..TraceFormat::READ_ONLY
};

/// Maximum number of fields that are read; digests may follow them.
const FIELDS: usize = 24;

fn sniff(head: &[u8], _path: &Path) -> bool {
    let mut fields = [&[][..]; FIELDS];
    let count = split(first_line(head), &mut fields);
    let Some(at) = operation(&fields[..count]) else { return false };
    is_digits(fields[0])
        && is_digits(fields[1])
        && fields[at + 3..count].iter().all(|digest| digest.iter().all(u8::is_ascii_hexdigit))
}

/// Puts the first fields of a line into `fields`; returns their number.
fn split<'a>(line: &'a [u8], fields: &mut [&'a [u8]; FIELDS]) -> usize {
    fields.iter_mut().zip(blank_separated(line)).map(|(place, field)| *place = field).count()
}

/// The index of the operation: the first `W` or `R` with two numbers before and after it. A process name may contain blanks.
fn operation(fields: &[&[u8]]) -> Option<usize> {
    (4..fields.len().saturating_sub(2)).find(|at| {
        matches!(fields[*at], b"W" | b"R" | b"w" | b"r")
            && [at - 2, at - 1, at + 1, at + 2].iter().all(|number| is_digits(fields[*number]))
    })
}

#[derive(Default)]
struct FiuFormat {
    raw: Vec<u8>,
}

impl LineFormat for FiuFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = [&[][..]; FIELDS];
        let count = split(line, &mut fields);
        let at = operation(&fields[..count]).ok_or_else(|| {
            let problem = "the line is not `time pid process lba size W|R major minor digest`";
            Error::new(ErrorClass::Syntax, problem).of_field("operation", 6, fields[5])
        })?;
        let column = |index: usize| index as u64 + 1;
        let arrival = Nanos(decimal_time(fields[0], TimeUnit::Nanos, "time", 1)?);
        let id = pid(fields[1], "pid", 2)?;
        let sector = Sector(unsigned(fields[at - 2], "lba", column(at - 2))?);
        let size = fields[at - 1];
        let count = sectors(unsigned(size, "size", column(at - 1))?, size, "size", column(at - 1))?;
        let op = if fields[at].eq_ignore_ascii_case(b"W") { Op::Write } else { Op::Read };
        let process = if at > 4 {
            self.raw.clear();
            for word in &fields[2..at - 2] {
                if !self.raw.is_empty() {
                    self.raw.push(b' ');
                }
                self.raw.extend_from_slice(word);
            }
            Some(context.process(&self.raw)?)
        } else {
            None
        };
        let [major, minor] = [at + 1, at + 2].map(|index| unsigned(fields[index], "device", column(index)));
        let (major, minor) = (major?, minor?);
        self.raw.clear();
        self.raw.extend_from_slice(fields[at + 1]);
        self.raw.push(b',');
        self.raw.extend_from_slice(fields[at + 2]);
        let device = context.device_named(&self.raw, |_| Ok(Cow::Owned(device_label(major, minor))))?;
        out.push(Request { pid: Some(id), process, device: Some(device), ..Request::new(arrival, op, sector, count) });
        Ok(())
    }
}
