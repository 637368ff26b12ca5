//! Describes the descriptors of a UFS in words, and derives settings of a simulated device from them.

use super::fields::FIELDS;
use super::forms::DescriptorValue;
use super::{NEWEST, UfsDescriptors, format_value};
use crate::report::{
    DerivedSetting, FactCollector, FieldRow, RegisterCapacity, RegisterFact, RegisterReport, RegisterValue, end_of_life,
    life_used, size, yes_or_no,
};

/// Bit of `dExtendedUFSFeaturesSupport` that reports `WriteBooster`.
const WRITE_BOOSTER: u32 = 8;
/// Bit of `bUFSFeaturesSupport` and `dExtendedUFSFeaturesSupport` that reports HPB.
const HPB: u32 = 7;

impl UfsDescriptors {
    /// The report on all fields of the descriptors.
    pub fn report(&self) -> RegisterReport {
        let mut notes: Vec<_> = self.order.clone().into_iter().collect();
        match self.version() {
            Some((major, _)) if major > NEWEST => notes
                .push(format!("{}: fields beyond those of UFS {NEWEST} are not known", self.field_with_value("wSpecVersion"))),
            Some(_) => {}
            None => {
                notes.push("wSpecVersion is not given: the fields are read as those of UFS 3.1".to_owned());
            }
        }
        let settings = settings_of(self, &mut notes);
        RegisterReport {
            kind: "ufs",
            standard: self.standard().unwrap_or_else(|| "UFS".to_owned()),
            like: like(self),
            facts: self.facts(),
            fields: self.rows(),
            capacity: capacity(self),
            slc: write_booster(self),
            settings,
            notes,
        }
    }

    fn standard(&self) -> Option<String> {
        self.version().map(|(major, minor)| format!("UFS {major}.{minor}"))
    }

    /// Returns a field with its value as text, such as `bQueueDepth = 0x20`.
    pub(super) fn field_with_value(&self, name: &'static str) -> String {
        let value = self.all(name).next().map_or_else(|| "not given".to_owned(), |(_, entry)| format_value(entry));
        format!("{name} = {value}")
    }

    /// Returns a row for each value of a field, and a row without a value for each field whose value is unknown.
    fn rows(&self) -> Vec<FieldRow> {
        let mut rows = Vec::new();
        for (at, field) in FIELDS.iter().enumerate() {
            let mut values = self.values.iter().filter(|((other, _), _)| *other == at).peekable();
            let row = |unit: Option<u32>, value| FieldRow {
                name: field.name,
                register: match unit {
                    Some(unit) => format!("{} of unit {unit}", field.part.name()),
                    None => field.part.name().to_owned(),
                },
                place: field.place(),
                value,
                meaning: field.meaning,
            };
            if values.peek().is_none() {
                rows.push(row(None, None));
            }
            rows.extend(values.map(|((_, unit), entry)| {
                let value = match entry {
                    DescriptorValue::Number(value) => RegisterValue::Number(*value),
                    DescriptorValue::Text(text) => RegisterValue::Text(text.clone()),
                };
                row(*unit, Some(value))
            }));
        }
        rows
    }

    fn facts(&self) -> Vec<RegisterFact> {
        let mut facts = FactCollector(Vec::new());
        facts.add("standard", self.standard(), &["wSpecVersion"]);
        let product = [self.text("iManufacturerName"), self.text("iProductName")];
        let product: Vec<_> = product.into_iter().flatten().collect();
        let product = (!product.is_empty()).then(|| product.join(" "));
        facts.add("product", product, &["iManufacturerName", "iProductName"]);
        facts.add("manufacturer", self.number("wManufacturerID").map(manufacturer), &["wManufacturerID"]);
        facts.add("firmware", self.text("iProductRevisionLevel").map(str::to_owned), &["iProductRevisionLevel"]);
        self.sizes(&mut facts);
        self.commands(&mut facts);
        self.booster(&mut facts);
        self.wear(&mut facts);
        facts.0
    }

