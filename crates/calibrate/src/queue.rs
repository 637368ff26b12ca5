//! Derives the number of requests that a device serves at a time from requests whose services overlap.

use std::collections::BTreeMap;

use emmclab_trace::{Nanos, Op, Request};

use crate::fit::ENOUGH;
use crate::samples::median;

/// Maximum number of commands in the queue of a simulated eMMC.
const MOST: usize = 32;
/// Threshold for parallel service. The time that an overlapping request adds after the end of the previous request is divided by the time
/// of a single request. With a ratio near 1, the device serves one request at a time.
const AT_ONCE: f64 = 0.75;

/// The number of requests that the device serves at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueDepthEstimate {
    /// Largest number of concurrent requests, counted only if at least [`ENOUGH`] requests reached it; 1 on a device without a queue.
    pub depth: usize,
    /// Number of requests whose service began while other requests were in service.
    pub overlapping: usize,
}

impl Default for QueueDepthEstimate {
    fn default() -> Self {
        Self { depth: 1, overlapping: 0 }
    }
}

/// The service of a request, from its issue to its completion.
struct ServiceInterval {
    kind: (Op, u32),
    begin: Nanos,
    complete: Nanos,
}

/// Estimates the queue depth from requests, each with the begin and the end of its service.
pub(crate) fn of<'a>(requests: impl Iterator<Item = (&'a Request, Nanos, Nanos)>) -> QueueDepthEstimate {
    let mut services: Vec<ServiceInterval> = requests
        .map(|(request, begin, complete)| ServiceInterval {
            kind: (request.op, request.sectors),
            begin: request.issue.unwrap_or(begin),
            complete,
        })
        .filter(|service| service.begin < service.complete)
        .collect();
    services.sort_by_key(|service| (service.begin, service.complete));
    let mut ends: Vec<Nanos> = Vec::new();
    let mut begun_at_depth = vec![0; MOST + 1];
    for service in &services {
        ends.retain(|end| *end > service.begin);
        ends.push(service.complete);
        begun_at_depth[ends.len().min(MOST)] += 1;
    }
    let with_at_least = |depth: usize| begun_at_depth[depth..].iter().sum::<usize>();
    let depth = (1..=MOST).rev().find(|depth| with_at_least(*depth) >= ENOUGH).unwrap_or(1);
    if depth > 1 && serves_at_once(&services) {
        QueueDepthEstimate { depth, overlapping: with_at_least(2) }
    } else {
        QueueDepthEstimate::default()
    }
}

/// Whether the device serves overlapping requests in parallel, by the rule of [`AT_ONCE`]. The median is taken over requests whose
/// operation and size were also served without overlap.
fn serves_at_once(services: &[ServiceInterval]) -> bool {
    let is_alone = not_overlapping(services.iter().map(|service| (service.begin, service.complete)));
    let mut ends: Vec<Nanos> = services.iter().map(|service| service.complete).collect();
    ends.sort_unstable();
    let mut by_kind: BTreeMap<(Op, u32), (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (service, is_alone) in services.iter().zip(is_alone) {
        let (alone, overlapping) = by_kind.entry(service.kind).or_default();
        if is_alone {
            alone.push((service.complete - service.begin).0 as f64);
        } else {
            let earlier = ends.partition_point(|end| *end < service.complete);
            let before = if earlier > 0 { ends[earlier - 1].max(service.begin) } else { service.begin };
            overlapping.push((service.complete - before).0 as f64);
        }
    }
    let mut shares = Vec::new();
    for (mut alone, overlapping) in by_kind.into_values().filter(|(alone, _)| !alone.is_empty()) {
        let usual = median(&mut alone);
        shares.extend(overlapping.iter().map(|time| time / usual));
    }
    shares.len() >= ENOUGH && median(&mut shares) <= AT_ONCE
}

/// Returns for each service, in order, whether no other service was in progress when it began.
pub(crate) fn not_overlapping(services: impl Iterator<Item = (Nanos, Nanos)>) -> Vec<bool> {
    let services: Vec<_> = services.collect();
    let mut order: Vec<usize> = (0..services.len()).collect();
    order.sort_by_key(|at| services[*at]);
    let mut out = vec![false; services.len()];
    let mut busy_until = Nanos(i64::MIN);
    for at in order {
        let (begin, complete) = services[at];
        out[at] = begin >= busy_until;
        busy_until = busy_until.max(complete);
    }
    out
}
