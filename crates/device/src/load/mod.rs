//! Settings of a device: read from TOML, changed by key, validated as a whole, explained value by value.

mod exact_capacity;
mod schema;
mod validate;
mod validate_interface;

use std::collections::BTreeMap;
use std::path::Path;

use emmclab_base::{ByteCount, Error, ErrorClass, Result, closest, read_settings};
use emmclab_settings::{DeviceSettings, FittedSource, PublishedFigure, SlcMode};
use toml::{Table, Value};

use crate::ftl::maps_on_demand;
use crate::geometry::Geometry;
use schema::leaves;
use validate_interface::working_blocks;

pub(crate) use schema::fits;
pub use schema::{SettingExplanation, json_schema};

/// Maximum number of attempts to reach a capacity. Each attempt adds blocks for the bytes that are still missing.
const CAPACITY_STEPS: u32 = 16;
/// Minimum number of zones of a scaled device. The layer `lfs` needs 18.
const LEAST_ZONES: u32 = 20;
/// Minimum number of pages in a block of a scaled device.
const LEAST_PAGES: u32 = 12;

/// The settings of a device, with the origin of each value.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    explicit: Table,
    origins: BTreeMap<String, String>,
    settings: DeviceSettings,
    published: Vec<PublishedFigure>,
}

impl DeviceConfig {
    /// Loads a preset by name; see [`presets()`].
    /// Errors: [`ErrorClass::Config`] with the names of all presets, if there is none with this name.
    pub fn preset(name: &str) -> Result<Self> {
        let Some(preset) = presets().iter().find(|preset| preset.name == name) else {
            let names: Vec<_> = presets().iter().map(|preset| preset.name).collect();
            let near = closest(name, names.iter().copied());
            let guess = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            return Err(Error::new(ErrorClass::Config, format!("there is no device preset `{name}`"))
                .hint(format!("{guess}choose one of the presets: {}; or give a TOML file", names.join(", "))));
        };
        Self::parse(preset.text, &format!("preset {name}"))
    }

