//! Derives the settings of a simulated device from the register of an eMMC.

use super::ExtCsdRegister;
use super::fields::{self, RegisterField};
use crate::report::{DerivedSetting, RegisterCapacity};

/// Entries that the header of a packed command has room for.
const MOST_PACKED: u64 = 63;

/// The preset of the same class.
pub(super) fn like(register: &ExtCsdRegister) -> &'static str {
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

/// `SEC_COUNT` of a register that was erased, or of a read that failed.
const NO_SECTORS: u64 = 0xffff_ffff;

/// Sectors of the user area; `None` if the register does not state them.
pub(super) fn sectors(register: &ExtCsdRegister) -> Option<u64> {
    register.supported_value(fields::SEC_COUNT).filter(|sectors| *sectors > 0 && *sectors != NO_SECTORS)
}

/// The capacity of the user area.
pub(super) fn capacity(register: &ExtCsdRegister) -> Option<RegisterCapacity> {
    Some(RegisterCapacity { bytes: sectors(register)? * 512, from: register.field_with_value(fields::SEC_COUNT) })
}

/// Bytes of the enhanced area of the user area; 0 if there is none.
pub(super) fn enhanced_bytes(register: &ExtCsdRegister) -> Option<u64> {
    let attribute = register.supported_value(fields::PARTITIONS_ATTRIBUTE)?;
    let size = register.supported_value(fields::ENH_SIZE_MULT)?;
    let is_set = register.supported_value(fields::PARTITION_SETTING_COMPLETED).unwrap_or(1) & 1 == 1;
    if attribute & 1 == 0 || !is_set || size == 0 {
        return Some(0);
    }
    let group =
        register.supported_value(fields::HC_WP_GRP_SIZE)? * register.supported_value(fields::HC_ERASE_GRP_SIZE)?;
    Some(size * group * (512 << 10))
}

/// The enhanced area; `None` if there is none.
pub(super) fn enhanced(register: &ExtCsdRegister) -> Option<RegisterCapacity> {
    let bytes = enhanced_bytes(register).filter(|bytes| *bytes > 0)?;
    let from = [fields::ENH_SIZE_MULT, fields::HC_WP_GRP_SIZE, fields::HC_ERASE_GRP_SIZE];
    Some(RegisterCapacity { bytes, from: from.map(|field| register.field_with_value(field)).join(", ") })
}

/// Collects the settings.
struct SettingCollector<'a> {
    register: &'a ExtCsdRegister,
    rows: Vec<DerivedSetting>,
}

impl SettingCollector<'_> {
    fn set(&mut self, key: &'static str, value: impl std::fmt::Display, from: &[RegisterField]) {
        let from: Vec<_> = from.iter().map(|field| self.register.field_with_value(*field)).collect();
        self.rows.push(DerivedSetting { key, value: format!("{value}"), from: from.join(", ") });
    }
}

/// Returns every setting except capacity and blocks in SLC mode, and adds notes on values that have no setting.
pub(super) fn of(register: &ExtCsdRegister, notes: &mut Vec<String>) -> Vec<DerivedSetting> {
    let mut settings = SettingCollector { register, rows: Vec::new() };
    if register.supported_value(fields::SEC_COUNT) == Some(NO_SECTORS) {
        notes.push(format!("{}: all bits are set, which is no capacity", register.field_with_value(fields::SEC_COUNT)));
    }
    cache(&mut settings, notes);
    if let Some(value) = register.supported_value(fields::WR_REL_PARAM) {
        settings.set("features.reliable_write", value >> 2 & 1 == 1, &[fields::WR_REL_PARAM]);
    }
    for (key, field) in
        [("features.packed_writes", fields::MAX_PACKED_WRITES), ("features.packed_reads", fields::MAX_PACKED_READS)]
    {
        if let Some(entries) = register.supported_value(field) {
            if entries == 1 || entries > MOST_PACKED {
                notes.push(format!(
                    "{}: a packed command of the model has 2 to {MOST_PACKED} entries",
                    register.field_with_value(field)
                ));
            }
            settings.set(key, if entries == 1 { 0 } else { entries.min(MOST_PACKED) }, &[field]);
        }
    }
    queue(&mut settings, notes);
    bus(&mut settings);
    enhanced_area(&mut settings, notes);
    without_settings(register, notes);
    settings.rows
}

