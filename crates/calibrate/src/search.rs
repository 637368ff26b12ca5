//! The search: enumerates the shapes and minimises the error of each by random descent.
//!
//! The error of a size is |ln(predicted / median)|, so that fast and slow requests count alike, weighted by the square root
//! of how often it occurs. Steps go in random directions from a fixed seed; a step that lowers the error is kept, and
//! steps shrink until they no longer do.

use emmclab_trace::{Result, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::model::{DeviceShape, DeviceTiming};
use crate::samples::SampleGroup;

/// Penalty of each further parameter, as a share of the error.
const PRICE: f64 = 0.02;
/// Failed steps in a row before the step size shrinks.
const PATIENCE: u32 = 150;
const FIRST_STEP: f64 = 0.6;
const LATER_STEP: f64 = 0.1;
const LAST_STEP: f64 = 0.001;
/// Number of starting points of each search.
const STARTS: usize = 3;
/// The time of a KB between host and device at each starting point, us.
const HOST_PER_KB: [f64; STARTS] = [10.0, 3.0, 20.0];

/// The shape and timing of the least error; `link` is the time of a KB between host and device in us, if it is assumed.
///
/// # Errors
/// If the work is interrupted.
pub(crate) fn best_shape(
    groups: &[SampleGroup],
    link: Option<f64>,
    random: &mut Pcg64,
) -> Result<(DeviceShape, DeviceTiming)> {
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

/// The timing of a shape, refitted to other samples.
pub(crate) fn refine(
    shape: &DeviceShape,
    from: &DeviceTiming,
    groups: &[SampleGroup],
    link: Option<f64>,
    random: &mut Pcg64,
) -> DeviceTiming {
    descend(shape, from.clone(), groups, (LATER_STEP, link), random)
}

/// A starting point: the shortest service time, divided between overhead and page in one of three ratios.
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
    shape: &DeviceShape,
    mut at: DeviceTiming,
    groups: &[SampleGroup],
    (step, link): (f64, Option<f64>),
    random: &mut Pcg64,
) -> DeviceTiming {
    let mut least = error(shape, &at, groups);
    let (mut step, mut failures) = (step, 0);
    while step > LAST_STEP {
        let mut next = at.clone();
        let moved = random.next_u64();
        for (i, value) in next.values().enumerate() {
            // A step changes one parameter in four.
            if (moved >> (2 * i)).is_multiple_of(4) {
                let dice = (random.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                *value = (*value + 0.05) * (step * dice).exp() - 0.05;
                *value = value.clamp(0.0, 1e6);
            }
        }
        if let Some(us) = link {
            next.host_per_kb = us;
        }
        let found = error(shape, &next, groups);
        if found < least {
            (at, least, failures) = (next, found, 0);
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