    fn sizes(&self, facts: &mut FactCollector) {
        let capacity = capacity(self).map(|stated| size(stated.bytes));
        facts.add("capacity", capacity, &["qLogicalBlockCount", "bLogicalBlockSize", "qTotalRawDeviceCapacity"]);
        let units: Vec<_> = self
            .units()
            .iter()
            .map(|unit| match unit.number {
                Some(number) => format!("{number}: {}", size(unit.bytes)),
                None => size(unit.bytes),
            })
            .collect();
        let count = self.number("bNumberLU").map(|count| count.to_string());
        let listed = (!units.is_empty()).then(|| units.join(", "));
        facts.add("logical units", listed.or(count), &["bNumberLU", "qLogicalBlockCount"]);
        // No UFS descriptor contains the size of the volatile cache.
        facts.add("volatile cache", None, &[]);
    }

    fn commands(&self, facts: &mut FactCollector) {
        let depth = queue_depth(self).map(|(depth, _)| format!("{depth} commands"));
        facts.add("queue", depth, &["bQueueDepth", "bLUQueueDepth"]);
        let link = match (self.text("PA_TxGear"), self.number("PA_ActiveTxDataLanes")) {
            (None, None) => None,
            (gear, lanes) => {
                let lanes = lanes.map(|lanes| format!("{lanes} lane(s)"));
                let gear = gear.map(str::to_owned);
                Some([lanes, gear].into_iter().flatten().collect::<Vec<_>>().join(" of "))
            }
        };
        facts.add("link in use", link, &["PA_ActiveTxDataLanes", "PA_TxGear"]);
        let has_hpb = self.has_hpb().map(|has| match self.number("wHPBVersion").filter(|version| *version > 0) {
            Some(version) if has => format!("version {:x}.{:x}", version >> 8, version >> 4 & 0xf),
            _ => yes_or_no(has),
        });
        facts.add("HPB", has_hpb, &["bUFSFeaturesSupport", "wHPBVersion"]);
        let background = self.number("fBackgroundOpsEn").map(|on| if on > 0 { "on" } else { "off" }.to_owned());
        facts.add("background operations", background, &["fBackgroundOpsEn"]);
    }

    fn booster(&self, facts: &mut FactCollector) {
        let text = self.has_booster().map(|has| {
            if !has {
                return "none".to_owned();
            }
            let Some(stated) = write_booster(self) else { return "yes, not set up".to_owned() };
            let shared = if self.number("bWriteBoosterBufferType") == Some(1) {
                "shared by all logical units"
            } else {
                "of one logical unit"
            };
            let space = match self.number("bWriteBoosterBufferPreserveUserSpaceEn") {
                Some(1) => ", does not reduce the capacity",
                Some(_) => ", reduces the capacity",
                None => "",
            };
            format!("{}, {shared}{space}", size(stated.bytes))
        });
        let from = ["dExtendedUFSFeaturesSupport", "bWriteBoosterBufferType", "dNumSharedWriteBoosterBufferAllocUnits"];
        facts.add("WriteBooster", text, &from);
        let state = self.number("fWriteBoosterEn").map(|on| {
            let free = self.number("bAvailableWriteBoosterBufferSize").filter(|tenths| *tenths <= 10);
            let free = free.map_or_else(String::new, |tenths| format!(", {} % free", tenths * 10));
            format!("{}{free}", if on > 0 { "on" } else { "off" })
        });
        facts.add("WriteBooster now", state, &["fWriteBoosterEn", "bAvailableWriteBoosterBufferSize"]);
    }

    fn wear(&self, facts: &mut FactCollector) {
        for (topic, name) in [
            ("life used, type A (mostly SLC)", "bDeviceLifeTimeEstA"),
            ("life used, type B (mostly MLC, TLC)", "bDeviceLifeTimeEstB"),
            ("life used, WriteBooster", "bWriteBoosterBufferLifeTimeEst"),
        ] {
            facts.add(topic, self.number(name).and_then(life_used), &[name]);
        }
        facts.add("spare blocks", self.number("bPreEOLInfo").and_then(end_of_life), &["bPreEOLInfo"]);
    }

    /// Whether the device has `WriteBooster`; `None` if that is not known.
    pub(super) fn has_booster(&self) -> Option<bool> {
        self.number("dExtendedUFSFeaturesSupport").map(|bits| bits >> WRITE_BOOSTER & 1 == 1)
    }

