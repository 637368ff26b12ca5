//! Draws requests: a row for each sender, and above the rows counters of the requests in progress and of the throughput.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

use emmclab_base::{Nanos, Op, SECTOR_BYTES};
use rustc_hash::FxHashMap;

use crate::slice_row::{SliceRow, TrackSlice};
use crate::tracks::{Argument, CounterTrack, TrackId, TrackWriter};

/// Maximum value of the counter of requests in progress. It limits the memory for completion times.
const MOST_UNDER_WAY: usize = 1 << 20;

/// A request to draw, from its arrival to its completion.
#[derive(Clone, Copy, Debug)]
pub struct DrawnRequest<'a> {
    /// Operation of the request.
    pub op: Op,
    /// Length in sectors.
    pub sectors: u32,
    /// Time of arrival.
    pub arrival: Nanos,
    /// Time of completion; if it is `None`, the request is drawn as an instant.
    pub complete: Option<Nanos>,
    /// Additional values that the viewer shows.
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
    /// Creates a group of tracks with this name. Its counter of requests in progress stops at 1,048,576.
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

    /// Draws a request in the row of its sender. The row is named by `name` when its first request is drawn.
    pub fn draw<W: Write>(
        &mut self, tracks: &mut TrackWriter<W>, sender: u32, name: impl FnOnce() -> String, request: &DrawnRequest<'_>,
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

    /// Completes all requests and writes the last values of the counters.
    pub fn finish<W: Write>(mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        self.complete_until(tracks, Nanos::MAX)?;
        self.depth.write(tracks)?;
        self.read.finish(tracks)?;
        self.written.finish(tracks)
    }
}

/// A counter that changes in steps. Of several values with the same time, only the last one is written.
#[derive(Clone, Copy, Debug)]
pub struct StepCounter {
    counter: CounterTrack,
    /// The latest time and value, which are not written yet.
    latest: Option<(Nanos, i64)>,
    written: Option<i64>,
}

impl StepCounter {
    /// A counter without a value.
    pub const fn new(counter: CounterTrack) -> Self {
        Self { counter, latest: None, written: None }
    }

    /// Sets the value from `at` on. If `at` is before the latest time, the latest time is used instead.
    pub fn set<W: Write>(&mut self, tracks: &mut TrackWriter<W>, at: Nanos, value: i64) -> io::Result<()> {
        let mut at = at;
        if let Some((latest, _)) = self.latest {
            at = at.max(latest);
            if at > latest {
                self.write(tracks)?;
            }
        }
        self.latest = Some((at, value));
        Ok(())
    }

    /// Writes the last value.
    pub fn write<W: Write>(&mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        if let Some((at, value)) = self.latest
            && self.written != Some(value)
        {
            self.written = Some(value);
            tracks.count(self.counter, at, value)?;
        }
        Ok(())
    }
}

/// Width of a bin of [`ThroughputCounter`].
const BIN: Nanos = Nanos::from_millis(100);
/// Number of bins that still accept bytes: 100 s. Bytes of an earlier time are added to the first of these bins.
const OPEN: i64 = 1_000;

/// A counter of throughput in MB/s of 1,048,576 bytes, in bins of 100 ms.
#[derive(Clone, Debug)]
pub struct ThroughputCounter {
    counter: CounterTrack,
    /// Number of the first bin that still accepts bytes.
    first: i64,
    bytes: VecDeque<u64>,
    /// Whether the last value that was written is above 0.
    flows: bool,
}

impl ThroughputCounter {
    /// The unit of the counter.
    pub const UNIT: &str = "MB/s";

    /// A counter without bytes.
    pub const fn new(counter: CounterTrack) -> Self {
        Self { counter, first: 0, bytes: VecDeque::new(), flows: false }
    }

    /// Adds bytes whose transfer was complete at the time `at`.
    pub fn add<W: Write>(&mut self, tracks: &mut TrackWriter<W>, at: Nanos, bytes: u64) -> io::Result<()> {
        let bin = at.0.div_euclid(BIN.0);
        if self.bytes.is_empty() {
            self.first = bin;
        }
        while !self.bytes.is_empty() && bin - self.first >= OPEN {
            self.close(tracks)?;
        }
        if self.bytes.is_empty() && bin > self.first {
            self.show(tracks, 0)?;
            self.first = bin;
        }
        let index = (bin - self.first).max(0) as usize;
        if index >= self.bytes.len() {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
        Ok(())
    }

    /// Writes the remaining bins.
    pub fn finish<W: Write>(mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        while !self.bytes.is_empty() {
            self.close(tracks)?;
        }
        self.show(tracks, 0)
    }

    fn close<W: Write>(&mut self, tracks: &mut TrackWriter<W>) -> io::Result<()> {
        let bytes = self.bytes.pop_front().unwrap_or_default();
        self.show(tracks, bytes)?;
        self.first += 1;
        Ok(())
    }

    /// Writes the value of the oldest bin. Of consecutive zeros, only the first is written.
    fn show<W: Write>(&mut self, tracks: &mut TrackWriter<W>, bytes: u64) -> io::Result<()> {
        if bytes == 0 && !self.flows {
            return Ok(());
        }
        self.flows = bytes > 0;
        let at = Nanos(self.first.saturating_mul(BIN.0)).max(tracks.origin());
        tracks.measure(self.counter, at, bytes as f64 / f64::from(1 << 20) / BIN.as_secs_f64())
    }
}
