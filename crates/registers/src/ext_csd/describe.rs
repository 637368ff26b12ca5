//! Describes the `EXT_CSD` register of an eMMC in words, and derives settings of a simulated device from it.

use super::fields::{self, FIELDS, RegisterField};
use super::{ExtCsdRegister, NEWEST};
use crate::report::{
    DerivedSetting, FactCollector, FieldRow, RegisterCapacity, RegisterReport, RegisterValue, end_of_life, grouped, hex_number,
    life_used, size, yes_or_no,
};

/// Number of bytes in the unit of the register's size fields.
const SECTOR: u64 = 512;
const PARTITION_UNIT: u64 = 128 << 10;
const ERASE_UNIT: u64 = 512 << 10;

impl ExtCsdRegister {
    /// Returns the report on all fields of the `EXT_CSD` register.
    pub fn report(&self) -> RegisterReport {
        let mut notes = self.card.as_ref().map_or_else(Vec::new, |card| card.notes.clone());
        notes.extend(self.order.clone());
        self.note_gaps(&mut notes);
        let facts = self.facts();
        let settings = settings_of(self, &mut notes);
        RegisterReport {
            kind: "emmc",
            standard: self.standard(),
            like: like(self),
            facts,
            fields: self.rows(),
            capacity: capacity(self),
            slc: enhanced(self),
            settings,
            notes,
        }
    }

    /// Returns the version of the eMMC standard that defines this revision of the register.
    fn standard(&self) -> String {
        const VERSIONS: [&str; 9] = ["4.0", "4.1", "4.2", "4.3", "4.4", "4.41", "4.5", "5.0", "5.1"];
        let Some(revision) = self.revision() else { return "eMMC".to_owned() };
        match VERSIONS.get(usize::from(revision)) {
            Some(version) => format!("eMMC {version}"),
            None => format!("eMMC newer than 5.1 (revision {revision})"),
        }
    }

