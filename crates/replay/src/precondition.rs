//! Making a used device out of a new one. Every way ends: fills write each unit once, the steady state has a bound.

use std::fmt::Write;

use emmclab_device::{Command, Device, DeviceConfig, PREFETCHED};
use emmclab_trace::{Combiner, Error, Kind, Nanos, Op, Result, TraceInput, interrupt};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::images::{ImageStore, file_hash};
use crate::options::{Precondition, ReplayOptions};
use crate::wrap_addresses::place;

/// Share of the capacity between two samples of write amplification.
const STEP: f64 = 0.1;
/// Relative change of write amplification from one whole capacity to the next at which it is flat.
const FLAT: f64 = 0.01;
/// Samples in one capacity.
const SAMPLES: usize = 10;
/// Time for all background work of a UFS.
const HIBERNATION: Nanos = Nanos(3_600_000_000_000);
/// Commands between two looks at whether the work is to end; some ms.
const BETWEEN_CHECKS: u64 = 256;

/// The device that the options ask for, from the store where it has been made before.
pub(crate) fn precondition(
    config: &DeviceConfig,
    options: &ReplayOptions,
    store: Option<&ImageStore>,
) -> Result<Device> {
    if options.precondition == Precondition::None {
        return Ok(Device::new(config));
    }
    match store {
        Some(store) if is_quick(options) && store.is_limited() => {
            store.device_in_memory(config, &recipe(options), || Ok(off(config, make(config, options)?)))
        }
        Some(store) => store.device(config, &recipe(options), || Ok(off(config, make(config, options)?))),
        None => Ok(off(config, make(config, options)?)),
    }
}

/// Makes the device that the options ask for where the store does not hold it; false where another process is making it.
/// Nothing is done for a new device.
///
/// # Errors
/// As [`crate::Simulation::new`].
pub fn prepare(config: &DeviceConfig, options: &ReplayOptions, store: &ImageStore) -> Result<bool> {
    if options.precondition == Precondition::None || (is_quick(options) && store.is_limited()) {
        return Ok(true);
    }
    store.keep(config, &recipe(options), || Ok(off(config, make(config, options)?)))
}

/// As [`prepare`], for [`age_by_traces`].
///
/// # Errors
/// As [`age_by_traces`].
pub fn prepare_by_traces(config: &DeviceConfig, inputs: Vec<TraceInput>, store: &ImageStore) -> Result<bool> {
    store.keep(config, &recipe_of_traces(&inputs)?, || Ok(off(config, replay(config, inputs)?)))
}

/// Whether making the device takes no longer than reading its image: 128 GB are filled in 2 s.
fn is_quick(options: &ReplayOptions) -> bool {
    matches!(options.precondition, Precondition::Sequential(_))
}

fn recipe(options: &ReplayOptions) -> String {
    match &options.precondition {
        // Nothing random: one device for all seeds.
        sequential @ Precondition::Sequential(_) => format!("{sequential:?}"),
        random => format!("{random:?} seed {}", options.seed),
    }
}

fn recipe_of_traces(inputs: &[TraceInput]) -> Result<String> {
    let mut recipe = "traces".to_owned();
    for input in inputs {
        let hash = file_hash(&input.path)?;
        let _ = write!(recipe, " {hash:032x} {:?} {}", input.options, input.start_offset);
    }
    Ok(recipe)
}

/// Switches a device off in good order, as it is before every run. A UFS has hibernated before: a run must not pay for a
/// write booster that preconditioning filled.
fn off(config: &DeviceConfig, mut device: Device) -> Device {
    device.switch_off(if config.settings().interface.is_ufs() { HIBERNATION } else { Nanos::ZERO });
    device
}

/// A device that has seen `traces`, each request as soon as the one before is done; from the store where it has been made
/// before of the same settings and the same bytes. Addresses that lie beyond the device are wrapped.
///
/// # Errors
/// Where a trace cannot be read, the device stops on the way, or the store fails.
pub fn age_by_traces(
    config: &DeviceConfig,
    inputs: Vec<TraceInput>,
    store: Option<&ImageStore>,
) -> Result<Device> {
    match store {
        Some(store) => {
            store.device(config, &recipe_of_traces(&inputs)?, || Ok(off(config, replay(config, inputs)?)))
        }
        None => Ok(off(config, replay(config, inputs)?)),
    }
}

fn replay(config: &DeviceConfig, inputs: Vec<TraceInput>) -> Result<Device> {
    let mut age = Age::new(config, 0);
    let capacity = u64::from(age.units) * u64::from(age.unit_sectors);
    let mut traces = Combiner::open(inputs, 1)?;
    while let Some(batch) = traces.next_batch()? {
        for request in &batch {
            let (sector, sectors) = place(request.sector.0, request.sectors, capacity, true)?;
            age.submit(request.op, sector, sectors)?;
        }
    }
    Ok(age.device)
}

