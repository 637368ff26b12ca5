//! Ages a new device by commands, each of which arrives when the previous one is complete.

use std::sync::atomic::{AtomicU64, Ordering};

use emmclab_device::{Device, DeviceCommand, DeviceConfig, DeviceCounters, PREFETCHED};
use emmclab_trace::{Nanos, Op, Result, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::stopped;

/// Fraction of the capacity that is written between two samples of write amplification.
const STEP: f64 = 0.1;
/// Number of samples per capacity.
pub(super) const SAMPLES: usize = 10;
/// Write amplification counts as constant if it changes by at most this fraction between two consecutive spans of writes, each as long as
/// the capacity.
const FLAT: f64 = 0.01;
/// Number of commands between two checks for an interrupt; this many commands take some ms.
const BETWEEN_CHECKS: u64 = 256;

/// Number of map units in a part of the list of units in random order. The memory of a part (16 MB) is freed when its units have been
/// written.
const DRAWN_PART: usize = 4 << 20;

/// Bytes that preconditioning has written in this process, for progress reports.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Bytes that preconditioning has written in this process so far, on all devices.
pub fn preconditioned_bytes() -> u64 {
    WRITTEN.load(Ordering::Relaxed)
}

/// A device that is being aged, with the random generator for its writes.
pub(super) struct AgingDevice {
    device: Device,
    units: u32,
    unit_sectors: u32,
    random: Pcg64,
    commands: u64,
    written: u64,
}

impl AgingDevice {
    pub fn new(config: &DeviceConfig, seed: u64) -> Self {
        Self::of(Device::new(config), seed)
    }

    pub fn of(device: Device, seed: u64) -> Self {
        let geometry = device.geometry();
        Self {
            units: geometry.logical_units,
            unit_sectors: geometry.unit_sectors,
            random: Pcg64::new(u128::from(seed), 0x00C0_FFEE),
            device,
            commands: 0,
            written: 0,
        }
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn into_device(self) -> Device {
        self.device
    }

    /// Number of map units of the logical capacity.
    pub fn units(&self) -> u32 {
        self.units
    }

    pub fn unit_sectors(&self) -> u32 {
        self.unit_sectors
    }

    /// Number of map units in 512 KB, the largest request of the kernels of the modelled devices.
    pub fn chunk(&self) -> u32 {
        (1024 / self.unit_sectors).max(1).min(self.units)
    }

    /// A random number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.random.next_u64() >> 32) * u64::from(bound)) >> 32) as u32
    }

    pub fn write(&mut self, unit: u32, count: u32) -> Result<()> {
        self.submit(Op::Write, u64::from(unit) * u64::from(self.unit_sectors), count * self.unit_sectors)
    }

    /// Submits a command at the completion of the previous command, because arrival times do not matter for ageing.
    pub fn submit(&mut self, op: Op, sector: u64, sectors: u32) -> Result<()> {
        self.commands += 1;
        if self.commands.is_multiple_of(BETWEEN_CHECKS) {
            interrupt::check()?;
            let written = self.device.counters().host_bytes_written;
            WRITTEN.fetch_add(written - self.written, Ordering::Relaxed);
            self.written = written;
        }
        let arrival = Nanos(self.device.idle_from().0.max(0));
        self.device.complete(&DeviceCommand::new(arrival, op, sector, sectors))?;
        stopped(&self.device).map_or(Ok(()), Err)
    }

    /// Adds erases that were not simulated to the wear of each block group.
    pub fn wear_on(&mut self, erases: &[u64]) -> Result<()> {
        self.device.wear_on(erases).map_err(|error| error.in_field("precondition"))
    }

    /// Lets the device idle for a time. Its clock then stands at the end of the background work, because idle time without work would not
    /// change anything.
    pub fn idle_for(&mut self, time: Nanos) {
        self.device.idle_until(Nanos(self.device.idle_from().0.max(0)) + time);
    }

    pub fn fill(&mut self, units: u32) -> Result<()> {
        let chunk = self.chunk();
        let mut at = 0;
        while at < units {
            let count = chunk.min(units - at);
            self.write(at, count)?;
            at += count;
        }
        Ok(())
    }

    /// Returns all numbers below `all`: first `drawn` numbers that are drawn at random, then the others.
    pub fn draw(&mut self, drawn: u32, all: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..all).collect();
        for at in 0..drawn {
            let other = at + self.below(all - at);
            order.swap(at as usize, other as usize);
        }
        order
    }

    pub fn fill_at_random(&mut self, units: u32) -> Result<()> {
        let mut order = self.draw(units, self.units);
        order.truncate(units as usize);
        while !order.is_empty() {
            let part = order.len().min(DRAWN_PART);
            order[..part].chunks(PREFETCHED).try_for_each(|units| self.write_each(units))?;
            // The memory of the list is freed part by part, because the tables of a large device need more memory at the same time.
            order.drain(..part);
            order.shrink_to_fit();
        }
        Ok(())
    }

    /// Writes map units one after another. Their addresses are prefetched together, so that the cache misses of the simulator overlap.
    fn write_each(&mut self, units: &[u32]) -> Result<()> {
        let mut sectors = [0; PREFETCHED];
        for (sector, unit) in sectors.iter_mut().zip(units) {
            *sector = u64::from(*unit) * u64::from(self.unit_sectors);
        }
        self.device.prefetch(&sectors[..units.len()]);
        units.iter().try_for_each(|unit| self.write(*unit, 1))
    }

    /// Writes `count` units, each chosen by `choose`.
    pub fn overwrite(&mut self, mut count: usize, mut choose: impl FnMut(&mut Self) -> u32) -> Result<()> {
        while count > 0 {
            let mut units = [0; PREFETCHED];
            let units = &mut units[..count.min(PREFETCHED)];
            for unit in units.iter_mut() {
                *unit = choose(self);
            }
            self.write_each(units)?;
            count -= units.len();
        }
        Ok(())
    }

    /// Overwrites data at random until write amplification is constant, but at most `most_capacities` times the capacity.
    pub fn until_flat(&mut self, most_capacities: f64) -> Result<()> {
        let mut work = SteadyStateDetector::new(u64::from(self.units), (SAMPLES, FLAT), self.device.counters());
        let samples = (most_capacities / STEP).ceil() as u64;
        for _ in 0..samples {
            self.overwrite(work.step as usize, |age| {
                let units = age.units;
                age.below(units)
            })?;
            if work.is_flat(work.next, self.device.counters()) {
                break;
            }
        }
        Ok(())
    }
}

