//! Predicts the service time of a single request on an idle device. It is a closed formula, because the search evaluates it thousands of
//! times. A test compares it with the simulated device.
//!
//! The search tries all device shapes and minimises the error of each by random descent. The error of a request size is |ln(predicted /
//! median)|, so that fast and slow requests have equal weight, times the square root of the number of its requests. Steps have random
//! directions from a fixed seed; a step that reduces the error is kept, and the step size shrinks after many steps without success.

use emmclab_trace::{Op, Result, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::samples::SampleGroup;

/// The discrete parameters of a device, of which the search tries all combinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceShape {
    /// Flash page sizes in KB, largest first.
    pub page_kb: Vec<u32>,
    /// Number of flash units that work in parallel.
    pub units: u32,
}

/// The continuous parameters of a device, all in us.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceTiming {
    /// Fixed time of a read, in us.
    pub read_overhead: f64,
    /// Fixed time of a write, in us.
    pub write_overhead: f64,
    /// Time to transfer 1 KB between host and device, in us.
    pub host_per_kb: f64,
    /// Time in which the flash array reads a page, in us, for each page size.
    pub read: Vec<f64>,
    /// Time in which the flash array programs a page, in us, for each page size.
    pub program: Vec<f64>,
}

/// Maximum number of parallel flash units that the search tries.
pub(crate) const MOST_UNITS: usize = 4;

impl DeviceTiming {
    /// Returns the predicted time of a request from start to completion, in us.
    pub fn service_us(&self, shape: &DeviceShape, op: Op, kb: f64) -> f64 {
        let mut left = (kb / 4.0).ceil() as u32 * 4;
        // Program time assigned to each way, in us. The next page goes to the way with the least.
        let mut placed = [0.0f64; MOST_UNITS];
        // Busy time of each way in this request, in us.
        let mut busy = [0.0f64; MOST_UNITS];
        let units = shape.units as usize;
        let mut next = 0;
        while left > 0 {
            let fits = shape.page_kb.iter().position(|page| *page <= left);
            let page = fits.unwrap_or(shape.page_kb.len() - 1);
            let mut unit = next;
            for turn in 1..units {
                let other = (next + turn) % units;
                if placed[other] < placed[unit] {
                    unit = other;
                }
            }
            next = (unit + 1) % units;
            placed[unit] += self.program[page].max(f64::MIN_POSITIVE);
            busy[unit] += if op == Op::Read { self.read[page] } else { self.program[page] };
            left = left.saturating_sub(shape.page_kb[page]);
        }
        let overhead = if op == Op::Read { self.read_overhead } else { self.write_overhead };
        overhead + self.host_per_kb * kb + busy.iter().copied().fold(0.0, f64::max)
    }

    /// All parameters of the timing, for the search to change.
    pub(crate) fn values(&mut self) -> impl Iterator<Item = &mut f64> {
        [&mut self.read_overhead, &mut self.write_overhead, &mut self.host_per_kb]
            .into_iter()
            .chain(&mut self.read)
            .chain(&mut self.program)
    }

    /// Name, unit and value of every parameter, in the order of [`DeviceTiming::values`]. The value is `None` for read parameters if
    /// `reads` is false, for that of writes if `writes` is false, and for the transfer time between host and device if `link` is false.
    pub(crate) fn named_values(
        &self, shape: &DeviceShape, reads: bool, writes: bool, link: bool,
    ) -> Vec<(String, &'static str, Option<f64>)> {
        let mut out = vec![
            ("read_overhead_us".to_owned(), "us", reads.then_some(self.read_overhead)),
            ("write_overhead_us".to_owned(), "us", writes.then_some(self.write_overhead)),
            ("host_us_per_kb".to_owned(), "us/KB", link.then_some(self.host_per_kb)),
        ];
        for (what, values, measured) in [("read", &self.read, reads), ("program", &self.program, true)] {
            for (kb, value) in shape.page_kb.iter().zip(values) {
                out.push((format!("{what}_us of {kb} KB pages"), "us", measured.then_some(*value)));
            }
        }
        out
    }
}

/// Penalty for each additional parameter of a device shape, as a share of the error.
const PRICE: f64 = 0.02;
/// Number of consecutive failed steps after which the step size of the search shrinks.
const PATIENCE: u32 = 150;
const FIRST_STEP: f64 = 0.6;
const LATER_STEP: f64 = 0.1;
const LAST_STEP: f64 = 0.001;
/// Number of starting points of a search.
const STARTS: usize = 3;
/// Time to transfer 1 KB between host and device at each starting point of the search, in us.
const HOST_PER_KB: [f64; STARTS] = [10.0, 3.0, 20.0];

