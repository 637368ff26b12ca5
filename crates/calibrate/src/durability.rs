//! Times of requests other than plain reads and writes: flushes, writes with a preflush or forced unit access (FUA), and discards.

use emmclab_trace::{Op, Request, RequestFlags};

use crate::fit::{DurabilityRow, ENOUGH};
use rand_pcg::Pcg64;

use crate::samples::{median, resampled};

/// The measured times of flushes, preflushes, FUA writes and discards, in us.
#[derive(Clone, Debug, Default)]
pub(crate) struct DurabilitySamples {
    flushes: Vec<f64>,
    preflushes: Vec<f64>,
    /// For each FUA write: its length in sectors, the time from issue to completion in us, and whether this time includes a preflush.
    fua: Vec<(u32, f64, bool)>,
    discards: Vec<f64>,
}

impl DurabilitySamples {
    /// Adds a flush, discard, or write with preflush or FUA, with its time from start to completion; returns false for other requests.
    pub fn add(&mut self, request: &Request, service_us: f64) -> bool {
        let (preflush, fua) = (request.flags.contains(RequestFlags::PREFLUSH), request.flags.contains(RequestFlags::FUA));
        if request.op == Op::Flush {
            self.flushes.push(service_us);
            return true;
        }
        if request.op == Op::Discard {
            self.discards.push(service_us);
            return true;
        }
        if !preflush && !fua {
            return false;
        }
        // The block layer issues the data of a write after its preflush, so the time from `start` to `issue` is that of the preflush.
        let before = request.start.zip(request.issue).map(|(start, issue)| (issue - start).0 as f64 / 1e3);
        if preflush && let Some(before) = before.filter(|us| *us > 0.0) {
            self.preflushes.push(before);
        }
        if fua && (!preflush || before.is_some()) {
            let before = if preflush { before.unwrap_or(0.0) } else { 0.0 };
            self.fua.push((request.sectors, service_us - before, preflush && before <= 0.0));
        }
        true
    }

    /// Returns the median time by which FUA writes are slower than plain writes, in us. `plain_us` returns the time of a plain write of a
    /// number of sectors. `flush_us` is subtracted from times that include a preflush. `None` if there are too few FUA writes.
    pub fn reliable_us(&self, plain_us: impl Fn(u32) -> f64, flush_us: f64) -> Option<f64> {
        let beyond = |(sectors, us, flushes): &(u32, f64, bool)| us - plain_us(*sectors) - if *flushes { flush_us } else { 0.0 };
        let mut extra: Vec<f64> = self.fua.iter().map(beyond).collect();
        (extra.len() >= ENOUGH).then(|| median(&mut extra).max(0.0))
    }

    /// Sizes of the FUA writes, in sectors.
    pub fn fua_sectors(&self) -> impl Iterator<Item = u32> {
        self.fua.iter().map(|(sectors, ..)| *sectors)
    }

    /// Returns the median time of a flush minus `fixed_us`, the fixed time of a command, in us. Preflushes are used if there are too few
    /// other flushes; `None` if there are too few of both.
    pub fn flush_us(&self, fixed_us: f64) -> Option<f64> {
        beyond(&self.flushes, fixed_us).or_else(|| beyond(&self.preflushes, fixed_us))
    }

    /// Returns the median time of a discard minus `fixed_us`, the fixed time of a command, in us; `None` if there are too few discards.
    pub fn discard_us(&self, fixed_us: f64) -> Option<f64> {
        beyond(&self.discards, fixed_us)
    }

    /// Draws a bootstrap sample with replacement, with the same number of requests of each kind.
    pub fn resampled(&self, random: &mut Pcg64) -> Self {
        Self {
            flushes: resampled(&self.flushes, random),
            preflushes: resampled(&self.preflushes, random),
            fua: resampled(&self.fua, random),
            discards: resampled(&self.discards, random),
        }
    }

    /// Number and median time of each kind of request that occurs.
    pub fn rows(&self) -> Vec<DurabilityRow> {
        let fua: Vec<f64> = self.fua.iter().map(|(_, us, _)| *us).collect();
        let preflush = if self.flushes.len() < ENOUGH { "cache.flush_us" } else { "" };
        [
            ("flush", &self.flushes, "cache.flush_us"),
            ("preflush", &self.preflushes, preflush),
            ("fua", &fua, "controller.reliable_write_us"),
            ("discard", &self.discards, "controller.discard_us"),
        ]
        .into_iter()
        .filter(|(_, times, _)| !times.is_empty())
        .map(|(kind, times, setting)| DurabilityRow {
            kind,
            requests: times.len(),
            median_us: median(&mut times.clone()),
            setting: Some(setting).filter(|setting| times.len() >= ENOUGH && !setting.is_empty()),
        })
        .collect()
    }
}

/// The median of the times minus `fixed_us`, at least 0; `None` if there are too few times.
fn beyond(times_us: &[f64], fixed_us: f64) -> Option<f64> {
    (times_us.len() >= ENOUGH).then(|| (median(&mut times_us.to_vec()) - fixed_us).max(0.0))
}