    /// Reads a device from the text of a TOML file; missing settings have their defaults.
    /// Errors: [`ErrorClass::Config`] with every unknown key, wrong type and impossible value at once.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::parse(text, "given")
    }

    /// Reads a device from a TOML file.
    /// Errors: as [`DeviceConfig::from_toml`], or if the file cannot be read.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = read_settings(path)?;
        Self::parse(&text, &path.display().to_string()).map_err(|error| error.in_file(path))
    }

    fn parse(text: &str, origin: &str) -> Result<Self> {
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map(|span| text[..span.start].matches('\n').count() as u64 + 1);
            let out = Error::new(ErrorClass::Config, error.message().to_owned());
            line.map_or_else(|| Error::new(ErrorClass::Config, error.message().to_owned()), |line| out.at_line(line))
                .hint("the settings of a device must be a TOML file; presets/devices has examples")
        })?;
        let published = take_published(&mut table)?;
        let mut origins = BTreeMap::new();
        for (key, _) in leaves(&Value::Table(table.clone())) {
            origins.insert(key, origin.to_owned());
        }
        Ok(Self { published, ..Self::check(table, origins)? })
    }

    fn check(table: Table, origins: BTreeMap<String, String>) -> Result<Self> {
        let parsed = DeviceSettings::from_table(table.clone());
        let faults = match parsed {
            Ok(mut settings) if !schema::has_unknown_options(&settings) => {
                let faults = validate::faults(&settings);
                if faults.is_empty() {
                    schema::fill(&mut settings);
                    return Ok(Self { explicit: table, origins, settings, published: Vec::new() });
                }
                faults
            }
            parsed => {
                let mut known = table;
                let mut faults = schema::faults(&mut known);
                if let (Err(error), true) = (&parsed, faults.is_empty()) {
                    faults.push(error.message().to_owned());
                } else if let Ok(settings) = DeviceSettings::from_table(known) {
                    // Impossible values are reported even if a key is unknown.
                    faults.extend(validate::faults(&settings));
                }
                faults
            }
        };
        let problem = match faults.as_slice() {
            [single] => single.clone(),
            many => format!("there are {} faults:\n  - {}", many.len(), many.join("\n  - ")),
        };
        Err(Error::new(ErrorClass::Config, problem).hint("`emmclab explain PRESET` prints every key with its unit and default"))
    }

    /// Sets the value at a path such as `timing.parallelism` or `geometry.block_groups.0.blocks`. The value is TOML; a word that is not
    /// TOML becomes a string.
    /// Errors: [`ErrorClass::Config`] if the key does not exist (with the most similar one), or if the value or the combination of settings
    /// is impossible.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        self.set_all(&[(key, value)])
    }

    /// Sets several values, then checks all settings once. If another policy is selected, the settings of the previous policy are removed.
    /// Errors: as [`DeviceConfig::set`].
    pub fn set_all(&mut self, pairs: &[(&str, &str)]) -> Result<()> {
        let mut table = self.explicit.clone();
        let mut origins = self.origins.clone();
        let mut changed = Vec::new();
        for (key, text) in pairs {
            let value = text.parse().unwrap_or_else(|_| Value::String((*text).to_owned()));
            put(&mut table, key, value)?;
            origins.insert((*key).to_owned(), "--set".to_owned());
            changed.push((*key).to_owned());
        }
        for key in schema::remove_stale_options(&mut table, &self.settings, &changed) {
            origins.remove(&key);
        }
        let device = Self::check(table, origins)?;
        // A device with another name, such as one with another capacity, is not the fitted device, so its published figures are dropped.
        let published = if device.name() == self.name() { std::mem::take(&mut self.published) } else { Vec::new() };
        *self = Self { published, ..device };
        Ok(())
    }

    /// Returns this device with another capacity: the numbers of blocks of each group and in SLC mode in a plane are scaled proportionally,
    /// to the smallest numbers that give `bytes`. The new name ends in `label`, which is `bytes` as text.
    ///
    /// On a zoned device, the conventional zones and their blocks in SLC mode grow too. A small device gets smaller blocks, so that
    /// over-provisioning still contains the free blocks that writing and garbage collection need. It also gets smaller zones, so that it
    /// still has enough zones for software that writes to several zones at the same time.
    /// Errors: [`ErrorClass::Config`] if no number of blocks yields a possible device. The hint contains the current capacity, and the
    /// smallest possible power of two above `bytes`.
    pub fn with_capacity(&self, bytes: u64, label: &str) -> Result<Self> {
        self.scaled_to(bytes, label).map_err(|error| {
            let now = ByteCount(Geometry::new(&self.settings).capacity().0);
            let nearer = format!("use a capacity closer to {now}, which `{}` has", self.name());
            // Searches for the smallest power of two between the requested and the current capacity that the device can have as its
            // capacity.
            let sizes = (20..u64::BITS).map(|bits| 1 << bits).take_while(|size| *size < now.0);
            let mut larger = sizes.filter(|size| *size > bytes);
            error.hint(match larger.find(|size| self.scaled_to(*size, "").is_ok()) {
                Some(least) => format!("{nearer}; {} is possible", ByteCount(least)),
                None => nearer,
            })
        })
    }

    fn scaled_to(&self, bytes: u64, label: &str) -> Result<Self> {
        let now = Geometry::new(&self.settings).capacity().0;
        let groups = &self.settings.geometry.block_groups;
        let impossible = |problem: String| Error::new(ErrorClass::Config, problem).of_field("capacity", 0, label.as_bytes());
        if bytes == 0 {
            return Err(impossible("the capacity must be above 0".to_owned()));
        }
        // Spare blocks are scaled by the same factor as the other blocks.
        let scaled = |blocks: u32, factor: f64| (f64::from(blocks) * factor).ceil().min(f64::from(u32::MAX)) as u32;
        let mut factor = bytes as f64 / now as f64;
        let smaller = self.smaller_blocks(factor);
        let most_blocks = groups.iter().map(|group| group.blocks).max().unwrap_or(1).max(1);
        for step in 0..CAPACITY_STEPS {
            let name = format!("{}-{label}", self.name());
            let mut pairs = vec![("name".to_owned(), format!("\"{name}\""))];
            let slc = &self.settings.slc;
            let mut slc_blocks = slc.blocks;
            if self.settings.zones.is_zoned() {
                if factor > 1.0 {
                    slc_blocks = scaled(slc.blocks, factor);
                    let conventional = scaled(self.settings.zones.conventional, factor);
                    pairs.push(("zones.conventional".to_owned(), conventional.to_string()));
                }
            } else if slc.mode != SlcMode::Off {
                let least = working_blocks(&self.settings);
                slc_blocks = scaled(slc.blocks, factor * f64::from(smaller)).max(least);
            }
            if slc_blocks != slc.blocks {
                pairs.push(("slc.blocks".to_owned(), slc_blocks.to_string()));
            }
            for (index, group) in groups.iter().enumerate() {
                let key = format!("geometry.block_groups.{index}");
                let (before, kept) = if self.is_slc_group(index) { (slc.blocks, slc_blocks) } else { (0, 0) };
                let factor = factor * f64::from(smaller);
                let blocks = scaled(group.blocks.saturating_sub(before), factor).saturating_add(kept);
                pairs.push((format!("{key}.blocks"), blocks.to_string()));
                if smaller > 1 {
                    pairs.push((format!("{key}.pages_per_block"), (group.pages_per_block / smaller).to_string()));
                }
                if group.spare_blocks > 0 {
                    pairs.push((format!("{key}.spare_blocks"), scaled(group.spare_blocks, factor).to_string()));
                }
            }
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let mut out = self.clone();
            out.set_all(&pairs).map_err(|error| impossible(format!("the capacity is not possible: {error}")))?;
            for (key, _) in &pairs {
                out.origins.insert((*key).to_owned(), format!("--capacity {label}"));
            }
            let reached = Geometry::new(&out.settings).capacity().0;
            if reached >= bytes {
                return Ok(out);
            }
            // The number of SLC blocks does not scale with the factor, and block numbers are rounded. A minimum step ensures that the
            // factor grows.
            let least = if step < CAPACITY_STEPS / 2 { 1e-9 } else { 1.0 / f64::from(most_blocks) };
            factor += ((bytes - reached) as f64 / now as f64).max(least);
        }
        Err(impossible("cannot be reached".to_owned()))
    }

    /// Whether the blocks of a group are in SLC mode.
    fn is_slc_group(&self, index: usize) -> bool {
        let slc = &self.settings.slc;
        slc.mode != SlcMode::Off && slc.group as usize == index
    }

    /// Returns the divisor by which blocks must shrink when the capacity is scaled by `factor`. The blocks of a zoned device shrink until
    /// enough zones remain. Other blocks shrink until over-provisioning leaves enough blocks for writing and collection in each block group
    /// of a plane.
    fn smaller_blocks(&self, factor: f64) -> u32 {
        let (zones, slc) = (&self.settings.zones, &self.settings.slc);
        let groups = &self.settings.geometry.block_groups;
        let usable = groups.iter().enumerate().map(|(index, group)| {
            let in_slc = if self.is_slc_group(index) { slc.blocks } else { 0 };
            group.blocks.saturating_sub(group.spare_blocks + in_slc)
        });
        let blocks = f64::from(usable.min().unwrap_or(0)) * factor;
        let share = self.settings.capacity.over_provisioning_pct / 100.0;
        let least = if zones.is_zoned() {
            f64::from(LEAST_ZONES * zones.blocks)
        } else if share > 0.0 && self.settings.mapping.scheme == "page" {
            f64::from(working_blocks(&self.settings)) * (1.0 + share) / share
        } else {
            0.0
        };
        let can_shrink = |smaller: u32| {
            groups
                .iter()
                .all(|group| group.pages_per_block.is_multiple_of(smaller) && group.pages_per_block / smaller >= LEAST_PAGES)
        };
        let mut smaller = 1;
        while blocks * f64::from(smaller) < least && can_shrink(2 * smaller) {
            smaller *= 2;
        }
        smaller
    }

    /// The capacity that the host sees, in bytes.
    pub fn capacity(&self) -> ByteCount {
        Geometry::new(&self.settings).capacity()
    }

    /// The typed settings.
    pub fn settings(&self) -> &DeviceSettings {
        &self.settings
    }

    /// Returns the configuration with the whole map in RAM if the mapping scheme has its map on the flash; otherwise `None`.
    /// Errors: as [`DeviceConfig::set`].
    pub fn with_whole_map(&self) -> Result<Option<Self>> {
        if !maps_on_demand(&self.settings.mapping.scheme) {
            return Ok(None);
        }
        let mut whole = self.clone();
        whole.set("mapping.scheme", "page")?;
        Ok(Some(whole))
    }

    /// The published figures that the preset was fitted to.
    pub fn published(&self) -> &[PublishedFigure] {
        &self.published
    }

    /// Name of the device in results.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// All settings as TOML. Equal settings give equal text.
    /// Errors: never, for settings that were checked.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(&self.settings)
            .map_err(|error| Error::new(ErrorClass::Config, format!("the settings cannot be written as TOML: {error}")))
    }

    /// All values, with unit, origin and meaning.
    pub fn explain(&self) -> Vec<SettingExplanation> {
        schema::rows(&self.settings, &self.origins)
    }

    /// Returns the settings that determine the contents of a device after a sequence of commands, as lines `key = value`. The commands have
    /// no flags and are executed one by one. `pauses` states whether the device is idle between commands; a UFS always is, because it
    /// hibernates at the end. Devices with equal texts can share an image.
    /// Errors: [`ErrorClass::Config`] if settings cannot be written as TOML.
    pub fn deciding_contents(&self, pauses: bool) -> Result<String> {
        let pauses = pauses || self.settings().interface.is_ufs();
        let all = Value::try_from(self.settings())
            .map_err(|error| Error::new(ErrorClass::Config, format!("settings cannot be written: {error}")))?;
        let deciding = leaves(&all).into_iter().filter(|(key, _)| decides_contents(key, pauses));
        let lines: Vec<_> = deciding.map(|(key, value)| format!("{key} = {value}")).collect();
        Ok(lines.join("\n"))
    }
}

