//! Ages a device by use in a phone. Files occupy a part of the device. Every day, files are created, deleted and overwritten in place, with
//! pauses in which the device does background work, such as folding its SLC cache; at night, deleted data is discarded.
//!
//! Years of use are not simulated completely. Days are simulated until the work of garbage collection is constant, which is determined from
//! consecutive spans of writes, each half as long as the capacity. After that, only the erase counts grow, at the rate of the last span.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use emmclab_trace::{Error, Nanos, Op, Result};

use super::aging_device::{AgingDevice, SAMPLES, SteadyStateDetector};
use super::bad;

/// Units of time and their length in days.
const DAYS: [(&str, f64); 4] = [("mo", 365.0 / 12.0), ("y", 365.0), ("w", 7.0), ("d", 1.0)];
/// Units of size and their number of bytes.
const BYTES: [(&str, f64); 4] = [("KB", 1024.0), ("MB", 1_048_576.0), ("GB", 1_073_741_824.0), ("TB", 1_099_511_627_776.0)];
/// Maximum age in days. A greater age is probably a typing error.
const MOST_DAYS: f64 = 100.0 * 365.0;
/// Maximum number of bytes written per day. A greater number is probably a typing error.
const MOST_DAILY: f64 = 100.0 * 1_099_511_627_776.0;
/// Upper bound of the simulated writes, as a multiple of the capacity.
const MOST_CAPACITIES: f64 = 8.0;
/// The simulation of days ends when the work of the device changes by at most this fraction between two consecutive spans of writes, each
/// half as long as the capacity.
const FLAT: f64 = 0.02;
/// Idle time at the end of each day, for the background work of the device.
const NIGHT: Nanos = Nanos::from_secs(3600);
/// Length in s of the rest of the day, over which the writes are spread evenly.
const DAY_S: f64 = 23.0 * 3600.0;

/// Usage of a device in a phone.
#[derive(Clone, Debug, PartialEq)]
pub struct PhoneUse {
    /// Age in days.
    pub days: f64,
    /// Bytes written per day.
    pub daily_bytes: f64,
    /// Percentage of the capacity that contains data.
    pub filled_pct: f64,
    /// Percentage of the written bytes that overwrite map units (4 KB) in place, evenly distributed over the data. The other writes replace
    /// files of 512 KB, which are written sequentially.
    pub random_pct: f64,
    /// Whether deleted data is discarded at the end of each day, as on Android (`fstrim` when idle).
    pub trim: bool,
}

impl Default for PhoneUse {
    /// One year of use of a device that is 75 % full (an assumption). The 2 GB per day are the writes of four hours of the sixteen
    /// applications and twenty hours of *Idle* in the IISWC 2015 paper (Tables III and IV: 118 KB/s and 3.2 KB/s, 1.9 GB). Half of their
    /// requests have 4 KB (Characteristic 2), and the mean write of the median application has 18 KB, so 4 KB writes are about 12 % of the
    /// bytes.
    fn default() -> Self {
        Self { days: 365.0, daily_bytes: 2.0 * 1_073_741_824.0, filled_pct: 75.0, random_pct: 12.0, trim: true }
    }
}

impl PhoneUse {
    pub(super) fn check(&self) -> Result<()> {
        let share = |name: &str, value: f64| {
            if (0.0..=100.0).contains(&value) {
                return Ok(());
            }
            Err(bad(format!("`{name}={value}`: a share is 0 to 100 %"), "write it as in used:1y,filled=75"))
        };
        share("filled", self.filled_pct)?;
        share("random", self.random_pct)?;
        if !(0.0..=MOST_DAYS).contains(&self.days) {
            return Err(bad(format!("an age of {} days is impossible", self.days), "use 0 to 100 years"));
        }
        if !(0.0..=MOST_DAILY).contains(&self.daily_bytes) {
            return Err(bad(
                format!("{} bytes a day are impossible", self.daily_bytes),
                "use 0 to 100 TB, as in used:1y,daily=2GB",
            ));
        }
        Ok(())
    }

    /// Total number of bytes that are written during the whole use.
    fn written(&self) -> f64 {
        self.days * self.daily_bytes
    }

