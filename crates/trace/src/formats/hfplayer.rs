//! The CSV of hfplayer (University of Minnesota; Haghdoost et al., "hfplayer", FAST 2017; samples in the repository umn-cris/hfplayer).
//!
//! A heading that begins with `#` contains the names of the columns with their types (`.I`, `.D`, `.S`). These columns are read:
//!
//! - `ELAPSED_USECS`: the time since the start.
//! - `CMD`: begins with `RD` or `WR`.
//! - `LUN_SSID`: the volume.
//! - `PHASE`: 0 for the arrival of a command, 1 for its reply. A reply is not a request. It ends the oldest arrival of the same range that
//!   has no latency.
//! - `LBA` and `NBLKS`: in blocks of 512 bytes.
//! - `LATENCY_USECS`: the time from arrival to reply (0 if not known).

use std::collections::VecDeque;

use super::fields::ColumnPositions;
use super::prelude::*;

pub(super) static FORMAT: TraceFormat = TraceFormat {
    name: "hfplayer",
    about: "CSV of hfplayer (University of Minnesota)",
    known_by: "a heading with `ELAPSED_USECS.D`, `CMD.S`, `LBA.I`, ...",
    from: "hfplayer (University of Minnesota)",
    gives: &[TraceColumn::Complete, TraceColumn::Device],
    unknown: "processes, flags",
    times: FormatTimes::Fixed(TimeUnit::Micros),
    sniff: |head: &[u8], _: &Path| columns(head).is_some(),
    open,
    ..TraceFormat::READ_ONLY
};

const NAMES: [&str; 7] = ["ELAPSED_USECS.D", "CMD.S", "LUN_SSID.I", "PHASE.I", "LBA.I", "NBLKS.I", "LATENCY_USECS.D"];

fn columns(head: &[u8]) -> Option<ColumnPositions<7>> {
    let heading = first_line(head).strip_prefix(b"#")?;
    ColumnPositions::of(NAMES, comma_separated(heading))
}

fn open(input: DecompressedInput, options: &ReadOptions) -> Result<Box<dyn TraceSource>> {
    let columns = columns(input.head()).ok_or_else(|| {
        Error::new(ErrorClass::Syntax, "the first line does not contain the columns of hfplayer")
            .at_line(1)
            .hint("keep the heading of the file (`#DUMP_OFFSET.I,ELAPSED_USECS.D,...`)")
    })?;
    let hfplayer = HfplayerFormat { columns, open: VecDeque::new() };
    LineSource::open(FORMAT.name, hfplayer, input, options)
}

/// Maximum number of requests whose reply has not been read yet. It exceeds the depth of every queue.
const MOST_OPEN: usize = 1 << 12;

struct HfplayerFormat {
    columns: ColumnPositions<7>,
    /// Requests in the order of the file, beginning with the first one whose reply is not read yet.
    open: VecDeque<Request>,
}

impl HfplayerFormat {
    /// Sets the completion of the oldest request that has the device, operation and range of `row` and no completion yet: `took` ns after
    /// its arrival, or the time of `row` if `took` is 0.
    fn end(&mut self, row: &Request, took: i64) {
        let is_of = |open: &&mut Request| {
            let range = |request: &Request| (request.device, request.op, request.sector, request.sectors);
            open.complete.is_none() && range(open) == range(row)
        };
        if let Some(open) = self.open.iter_mut().find(is_of) {
            let end = if took > 0 { open.arrival.0.checked_add(took) } else { Some(row.arrival.0) };
            open.complete = end.map(Nanos).filter(|end| *end >= open.arrival);
        }
    }
}

impl LineFormat for HfplayerFormat {
    fn parse(&mut self, line: &[u8], context: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        if line.starts_with(b"#") {
            context.no_record();
            return Ok(());
        }
        let [time, command, volume, phase, address, blocks, latency] = self.columns.read(comma_separated(line))?;
        let op = match command.bytes {
            [b'R', b'D', ..] => Op::Read,
            [b'W', b'R', ..] => Op::Write,
            _ => return Err(command.refused("begins neither with RD nor with WR")),
        };
        let (arrival, took) = (time.time(TimeUnit::Micros)?, latency.time(TimeUnit::Micros)?);
        let complete = arrival.checked_add(took).ok_or_else(|| latency.refused("the request ends beyond the year 2262"))?;
        let count = blocks.sectors()?;
        volume.unsigned()?;
        let device = context.device(volume.bytes)?;
        let request = Request {
            complete: (took > 0).then_some(Nanos(complete)),
            device: Some(device),
            ..Request::new(Nanos(arrival), op, Sector(address.unsigned()?), count)
        };
        if phase.unsigned()? == 0 {
            self.open.push_back(request);
        } else {
            context.skip();
            self.end(&request, took);
        }
        while self.open.front().is_some_and(|first| first.complete.is_some()) || self.open.len() > MOST_OPEN {
            out.extend(self.open.pop_front());
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut ParseContext, out: &mut Vec<Request>) -> Result<()> {
        out.extend(self.open.drain(..));
        Ok(())
    }
}
