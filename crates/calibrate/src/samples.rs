//! Measured service times, by operation and size.

use std::collections::BTreeMap;

use emmclab_trace::{Combiner, Error, Flags, Kind, Op, Request, Result};
use rand_pcg::Pcg64;

use crate::power::{self, PowerFit, Wait};
use crate::statistics::{below, median};

/// Seed of the random split into halves.
const HALVES: u128 = 1;

/// Service times of one operation and size.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub op: Op,
    pub sectors: u32,
    pub count: usize,
    pub median_us: f64,
    times_us: Vec<f64>,
}

impl Group {
    fn new(op: Op, sectors: u32, mut times_us: Vec<f64>, count: usize) -> Self {
        Self { op, sectors, count, median_us: median(&mut times_us), times_us }
    }

    pub fn kb(&self) -> f64 {
        f64::from(self.sectors) / 2.0
    }

    /// Absolute errors of a prediction for each of its requests, in percent.
    pub fn errors_pct(&self, predicted_us: f64) -> impl Iterator<Item = f64> {
        self.times_us.iter().map(move |time| 100.0 * (predicted_us / time - 1.0).abs())
    }

    /// A bootstrap sample: as many requests, drawn with replacement.
    pub fn resampled(&self, random: &mut Pcg64) -> Self {
        let times = (0..self.times_us.len()).map(|_| self.times_us[below(random, self.times_us.len())]);
        Self::new(self.op, self.sectors, times.collect(), self.count)
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    op: Op,
    sectors: u32,
    service_us: f64,
    wait: Option<Wait>,
    /// Whether it was sent as a packed command.
    packed: bool,
    /// Whether it is in the held-out half.
    held_out: bool,
    /// Number of requests that it represents.
    count: usize,
}

impl Sample {
    /// Whether its time is that of one command of its size on a device that was awake.
    fn plain(&self, skip_packed: bool) -> bool {
        !(self.woken() || skip_packed && self.packed)
    }

    fn woken(&self) -> bool {
        self.wait.is_some_and(|wait| wait.woken)
    }
}

/// Service times measured on a device.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    measured: Vec<Sample>,
    /// Leave packed commands out: their entries are programmed one by one.
    skip_packed: bool,
    busy_until: Option<i64>,
    seen: u64,
}

impl Samples {
    pub(crate) fn new(skip_packed: bool) -> Self {
        Self { skip_packed, ..Self::default() }
    }

    /// Adds a request of a trace, in order of arrival; reads and writes with start (or issue) and completion count.
    pub fn add(&mut self, request: &Request) {
        self.seen += 1;
        let (Some(begin), Some(complete)) = (request.start.or(request.issue), request.complete) else {
            return;
        };
        let gap_ns = self.busy_until.map(|until| request.arrival.0.saturating_sub(until));
        self.busy_until = Some(self.busy_until.map_or(complete.0, |until| until.max(complete.0)));
        let service_us = complete.0.saturating_sub(begin.0) as f64 / 1e3;
        if !request.op.has_data() || service_us <= 0.0 {
            return;
        }
        let delay = request.start.zip(request.issue).map(|(start, issue)| issue.0.saturating_sub(start.0));
        let wait = gap_ns.zip(delay).map(|(gap_ns, delay_ns)| Wait {
            gap_us: gap_ns as f64 / 1e3,
            delay_us: delay_ns as f64 / 1e3,
            woken: false,
        });
        self.measured.push(Sample {
            op: request.op,
            sectors: request.sectors,
            service_us,
            wait,
            packed: request.flags.contains(Flags::PACKED),
            held_out: false,
            count: 1,
        });
    }

    /// Adds a measured time that represents `count` requests.
    pub(crate) fn add_measured(
        &mut self,
        op: Op,
        sectors: u32,
        service_us: f64,
        count: usize,
        held_out: bool,
    ) {
        self.measured.push(Sample { op, sectors, service_us, wait: None, packed: false, held_out, count });
    }

    /// Called after the last request of a trace: marks a random half of the requests as held out, and those that waited
    /// for the device to wake up.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.measured.is_empty() {
            return Err(Error::new(
                Kind::Value,
                format!("none of {} requests has a start or issue and a completion", self.seen),
            )
            .hint("calibration needs service times: record them with `emmclab record`, or give fio's JSON"));
        }
        for op in [Op::Read, Op::Write] {
            let limit = power::woken_above(self.waits(op).map(|wait| wait.delay_us).collect());
            self.waits(op).for_each(|wait| wait.woken = wait.delay_us > limit);
        }
        // At random: taking every second one would separate pairs of data and metadata.
        let mut lot = Pcg64::new(HALVES, 0);
        self.measured.iter_mut().for_each(|sample| sample.held_out = below(&mut lot, 2) == 1);
        Ok(())
    }

    fn waits(&mut self, op: Op) -> impl Iterator<Item = &mut Wait> {
        self.measured
            .iter_mut()
            .filter(move |sample| sample.op == op)
            .filter_map(|sample| sample.wait.as_mut())
    }

    fn grouped(&self, keep: impl Fn(&Sample) -> bool) -> Vec<Group> {
        let mut by_size: BTreeMap<(Op, u32), (Vec<f64>, usize)> = BTreeMap::new();
        for sample in self.measured.iter().filter(|sample| sample.plain(self.skip_packed) && keep(sample)) {
            let entry = by_size.entry((sample.op, sample.sectors)).or_default();
            entry.0.push(sample.service_us);
            entry.1 += sample.count;
        }
        by_size
            .into_iter()
            .map(|((op, sectors), (times, count))| Group::new(op, sectors, times, count))
            .collect()
    }

    pub(crate) fn groups(&self) -> Vec<Group> {
        self.grouped(|_| true)
    }

    pub(crate) fn fitted_half(&self) -> Vec<Group> {
        self.grouped(|sample| !sample.held_out)
    }

    pub(crate) fn held_out(&self) -> Vec<Group> {
        self.grouped(|sample| sample.held_out)
    }

    pub(crate) fn woken(&self) -> usize {
        self.measured.iter().filter(|sample| sample.woken()).count()
    }

    /// Packed commands that are left out, beside those that woke the device.
    pub(crate) fn left_packed(&self) -> usize {
        self.measured.iter().filter(|sample| sample.plain(false) && !sample.plain(self.skip_packed)).count()
    }

    pub(crate) fn power(&self) -> Option<PowerFit> {
        power::fit(&self.measured.iter().filter_map(|sample| sample.wait).collect::<Vec<_>>())
    }

    pub(crate) fn resampled_power(&self, random: &mut Pcg64) -> Option<PowerFit> {
        let waits: Vec<Wait> = self.measured.iter().filter_map(|sample| sample.wait).collect();
        power::fit(&(0..waits.len()).map(|_| waits[below(random, waits.len())]).collect::<Vec<_>>())
    }
}

/// Collects the samples of traces. With `skip_packed` those of packed commands are left out of the fit: a device may
/// program their entries one by one, which takes longer than one command of the same size.
///
/// # Errors
/// Where a trace cannot be read or has no service times.
pub fn samples_of_traces(traces: &mut Combiner, skip_packed: bool) -> Result<Samples> {
    let mut samples = Samples::new(skip_packed);
    while let Some(batch) = traces.next_batch()? {
        batch.iter().for_each(|request| samples.add(&request));
    }
    samples.settle()?;
    Ok(samples)
}