    /// Adds notes on unknown fields of a newer revision of the register, and on values of fields that this revision does not have.
    fn note_gaps(&self, notes: &mut Vec<String>) {
        let Some(revision) = self.revision() else {
            notes.push("EXT_CSD_REV is not given: the fields are read as those of eMMC 5.1".to_owned());
            return;
        };
        if revision > NEWEST {
            notes.push(format!("revision {revision}: fields beyond those of revision {NEWEST} (eMMC 5.1) are not known"));
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

    /// Returns a field as text with its bytes in the register and its value, such as `CACHE_SIZE [252:249] = 0x00010000`.
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
        let capacity =
            sectors(self).map(|sectors| format!("{} ({} sectors of 512 bytes)", size(sectors * SECTOR), grouped(sectors)));
        facts.add("capacity", capacity, &["SEC_COUNT"]);
        let enhanced = enhanced_bytes(self)
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
        let queue = self.supported_value(fields::CMDQ_SUPPORT).map(|support| match self.supported_value(fields::CMDQ_DEPTH) {
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

    /// The version of the firmware: a text if it is printable, otherwise hexadecimal digits.
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

/// Maximum number of entries in the header of a packed command.
const MOST_PACKED: u64 = 63;

/// Returns the name of the bundled device preset that is most similar to the device.
fn like(register: &ExtCsdRegister) -> &'static str {
    let revision = register.revision().unwrap_or(super::NEWEST);
    let may_have_cache = revision >= fields::CACHE_SIZE.since;
    let has_cache = register.supported_value(fields::CACHE_SIZE).map_or(may_have_cache, |units| units > 0);
    match (has_cache, revision) {
        (true, ..=7) => "emmc50-cache",
        (true, _) => "emmc51-cache",
        (false, ..=7) => "emmc50-write-through",
        (false, _) => "emmc51-tlc",
    }
}

/// `SEC_COUNT` of an erased register or after a failed read.
const NO_SECTORS: u64 = 0xffff_ffff;

/// Sectors of the user area; `None` if the register does not contain them.
fn sectors(register: &ExtCsdRegister) -> Option<u64> {
    register.supported_value(fields::SEC_COUNT).filter(|sectors| *sectors > 0 && *sectors != NO_SECTORS)
}

/// The capacity of the user area.
fn capacity(register: &ExtCsdRegister) -> Option<RegisterCapacity> {
    Some(RegisterCapacity { bytes: sectors(register)? * 512, from: register.field_with_value(fields::SEC_COUNT) })
}

/// Bytes of the user area that are enhanced area; 0 if there is none.
fn enhanced_bytes(register: &ExtCsdRegister) -> Option<u64> {
    let attribute = register.supported_value(fields::PARTITIONS_ATTRIBUTE)?;
    let size = register.supported_value(fields::ENH_SIZE_MULT)?;
    let is_set = register.supported_value(fields::PARTITION_SETTING_COMPLETED).unwrap_or(1) & 1 == 1;
    if attribute & 1 == 0 || !is_set || size == 0 {
        return Some(0);
    }
    let group = register.supported_value(fields::HC_WP_GRP_SIZE)? * register.supported_value(fields::HC_ERASE_GRP_SIZE)?;
    Some(size * group * (512 << 10))
}

/// Returns the capacity of the enhanced area; `None` if there is no enhanced area.
fn enhanced(register: &ExtCsdRegister) -> Option<RegisterCapacity> {
    let bytes = enhanced_bytes(register).filter(|bytes| *bytes > 0)?;
    let from = [fields::ENH_SIZE_MULT, fields::HC_WP_GRP_SIZE, fields::HC_ERASE_GRP_SIZE];
    Some(RegisterCapacity { bytes, from: from.map(|field| register.field_with_value(field)).join(", ") })
}

struct SettingCollector<'a> {
    register: &'a ExtCsdRegister,
    rows: Vec<DerivedSetting>,
    /// Notes on register values for which there is no setting.
    notes: &'a mut Vec<String>,
}

impl SettingCollector<'_> {
    fn set(&mut self, key: &'static str, value: impl std::fmt::Display, from: &[RegisterField]) {
        let from: Vec<_> = from.iter().map(|field| self.register.field_with_value(*field)).collect();
        self.rows.push(DerivedSetting { key, value: format!("{value}"), from: from.join(", ") });
    }

    fn note(&mut self, field: RegisterField, text: &str) {
        self.notes.push(format!("{}: {text}", self.register.field_with_value(field)));
    }
}

/// Returns the settings except capacity and blocks in SLC mode. Adds notes on register values for which there is no setting.
fn settings_of(register: &ExtCsdRegister, notes: &mut Vec<String>) -> Vec<DerivedSetting> {
    let mut settings = SettingCollector { register, rows: Vec::new(), notes };
    if register.supported_value(fields::SEC_COUNT) == Some(NO_SECTORS) {
        settings.note(fields::SEC_COUNT, "all bits are set, which is no capacity");
    }
    cache(&mut settings);
    if let Some(value) = register.supported_value(fields::WR_REL_PARAM) {
        settings.set("features.reliable_write", value >> 2 & 1 == 1, &[fields::WR_REL_PARAM]);
    }
    for (key, field) in
        [("features.packed_writes", fields::MAX_PACKED_WRITES), ("features.packed_reads", fields::MAX_PACKED_READS)]
    {
        if let Some(entries) = register.supported_value(field) {
            if entries == 1 || entries > MOST_PACKED {
                settings.note(field, &format!("a packed command of the model has 2 to {MOST_PACKED} entries"));
            }
            settings.set(key, if entries == 1 { 0 } else { entries.min(MOST_PACKED) }, &[field]);
        }
    }
    queue(&mut settings);
    bus(&mut settings);
    enhanced_area(&mut settings);
    without_settings(&mut settings);
    settings.rows
}

fn cache(settings: &mut SettingCollector<'_>) {
    let register = settings.register;
    let Some(units) = register.supported_value(fields::CACHE_SIZE) else { return };
    settings.set("cache.size_kb", units / 8, &[fields::CACHE_SIZE]);
    if units == 0 {
        return;
    }
    if !register.is_whole() {
        let text = "old versions of mmc-utils print 8 times the size of the cache; debugfs has the register itself";
        settings.note(fields::CACHE_SIZE, text);
    }
    if register.supported_value(fields::CACHE_CTRL).is_some_and(|state| state & 1 == 0) {
        let text = "the cache was off when the register was read; the preset has it on, because Linux switches it on";
        settings.note(fields::CACHE_CTRL, text);
    }
    if let Some(policy) = register.supported_value(fields::CACHE_FLUSH_POLICY) {
        let policy = if policy & 1 == 1 { "\"fifo\"" } else { "\"lru\"" };
        settings.set("cache.policy", policy, &[fields::CACHE_FLUSH_POLICY]);
    }
    if let Some(support) = register.supported_value(fields::BARRIER_SUPPORT) {
        settings.set("features.barrier", support & 1 == 1, &[fields::BARRIER_SUPPORT]);
    } else if register.revision().is_some_and(|revision| revision < fields::BARRIER_SUPPORT.since) {
        settings.set("features.barrier", false, &[fields::EXT_CSD_REV]);
    }
}

fn queue(settings: &mut SettingCollector<'_>) {
    let register = settings.register;
    match (register.supported_value(fields::CMDQ_SUPPORT), register.supported_value(fields::CMDQ_DEPTH)) {
        (Some(support), Some(depth)) if support & 1 == 1 => {
            let from = [fields::CMDQ_SUPPORT, fields::CMDQ_DEPTH];
            settings.set("controller.queue_depth", (depth & 0x1f) + 1, &from);
            if register.supported_value(fields::CMDQ_MODE_EN).is_some_and(|mode| mode & 1 == 0) {
                let text = "the command queue was off when the register was read; `--set controller.queue_depth=1` simulates \
                            a host that does not use it";
                settings.note(fields::CMDQ_MODE_EN, text);
            }
        }
        (Some(support), _) if support & 1 == 0 => {
            settings.set("controller.queue_depth", 1, &[fields::CMDQ_SUPPORT]);
        }
        _ if register.revision().is_some_and(|revision| revision < fields::CMDQ_SUPPORT.since) => {
            settings.set("controller.queue_depth", 1, &[fields::EXT_CSD_REV]);
        }
        _ => {}
    }
}

/// Sets the fastest bus mode that the device supports.
fn bus(settings: &mut SettingCollector<'_>) {
    let Some(bits) = settings.register.supported_value(fields::DEVICE_TYPE) else { return };
    let modes = [(0b1100_0000, "hs400"), (0b11_0000, "hs200"), (0b1100, "ddr52"), (0b10, "hs52")];
    if let Some((_, mode)) = modes.iter().find(|(mask, _)| bits & mask != 0) {
        settings.set("controller.bus_mode", format!("\"{mode}\""), &[fields::DEVICE_TYPE]);
        settings.set("controller.host_us_per_kb", "0.0", &[fields::DEVICE_TYPE]);
    }
}

fn enhanced_area(settings: &mut SettingCollector<'_>) {
    let register = settings.register;
    if enhanced_bytes(register).is_none_or(|bytes| bytes == 0) {
        return;
    }
    settings.set("slc.mode", "\"region\"", &[fields::PARTITIONS_ATTRIBUTE]);
    settings.set("slc.fold_after_us", "0.0", &[fields::PARTITIONS_ATTRIBUTE]);
    if register.supported_value(fields::ENH_START_ADDR).is_some_and(|begin| begin > 0) {
        settings.note(fields::ENH_START_ADDR, "the enhanced area of the model is at the beginning of the address space");
    }
}

/// Adds notes on features that the device model does not have.
fn without_settings(settings: &mut SettingCollector<'_>) {
    let partitions = "the model has no general purpose partitions";
    for (field, text) in [
        (fields::BKOPS_SUPPORT, "background operations are modelled as idle collection, see gc.idle_after_us"),
        (fields::BOOT_SIZE_MULT, "the model has no boot partitions; a served card has them"),
        (fields::RPMB_SIZE_MULT, "the model has no RPMB partition; a served card has one"),
        (fields::GP_SIZE_MULT_1, partitions),
        (fields::GP_SIZE_MULT_2, partitions),
        (fields::GP_SIZE_MULT_3, partitions),
        (fields::GP_SIZE_MULT_4, partitions),
    ] {
        if settings.register.supported_value(field).is_some_and(|value| value > 0) {
            settings.note(field, text);
        }
    }
}