/// Removes the published figures from the section `fitted_to` and returns them. The section keeps only the names of the sources.
fn take_published(given: &mut Table) -> Result<Vec<PublishedFigure>> {
    let mut published = Vec::new();
    for entry in given.get_mut("fitted_to").and_then(Value::as_array_mut).into_iter().flatten() {
        if entry.is_table() {
            let FittedSource { source, figures } = entry.clone().try_into().map_err(|error: toml::de::Error| {
                Error::new(ErrorClass::Config, format!("`fitted_to`: {}", error.message()))
                    .hint("`fitted_to` must list names, or tables with `source` and `figures`, as in presets/devices")
            })?;
            published.extend(figures.into_iter().map(|figure| PublishedFigure { source: source.clone(), ..figure }));
            *entry = Value::String(source);
        }
    }
    Ok(published)
}

/// Sets the value at the dotted `path`; arrays are indexed by number.
fn put(table: &mut Table, path: &str, value: Value) -> Result<()> {
    let no_key = |hint: &str| Error::new(ErrorClass::Config, format!("there is no setting `{path}`")).hint(hint.to_owned());
    let (parents, leaf) = path.rsplit_once('.').map_or((None, path), |(parents, leaf)| (Some(parents), leaf));
    let mut place = table;
    let mut parts = parents.into_iter().flat_map(|parents| parents.split('.')).peekable();
    while let Some(part) = parts.next() {
        let next = place.entry(part).or_insert_with(|| Value::Table(Table::new()));
        place = match next {
            Value::Table(inner) => inner,
            Value::Array(items) => {
                let count = items.len();
                let index = parts.next().and_then(|index| index.parse::<usize>().ok());
                match index.and_then(|index| items.get_mut(index)) {
                    Some(Value::Table(inner)) => inner,
                    _ => return Err(no_key(&format!("`{part}` has {count} entries, numbered from 0"))),
                }
            }
            _ => return Err(no_key(&format!("`{part}` is a value, not a section"))),
        };
    }
    place.insert(leaf.to_owned(), value);
    Ok(())
}

