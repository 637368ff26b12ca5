//! Describes the descriptors of a UFS in plain words.

use super::fields::FIELDS;
use super::text::DescriptorValue;
use super::{NEWEST, UfsDescriptors, format_value, settings};
use crate::report::{
    FactCollector, FieldRow, RegisterFact, RegisterReport, RegisterValue, end_of_life, life_used, size, yes_or_no,
};

/// Bit of `WriteBooster` in `dExtendedUFSFeaturesSupport`.
const WRITE_BOOSTER: u32 = 8;
/// Bit of HPB in `bUFSFeaturesSupport`, and in `dExtendedUFSFeaturesSupport`.
const HPB: u32 = 7;

impl UfsDescriptors {
    /// The report on all values of the descriptors.
    pub fn report(&self) -> RegisterReport {
        let mut notes: Vec<_> = self.order.clone().into_iter().collect();
        match self.version() {
            Some((major, _)) if major > NEWEST => notes.push(format!(
                "{}: fields beyond those of UFS {NEWEST} are not known",
                self.field_with_value("wSpecVersion")
            )),
            Some(_) => {}
            None => {
                notes.push("wSpecVersion is not given: the fields are read as those of UFS 3.1".to_owned());
            }
        }
        let settings = settings::of(self, &mut notes);
        RegisterReport {
            kind: "ufs",
            standard: self.standard().unwrap_or_else(|| "UFS".to_owned()),
            like: settings::like(self),
            facts: self.facts(),
            fields: self.rows(),
            capacity: settings::capacity(self),
            slc: settings::write_booster(self),
            settings,
            notes,
        }
    }

    fn standard(&self) -> Option<String> {
        self.version().map(|(major, minor)| format!("UFS {major}.{minor}"))
    }

    /// A field with its value, as `bQueueDepth = 0x20`.
    pub(super) fn field_with_value(&self, name: &'static str) -> String {
        let value = self.all(name).next().map_or_else(|| "not given".to_owned(), |(_, given)| format_value(given));
        format!("{name} = {value}")
    }

    /// A row for each value of a field, and a row without a value for each field that is unknown.
    fn rows(&self) -> Vec<FieldRow> {
        let mut rows = Vec::new();
        for (at, field) in FIELDS.iter().enumerate() {
            let mut found = self.values.iter().filter(|((other, _), _)| *other == at).peekable();
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
            if found.peek().is_none() {
                rows.push(row(None, None));
            }
            rows.extend(found.map(|((_, unit), given)| {
                let value = match given {
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
        let capacity = settings::capacity(self).map(|stated| size(stated.bytes));
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
        // No descriptor has the size of the cache.
        facts.add("volatile cache", None, &[]);
    }

    fn commands(&self, facts: &mut FactCollector) {
        let depth = settings::queue_depth(self).map(|(depth, _)| format!("{depth} commands"));
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
            let Some(stated) = settings::write_booster(self) else { return "yes, not set up".to_owned() };
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

    /// Whether it has `WriteBooster`; `None` if that is unknown.
    pub(super) fn has_booster(&self) -> Option<bool> {
        self.number("dExtendedUFSFeaturesSupport").map(|bits| bits >> WRITE_BOOSTER & 1 == 1)
    }

    fn has_hpb(&self) -> Option<bool> {
        let fields = [self.number("bUFSFeaturesSupport"), self.number("dExtendedUFSFeaturesSupport")];
        let known = fields.iter().flatten().next().is_some();
        known.then(|| fields.iter().flatten().any(|bits| bits >> HPB & 1 == 1))
    }
}

/// The number of a manufacturer, with its name if it is known (JEP106, and the quirks of Linux).
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