    fn has_hpb(&self) -> Option<bool> {
        let fields = [self.number("bUFSFeaturesSupport"), self.number("dExtendedUFSFeaturesSupport")];
        let known = fields.iter().flatten().next().is_some();
        known.then(|| fields.iter().flatten().any(|bits| bits >> HPB & 1 == 1))
    }
}

/// The id of a manufacturer, with its name if that is known (JEP106, and the quirks of Linux).
fn manufacturer(number: u64) -> String {
    let name = match number {
        0x012c => ", Micron",
        0x0145 => ", Western Digital",
        0x0198 => ", Kioxia (Toshiba)",
        0x01ad => ", SK hynix",
        0x01ce => ", Samsung",
        _ => "",
    };
    format!("{number:#06x}{name}")
}

/// Returns the name of the bundled device preset that is most similar to the device.
fn like(descriptors: &UfsDescriptors) -> &'static str {
    match descriptors.version() {
        Some((..=2, _)) => "ufs22",
        Some((3, _)) | None => "ufs31",
        Some(_) => "ufs40",
    }
}

/// Returns the total capacity of all logical units for data, or the capacity of the whole device if that is unknown.
fn capacity(descriptors: &UfsDescriptors) -> Option<RegisterCapacity> {
    let units = descriptors.units();
    let bytes = units.iter().try_fold(0_u64, |sum, unit| sum.checked_add(unit.bytes))?;
    if bytes > 0 {
        let from = format!("qLogicalBlockCount << bLogicalBlockSize of {} logical unit(s)", units.len());
        return Some(RegisterCapacity { bytes, from });
    }
    let raw = descriptors.number("qTotalRawDeviceCapacity").filter(|sectors| *sectors > 0)?;
    Some(RegisterCapacity { bytes: raw.checked_mul(512)?, from: descriptors.field_with_value("qTotalRawDeviceCapacity") })
}

/// The queue depth of the device, and the fields from which it was derived.
fn queue_depth(descriptors: &UfsDescriptors) -> Option<(u64, String)> {
    if let Some(depth) = descriptors.number("bQueueDepth").filter(|depth| *depth > 0) {
        return Some((depth, descriptors.field_with_value("bQueueDepth")));
    }
    let of_units = descriptors.units();
    let depths = of_units.iter().filter_map(|unit| descriptors.of_unit(unit.number, "bLUQueueDepth"));
    let depth = depths.max().filter(|depth| *depth > 0)?;
    Some((depth, format!("bLUQueueDepth = {depth:#x}, the largest")))
}

/// The size of `WriteBooster`; `None` if the device has none or none is configured.
fn write_booster(descriptors: &UfsDescriptors) -> Option<RegisterCapacity> {
    if descriptors.has_booster() != Some(true) {
        return None;
    }
    let unit = descriptors.allocation_unit()?;
    let shared = descriptors.number("dNumSharedWriteBoosterBufferAllocUnits").filter(|units| *units > 0);
    let (units, from) = match (descriptors.number("bWriteBoosterBufferType"), shared) {
        (Some(1), Some(units)) => (units, descriptors.field_with_value("dNumSharedWriteBoosterBufferAllocUnits")),
        (Some(0) | None, _) => {
            let (units, number) = dedicated(descriptors)?;
            let of = number.map_or_else(String::new, |number| format!(" of logical unit {number}"));
            (units, format!("dLUNumWriteBoosterBufferAllocUnits{of} = {units:#x}"))
        }
        _ => return None,
    };
    let from = format!(
        "{from}, {}, {}",
        descriptors.field_with_value("bAllocationUnitSize"),
        descriptors.field_with_value("dSegmentSize")
    );
    Some(RegisterCapacity { bytes: units.checked_mul(unit)?, from })
}

/// The size of a dedicated `WriteBooster` in allocation units, and the number of its logical unit.
fn dedicated(descriptors: &UfsDescriptors) -> Option<(u64, Option<u32>)> {
    descriptors.units().iter().find_map(|unit| {
        let units = descriptors.of_unit(unit.number, "dLUNumWriteBoosterBufferAllocUnits")?;
        (units > 0).then_some((units, unit.number))
    })
}