fn cache(settings: &mut SettingCollector<'_>, notes: &mut Vec<String>) {
    let register = settings.register;
    let Some(units) = register.supported_value(fields::CACHE_SIZE) else { return };
    settings.set("cache.size_kb", units / 8, &[fields::CACHE_SIZE]);
    if units == 0 {
        return;
    }
    if !register.is_whole() {
        notes.push(format!(
            "{}: old versions of mmc-utils print 8 times the size of the cache; debugfs has the register itself",
            register.field_with_value(fields::CACHE_SIZE)
        ));
    }
    if register.supported_value(fields::CACHE_CTRL).is_some_and(|state| state & 1 == 0) {
        notes.push(format!(
            "{}: the cache was off when the register was read; the preset has it on, as Linux switches it on",
            register.field_with_value(fields::CACHE_CTRL)
        ));
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

fn queue(settings: &mut SettingCollector<'_>, notes: &mut Vec<String>) {
    let register = settings.register;
    match (register.supported_value(fields::CMDQ_SUPPORT), register.supported_value(fields::CMDQ_DEPTH)) {
        (Some(support), Some(depth)) if support & 1 == 1 => {
            let from = [fields::CMDQ_SUPPORT, fields::CMDQ_DEPTH];
            settings.set("controller.queue_depth", (depth & 0x1f) + 1, &from);
            if register.supported_value(fields::CMDQ_MODE_EN).is_some_and(|mode| mode & 1 == 0) {
                notes.push(format!(
                    "{}: the command queue was off when the register was read; `--set controller.queue_depth=1` \
                     simulates a host that does not use it",
                    register.field_with_value(fields::CMDQ_MODE_EN)
                ));
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

fn enhanced_area(settings: &mut SettingCollector<'_>, notes: &mut Vec<String>) {
    let register = settings.register;
    if enhanced_bytes(register).is_none_or(|bytes| bytes == 0) {
        return;
    }
    settings.set("slc.mode", "\"region\"", &[fields::PARTITIONS_ATTRIBUTE]);
    settings.set("slc.fold_after_us", "0.0", &[fields::PARTITIONS_ATTRIBUTE]);
    if register.supported_value(fields::ENH_START_ADDR).is_some_and(|begin| begin > 0) {
        notes.push(format!(
            "{}: the enhanced area of the model is at the beginning of the address space",
            register.field_with_value(fields::ENH_START_ADDR)
        ));
    }
}

/// Adds notes on features for which the device model has no setting.
fn without_settings(register: &ExtCsdRegister, notes: &mut Vec<String>) {
    for (field, what) in [
        (fields::BKOPS_SUPPORT, "background operations are modelled as idle collection, see gc.idle_after_us"),
        (fields::BOOT_SIZE_MULT, "the model has no boot partitions; a served card has them"),
        (fields::RPMB_SIZE_MULT, "the model has no RPMB partition; a served card has one"),
    ] {
        if register.supported_value(field).is_some_and(|value| value > 0) {
            notes.push(format!("{}: {what}", register.field_with_value(field)));
        }
    }
    let partitions = [fields::GP_SIZE_MULT_1, fields::GP_SIZE_MULT_2, fields::GP_SIZE_MULT_3, fields::GP_SIZE_MULT_4];
    for field in partitions {
        if register.supported_value(field).is_some_and(|value| value > 0) {
            notes.push(format!("{}: the model has no general purpose partitions", register.field_with_value(field)));
        }
    }
}
