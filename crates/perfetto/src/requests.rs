//! Draws requests: a row for each sender, and above the rows counters of the requests in progress and of the throughput.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use emmclab_base::{Nanos, Op, SECTOR_BYTES};
use rustc_hash::FxHashMap;

use crate::counters::{StepCounter, ThroughputCounter};
use crate::slice_row::{SliceRow, TrackSlice};
use crate::tracks::{Argument, TrackId, TrackWriter};

/// Maximum number of requests that are counted as in progress at a time, because their completion times are stored.
const MOST_UNDER_WAY: usize = 1 << 20;

/// A request as it is drawn, from its arrival to its completion.
#[derive(Clone, Copy, Debug)]
pub struct DrawnRequest<'a> {
    /// Its operation.
    pub op: Op,
    /// Length in sectors.
    pub sectors: u32,
    /// When it arrived.
    pub arrival: Nanos,
    /// When it was complete; it is drawn as an instant if that is not known.
    pub complete: Option<Nanos>,
    /// Further facts about it.
    pub arguments: &'a [Argument<'a>],
}

/// Draws requests in order of arrival.
pub struct RequestTracks {
    group: TrackId,
    rows: FxHashMap<u32, SliceRow>,
    depth: StepCounter,
    /// Completion times of the requests in progress.
    ends: BinaryHeap<Reverse<Nanos>>,
    read: ThroughputCounter,
    written: ThroughputCounter,
}

impl RequestTracks {
    /// A group of tracks with this name; queue depth counts up to 1,048,576.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new<W: Write>(tracks: &mut TrackWriter<W>, name: &str) -> io::Result<Self> {
        let group = tracks.group(None, name)?;
        Ok(Self {
            group,
            rows: FxHashMap::default(),
            depth: StepCounter::new(tracks.counter(group, "queue depth", "requests")?),
            ends: BinaryHeap::new(),
            read: ThroughputCounter::new(tracks.counter(group, "read throughput", ThroughputCounter::UNIT)?),
            written: ThroughputCounter::new(tracks.counter(group, "write throughput", ThroughputCounter::UNIT)?),
        })
    }

    /// Draws a request in the row of a sender, which is identified by a number; `name` is called only for its first request.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn draw<W: Write>(
        &mut self,
        tracks: &mut TrackWriter<W>,
        sender: u32,
        name: impl FnOnce() -> String,
        request: &DrawnRequest<'_>,
    ) -> io::Result<()> {
        let group = self.group;
        let row = self.rows.entry(sender).or_insert_with(|| SliceRow::new(tracks, group, &name()));
        let (op, category) = (request.op.name(), "request");
        let Some(complete) = request.complete else {
            return row.instant(tracks, request.arrival, (op, category), request.arguments);
        };
        let (begin, arguments) = (request.arrival, request.arguments);
        row.slice(tracks, &TrackSlice { name: op, category, begin, end: complete, arguments })?;
        let bytes = u64::from(request.sectors) * SECTOR_BYTES;
        match request.op {
            Op::Read => self.read.add(tracks, complete, bytes)?,
            Op::Write => self.written.add(tracks, complete, bytes)?,
            Op::Discard | Op::Flush | Op::SecureErase => {}
        }
        self.complete_until(tracks, request.arrival)?;
        if self.ends.len() < MOST_UNDER_WAY {
            self.ends.push(Reverse(complete));
        }
        self.depth.set(tracks, request.arrival, self.ends.len() as i64)
    }

    fn complete_until<W: Write>(&mut self, tracks: &mut TrackWriter<W>, until: Nanos) -> io::Result<()> {
        while let Some(Reverse(end)) = self.ends.peek().copied()
            && end <= until
        {
            self.ends.pop();
            self.depth.set(tracks, end, self.ends.len() as i64)?;
        }
        Ok(())
    }

    /// Writes the remaining values of the counters.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish<W: Write>(mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        self.complete_until(tracks, Nanos::MAX)?;
        self.depth.write(tracks)?;
        self.read.finish(tracks)?;
        self.written.finish(tracks)
    }
}