/// A built-in device.
pub struct DevicePreset {
    /// Name for [`DeviceConfig::preset`].
    pub name: &'static str,
    /// Text of the TOML file.
    pub text: &'static str,
}

/// All presets, in order of their names. `build.rs` collects them.
pub fn presets() -> &'static [DevicePreset] {
    include!(concat!(env!("OUT_DIR"), "/presets.rs"))
}

/// Settings that never affect the contents of a device, as patterns of [`fits`].
const WITHOUT_INFLUENCE: &[&str] = &[
    // These settings identify the device.
    "name", "about", "fitted_to",
    // These settings affect only queued commands and commands with flags, such as FUA writes.
    "host.", "features.", "controller.queue_depth", "controller.reliable_write_us", "interface.fua_us",
    // These settings affect only the duration of host reads and flushes.
    "cache.read_kb", "controller.read_overhead_us", "cache.flush_us", // Energy is computed from counters.
    "_uj", "_uj_per_kb", "_mw",
];
/// Settings that affect the contents of a device only if there were pauses between commands.
const INFLUENCE_IN_PAUSES: &[&str] = &["gc.idle_after_us", "gc.hpi", "gc.hpi_us", "power."];

/// Whether a setting affects the contents of a device after a sequence of commands. The commands are executed one by one, with pauses
/// between them if `pauses` is true.
pub fn decides_contents(key: &str, pauses: bool) -> bool {
    let among = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, key));
    !among(WITHOUT_INFLUENCE) && (pauses || !among(INFLUENCE_IN_PAUSES))
}
