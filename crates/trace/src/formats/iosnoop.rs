//! The table of `iosnoop` of perf-tools (its script and manual page iosnoop(8)).
//!
//! `COMM PID TYPE DEV BLOCK BYTES LATms`; `-s` puts `STARTs` and `-t` `ENDs` before it, both in seconds of the clock of ftrace.
//! `LATms` is the time from issue to completion; with `-Q`, start and latency include the time in the queue. The output does
//! not show whether `-Q` was given, so the start time at the driver stays unset if there is `STARTs`. Blocks are sectors of 512
//! bytes, `DEV` is `major,minor`, `TYPE` the kernel's letters. A flush has no bytes, and the block 2^64-1 is not an address.
//! Without `-s` and `-t` there are no times: each request then begins when the previous one ends, in the order of completion,
//! and a note of the trace states this.

use std::path::Path;

use super::line_format::{LineFormat, LineSource, ParseContext};
use super::snoop::{SnoopTable, heading, heading_with};
use super::time_unit::TimeUnit;
use super::trace_format::{FormatOrigin, FormatTimes, TraceFormat};
use crate::{
    DecompressedInput, Error, ErrorClass, ReadOptions, RecordedFeatures, Request, Result, TraceColumn, TraceHeader,
    TraceSource,
};

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "iosnoop",
    about: "iosnoop of perf-tools, with -s and -t too",
    known_by: "its heading (`COMM PID TYPE DEV BLOCK BYTES LATms`)",
    origin: FormatOrigin {
        from: "`iosnoop -st` of perf-tools",
        gives: &[
            TraceColumn::Start,
            TraceColumn::Complete,
            TraceColumn::Flags,
            TraceColumn::Pid,
            TraceColumn::Process,
            TraceColumn::Device,
        ],
        unknown: "times without `-s` and `-t`; whether the start is that of the queue (`-Q`)",
    },
    extensions: &[],
    recorded: RecordedFeatures::BLOCK_LAYER,
    times: FormatTimes::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| heading_with(head, b"DEV").is_some(),
    open,
    writes: None,
};

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = heading_with(input.head(), b"DEV").and_then(heading).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "has no heading of iosnoop in its first lines")
            .at_line(1)
            .hint("save the output of iosnoop whole, with the line `COMM PID TYPE DEV BLOCK BYTES LATms`")
    })?;
    let table = SnoopTable::new(columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this table of iosnoop has no {missing} of a request");
        return Err(
            Error::new(ErrorClass::Unsupported, problem).hint("record with iosnoop of perf-tools: `iosnoop -st`")
        );
    }
    Ok(Box::new(LineSource::new(IosnoopFormat { table }, input, options)))
}

struct IosnoopFormat {
    table: SnoopTable,
}

impl LineFormat for IosnoopFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        self.table.parse(line, context, out)
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> TraceHeader {
        let note = "iosnoop without -s and -t prints no times: requests are placed one after the other in order of completion; \
                    addresses, sizes and latencies are as recorded, arrivals and rates are not";
        TraceHeader {
            format: FORMAT.name.into(),
            clock: if self.table.is_timed() { "monotonic" } else { "relative" }.into(),
            note: (!self.table.is_timed()).then(|| note.to_owned()),
            ..TraceHeader::default()
        }
    }
}
