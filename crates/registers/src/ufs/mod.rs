//! Reads the descriptors of a UFS (JESD220, 14) from sysfs files, from text of these files, from the output of ufs-utils or of vendors'
//! debugfs, or from raw bytes.

mod describe;
mod fields;
mod forms;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use emmclab_base::{Error, ErrorClass, Result};
use fields::{DescriptorField, DescriptorKind, FIELDS};
pub(crate) use forms::may_be_raw;
use forms::{DescriptorValue, FieldValue};

use crate::{RegisterSource, text_of};

/// Logical units from this number on are well-known units: boot, RPMB, and the device itself.
const WELL_KNOWN: u32 = 0x80;
/// The newest major version of the UFS standard that is known.
const NEWEST: u64 = 5;
/// Hint on how to obtain the descriptors.
const HINT: &str = "take the folder /sys/devices/platform/*/*.ufshc, or the output of `grep -r . device_descriptor geometry_descriptor \
                    health_descriptor attributes flags power_info */*/unit_descriptor` there, or of `ufs-utils desc`";

/// Index of a field in [`FIELDS`], and the logical unit to which the field belongs.
type Key = (usize, Option<u32>);
/// A file and a line number in the file.
type Place = (PathBuf, Option<u64>);

/// All descriptor values that were read from a UFS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UfsDescriptors {
    values: BTreeMap<Key, DescriptorValue>,
    /// File and line from which each value was read first.
    positions: BTreeMap<Key, Place>,
    /// A note on the order of the bytes, if the fields had their lowest byte first.
    order: Option<String>,
}

