//! Service and waiting times of requests.

use emmclab_trace::Op;

use crate::distribute::{SynthesisRng, scale_to, scatter};
use crate::model::{ServiceModel, WorkloadModel};
use crate::synthesizer::nanos;

/// Maximum service time of a request, so that sums over a generated batch fit into 64 bits.
pub(crate) const SLOWEST_NS: u64 = 1 << 44;

/// The times of a model in nanoseconds, and its sizes in sectors.
pub(crate) struct ModelTimes {
    /// Idle times within bursts and between them, with their weights.
    pub think: Vec<(u64, u64)>,
    pub idle: Vec<(u64, u64)>,
    pub service: Option<ServiceTimeSampler>,
}

pub(crate) struct ServiceTimeSampler {
    /// Sizes in sectors with their service times in ns, for reads and for writes.
    points: [Vec<(u64, u64)>; 2],
    /// Ratios of service times to the expected ones, in parts per million, with their weights.
    jitter: Vec<(u64, u64)>,
    pub fetch: u64,
    wake_after: u64,
    wake_up: u64,
}

impl ModelTimes {
    pub(crate) fn new(model: &WorkloadModel) -> Self {
        let list = |pairs: &[(f64, u64)], unit: f64| pairs.iter().map(|(time, weight)| (nanos(*time, unit), *weight)).collect();
        Self {
            think: list(&model.bursts.think_us, 1e3),
            idle: list(&model.bursts.idle_ms, 1e6),
            service: model.service.as_ref().map(ServiceTimeSampler::new),
        }
    }
}

impl ServiceTimeSampler {
    fn new(model: &ServiceModel) -> Self {
        let points = |points: &[(f64, f64)]| points.iter().map(|(kb, us)| ((kb * 2.0).round() as u64, nanos(*us, 1e3))).collect();
        Self {
            points: [points(&model.read_us), points(&model.write_us)],
            jitter: model.jitter_pct.iter().map(|(pct, weight)| (nanos(*pct, 1e4), *weight)).collect(),
            fetch: nanos(model.fetch_us, 1e3),
            wake_after: nanos(model.wake_after_ms, 1e6),
            wake_up: nanos(model.wake_up_ms, 1e6),
        }
    }

    /// The expected service time of a size, ns. It is interpolated linearly between the points of the model. Below the first point, it is
    /// the time of that point; above the last point, it is proportional to the size.
    pub(crate) fn expected(&self, op: Op, sectors: u64) -> u64 {
        let points = &self.points[op as usize];
        let above = points.partition_point(|point| point.0 < sectors);
        let Some((size, time)) = points.get(above) else {
            let (size, time) = points[points.len() - 1];
            return time.saturating_mul(sectors) / size.max(1);
        };
        let Some((low, low_time)) = above.checked_sub(1).map(|below| points[below]) else { return *time };
        let (part, whole) = (i128::from(sectors - low), i128::from(size - low));
        (i128::from(low_time) + (i128::from(*time) - i128::from(low_time)) * part / whole) as u64
    }

    /// Returns the service times of the requests of a chapter (one generated batch), and the wake-up times that these include. The service
    /// times add up to `total`.
    pub(crate) fn deal(
        &self, ops: &[Op], sectors: &[u64], idle: &[u64], total: u64, dice: &mut SynthesisRng,
    ) -> (Vec<u64>, Vec<u64>) {
        let mut woken: Vec<u64> = idle.iter().map(|gap| if *gap > self.wake_after { self.wake_up } else { 0 }).collect();
        let most = total / 10 * 9;
        if woken.iter().sum::<u64>() > most {
            scale_to(&mut woken, most);
        }
        // At first, `service` contains random factors in millionths of the expected service time. The loop replaces them by times in ns.
        let mut service = scatter(&self.jitter, ops.len() as u64, dice);
        for ((service, op), sectors) in service.iter_mut().zip(ops).zip(sectors) {
            let expected = u128::from(self.expected(*op, *sectors)) * u128::from(*service) / 1_000_000;
            *service = expected.min(u128::from(SLOWEST_NS)) as u64;
        }
        scale_to(&mut service, total - woken.iter().sum::<u64>());
        for (service, woken) in service.iter_mut().zip(&woken) {
            *service += woken;
        }
        (service, woken)
    }
}

/// The number 1 in the fixed-point format of `scale` in [`ServerQueue`].
const ONE: u64 = 1 << 40;

/// Requests that wait for one server, which serves them in order of arrival.
///
/// A request that waits arrives while its predecessor is unfinished; it waits for at most the response time of its predecessor. Each
/// request waits for `scale` times this maximum, varied by up to a quarter, so that one number determines all waiting times.
pub(crate) struct ServerQueue<'a> {
    pub waits: &'a [bool],
    pub service: &'a [u64],
    pub fetch: u64,
}

impl ServerQueue<'_> {
    /// Waiting times that add up to `total`. If even the longest possible waiting times are too short, these are returned as `Err`.
    pub(crate) fn deal(&self, total: u64, dice: &mut SynthesisRng) -> Result<Vec<u64>, Vec<u64>> {
        // Each random factor is from 3/4 to 5/4, in units of 1/256.
        let those: Vec<(usize, u64)> =
            (1..self.waits.len()).filter(|i| self.waits[*i]).map(|i| (i, 192 + dice.below(129))).collect();
        let (mut fits, mut exceeds) = (0, 2 * ONE);
        while exceeds - fits > 1 {
            let middle = fits.midpoint(exceeds);
            if self.waiting(middle, &those, |_, _| ()) <= u128::from(total) {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        let mut waiting = vec![0; self.waits.len()];
        let reached = self.waiting(fits, &those, |i, wait| waiting[i] = wait);
        let short = u128::from(total).saturating_sub(reached);
        if short > u128::from(total / 1_000) { Err(waiting) } else { Ok(waiting) }
    }

    /// Computes the waiting time of each request in `those` and calls `each` with the index and the waiting time. Returns the sum of the
    /// waiting times.
    #[inline]
    fn waiting(&self, scale: u64, those: &[(usize, u64)], mut each: impl FnMut(usize, u64)) -> u128 {
        let (mut sum, mut wait) = (0_u128, 0_u64);
        for (i, spread) in those {
            let before = *i - 1;
            let response = if self.waits[before] { wait } else { self.fetch } + self.service[before];
            let scaled = (u128::from(response) * u128::from(scale) * u128::from(*spread)) >> 48;
            // The request arrives at least 1 ns before its predecessor is finished.
            wait = (scaled.min(u128::from(response)) as u64).max(1).min(response);
            sum += u128::from(wait);
            each(*i, wait);
        }
        sum
    }
}