    /// Upper bound of the bytes that are simulated for a device of `capacity` bytes.
    pub(super) fn most_written(&self, capacity: f64) -> f64 {
        self.written().min(MOST_CAPACITIES * capacity)
    }
}

impl FromStr for PhoneUse {
    type Err = Error;

    /// Parses `1y`, or `18mo,daily=10GB,filled=90,random=40,trim=no`.
    fn from_str(text: &str) -> Result<Self> {
        const HINT: &str = "write it as used:AGE with mo, y, w or d, then daily=SIZE, filled=PCT, random=PCT or trim=no, as in \
                            used:18mo,daily=10GB,filled=90";
        let mut words = text.split(',');
        let age = words.next().unwrap_or_default();
        let days = amount(age, &DAYS).ok_or_else(|| bad(format!("`{age}` is not an age"), HINT))?;
        let mut usage = Self { days, ..Self::default() };
        for word in words {
            let wrong = || bad(format!("`{word}` is not an option of `used`"), HINT);
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            let percent = || value.trim_end_matches('%').parse().map_err(|_| wrong());
            match key {
                "daily" => usage.daily_bytes = amount(value, &BYTES).ok_or_else(wrong)?,
                "filled" => usage.filled_pct = percent()?,
                "random" => usage.random_pct = percent()?,
                "trim" if matches!(value, "yes" | "no") => usage.trim = value == "yes",
                _ => return Err(wrong()),
            }
        }
        Ok(usage)
    }
}

/// Parses a number that is followed by one of the units `units`.
fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

impl Display for PhoneUse {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { days, daily_bytes, filled_pct, random_pct, trim } = self;
        let (unit, factor) = *BYTES.iter().rev().find(|(_, factor)| daily_bytes >= factor).unwrap_or(&BYTES[0]);
        let (daily, trim) = (daily_bytes / factor, if *trim { "yes" } else { "no" });
        write!(out, "{days}d,daily={daily}{unit},filled={filled_pct},random={random_pct},trim={trim}")
    }
}

/// The extents of files, some hundred KB each, in use or free.
struct FileExtentPool {
    in_use: Vec<u32>,
    /// Whether each extent is free, indexed by the number of the extent.
    is_free: Vec<bool>,
    /// Extents that were freed and not discarded since; some of them may have been allocated again.
    freed: Vec<u32>,
    /// Extent at which the search for the next free extent starts.
    next: usize,
    /// Whether all initially free extents have been written.
    wrapped: bool,
}

impl FileExtentPool {
    fn new(age: &mut AgingDevice, count: u32, in_use: u32) -> Self {
        let mut extents = age.draw(in_use, count);
        let free = extents.split_off(in_use as usize);
        let mut is_free = vec![false; count as usize];
        for extent in free {
            is_free[extent as usize] = true;
        }
        Self { in_use: extents, is_free, freed: Vec::new(), next: 0, wrapped: in_use == count }
    }

    /// A random extent in use.
    fn any(&self, age: &mut AgingDevice) -> u32 {
        self.in_use[age.below(self.in_use.len() as u32) as usize]
    }

    /// Deletes a random file. Returns the extent for a new file: the next free extent in cyclic order, as in allocators of file systems, or
    /// the old extent if none is free.
    fn replace(&mut self, age: &mut AgingDevice) -> u32 {
        let file = age.below(self.in_use.len() as u32) as usize;
        let (old, count) = (self.in_use[file], self.is_free.len());
        let Some(new) = (self.next..count).chain(0..self.next).find(|extent| self.is_free[*extent]) else {
            return old;
        };
        (self.is_free[new], self.is_free[old as usize]) = (false, true);
        self.freed.push(old);
        self.wrapped |= new < self.next;
        self.next = new + 1;
        self.in_use[file] = new as u32;
        new as u32
    }

    /// Returns the extents that were freed since the last call and are still free, in ascending order.
    fn take_freed(&mut self) -> Vec<u32> {
        let mut freed = std::mem::take(&mut self.freed);
        freed.retain(|extent| self.is_free[*extent as usize]);
        freed.sort_unstable();
        freed.dedup();
        freed
    }
}

