//! Preconditioning: turns a new device into a used one. Every method ends. Methods that fill the device write each unit once; the other
//! methods have an upper bound for the amount of written data.

mod aging_device;
mod phone_use;

use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{Error, ErrorClass, Nanos, Result, TraceCombiner, TraceInput};
use serde::{Deserialize, Serialize};

use self::aging_device::AgingDevice;
use crate::arrival_pacer::wrap_address;
use crate::images::{ImageStore, file_hash};
use crate::options::ReplayOptions;

pub use self::aging_device::preconditioned_bytes;
pub use self::phone_use::PhoneUse;

/// Idle time before hibernation that is sufficient for all background work of a UFS.
const HIBERNATION: Nanos = Nanos(3_600_000_000_000);

/// Creates the preconditioned device of the options, or reads it from the store if it was created before.
pub(crate) fn precondition(config: &DeviceConfig, options: &ReplayOptions, store: Option<&ImageStore>) -> Result<Device> {
    if options.precondition == Precondition::None {
        return Ok(Device::new(config));
    }
    match store {
        Some(store) => store.device(config, &recipe(config, options)?, || make(config, options)),
        None => make(config, options),
    }
}

/// Creates the preconditioned device of the options if it is not in the store. Returns false if another process is creating it. Does
/// nothing if the options ask for a new device.
pub fn prepare(config: &DeviceConfig, options: &ReplayOptions, store: &ImageStore) -> Result<bool> {
    if options.precondition == Precondition::None {
        return Ok(true);
    }
    store.keep(config, &recipe(config, options)?, || make(config, options))
}

/// Prepares the device of [`age_by_traces`] like [`prepare`]. Only the slow part is stored: the preconditioning of the options, or the
/// replay of the traces on a new device.
pub fn prepare_by_traces(
    config: &DeviceConfig, options: &ReplayOptions, inputs: Vec<TraceInput>, store: &ImageStore,
) -> Result<bool> {
    if options.precondition == Precondition::None {
        return store.keep(config, &recipe_of_traces(config, &inputs)?, || replay(config, Device::new(config), inputs));
    }
    prepare(config.with_whole_map()?.as_ref().unwrap_or(config), options, store)
}