fn make(config: &DeviceConfig, options: &ReplayOptions) -> Result<Device> {
    let mut age = Age::new(config, options.seed);
    let share = match options.precondition {
        Precondition::None => return Ok(age.device),
        Precondition::Sequential(share) | Precondition::Random(share) => share,
        Precondition::SteadyState { most_capacities } => {
            if !(most_capacities.is_finite() && (0.0..=1000.0).contains(&most_capacities)) {
                return Err(bad(
                    format!("a limit of {most_capacities} capacities is impossible"),
                    "give 0 to 1000 times the capacity",
                ));
            }
            100.0
        }
    };
    if !(0.0..=100.0).contains(&share) {
        return Err(bad(format!("{share} % of the capacity cannot be filled"), "give 0 to 100 %"));
    }
    let units = (f64::from(age.units) * share / 100.0) as u32;
    if matches!(options.precondition, Precondition::Random(_)) {
        age.fill_at_random(units)?;
    } else {
        age.fill(units)?;
    }
    if let Precondition::SteadyState { most_capacities } = options.precondition {
        age.until_flat(most_capacities)?;
    }
    Ok(age.device)
}

fn bad(problem: String, hint: &str) -> Error {
    Error::new(Kind::Config, problem).hint(hint)
}

/// A new device that is being aged, and what random writes need.
struct Age {
    device: Device,
    units: u32,
    unit_sectors: u32,
    random: Pcg64,
    commands: u64,
}

impl Age {
    fn new(config: &DeviceConfig, seed: u64) -> Self {
        let device = Device::new(config);
        let geometry = device.geometry();
        Self {
            units: geometry.logical_units,
            unit_sectors: geometry.unit_sectors,
            random: Pcg64::new(u128::from(seed), 0x00C0_FFEE),
            device,
            commands: 0,
        }
    }

    fn write(&mut self, unit: u32, count: u32) -> Result<()> {
        self.submit(Op::Write, u64::from(unit) * u64::from(self.unit_sectors), count * self.unit_sectors)
    }

    /// One after the other: time does not matter here, so each comes when the last is done.
    fn submit(&mut self, op: Op, sector: u64, sectors: u32) -> Result<()> {
        self.commands += 1;
        if self.commands.is_multiple_of(BETWEEN_CHECKS) {
            interrupt::check()?;
        }
        let arrival = Nanos(self.device.idle_from().0.max(0));
        self.device.complete(&Command::new(arrival, op, sector, sectors))?;
        match self.device.stop() {
            None => Ok(()),
            Some(stop) => Err(bad(
                format!("preconditioning had to stop: {}", stop.reason()),
                "fill a smaller share, or turn collection on (gc.policy) with some over-provisioning",
            )),
        }
    }

    fn fill(&mut self, units: u32) -> Result<()> {
        // 512 KB, the largest request of the kernels of these devices.
        let chunk = (1024 / self.unit_sectors).max(1);
        let mut at = 0;
        while at < units {
            let count = chunk.min(units - at);
            self.write(at, count)?;
            at += count;
        }
        Ok(())
    }

    fn fill_at_random(&mut self, units: u32) -> Result<()> {
        let mut order: Vec<u32> = (0..self.units).collect();
        for i in 0..units {
            let left = u64::from(self.units - i);
            let other = i + (((self.random.next_u64() >> 32) * left) >> 32) as u32;
            order.swap(i as usize, other as usize);
        }
        order[..units as usize].chunks(PREFETCHED).try_for_each(|units| self.write_each(units))
    }

    /// Writes units one after the other. Their places are known beforehand, so that the cache misses overlap.
    fn write_each(&mut self, units: &[u32]) -> Result<()> {
        let mut sectors = [0; PREFETCHED];
        for (sector, unit) in sectors.iter_mut().zip(units) {
            *sector = u64::from(*unit) * u64::from(self.unit_sectors);
        }
        self.device.prefetch(&sectors[..units.len()]);
        units.iter().try_for_each(|unit| self.write(*unit, 1))
    }

    /// Overwrites at random until the write amplification of a capacity is that of the one before.
    fn until_flat(&mut self, most_capacities: f64) -> Result<()> {
        let step = (f64::from(self.units) * STEP).max(1.0) as u64;
        let samples = (most_capacities / STEP).ceil() as u64;
        let mut programs: Vec<u64> = Vec::new();
        for _ in 0..samples {
            let before = self.device.counters().all_page_programs();
            let mut left = step as usize;
            while left > 0 {
                let mut units = [0; PREFETCHED];
                let units = &mut units[..left.min(PREFETCHED)];
                units.fill_with(|| (((self.random.next_u64() >> 32) * u64::from(self.units)) >> 32) as u32);
                self.write_each(units)?;
                left -= units.len();
            }
            programs.push(self.device.counters().all_page_programs() - before);
            let counted = programs.len();
            if counted > SAMPLES && counted.is_multiple_of(SAMPLES) {
                let (earlier, last) = programs[counted - 2 * SAMPLES..].split_at(SAMPLES);
                let (earlier, last) = (earlier.iter().sum::<u64>() as f64, last.iter().sum::<u64>() as f64);
                if (last - earlier).abs() <= FLAT * earlier {
                    break;
                }
            }
        }
        Ok(())
    }
}
