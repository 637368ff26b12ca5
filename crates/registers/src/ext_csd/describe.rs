//! Describes the register of an eMMC in plain words.

use super::fields::{self, FIELDS, RegisterField};
use super::{ExtCsdRegister, NEWEST, settings};
use crate::report::{
    FactCollector, FieldRow, RegisterReport, RegisterValue, end_of_life, grouped, hex_number, life_used, size,
    yes_or_no,
};

/// Bytes of the units in which the register counts.
const SECTOR: u64 = 512;
const PARTITION_UNIT: u64 = 128 << 10;
const ERASE_UNIT: u64 = 512 << 10;

impl ExtCsdRegister {
    /// The report on all values of the register.
    pub fn report(&self) -> RegisterReport {
        let mut notes = self.card.as_ref().map_or_else(Vec::new, |card| card.notes.clone());
        notes.extend(self.order.clone());
        self.note_gaps(&mut notes);
        let facts = self.facts();
        let settings = settings::of(self, &mut notes);
        RegisterReport {
            kind: "emmc",
            standard: self.standard(),
            like: settings::like(self),
            facts,
            fields: self.rows(),
            capacity: settings::capacity(self),
            slc: settings::enhanced(self),
            settings,
            notes,
        }
    }

    /// The version of the standard that has this revision.
    fn standard(&self) -> String {
        let version = match self.revision() {
            None => return "eMMC".to_owned(),
            Some(0) => "4.0",
            Some(1) => "4.1",
            Some(2) => "4.2",
            Some(3) => "4.3",
            Some(4) => "4.4",
            Some(5) => "4.41",
            Some(6) => "4.5",
            Some(7) => "5.0",
            Some(8) => "5.1",
            Some(revision) => return format!("eMMC newer than 5.1 (revision {revision})"),
        };
        format!("eMMC {version}")
    }

    /// Adds notes on fields that are not known (of a newer revision), and on values of fields that this revision does not have.
    fn note_gaps(&self, notes: &mut Vec<String>) {
        let Some(revision) = self.revision() else {
            notes.push("EXT_CSD_REV is not given: the fields are read as those of eMMC 5.1".to_owned());
            return;
        };
        if revision > NEWEST {
            notes.push(format!(
                "revision {revision}: fields beyond those of revision {NEWEST} (eMMC 5.1) are not known"
            ));
        }
        for field in FIELDS.iter().filter(|field| field.since > revision && field.byte >= 192) {
            if self.number(*field).is_some_and(|value| value != 0) {
                notes.push(format!(
                    "{} is set, but revision {revision} has no such field: left out",
                    self.field_with_value(*field)
                ));
            }
        }
    }

    /// A field with its place and value, as `CACHE_SIZE [252:249] = 0x00010000`.
    pub(super) fn field_with_value(&self, field: RegisterField) -> String {
        let value = self.bytes_of(field).map_or_else(|| "not given".to_owned(), hex_number);
        format!("{} {} = {value}", field.name, field.place())
    }

    fn rows(&self) -> Vec<FieldRow> {
        let row = |field: &RegisterField| FieldRow {
            name: field.name,
            register: "EXT_CSD".to_owned(),
            place: field.place(),
            value: self.bytes_of(*field).map(|bytes| match field.bytes {
                1..=4 => RegisterValue::Number(field.get(&self.bytes)),
                _ => RegisterValue::Text(hex_number(bytes)),
            }),
            meaning: field.meaning,
        };
        let of_card = self.card.iter().flat_map(super::sysfs_files::CardRegisters::rows);
        FIELDS.iter().map(row).chain(of_card).collect()
    }

    fn facts(&self) -> Vec<crate::report::RegisterFact> {
        let mut facts = FactCollector(Vec::new());
        let is_known = self.revision().is_some();
        facts.add("standard", is_known.then(|| self.standard()), &["EXT_CSD_REV"]);
        if let Some(card) = &self.card {
            facts.add("product", card.product(), &["CID"]);
        }
        facts.add("firmware", self.firmware(), &["FIRMWARE_VERSION"]);
        self.sizes(&mut facts);
        self.durability(&mut facts);
        self.commands(&mut facts);
        self.wear(&mut facts);
        facts.0
    }

    fn sizes(&self, facts: &mut FactCollector) {
        let capacity = settings::sectors(self)
            .map(|sectors| format!("{} ({} sectors of 512 bytes)", size(sectors * SECTOR), grouped(sectors)));
        facts.add("capacity", capacity, &["SEC_COUNT"]);
        let enhanced = settings::enhanced_bytes(self)
            .map(|bytes| if bytes == 0 { "none".to_owned() } else { format!("{} of the user area", size(bytes)) });
        facts.add("enhanced area (SLC)", enhanced, &["ENH_SIZE_MULT", "PARTITIONS_ATTRIBUTE"]);
        let partition = |units| if units == 0 { "none".to_owned() } else { size(units * PARTITION_UNIT) };
        let boot = self.supported_value(fields::BOOT_SIZE_MULT).map(|units| match units {
            0 => "none".to_owned(),
            units => format!("2 of {}", size(units * PARTITION_UNIT)),
        });
        facts.add("boot partitions", boot, &["BOOT_SIZE_MULT"]);
        let rpmb = self.supported_value(fields::RPMB_SIZE_MULT).map(partition);
        facts.add("RPMB partition", rpmb, &["RPMB_SIZE_MULT"]);
        let group = self.supported_value(fields::HC_ERASE_GRP_SIZE).filter(|units| *units > 0);
        facts.add("erase group", group.map(|units| size(units * ERASE_UNIT)), &["HC_ERASE_GRP_SIZE"]);
        let write = self.supported_value(fields::OPTIMAL_WRITE_SIZE).filter(|units| *units > 0);
        facts.add("preferred write", write.map(|units| size(units * 4096)), &["OPTIMAL_WRITE_SIZE"]);
    }

