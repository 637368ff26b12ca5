//! Counters that are derived from events.

use std::collections::VecDeque;
use std::io::{self, Write};

use emmclab_base::Nanos;

use crate::tracks::{CounterTrack, TrackWriter};

/// A counter that changes in steps. If several values have the same time, only the last is written.
#[derive(Clone, Copy, Debug)]
pub struct StepCounter {
    counter: CounterTrack,
    /// The latest time and value, not written yet.
    latest: Option<(Nanos, i64)>,
    written: Option<i64>,
}

impl StepCounter {
    /// A counter without a value yet.
    pub const fn new(counter: CounterTrack) -> Self {
        Self { counter, latest: None, written: None }
    }

    /// Sets the value from `at` on; a time before the latest is replaced by the latest.
    ///
    /// # Errors
    /// Errors of the output.
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
    ///
    /// # Errors
    /// Errors of the output.
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
/// Number of bins that can still grow: 100 s. Bytes of an earlier time are added to the first of them.
const OPEN: i64 = 1_000;

/// Bytes over time as a counter, in MB/s of 1,048,576 bytes, by bins of 100 ms.
#[derive(Clone, Debug)]
pub struct ThroughputCounter {
    counter: CounterTrack,
    /// Number of the first bin that can grow.
    first: i64,
    bytes: VecDeque<u64>,
    /// Whether the last value written is above 0.
    flows: bool,
}

impl ThroughputCounter {
    /// The unit of the counter.
    pub const UNIT: &str = "MB/s";

    /// A counter without bytes yet.
    pub const fn new(counter: CounterTrack) -> Self {
        Self { counter, first: 0, bytes: VecDeque::new(), flows: false }
    }

    /// Adds bytes whose transfer was complete at `at`.
    ///
    /// # Errors
    /// Errors of the output.
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

    /// Writes the bins that are left.
    ///
    /// # Errors
    /// Errors of the output.
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

    /// Writes the value of the first bin; a zero after a zero is not written again.
    fn show<W: Write>(&mut self, tracks: &mut TrackWriter<W>, bytes: u64) -> io::Result<()> {
        if bytes == 0 && !self.flows {
            return Ok(());
        }
        self.flows = bytes > 0;
        let at = Nanos(self.first.saturating_mul(BIN.0)).max(tracks.origin());
        tracks.measure(self.counter, at, bytes as f64 / f64::from(1 << 20) / BIN.as_secs_f64())
    }
}
