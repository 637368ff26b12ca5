//! Turns a new device into a used one. All methods terminate: fills write each unit once, the others have an upper bound.

mod aging_device;
mod phone_use;
mod specification;

use std::fmt::Write;

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{Nanos, Result, TraceCombiner, TraceInput};

use self::aging_device::AgingDevice;
pub use self::aging_device::preconditioned_bytes;
pub use self::phone_use::PhoneUse;
pub use self::specification::Precondition;
use crate::images::{ImageStore, file_hash};
use crate::options::ReplayOptions;
use crate::wrap_addresses::wrap_address;

/// Idle time that is enough for all background work of a UFS.
const HIBERNATION: Nanos = Nanos(3_600_000_000_000);

/// Makes the device that the options describe, or reads it from the store if it has been made before.
pub(crate) fn precondition(
    config: &DeviceConfig,
    options: &ReplayOptions,
    store: Option<&ImageStore>,
) -> Result<Device> {
    if options.precondition == Precondition::None {
        return Ok(Device::new(config));
    }
    match store {
        Some(store) => store.device(config, &recipe(config, options)?, || Ok(off(config, make(config, options)?))),
        None => Ok(off(config, make(config, options)?)),
    }
}

/// Makes the device that the options describe if the store does not have it; returns false if another process is making it. For a new
/// device, nothing is done.
///
/// # Errors
/// As [`crate::Simulation::new`].
pub fn prepare(config: &DeviceConfig, options: &ReplayOptions, store: &ImageStore) -> Result<bool> {
    if options.precondition == Precondition::None {
        return Ok(true);
    }
    store.keep(config, &recipe(config, options)?, || Ok(off(config, make(config, options)?)))
}

/// As [`prepare`], for [`age_by_traces`].
///
/// # Errors
/// As [`age_by_traces`].
pub fn prepare_by_traces(config: &DeviceConfig, inputs: Vec<TraceInput>, store: &ImageStore) -> Result<bool> {
    store.keep(config, &recipe_of_traces(config, &inputs)?, || Ok(off(config, replay(config, inputs)?)))
}

/// Text that identifies an image: the settings that determine the contents, and what is written.
fn recipe(config: &DeviceConfig, options: &ReplayOptions) -> Result<String> {
    let (written, pauses) = match &options.precondition {
        // The nights of this usage are pauses, in which some devices do background work.
        used @ Precondition::Used(_) => (format!("{used} seed {}", options.seed), true),
        // Nothing is random, so all seeds share one device.
        sequential @ Precondition::Sequential(_) => (format!("{sequential:?}"), false),
        random => (format!("{random:?} seed {}", options.seed), false),
    };
    Ok(format!("{}\n{written}", config.deciding_contents(pauses)?))
}

fn recipe_of_traces(config: &DeviceConfig, inputs: &[TraceInput]) -> Result<String> {
    let mut recipe = format!("{}\ntraces", config.deciding_contents(false)?);
    for input in inputs {
        let hash = file_hash(&input.path)?;
        let _ = write!(recipe, " {hash:032x} {:?} {}", input.options, input.start_offset);
    }
    Ok(recipe)
}

/// Powers a device off in an orderly way, as before every run. A UFS hibernates before that, so that the run does not pay for a write
/// booster that preconditioning filled.
fn off(config: &DeviceConfig, mut device: Device) -> Device {
    device.switch_off(if config.settings().interface.is_ufs() { HIBERNATION } else { Nanos::ZERO });
    device
}

/// A device that has executed traces, each request when the previous one is complete. It is read from the store if it has been made before
/// with the same settings and trace files. Addresses beyond the device are wrapped.
///
/// # Errors
/// If a trace cannot be read, the device stops on the way, or the store fails.
pub fn age_by_traces(config: &DeviceConfig, inputs: Vec<TraceInput>, store: Option<&ImageStore>) -> Result<Device> {
    match store {
        Some(store) => {
            store.device(config, &recipe_of_traces(config, &inputs)?, || Ok(off(config, replay(config, inputs)?)))
        }
        None => Ok(off(config, replay(config, inputs)?)),
    }
}

fn replay(config: &DeviceConfig, inputs: Vec<TraceInput>) -> Result<Device> {
    let mut age = AgingDevice::new(config, 0);
    let capacity = u64::from(age.units()) * u64::from(age.unit_sectors());
    let mut traces = TraceCombiner::open(inputs, 1)?;
    while let Some(batch) = traces.next_batch()? {
        for request in &batch {
            let (sector, sectors) = wrap_address(request.sector.0, request.sectors, capacity, true)?;
            age.submit(request.op, sector, sectors)?;
        }
    }
    Ok(age.into_device())
}

fn make(config: &DeviceConfig, options: &ReplayOptions) -> Result<Device> {
    options.precondition.check()?;
    let mut age = AgingDevice::new(config, options.seed);
    let share = |units: u32, share: f64| (f64::from(units) * share / 100.0) as u32;
    match &options.precondition {
        Precondition::None => {}
        Precondition::Sequential(percent) => age.fill(share(age.units(), *percent))?,
        Precondition::Random(percent) => age.fill_at_random(share(age.units(), *percent))?,
        Precondition::SteadyState { most_capacities } => {
            age.fill(age.units())?;
            age.until_flat(*most_capacities)?;
        }
        Precondition::Used(usage) => phone_use::live(&mut age, usage)?,
    }
    Ok(age.into_device())
}
