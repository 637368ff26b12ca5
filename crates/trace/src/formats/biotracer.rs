//! BIOtracer: the text log of the IISWC 2015 recorder on a Nexus 5 (SNIA IOTTA "Nexus 5 Smartphone Traces").
//!
//! Eight fields separated by tabs: start address in sectors, size in sectors, size in bytes, flags (bit 0 write, bit 2
//! the queue was empty on arrival), and four Unix times in seconds: queued, fetched by the MMC driver, submitted,
//! finished. A size of 4 KB multiples plus one sector carries the header block of an eMMC packed command, which is
//! stripped and counted. Requests stand in the order of completion.

use std::path::Path;

use super::Format;
use super::input::Input;
use super::text::{Context, LineFormat, LineSource, blank_separated, decimal_time, need, sectors, unsigned};
use crate::error::{Error, Kind, Result};
use crate::reader::{Header, ReadOptions, Source};
use crate::request::{Flags, Op, Request};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

pub(super) static FORMAT: Format = Format {
    name: "biotracer",
    about: "BIOtracer text log (IISWC 2015, SNIA Nexus 5 smartphone traces)",
    extensions: &[],
    sniff,
    open,
    writes: None,
};

const WRITE: u64 = 1;
const NO_WAIT: u64 = 1 << 2;
const SECOND: i64 = 1_000_000_000;

fn sniff(head: &[u8], _path: &Path) -> bool {
    let Some(line) = head.split(|byte| *byte == b'\n').find(|line| !line.is_empty()) else { return false };
    let fields: Vec<_> = blank_separated(line.trim_ascii_end()).collect();
    fields.len() == 8
        && fields[..4].iter().all(|field| field.iter().all(u8::is_ascii_digit))
        && fields[4..].iter().all(|field| field.contains(&b'.'))
}

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    Ok(Box::new(LineSource::new(Biotracer, input, options)))
}

struct Biotracer;

impl LineFormat for Biotracer {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        let mut fields = blank_separated(line);
        let mut next = |name, column| need(&mut fields, name, column);
        let address = next("sector", 1)?;
        let size = next("sectors", 2)?;
        let bytes = next("bytes", 3)?;
        let flags = next("flags", 4)?;
        let mut time = |name, column| {
            let field = need(&mut fields, name, column)?;
            decimal_time(field, SECOND, name, column).map(|time| (Nanos(time), field))
        };
        let (arrival, _) = time("arrival", 5)?;
        let (start, start_field) = time("start", 6)?;
        let (issue, issue_field) = time("issue", 7)?;
        let (complete, complete_field) = time("complete", 8)?;
        if let Some(extra) = fields.next() {
            return Err(
                Error::new(Kind::Syntax, "the line goes on after the last field").of_field("", 9, extra)
            );
        }
        for (name, column, earlier, later, field) in [
            ("start", 6, arrival, start, start_field),
            ("issue", 7, start, issue, issue_field),
            ("complete", 8, issue, complete, complete_field),
        ] {
            if later < earlier {
                return Err(Error::new(Kind::Value, "is earlier than the time before it")
                    .of_field(name, column, field));
            }
        }
        let mut count = unsigned(size, "sectors", 2)?;
        let byte_count = unsigned(bytes, "bytes", 3)?;
        if count.checked_mul(SECTOR_BYTES) != Some(byte_count) {
            return Err(Error::new(Kind::Value, format!("is not {count} sectors of 512 bytes"))
                .of_field("bytes", 3, bytes));
        }
        let bits = unsigned(flags, "flags", 4)?;
        let mut flags = Flags::NO_WAIT_KNOWN;
        if bits & NO_WAIT != 0 {
            flags = flags.with(Flags::NO_WAIT);
        }
        if byte_count % 4096 == SECTOR_BYTES && count > 1 {
            count -= 1;
            context.ledger.headers_stripped += 1;
            flags = flags.with(Flags::PACKED);
        }
        out.push(Request {
            start: Some(start),
            issue: Some(issue),
            complete: Some(complete),
            flags,
            ..Request::new(
                arrival,
                if bits & WRITE == 0 { Op::Read } else { Op::Write },
                Sector(unsigned(address, "sector", 1)?),
                sectors(count, size, "sectors", 2)?,
            )
        });
        Ok(())
    }

    fn header(&self) -> Header {
        Header { format: FORMAT.name.into(), clock: "unix".into(), ..Header::default() }
    }
}