/// Detects whether the work of a device (programs and erases) is constant from one span of writes to the next.
pub(super) struct SteadyStateDetector {
    step: u64,
    next: u64,
    /// Number of samples in a span.
    span: usize,
    /// Maximum relative change from one span to the next for which the work counts as constant.
    change: f64,
    /// Number of programmed pages, and of erased blocks in each group, at each sample.
    samples: Vec<(u64, Vec<u64>)>,
}

impl SteadyStateDetector {
    /// Creates a detector that takes [`SAMPLES`] samples per `capacity` writes. `span` is the number of samples in a span, and `change` the
    /// accepted relative change from one span to the next.
    pub fn new(capacity: u64, (span, change): (usize, f64), counters: &DeviceCounters) -> Self {
        let step = (capacity as f64 * STEP).max(1.0) as u64;
        let first = (counters.all_page_programs(), counters.group_erases.clone());
        Self { step, next: step, span, change, samples: vec![first] }
    }

    /// Records the counters of the device after `done` writes. Returns true if the number of page programs is about the same in the last
    /// two spans of writes.
    pub fn is_flat(&mut self, done: u64, counters: &DeviceCounters) -> bool {
        if done < self.next {
            return false;
        }
        self.next = done + self.step;
        self.samples.push((counters.all_page_programs(), counters.group_erases.clone()));
        let last = self.samples.len() - 1;
        if last <= self.span || !last.is_multiple_of(self.span) {
            return false;
        }
        let programs = |from: usize, to: usize| (self.samples[to].0 - self.samples[from].0) as f64;
        let middle = last - self.span;
        let (earlier, now) = (programs(middle - self.span, middle), programs(middle, last));
        (now - earlier).abs() <= self.change * earlier
    }

    /// Number of blocks erased per write in the last span of writes, for each block group.
    pub fn erase_rates(&self) -> Vec<f64> {
        let last = self.samples.len() - 1;
        let from = last.saturating_sub(self.span);
        let writes = ((last - from).max(1) as u64 * self.step) as f64;
        let (before, now) = (&self.samples[from].1, &self.samples[last].1);
        now.iter().zip(before).map(|(now, before)| (now - before) as f64 / writes).collect()
    }
}
