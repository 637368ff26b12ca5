//! The fixed times of a command, and the slots of the command queue.

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, TimeQuantile};

use super::link::{has_link, sector_time};
use crate::geometry::nanos;
use crate::nand::mix;

/// Times for the execution of commands, and the command queue with the times at which its slots become free.
#[derive(Clone, Debug)]
pub(crate) struct CommandPath {
    pub read_overhead: Nanos,
    write_overhead: Nanos,
    /// Transfer time of a sector between host and device, in 1/1024 ns.
    sector_time: i64,
    /// Time that the host needs to fetch a request.
    pub fetch: Nanos,
    /// Time from the end of a command until the host has issued a command that waited for its slot.
    issue: Nanos,
    /// Additional time of a reliable write, or of a UFS write with FUA.
    pub reliable: Nanos,
    /// Additional time of a flush.
    pub flush: Nanos,
    /// Additional time of a discard.
    pub discard: Nanos,
    pub read_stalls: TimeSampler,
    pub write_stalls: TimeSampler,
    /// The slots of the command queue; empty if their number is not limited.
    pub slots: CommandSlots,
}

impl CommandPath {
    pub fn new(settings: &DeviceSettings) -> Self {
        let controller = &settings.controller;
        Self {
            read_overhead: nanos(controller.read_overhead_us),
            write_overhead: nanos(controller.write_overhead_us),
            // The transfer time of other devices belongs to their link or bus.
            sector_time: if has_link(settings) { 0 } else { sector_time(settings) },
            fetch: settings.host.fetch(),
            issue: nanos(settings.host.issue_us),
            reliable: nanos(if settings.interface.is_ufs() { settings.interface.fua_us } else { controller.reliable_write_us }),
            flush: nanos(settings.cache.flush_us),
            discard: nanos(settings.controller.discard_us),
            read_stalls: TimeSampler::new(&controller.read_stalls, mix(settings.power.seed ^ u64::from(b'r'))),
            write_stalls: TimeSampler::new(&controller.write_stalls, mix(settings.power.seed ^ u64::from(b'w'))),
            slots: CommandSlots::new(controller.queue_depth as usize),
        }
    }

    /// Replaces the command times for commands that arrive from now on.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        let mut new = Self { slots: std::mem::take(&mut self.slots), ..Self::new(settings) };
        new.read_stalls.drawn = self.read_stalls.drawn;
        new.write_stalls.drawn = self.write_stalls.drawn;
        *self = new;
    }

    pub fn rewind(&mut self) {
        self.slots.rewind();
        self.read_stalls.drawn = 0;
        self.write_stalls.drawn = 0;
    }

    #[inline]
    pub fn is_limited(&self) -> bool {
        self.slots.len() > 0
    }

    /// Returns the time at which the device accepts a request that arrives at `arrival`: when the host has fetched it, and a slot is free
    /// and the host has noticed it.
    #[inline]
    pub fn start(&self, arrival: Nanos) -> Nanos {
        (arrival + self.fetch).max(self.slots.first_free().saturating_add(self.issue))
    }

    /// Occupies the slot that [`CommandPath::start`] chose, for a command with unknown completion. Returns false if slots are unlimited.
    pub fn hold(&mut self) -> bool {
        self.slots.take(Nanos::MAX);
        self.is_limited()
    }

    /// Time from the start of a command until the flash is accessed: fixed overhead, and transfer of `sectors` sectors (0 for a command
    /// without write data).
    #[inline]
    pub fn before_write(&self, sectors: u32) -> Nanos {
        self.write_overhead + self.host(sectors)
    }

    /// Transfer time of `sectors` between host and device.
    #[inline]
    pub fn host(&self, sectors: u32) -> Nanos {
        Nanos((i64::from(sectors) * self.sector_time) >> 10)
    }
}

/// The times at which slots of the command queue become free, as a sorted ring that begins with the earliest. [`Nanos::MAX`] stands for a
/// command with unknown completion. Commands mostly complete in the order of arrival, so a new time is inserted near the end of the ring.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandSlots {
    free: Vec<Nanos>,
    /// Index of the earliest time in the ring.
    first: usize,
}

impl CommandSlots {
    pub fn new(count: usize) -> Self {
        Self { free: vec![Nanos::MIN; count], first: 0 }
    }