/// Ages a device by use in a phone.
/// Errors: if the device is zoned, stops during ageing, or would be worn out before the end.
pub(super) fn live(age: &mut AgingDevice, usage: &PhoneUse) -> Result<()> {
    if age.device().zones().next().is_some() {
        return Err(bad("a zoned device is not overwritten in place".into(), "use sequential:PCT, or age it by a trace"));
    }
    let chunk = age.chunk();
    let (count, unit_bytes) = (age.units() / chunk, f64::from(age.device().geometry().unit_bytes));
    let in_use = ((f64::from(count) * usage.filled_pct / 100.0).round() as u32).min(count);
    let mut files = FileExtentPool::new(age, count, in_use);
    let mut filled = files.in_use.clone();
    filled.sort_unstable();
    for extent in filled {
        age.write(extent * chunk, chunk)?;
    }
    if in_use == 0 || usage.written() == 0.0 {
        return Ok(());
    }

    // From here on, amounts of data are in extents instead of bytes.
    let extent_bytes = f64::from(chunk) * unit_bytes;
    let (total, daily) = ((usage.written() / extent_bytes).ceil() as u64, usage.daily_bytes / extent_bytes);
    // A longer pause than a night would not allow the device more work.
    let pause = Nanos((DAY_S / daily * 1e9) as i64).min(NIGHT);
    let most = total.min((MOST_CAPACITIES * f64::from(count)).ceil() as u64);
    let mut work = SteadyStateDetector::new(u64::from(count), (SAMPLES / 2, FLAT), age.device().counters());
    let (mut done, mut days, mut is_random) = (0, 1.0, 0.0);
    while done < most {
        // Random writes are spread evenly over all writes. A random choice would not meet their percentage exactly.
        is_random += usage.random_pct / 100.0;
        if is_random >= 1.0 {
            is_random -= 1.0;
            age.overwrite(chunk as usize, |age| files.any(age) * chunk + age.below(chunk))?;
        } else {
            let extent = files.replace(age);
            age.write(extent * chunk, chunk)?;
        }
        age.idle_for(pause);
        done += 1;
        if done as f64 >= days * daily {
            days = (done as f64 / daily).floor() + 1.0;
            night(age, &mut files, usage.trim, chunk)?;
        }
        let settled = files.wrapped || usage.random_pct >= 100.0;
        if work.is_flat(done, age.device().counters()) && settled {
            break;
        }
    }
    night(age, &mut files, usage.trim, chunk)?;
    let left = (total - done) as f64;
    let more: Vec<u64> = work.erase_rates().iter().map(|rate| (rate * left).round() as u64).collect();
    age.wear_on(&more).map_err(|error| error.hint(fewer_bytes(age, usage, &more)))
}

/// Proposes a usage with fewer daily bytes, halved as often as necessary, so that the device does not wear out. The device is unusable
/// afterwards.
fn fewer_bytes(age: &mut AgingDevice, usage: &PhoneUse, erases: &[u64]) -> String {
    let stands = |halves: &u32| {
        let fewer: Vec<u64> = erases.iter().map(|erases| erases >> halves).collect();
        age.wear_on(&fewer).is_ok()
    };
    (1..u64::BITS).find(stands).map_or_else(
        || "use a lower age".to_owned(),
        |halves| {
            let daily_bytes = usage.daily_bytes / 2.0_f64.powi(halves as i32);
            let capacity = f64::from(age.units()) * f64::from(age.device().geometry().unit_bytes);
            format!(
                "the bytes a day are not scaled with the capacity, and are {:.2} times that of this device: use fewer, or a lower \
                 age, as in used:{}",
                usage.daily_bytes / capacity,
                PhoneUse { daily_bytes, ..*usage }
            )
        },
    )
}

/// Discards deleted data, and lets the device idle for background work.
fn night(age: &mut AgingDevice, files: &mut FileExtentPool, trim: bool, chunk: u32) -> Result<()> {
    let freed = files.take_freed();
    if trim {
        for extent in freed {
            let sectors = chunk * age.unit_sectors();
            age.submit(Op::Discard, u64::from(extent) * u64::from(sectors), sectors)?;
        }
    }
    age.idle_for(NIGHT);
    Ok(())
}
