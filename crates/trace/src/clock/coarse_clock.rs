//! Detects a recorder's clock that is too coarse to tell the order and the waits of requests.
//!
//! The time stamps of a clock are multiples of its step, which is found as their greatest common divisor. Some times in a trace are a stamp
//! plus a duration that another clock measured. Such times are not multiples of the step. A clock is coarse if requests share stamps, and
//! its step is above the median response time. If there are no response times, the step must be above the mean time between arrivals.

use crate::Request;

/// Number of requests at the beginning of a trace that are examined to detect a coarse clock.
pub(crate) const JUDGED: usize = 1 << 12;
/// Number of time stamps in a group. Each group has its own greatest common divisor, so that a wrong stamp affects only its group.
const GROUP: usize = 16;
/// Of this many groups, at most one may have wrong time stamps.
const SPOILED: usize = 10;
/// Minimum step of a coarse clock, in ns. Ordinary clocks have shorter steps.
const LEAST_NS: u64 = 10_000;
/// A clock is coarse only if at least one of this many requests has the same stamp as the request before it.
const SHARED: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoarseClock {
    step_ns: i64,
    /// One time stamp of the clock, in ns. All other time stamps differ from it by a multiple of the step.
    stamp: i64,
}

impl CoarseClock {
    /// Examines the first requests of a trace, in the order of its file; `None` if the clock is not coarse.
    pub fn of(requests: &[Request]) -> Option<Self> {
        let arrivals: Vec<_> = requests.iter().map(|request| request.arrival.0).collect();
        let completions: Vec<_> = requests.iter().filter_map(|request| Some(request.complete?.0)).collect();
        let mut responses: Vec<_> = requests.iter().filter_map(|request| Some((request.complete? - request.arrival).0)).collect();
        let limit = if responses.is_empty() {
            let (first, last) = (arrivals.iter().min()?, arrivals.iter().max()?);
            last.abs_diff(*first) / arrivals.len() as u64
        } else {
            let middle = responses.len() / 2;
            responses.select_nth_unstable(middle).1.unsigned_abs()
        };
        let coarse = [arrivals, completions].into_iter().filter_map(|stamps| {
            let step = step(&stamps).filter(|step| *step > limit.max(LEAST_NS))?;
            let shared = stamps.windows(2).filter(|pair| pair[0] == pair[1]).count();
            (shared > 0 && shared >= stamps.len() / SHARED).then_some((step, stamps[0]))
        });
        let (step, stamp) = coarse.max()?;
        Some(Self { step_ns: i64::try_from(step).ok()?, stamp })
    }

    /// Moves the arrival of a request back to the preceding step of the coarse clock, and its other times by the same amount. Its durations
    /// do not change. Requests with the same step keep the order of the file.
    #[inline]
    pub fn keep_order(&self, request: &mut Request) {
        let early = request.arrival.0.wrapping_sub(self.stamp).rem_euclid(self.step_ns);
        let Request { arrival, start, issue, served, complete, .. } = request;
        let times = [Some(arrival), start.as_mut(), issue.as_mut(), served.as_mut(), complete.as_mut()];
        for time in times.into_iter().flatten() {
            time.0 = time.0.saturating_sub(early);
        }
    }

    /// The step of the clock as text for the header of a file, such as `1ms`.
    pub fn text(&self) -> String {
        let (divisor, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(divisor, _)| self.step_ns % divisor == 0)
            .unwrap_or((1, "ns"));
        format!("{}{unit}", self.step_ns / divisor)
    }
}

/// Returns the greatest common divisor of the differences between time stamps; `None` if all stamps are equal. The stamps are divided into
/// groups. The groups with the smallest divisors are ignored, because they may contain wrong stamps.
fn step(stamps: &[i64]) -> Option<u64> {
    let first = *stamps.first()?;
    let of_group = |group: &[i64]| group.iter().fold(0, |all, stamp| divisor(all, stamp.abs_diff(first)));
    let mut divisors: Vec<_> = stamps.chunks(GROUP).map(of_group).filter(|divisor| *divisor > 0).collect();
    divisors.sort_unstable();
    divisors.iter().skip(divisors.len() / SPOILED).copied().reduce(divisor)
}

/// The greatest common divisor; for 0 and a number, the number.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use emmclab_base::{Nanos, Op, Sector};

    fn request(arrival: i64, complete: Option<i64>) -> Request {
        Request { complete: complete.map(Nanos), ..Request::new(Nanos(arrival), Op::Read, Sector(0), 8) }
    }

    /// Requests that end at these stamps and take this long.
    fn ended_at(stamps: impl IntoIterator<Item = i64>, took: impl Fn(i64) -> i64) -> Vec<Request> {
        stamps.into_iter().zip(0..).map(|(end, number)| request(end - took(number), Some(end))).collect()
    }

    fn coarse_clock_text(requests: &[Request]) -> Option<String> {
        CoarseClock::of(requests).map(|clock| clock.text())
    }

    #[test]
    fn stamps_in_milliseconds_are_coarse_for_responses_of_microseconds() {
        let ms = |ms: i64| ms * 1_000_000;
        assert_eq!(coarse_clock_text(&ended_at([1, 1, 1, 2].map(ms), |_| 300_000)), Some("1ms".to_owned()));
        let many = || (0..2_000).map(|number| ms(number / 3));
        assert_eq!(coarse_clock_text(&ended_at(many(), |number| 80_000 + number * 7)), Some("1ms".to_owned()));
        // Responses that are longer than the clock step are measured precisely enough.
        assert_eq!(coarse_clock_text(&ended_at(many(), |number| 2_000_000 + number * 7)), None);
        // A timer sends a request every millisecond. The requests do not share time stamps, so the clock does not count as coarse.
        assert_eq!(coarse_clock_text(&ended_at((0..2_000).map(ms), |number| 80_000 + number * 7)), None);
    }

    #[test]
    fn a_few_stamps_with_an_error_do_not_hide_the_step() {
        let stamps = (0..2_000).map(|number| if number % 400 == 399 { 1_234_567_891 } else { number / 5 * 4_000_000 });
        assert_eq!(coarse_clock_text(&ended_at(stamps, |_| 1_000_000)), Some("4ms".to_owned()));
        let seconds: Vec<_> = (0..100).map(|number| request(7 + number / 9 * 1_000_000_000, None)).collect();
        assert_eq!(coarse_clock_text(&seconds), Some("1s".to_owned()));
    }
}