    /// Makes all slots free.
    pub fn rewind(&mut self) {
        self.free.fill(Nanos::MIN);
    }

    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// The earliest time at which a slot is free; [`Nanos::MIN`] if there are no slots.
    #[inline]
    pub fn first_free(&self) -> Nanos {
        self.free.get(self.first).copied().unwrap_or(Nanos::MIN)
    }

    /// Occupies the slot that becomes free first, until `until`.
    #[inline]
    pub fn take(&mut self, until: Nanos) {
        let last = self.first;
        let Some(slot) = self.free.get_mut(last) else { return };
        *slot = until;
        self.first = if last + 1 == self.free.len() { 0 } else { last + 1 };
        self.sort_in(last);
    }

    /// Sets the time `at` at which a slot with unknown completion becomes free. Such slots are the last ones in the ring.
    pub fn release(&mut self, at: Nanos) {
        let last = self.before(self.first);
        self.free[last] = at;
        self.sort_in(last);
    }

    /// Number of slots that are occupied at the time `at`.
    #[inline]
    pub fn in_use(&self, at: Nanos) -> u32 {
        let (late, early) = self.free.split_at(self.first);
        let free = |slots: &[Nanos]| slots.partition_point(|free| *free <= at);
        (self.free.len() - free(early) - free(late)) as u32
    }

    #[inline]
    fn before(&self, index: usize) -> usize {
        if index == 0 { self.free.len() - 1 } else { index - 1 }
    }

    /// Moves the last time of the ring to its place in the order.
    #[inline]
    fn sort_in(&mut self, last: usize) {
        let mut index = last;
        while index != self.first {
            let before = self.before(index);
            if self.free[before] <= self.free[index] {
                break;
            }
            self.free.swap(before, index);
            index = before;
        }
    }
}

/// Number of equally probable steps from which a random draw chooses.
const STEPS: u32 = 1 << 16;

/// A distribution of times from which random times are drawn, and the number of draws so far.
#[derive(Clone, Debug)]
pub(crate) struct TimeSampler {
    /// Quantiles of the distribution: cumulative shares in units of 1 / [`STEPS`], each with its time.
    points: Vec<(u32, Nanos)>,
    seed: u64,
    pub drawn: u64,
}

impl TimeSampler {
    pub fn new(points: &[TimeQuantile], seed: u64) -> Self {
        let step = |pct: f64| (pct / 100.0 * f64::from(STEPS)).round() as u32;
        let points = points.iter().map(|point| (step(point.up_to_pct), nanos(point.us))).collect();
        Self { points, seed, drawn: 0 }
    }

    /// Whether the sampler has no distribution.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the next random time: a quantile that is derived from the seed and the number of draws so far; 0 without a distribution.
    #[inline]
    pub fn draw(&mut self) -> Nanos {
        if self.is_empty() { Nanos::ZERO } else { self.draw_one() }
    }

    fn draw_one(&mut self) -> Nanos {
        let drawn = (mix(self.seed ^ mix(self.drawn)) >> 48) as u32;
        self.drawn += 1;
        let at = self.points.partition_point(|(up_to, _)| *up_to <= drawn).min(self.points.len() - 1);
        let (to, most) = self.points[at];
        let (from, least) = if at == 0 { (0, most) } else { self.points[at - 1] };
        least + Nanos((most - least).0 * i64::from(drawn.saturating_sub(from)) / i64::from((to - from).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_list_of_which_the_least_is_taken(
            count in 0..6usize,
            steps in prop::collection::vec((0..4u8, 0..50i64), 0..60),
        ) {
            let (mut slots, mut plain) = (CommandSlots::new(count), vec![Nanos::MIN; count]);
            for (step, time) in steps {
                let (time, held) = (Nanos(time), plain.iter().position(|free| *free == Nanos::MAX));
                match (step, held) {
                    (0, Some(held)) => {
                        slots.release(time);
                        plain[held] = time;
                    }
                    (0 | 1, _) => {
                        let until = if step == 0 { Nanos::MAX } else { time };
                        slots.take(until);
                        if let Some(slot) = plain.iter_mut().min() {
                            *slot = until;
                        }
                    }
                    (2, _) => {
                        let in_use = plain.iter().filter(|free| **free > time).count();
                        prop_assert_eq!(slots.in_use(time) as usize, in_use);
                    }
                    _ => {}
                }
                prop_assert_eq!(slots.len(), count);
                prop_assert_eq!(slots.first_free(), plain.iter().copied().min().unwrap_or(Nanos::MIN));
            }
        }
    }
}