impl UfsDescriptors {
    /// Reads the descriptors in these files: a single text, or the files of a folder tree.
    pub fn read(sources: &[RegisterSource<'_>]) -> Result<Self> {
        let mut out = Self::default();
        for source in sources {
            let values = Self::of(source).map_err(|error| error.in_file(source.path))?;
            for value in values {
                out.add(value, source.path)?;
            }
        }
        out.order = reverse_bytes(&mut out.values);
        let path = sources.first().map_or(Path::new(""), |source| source.path);
        out.check().map_err(|error| error.in_file(path))?;
        Ok(out)
    }

    fn of(source: &RegisterSource<'_>) -> Result<Vec<FieldValue>> {
        let is_file = forms::is_path(source.path);
        if !is_file && let Some(values) = forms::read_raw(source.bytes)? {
            return Ok(values);
        }
        let content = text_of(source.bytes)
            .ok_or_else(|| Error::new(ErrorClass::Syntax, "this is neither a text nor a binary UFS descriptor").hint(HINT))?;
        if is_file {
            return Ok(forms::of_file(source.path, &content)?.into_iter().collect());
        }
        forms::of_text(&content)
    }

    fn add(&mut self, new: FieldValue, path: &Path) -> Result<()> {
        let key = (index(new.field), new.unit);
        if let Some(other) = self.values.get(&key)
            && *other != new.value
        {
            let place = self.positions.get(&key).map(|(path, line)| match line {
                Some(line) => format!("{}:{line}", path.display()),
                None => path.display().to_string(),
            });
            let problem =
                format!("the value contradicts {} in {}", format_value(other), place.as_deref().unwrap_or("another file"));
            let error = Error::new(ErrorClass::Value, problem)
                .in_file(path)
                .of_field(new.field.name, 0, format_value(&new.value).as_bytes())
                .hint("give the descriptors of only one UFS device; those of a logical unit need its path or bUnitIndex");
            return Err(match new.line {
                Some(line) => error.at_line(line),
                None => error,
            });
        }
        self.positions.entry(key).or_insert_with(|| (path.to_owned(), new.line));
        self.values.insert(key, new.value);
        Ok(())
    }

    /// Checks that the values are possible for a device.
    fn check(&self) -> Result<()> {
        if self.values.is_empty() {
            return Err(Error::new(ErrorClass::UnknownFormat, "the input has no UFS descriptors").hint(HINT));
        }
        let is_number = |entry: &&DescriptorValue| matches!(entry, DescriptorValue::Number(_));
        let numbers = || self.values.values().filter(is_number);
        if numbers().count() > 3 && numbers().all(|entry| *entry == DescriptorValue::Number(0)) {
            return Err(Error::new(ErrorClass::Value, "every value is 0: nothing was read from the device").hint(HINT));
        }
        for name in IMPOSSIBLE {
            for ((_, unit), entry) in self.all(name) {
                if let DescriptorValue::Number(value) = entry
                    && unit.is_none_or(|unit| unit < WELL_KNOWN)
                    && let Some(problem) = impossible(name, *value)
                {
                    return Err(Error::new(ErrorClass::Value, problem)
                        .of_field(name, 0, format!("{value:#x}").as_bytes())
                        .hint(HINT));
                }
            }
        }
        Ok(())
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = (&Key, &DescriptorValue)> {
        self.values.iter().filter(move |((at, _), _)| FIELDS[*at].name == name)
    }

    /// The number in a field that belongs to no logical unit.
    fn number(&self, name: &'static str) -> Option<u64> {
        self.all(name).find_map(|(_, entry)| match entry {
            DescriptorValue::Number(value) => Some(*value),
            DescriptorValue::Text(_) => None,
        })
    }

    fn text(&self, name: &'static str) -> Option<&str> {
        self.all(name).find_map(|(_, entry)| match entry {
            DescriptorValue::Text(text) => Some(text.as_str()),
            DescriptorValue::Number(_) => None,
        })
    }

    /// The number in a field of a logical unit.
    fn of_unit(&self, unit: Option<u32>, name: &'static str) -> Option<u64> {
        self.all(name).find_map(|((_, other), entry)| match entry {
            DescriptorValue::Number(value) if *other == unit => Some(*value),
            _ => None,
        })
    }

    /// The enabled logical units for data, with their size in bytes.
    fn units(&self) -> Vec<LogicalUnit> {
        let mut units: Vec<_> =
            self.values.keys().filter(|key| FIELDS[key.0].part == DescriptorKind::Unit).map(|key| key.1).collect();
        units.sort_unstable();
        units.dedup();
        let is_for_data = |unit: &Option<u32>| unit.is_none_or(|unit| unit < WELL_KNOWN);
        let of = |unit: Option<u32>| {
            if self.of_unit(unit, "bLUEnable") == Some(0) {
                return None;
            }
            let blocks = self.of_unit(unit, "qLogicalBlockCount")?;
            let power = u32::try_from(self.of_unit(unit, "bLogicalBlockSize")?).ok().filter(|power| *power >= 9)?;
            let bytes = blocks.checked_mul(1_u64.checked_shl(power)?)?;
            (bytes > 0).then_some(LogicalUnit { number: unit, bytes })
        };
        units.into_iter().filter(is_for_data).filter_map(of).collect()
    }

    fn allocation_unit(&self) -> Option<u64> {
        let segment = self.number("dSegmentSize")?.checked_mul(512)?;
        let bytes = segment.checked_mul(self.number("bAllocationUnitSize")?)?;
        (bytes > 0).then_some(bytes)
    }

    /// Returns the version of the UFS standard: major and minor number.
    fn version(&self) -> Option<(u64, u64)> {
        self.number("wSpecVersion").map(|version| (decimal(version >> 8), version >> 4 & 0xf))
    }
}

/// Descriptor fields that are checked for impossible values.
const IMPOSSIBLE: [&str; 6] =
    ["wSpecVersion", "bLogicalBlockSize", "qTotalRawDeviceCapacity", "bPreEOLInfo", "bDeviceLifeTimeEstA", "bDeviceLifeTimeEstB"];

/// Returns the reason why a value is impossible; `None` if it is possible.
fn impossible(name: &str, value: u64) -> Option<&'static str> {
    match name {
        "wSpecVersion" if !is_version(value) => {
            Some("this is no version of the UFS standard, such as 0x0310; nothing was read, or this is not a descriptor")
        }
        "bLogicalBlockSize" if value != 0 && !(9..=16).contains(&value) => {
            Some("this is no size of a logical block, which is a power of 2 from 9 to 16")
        }
        "qTotalRawDeviceCapacity" if !is_capacity(value) => {
            Some("this is no capacity of a UFS, in units of 512 bytes; nothing was read, or this is not a descriptor")
        }
        "bPreEOLInfo" | "bDeviceLifeTimeEstA" | "bDeviceLifeTimeEstB" if value == 0xff => {
            Some("nothing was read from the device")
        }
        _ => None,
    }
}

struct LogicalUnit {
    number: Option<u32>,
    bytes: u64,
}

fn index(field: &'static DescriptorField) -> usize {
    FIELDS.iter().position(|other| std::ptr::eq(other, field)).unwrap_or(usize::MAX)
}

/// Decodes a number of two decimal digits, each stored in four bits (BCD).
const fn decimal(value: u64) -> u64 {
    (value >> 4 & 0xf) * 10 + (value & 0xf)
}

fn format_value(entry: &DescriptorValue) -> String {
    match entry {
        DescriptorValue::Number(value) => format!("{value:#x}"),
        DescriptorValue::Text(text) => text.clone(),
    }
}

/// Whether the first bytes of a file are descriptors of a UFS, as text or raw.
pub fn is_ufs(head: &[u8]) -> bool {
    text_of(head).is_some_and(|content| forms::is_text(&content)) || forms::is_raw(head)
}

/// Whether a path is that of a sysfs file with a descriptor field of a UFS.
pub fn is_ufs_file(path: &Path) -> bool {
    forms::is_path(path)
}

/// Versions of the UFS standard in the encoding of `wSpecVersion`.
const VERSIONS: [u64; 10] = [0x0100, 0x0110, 0x0200, 0x0210, 0x0220, 0x0300, 0x0310, 0x0400, 0x0410, 0x0500];
/// Possible values of `wSpecVersion` for later versions of the UFS standard.
const LATER: std::ops::RangeInclusive<u64> = 0x0501..=0x0990;
/// The largest plausible capacity of a device, in units of 512 bytes: 16 TB.
const MOST_SECTORS: u64 = 1 << 35;

/// Whether a number is a version of the UFS standard, or may be a later one: two decimal digits (BCD) in the middle and zeros around them.
fn is_version(version: u64) -> bool {
    let is_decimal = [version >> 8 & 0xf, version >> 4 & 0xf].iter().all(|digit| *digit <= 9);
    VERSIONS.contains(&version) || LATER.contains(&version) && is_decimal && version.is_multiple_of(0x10)
}

/// Whether a device may have this capacity, in units of 512 bytes; 0 means that the capacity is not stated.
const fn is_capacity(sectors: u64) -> bool {
    sectors <= MOST_SECTORS
}

/// Reverses the bytes of all multi-byte fields if only this makes version and capacities plausible. Returns a note in that case.
fn reverse_bytes(values: &mut BTreeMap<Key, DescriptorValue>) -> Option<String> {
    let is_possible = |key: &Key, entry: &DescriptorValue| match (FIELDS[key.0].name, entry) {
        ("wSpecVersion", DescriptorValue::Number(version)) => Some(is_version(*version)),
        ("qTotalRawDeviceCapacity" | "qLogicalBlockCount", DescriptorValue::Number(count)) => Some(is_capacity(*count)),
        _ => None,
    };
    let (key, odd) = values.iter().find(|(key, entry)| is_possible(key, entry) == Some(false))?;
    let (key, odd) = (*key, format_value(odd));
    let mut turned = values.clone();
    for (key, entry) in &mut turned {
        let field = &FIELDS[key.0];
        // Attributes are numbers in every format; only descriptors are arrays of bytes, so only their fields are reversed.
        if let DescriptorValue::Number(value) = entry
            && field.offset.is_some()
        {
            *value = value.swap_bytes() >> (64 - 8 * u32::from(field.bytes));
        }
    }
    if turned.iter().any(|(key, entry)| is_possible(key, entry) == Some(false)) {
        return None;
    }
    let note = format!(
        "{} = {odd} has its lowest byte first, as Qualcomm's kernels print it: all fields of several bytes were reversed, and it is {}",
        FIELDS[key.0].name,
        format_value(&turned[&key])
    );
    *values = turned;
    Some(note)
}