    fn durability(&self, facts: &mut FactCollector) {
        let cache = self.supported_value(fields::CACHE_SIZE).map(|units| {
            let in_use = match self.supported_value(fields::CACHE_CTRL) {
                _ if units == 0 => "",
                Some(state) if state & 1 == 1 => ", on",
                Some(_) => ", off when it was read",
                None => "",
            };
            let order = match self.supported_value(fields::CACHE_FLUSH_POLICY) {
                Some(policy) if units > 0 && policy & 1 == 1 => ", keeps the order of writes",
                _ => "",
            };
            if units == 0 { "none".to_owned() } else { format!("{}{in_use}{order}", size(units * 128)) }
        });
        facts.add("volatile cache", cache, &["CACHE_SIZE", "CACHE_CTRL", "CACHE_FLUSH_POLICY"]);
        let barrier = self.supported_value(fields::BARRIER_SUPPORT).map(|value| yes_or_no(value & 1 == 1));
        facts.add("cache barriers", barrier, &["BARRIER_SUPPORT"]);
        let reliable = self.supported_value(fields::WR_REL_PARAM).map(|value| match value >> 2 & 1 {
            1 => "of any length".to_owned(),
            _ => match self.supported_value(fields::REL_WR_SEC_C) {
                Some(sectors) => format!("of exactly {sectors} sector(s)"),
                None => "not of any length".to_owned(),
            },
        });
        facts.add("reliable writes", reliable, &["WR_REL_PARAM", "REL_WR_SEC_C"]);
    }

    fn commands(&self, facts: &mut FactCollector) {
        let most = |field| match self.supported_value(field) {
            Some(0) => Some("none".to_owned()),
            entries => entries.map(|entries| format!("up to {entries} entries")),
        };
        facts.add("packed writes", most(fields::MAX_PACKED_WRITES), &["MAX_PACKED_WRITES"]);
        facts.add("packed reads", most(fields::MAX_PACKED_READS), &["MAX_PACKED_READS"]);
        let queue =
            self.supported_value(fields::CMDQ_SUPPORT).map(|support| match self.supported_value(fields::CMDQ_DEPTH) {
                _ if support & 1 == 0 => "none".to_owned(),
                Some(depth) => format!("{} commands", (depth & 0x1f) + 1),
                None => "yes".to_owned(),
            });
        facts.add("command queue", queue, &["CMDQ_SUPPORT", "CMDQ_DEPTH"]);
        facts.add("bus modes", self.bus_modes(), &["DEVICE_TYPE"]);
        let interrupt = self.supported_value(fields::HPI_FEATURES).map(|value| yes_or_no(value & 1 == 1));
        facts.add("high priority interrupt", interrupt, &["HPI_FEATURES"]);
        let background = self.supported_value(fields::BKOPS_SUPPORT).map(|support| {
            let by = match self.supported_value(fields::BKOPS_EN) {
                Some(by) if by & 2 == 2 => ", the device starts them",
                Some(by) if by & 1 == 1 => ", the host starts them",
                Some(_) => ", not switched on",
                None => "",
            };
            if support & 1 == 0 { "no".to_owned() } else { format!("yes{by}") }
        });
        facts.add("background operations", background, &["BKOPS_SUPPORT", "BKOPS_EN"]);
        let erases = self.supported_value(fields::SEC_FEATURE_SUPPORT).map(|bits| {
            let names = [(0, "secure erase"), (4, "trim"), (6, "sanitize")];
            let has: Vec<_> = names.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect();
            if has.is_empty() { "none".to_owned() } else { has.join(", ") }
        });
        facts.add("erasing", erases, &["SEC_FEATURE_SUPPORT"]);
        let update = self.supported_value(fields::SUPPORTED_MODES).map(|modes| yes_or_no(modes & 1 == 1));
        facts.add("firmware update", update, &["SUPPORTED_MODES"]);
    }

    fn wear(&self, facts: &mut FactCollector) {
        for (topic, field, name) in [
            ("life used, type A (mostly SLC)", fields::DEVICE_LIFE_TIME_EST_TYP_A, "DEVICE_LIFE_TIME_EST_TYP_A"),
            ("life used, type B (mostly MLC, TLC)", fields::DEVICE_LIFE_TIME_EST_TYP_B, "DEVICE_LIFE_TIME_EST_TYP_B"),
        ] {
            facts.add(topic, self.supported_value(field).and_then(life_used), &[name]);
        }
        facts.add("spare blocks", self.supported_value(fields::PRE_EOL_INFO).and_then(end_of_life), &["PRE_EOL_INFO"]);
    }

    fn bus_modes(&self) -> Option<String> {
        let bits = self.supported_value(fields::DEVICE_TYPE)?;
        let names = [(0b10, "high speed"), (0b1100, "DDR52"), (0b11_0000, "HS200"), (0b1100_0000, "HS400")];
        let has: Vec<_> = names.iter().filter(|(mask, _)| bits & mask != 0).map(|(_, name)| *name).collect();
        (!has.is_empty()).then(|| has.join(", "))
    }

    /// The version of the firmware: as text if it is printable, else in hexadecimal digits.
    fn firmware(&self) -> Option<String> {
        self.supported_value(fields::FIRMWARE_VERSION)?;
        let bytes = self.bytes_of(fields::FIRMWARE_VERSION)?;
        let end = bytes.iter().rposition(|byte| *byte != 0)? + 1;
        let is_text = bytes[..end].iter().all(|byte| (0x20..0x7f).contains(byte));
        let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
        let version = if is_text { text } else { hex_number(bytes) };
        (!version.is_empty()).then_some(version)
    }
}