/// Returns the text that identifies an image: the device settings that determine the contents, and the data that preconditioning writes.
fn recipe(config: &DeviceConfig, options: &ReplayOptions) -> Result<String> {
    let (written, pauses) = match &options.precondition {
        // This preconditioning has pauses (nights), in which some devices do background work.
        used @ Precondition::Used(_) => (format!("{used} seed {}", options.seed), true),
        // A sequential fill has no random choices, so the device is the same for all seeds.
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

/// Shuts a device down cleanly, as before every run. A UFS first gets idle time for its background work. The SLC cache of every device is
/// folded. Otherwise, the run would read data from the cache that preconditioning happened to leave there.
/// Errors: if the device has no room for the data of its SLC cache.
fn off(config: &DeviceConfig, mut device: Device) -> Result<Device> {
    device.switch_off(if config.settings().interface.is_ufs() { HIBERNATION } else { Nanos::ZERO });
    stopped(&device).map_or(Ok(device), Err)
}

/// The error of a device that has stopped during preconditioning.
fn stopped(device: &Device) -> Option<Error> {
    let stop = device.stop()?;
    Some(bad(
        format!("preconditioning had to stop: {}", stop.reason()),
        "fill a smaller share, or enable garbage collection (gc.policy) with over-provisioning",
    ))
}

/// Returns a device that was preconditioned according to the options and has then executed traces, each request at the completion of the
/// previous one. The device is read from the store if it was created before with the same settings and trace files. Addresses beyond the
/// device are wrapped.
///
/// A device with its map on the flash is preconditioned with the whole map in memory, before the map is written. Its data is therefore in
/// the same places under all mapping schemes, which share one preconditioned device.
/// Errors: if a trace cannot be read, the device stops during ageing, or the store fails.
pub fn age_by_traces(
    config: &DeviceConfig, options: &ReplayOptions, inputs: Vec<TraceInput>, store: Option<&ImageStore>,
) -> Result<Device> {
    if options.precondition == Precondition::None
        && let Some(store) = store
    {
        let recipe = recipe_of_traces(config, &inputs)?;
        return store.device(config, &recipe, || replay(config, Device::new(config), inputs));
    }
    let device = match config.with_whole_map()? {
        _ if options.precondition == Precondition::None => Device::new(config),
        Some(whole) => precondition(&whole, options, store)?.with_map_on_flash(config),
        None => {
            let mut device = precondition(config, options, store)?;
            device.rewind();
            device
        }
    };
    replay(config, device, inputs)
}

fn replay(config: &DeviceConfig, device: Device, inputs: Vec<TraceInput>) -> Result<Device> {
    let mut age = AgingDevice::of(device, 0);
    let capacity = u64::from(age.units()) * u64::from(age.unit_sectors());
    let mut traces = TraceCombiner::open(inputs, 1)?;
    while let Some(batch) = traces.next_batch()? {
        for request in &batch {
            let (sector, sectors) = wrap_address(request.sector.0, request.sectors, capacity, true)?;
            age.submit(request.op, sector, sectors)?;
        }
    }
    off(config, age.into_device())
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
    off(config, age.into_device())
}

/// Default upper bound of the data that is overwritten, as a multiple of the capacity.
const MOST_CAPACITIES: f64 = 4.0;

/// Contents of the device before the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Precondition {
    /// None: a new device.
    #[default]
    None,
    /// A percentage of the logical capacity is written once, sequentially.
    Sequential(f64),
    /// A percentage of the logical capacity is written once, in random order in units of 4 KB (or one map unit).
    Random(f64),
    /// The device is filled, and then overwritten at random until write amplification no longer changes. The amount of overwritten data is
    /// limited.
    SteadyState {
        /// Upper bound of the data that is overwritten, as a multiple of the capacity.
        most_capacities: f64,
    },
    /// The device was used in a phone for some time.
    Used(PhoneUse),
}

impl Precondition {
    /// Whether the contents of the device depend on the seed.
    pub fn is_random(&self) -> bool {
        !matches!(self, Self::None | Self::Sequential(_))
    }

    /// Upper bound of the bytes that are written to precondition a device of `capacity` bytes; 0 if it remains new.
    pub fn most_bytes(&self, capacity: f64) -> f64 {
        capacity
            * match self {
                Self::None => 0.0,
                Self::Sequential(share) | Self::Random(share) => share / 100.0,
                Self::SteadyState { most_capacities } => 1.0 + most_capacities,
                Self::Used(usage) => {
                    return usage.filled_pct / 100.0 * capacity + usage.most_written(capacity);
                }
            }
    }

    /// Returns an error for impossible percentages and bounds.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Sequential(share) | Self::Random(share) if !(0.0..=100.0).contains(share) => {
                Err(bad(format!("{share} % of the capacity cannot be filled"), "use 0 to 100 %"))
            }
            Self::SteadyState { most_capacities } if !(*most_capacities > 0.0 && *most_capacities <= 1000.0) => Err(bad(
                format!("a limit of {most_capacities} capacities is impossible"),
                "use more than 0, and at most 1000 times the capacity",
            )),
            Self::None | Self::Sequential(_) | Self::Random(_) | Self::SteadyState { .. } => Ok(()),
            Self::Used(usage) => usage.check(),
        }
    }
}

impl FromStr for Precondition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (word, amount) = text.split_once(':').map_or((text, None), |(word, amount)| (word, Some(amount)));
        let number = |default: f64, example: &str| match amount {
            None => Ok(default),
            Some(amount) => {
                amount.parse().map_err(|_| bad(format!("`{amount}` is not a number"), &format!("write it as `{word}:{example}`")))
            }
        };
        let parsed = match (word, amount) {
            ("none", None) => Self::None,
            ("sequential", _) => Self::Sequential(number(100.0, "90")?),
            ("random", _) => Self::Random(number(100.0, "90")?),
            ("steady", _) => Self::SteadyState { most_capacities: number(MOST_CAPACITIES, "4")? },
            ("used", Some(amount)) => Self::Used(amount.parse()?),
            _ => {
                return Err(bad(
                    format!("`{text}` is not a way to precondition a device"),
                    "use none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE (as used:1y), the path of a trace, or one of them then a trace",
                ));
            }
        };
        parsed.check()?;
        Ok(parsed)
    }
}

impl Display for Precondition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Sequential(share) => write!(out, "sequential:{share}"),
            Self::Random(share) => write!(out, "random:{share}"),
            Self::SteadyState { most_capacities } => write!(out, "steady:{most_capacities}"),
            Self::Used(usage) => write!(out, "used:{usage}"),
        }
    }
}

impl TryFrom<String> for Precondition {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Precondition> for String {
    fn from(what: Precondition) -> Self {
        what.to_string()
    }
}

pub(super) fn bad(problem: String, hint: &str) -> Error {
    Error::new(ErrorClass::Config, problem).in_field("precondition").hint(hint)
}
