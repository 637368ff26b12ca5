//! The table of `iosnoop` of perf-tools (its script and manual page iosnoop(8)).
//!
//! `COMM PID TYPE DEV BLOCK BYTES LATms`; `-s` puts `STARTs` and `-t` `ENDs` before it, both in seconds of the clock of ftrace.
//! `LATms` is the time from issue to completion; with `-Q`, start and latency include the time in the queue. The output does
//! not show whether `-Q` was given, so the start time at the driver stays unset if there is `STARTs`. Blocks are sectors of 512
//! bytes, `DEV` is `major,minor`, `TYPE` the kernel's letters. A flush has no bytes, and the block 2^64-1 is not an address.
//! Without `-s` and `-t` there are no times: each request then begins when the previous one ends, in the order of completion,
//! and a note of the trace states this.

use std::path::Path;

use emmclab_base::{Error, Kind, Request, Result};

use super::format::{Format, Origin, ReadOptions, Times};
use super::input::Input;
use super::snoop::{Table, heading, heading_with};
use super::text::{Context, LineFormat, LineSource};
use super::time_unit::TimeUnit;
use crate::columns::Column;
use crate::header::Header;
use crate::recorded::Recorded;
use crate::source::Source;

pub(super) static FORMAT: Format = Format {
    name: "iosnoop",
    about: "iosnoop of perf-tools, with -s and -t too",
    known_by: "its heading (`COMM PID TYPE DEV BLOCK BYTES LATms`)",
    origin: Origin {
        from: "`iosnoop -st` of perf-tools",
        gives: &[
            Column::Start,
            Column::Complete,
            Column::Flags,
            Column::Pid,
            Column::Process,
            Column::Device,
        ],
        unknown: "times without `-s` and `-t`; whether the start is that of the queue (`-Q`)",
    },
    extensions: &[],
    recorded: Recorded::BLOCK_LAYER,
    times: Times::Fixed(TimeUnit::Seconds),
    sniff: |head: &[u8], _: &Path| heading_with(head, b"DEV").is_some(),
    open,
    writes: None,
};

fn open(input: Input, options: &ReadOptions) -> Result<Box<dyn Source>> {
    let columns = heading_with(input.head(), b"DEV").and_then(heading).ok_or_else(|| {
        Error::new(Kind::Syntax, "has no heading of iosnoop in its first lines")
            .at_line(1)
            .hint("save the output of iosnoop whole, with the line `COMM PID TYPE DEV BLOCK BYTES LATms`")
    })?;
    let table = Table::new(columns);
    if let Some(missing) = table.missing() {
        let problem = format!("this table of iosnoop has no {missing} of a request");
        return Err(
            Error::new(Kind::Unsupported, problem).hint("record with iosnoop of perf-tools: `iosnoop -st`")
        );
    }
    Ok(Box::new(LineSource::new(Iosnoop { table }, input, options)))
}

struct Iosnoop {
    table: Table,
}

impl LineFormat for Iosnoop {
    fn parse(&mut self, line: &[u8], context: &mut Context, out: &mut Vec<Request>) -> Result<()> {
        self.table.parse(line, context, out)
    }

    fn in_file_order(&self) -> bool {
        false
    }

    fn header(&self) -> Header {
        let note = "iosnoop without -s and -t prints no times: requests are placed one after the other in order of completion; \
                    addresses, sizes and latencies are as recorded, arrivals and rates are not";
        Header {
            format: FORMAT.name.into(),
            clock: if self.table.is_timed() { "monotonic" } else { "relative" }.into(),
            note: (!self.table.is_timed()).then(|| note.to_owned()),
            ..Header::default()
        }
    }
}
