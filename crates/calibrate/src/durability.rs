//! Requests that are no plain reads and writes: flushes, writes with a flush before them or with forced unit access (FUA),
//! and discards.

use emmclab_trace::{Op, Request, RequestFlags};

use crate::fit::{DurabilityRow, ENOUGH};
use rand_pcg::Pcg64;

use crate::samples::{median, resampled};

/// The times of such requests, us.
#[derive(Clone, Debug, Default)]
pub(crate) struct DurabilitySamples {
    flushes: Vec<f64>,
    preflushes: Vec<f64>,
    /// FUA writes: sectors, time from issue on, and whether this time includes a flush before the data.
    fua: Vec<(u32, f64, bool)>,
    discards: Vec<f64>,
}

impl DurabilitySamples {
    /// Adds such a request with its time from start to completion; returns false for other requests.
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
        // The block layer issues the data of a write once the flush before it is complete.
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

    /// Median time by which FUA writes exceed plain ones, us. `plain_us` returns the time of a plain write by its sectors; `flush_us`
    /// is subtracted too if the time includes a flush before the data. `None` if there are too few FUA writes.
    pub fn reliable_us(&self, plain_us: impl Fn(u32) -> f64, flush_us: f64) -> Option<f64> {
        let beyond = |(sectors, us, flushes): &(u32, f64, bool)| us - plain_us(*sectors) - if *flushes { flush_us } else { 0.0 };
        let mut extra: Vec<f64> = self.fua.iter().map(beyond).collect();
        (extra.len() >= ENOUGH).then(|| median(&mut extra).max(0.0))
    }

    /// Time of a flush beyond `fixed_us`, the time of a command; from the flushes before the data of writes if there are too few others.
    /// `None` if these are too few, too.
    pub fn flush_us(&self, fixed_us: f64) -> Option<f64> {
        beyond(&self.flushes, fixed_us).or_else(|| beyond(&self.preflushes, fixed_us))
    }

    /// Time of a discard beyond `fixed_us`, the time of a command; `None` if there are too few.
    pub fn discard_us(&self, fixed_us: f64) -> Option<f64> {
        beyond(&self.discards, fixed_us)
    }

    /// A sample of the same size for each kind, drawn with replacement.
    pub fn resampled(&self, random: &mut Pcg64) -> Self {
        Self {
            flushes: resampled(&self.flushes, random),
            preflushes: resampled(&self.preflushes, random),
            fua: resampled(&self.fua, random),
            discards: resampled(&self.discards, random),
        }
    }

    /// Counts and medians of the kinds that occurred.
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

/// The part of the median that exceeds `fixed_us`; `None` if there are too few times.
fn beyond(times_us: &[f64], fixed_us: f64) -> Option<f64> {
    (times_us.len() >= ENOUGH).then(|| (median(&mut times_us.to_vec()) - fixed_us).max(0.0))
}