/// Returns the settings except capacity and blocks in SLC mode. Adds notes on descriptor values for which there is no setting.
fn settings_of(descriptors: &UfsDescriptors, notes: &mut Vec<String>) -> Vec<DerivedSetting> {
    let mut rows = Vec::new();
    if let Some((depth, from)) = queue_depth(descriptors) {
        rows.push(DerivedSetting { key: "controller.queue_depth", value: depth.to_string(), from });
    }
    let mut set = |key, value: String, field| {
        rows.push(DerivedSetting { key, value, from: descriptors.field_with_value(field) });
    };
    if let Some(lanes) = descriptors.number("PA_ActiveTxDataLanes") {
        if (1..=2).contains(&lanes) {
            set("interface.lanes", lanes.to_string(), "PA_ActiveTxDataLanes");
        } else {
            let stated = descriptors.field_with_value("PA_ActiveTxDataLanes");
            notes.push(format!("{stated}: a link has 1 or 2 lanes; left out"));
        }
    }
    if let Some(gear) = descriptors.text("PA_TxGear") {
        match gear.strip_prefix("HS_GEAR").filter(|number| matches!(*number, "1" | "2" | "3" | "4" | "5")) {
            Some(number) => set("interface.gear", format!("\"hs_g{number}\""), "PA_TxGear"),
            None => notes.push(format!(
                "{}: no high-speed gear; the link was asleep or slow when it was read, so it is left out",
                descriptors.field_with_value("PA_TxGear")
            )),
        }
    }
    match (descriptors.has_booster(), write_booster(descriptors)) {
        (Some(false), _) => without_booster(&mut set, "dExtendedUFSFeaturesSupport"),
        (Some(true), None) if descriptors.number("bWriteBoosterBufferType") == Some(1) => {
            without_booster(&mut set, "dNumSharedWriteBoosterBufferAllocUnits");
        }
        (Some(true), Some(_)) => booster(descriptors, &mut set),
        _ => {}
    }
    notes.extend(without_settings(descriptors));
    rows
}

fn booster(descriptors: &UfsDescriptors, set: &mut impl FnMut(&'static str, String, &'static str)) {
    set("slc.mode", "\"cache\"".to_owned(), "dExtendedUFSFeaturesSupport");
    if let Some(preserves) = descriptors.number("bWriteBoosterBufferPreserveUserSpaceEn") {
        set("slc.preserve_user_space", (preserves == 1).to_string(), "bWriteBoosterBufferPreserveUserSpaceEn");
    }
    let unit = match dedicated(descriptors) {
        Some((_, number)) if descriptors.number("bWriteBoosterBufferType") != Some(1) => {
            descriptors.units().iter().find(|unit| unit.number == number).map_or(0, |unit| unit.bytes >> 20)
        }
        _ => 0,
    };
    set("slc.dedicated_mb", unit.to_string(), "bWriteBoosterBufferType");
}

fn without_booster(set: &mut impl FnMut(&'static str, String, &'static str), field: &'static str) {
    for (key, value) in [
        ("slc.mode", "\"off\""),
        ("slc.blocks", "0"),
        ("slc.fold_after_us", "0.0"),
        ("slc.flush", "\"idle\""),
        ("slc.flush_at_pct", "100"),
        ("slc.preserve_user_space", "false"),
        ("slc.dedicated_mb", "0"),
    ] {
        set(key, value.to_owned(), field);
    }
}

/// Notes on features that the device model does not have.
fn without_settings(descriptors: &UfsDescriptors) -> Vec<String> {
    let mut notes = vec!["no descriptor contains the size of the volatile cache".to_owned()];
    let enhanced = descriptors.all("bMemoryType").any(|(_, entry)| matches!(entry, DescriptorValue::Number(3..=6)));
    if enhanced {
        notes.push("bMemoryType: logical units of enhanced memory are modelled as normal ones".to_owned());
    }
    if descriptors.number("fHPBEn") == Some(1) {
        notes.push("fHPBEn = 0x1: see mapping.hpb_pages, which needs mapping.scheme = \"dftl\"".to_owned());
    }
    notes
}
