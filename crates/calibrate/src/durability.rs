//! Requests that ask for durability: flushes, and writes with a flush before them or with forced unit access (FUA).

use emmclab_trace::{Flags, Op, Request};

use crate::calibration::{DurabilityRow, ENOUGH};
use crate::statistics::median;

/// The times of such requests, us.
#[derive(Clone, Debug, Default)]
pub(crate) struct Durability {
    flushes: Vec<f64>,
    preflushes: Vec<f64>,
    /// FUA writes: sectors, and time from issue on.
    fua: Vec<(u32, f64)>,
}

impl Durability {
    /// Takes a request that asks for durability, which took `service_us` from start to completion; false for others.
    pub fn take(&mut self, request: &Request, service_us: f64) -> bool {
        let (preflush, fua) = (request.flags.contains(Flags::PREFLUSH), request.flags.contains(Flags::FUA));
        if request.op == Op::Flush {
            self.flushes.push(service_us);
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
            self.fua.push((request.sectors, service_us - before));
        }
        true
    }

    /// Time of a FUA write on top of a plain one, for which `plain_us` gives the time by sectors; `None` with too few.
    pub fn reliable_us(&self, plain_us: impl Fn(u32) -> f64) -> Option<f64> {
        let mut extra: Vec<f64> = self.fua.iter().map(|(sectors, us)| us - plain_us(*sectors)).collect();
        (extra.len() >= ENOUGH).then(|| median(&mut extra).max(0.0))
    }

    /// Counts and medians of the kinds that occurred.
    pub fn rows(&self) -> Vec<DurabilityRow> {
        let fua: Vec<f64> = self.fua.iter().map(|(_, us)| *us).collect();
        let setting = (fua.len() >= ENOUGH).then_some("controller.reliable_write_us");
        [("flush", &self.flushes, None), ("preflush", &self.preflushes, None), ("fua", &fua, setting)]
            .into_iter()
            .filter(|(_, times, _)| !times.is_empty())
            .map(|(kind, times, setting)| DurabilityRow {
                kind,
                requests: times.len(),
                median_us: median(&mut times.clone()),
                setting,
            })
            .collect()
    }
}