/// Returns the shape and timing with the smallest error. `link` is the transfer time of 1 KB between host and device in us if it is
/// assumed; `None` if it is fitted.
pub(crate) fn best_shape(groups: &[SampleGroup], link: Option<f64>, random: &mut Pcg64) -> Result<(DeviceShape, DeviceTiming)> {
    let mut best: Option<(f64, DeviceShape, DeviceTiming)> = None;
    for pages in 1..8u32 {
        let page_kb: Vec<u32> = [16u32, 8, 4].into_iter().filter(|kb| pages & (kb / 4) != 0).collect();
        for units in [1, 2, 4] {
            let shape = DeviceShape { page_kb: page_kb.clone(), units };
            let price = 1.0 + PRICE * (3 + 2 * page_kb.len()) as f64;
            for (start, usual) in HOST_PER_KB.into_iter().enumerate() {
                interrupt::check()?;
                let begin = DeviceTiming { host_per_kb: link.unwrap_or(usual), ..first(&shape, groups, start) };
                let timing = descend(&shape, begin, groups, (FIRST_STEP, link), random);
                let cost = error(&shape, &timing, groups) * price;
                if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                    best = Some((cost, shape.clone(), timing));
                }
            }
        }
    }
    Ok(best.map_or_else(
        || {
            let shape = DeviceShape { page_kb: vec![4], units: 1 };
            let timing = first(&shape, groups, 0);
            (shape, timing)
        },
        |(_, shape, timing)| (shape, timing),
    ))
}

/// Fits the timing of a given shape again, to other samples.
pub(crate) fn refine(
    shape: &DeviceShape, from: &DeviceTiming, groups: &[SampleGroup], link: Option<f64>, random: &mut Pcg64,
) -> DeviceTiming {
    descend(shape, from.clone(), groups, (LATER_STEP, link), random)
}

/// Returns a starting point of the search: the shortest service time, split between fixed time and page time in one of three ratios.
fn first(shape: &DeviceShape, groups: &[SampleGroup], start: usize) -> DeviceTiming {
    let shortest = |op| {
        let times = groups.iter().filter(|group| group.op == op).map(|group| group.median_us);
        times.fold(f64::INFINITY, f64::min)
    };
    let finite = |value: f64| if value.is_finite() { value } else { 100.0 };
    let (read, write) = (finite(shortest(emmclab_trace::Op::Read)), finite(shortest(emmclab_trace::Op::Write)));
    let share = [0.6, 0.3, 0.1][start % 3];
    let per_page = |time: f64| {
        let base = f64::from(shape.page_kb[shape.page_kb.len() - 1]);
        shape.page_kb.iter().map(|kb| (1.0 - share) * time * (f64::from(*kb) / base).sqrt()).collect()
    };
    DeviceTiming {
        read_overhead: share * read,
        write_overhead: share * write,
        host_per_kb: HOST_PER_KB[start % STARTS],
        read: per_page(read),
        program: per_page(write),
    }
}

fn error(shape: &DeviceShape, timing: &DeviceTiming, groups: &[SampleGroup]) -> f64 {
    groups
        .iter()
        .map(|group| {
            let predicted = timing.service_us(shape, group.op, group.kb()).max(1e-3);
            (group.count as f64).sqrt() * (predicted / group.median_us).ln().abs()
        })
        .sum()
}

fn descend(
    shape: &DeviceShape, mut at: DeviceTiming, groups: &[SampleGroup], (step, link): (f64, Option<f64>), random: &mut Pcg64,
) -> DeviceTiming {
    let mut least = error(shape, &at, groups);
    let (mut step, mut failures) = (step, 0);
    while step > LAST_STEP {
        let mut next = at.clone();
        let moved = random.next_u64();
        for (i, value) in next.values().enumerate() {
            // A step changes each parameter with a probability of one in four.
            if (moved >> (2 * i)).is_multiple_of(4) {
                let dice = (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                *value = (*value + 0.05) * (step * dice).exp() - 0.05;
                *value = value.clamp(0.0, 1e6);
            }
        }
        if let Some(us) = link {
            next.host_per_kb = us;
        }
        let new_error = error(shape, &next, groups);
        if new_error < least {
            (at, least, failures) = (next, new_error, 0);
        } else {
            failures += 1;
            if failures >= PATIENCE {
                step *= 0.7;
                failures = 0;
            }
        }
    }
    at
}
