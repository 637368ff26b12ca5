//! Derives the settings of a simulated device from the descriptors of a UFS.

use super::{LogicalUnit, UfsDescriptors};
use crate::report::{DerivedSetting, RegisterCapacity};

/// The preset of the same class.
pub(super) fn like(descriptors: &UfsDescriptors) -> &'static str {
    match descriptors.version() {
        Some((..=2, _)) => "ufs22",
        Some((3, _)) | None => "ufs31",
        Some(_) => "ufs40",
    }
}

/// The capacity: that of all logical units for data, or of the whole device.
pub(super) fn capacity(descriptors: &UfsDescriptors) -> Option<RegisterCapacity> {
    let units = descriptors.units();
    let bytes = units.iter().try_fold(0_u64, |sum, unit| sum.checked_add(unit.bytes))?;
    if bytes > 0 {
        let from = format!("qLogicalBlockCount << bLogicalBlockSize of {} logical unit(s)", units.len());
        return Some(RegisterCapacity { bytes, from });
    }
    let raw = descriptors.number("qTotalRawDeviceCapacity").filter(|sectors| *sectors > 0)?;
    Some(RegisterCapacity {
        bytes: raw.checked_mul(512)?,
        from: descriptors.field_with_value("qTotalRawDeviceCapacity"),
    })
}

/// The queue depth of the device, and the fields from which it was read.
pub(super) fn queue_depth(descriptors: &UfsDescriptors) -> Option<(u64, String)> {
    if let Some(depth) = descriptors.number("bQueueDepth").filter(|depth| *depth > 0) {
        return Some((depth, descriptors.field_with_value("bQueueDepth")));
    }
    let of_units = descriptors.units();
    let depths = of_units.iter().filter_map(|unit| descriptors.of_unit(unit.number, "bLUQueueDepth"));
    let depth = depths.max().filter(|depth| *depth > 0)?;
    Some((depth, format!("bLUQueueDepth = {depth:#x}, the largest")))
}

/// The size of `WriteBooster`; `None` if the device has none, or none is configured.
pub(super) fn write_booster(descriptors: &UfsDescriptors) -> Option<RegisterCapacity> {
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

/// The allocation units of a dedicated `WriteBooster`, and the number of the logical unit that has it.
fn dedicated(descriptors: &UfsDescriptors) -> Option<(u64, Option<u32>)> {
    descriptors.units().iter().find_map(|unit| {
        let units = descriptors.of_unit(unit.number, "dLUNumWriteBoosterBufferAllocUnits")?;
        (units > 0).then_some((units, unit.number))
    })
}

/// Returns every setting except capacity and blocks in SLC mode, and adds notes on values that have no setting.
pub(super) fn of(descriptors: &UfsDescriptors, notes: &mut Vec<String>) -> Vec<DerivedSetting> {
    let mut rows = Vec::new();
    let mut set = |key, value: String, from: String| rows.push(DerivedSetting { key, value, from });
    if let Some((depth, from)) = queue_depth(descriptors) {
        set("controller.queue_depth", depth.to_string(), from);
    }
    if let Some(lanes) = descriptors.number("PA_ActiveTxDataLanes") {
        if (1..=2).contains(&lanes) {
            set("interface.lanes", lanes.to_string(), descriptors.field_with_value("PA_ActiveTxDataLanes"));
        } else {
            notes.push(format!(
                "{}: a link has 1 or 2 lanes; left out",
                descriptors.field_with_value("PA_ActiveTxDataLanes")
            ));
        }
    }
    if let Some(gear) = descriptors.text("PA_TxGear") {
        match gear.strip_prefix("HS_GEAR").filter(|number| matches!(*number, "1" | "2" | "3" | "4" | "5")) {
            Some(number) => {
                set("interface.gear", format!("\"hs_g{number}\""), descriptors.field_with_value("PA_TxGear"));
            }
            None => notes.push(format!(
                "{}: no high-speed gear; the link was asleep or slow when it was read, so it is left out",
                descriptors.field_with_value("PA_TxGear")
            )),
        }
    }
    match (descriptors.has_booster(), write_booster(descriptors)) {
        (Some(false), _) => {
            without_booster(&mut set, &descriptors.field_with_value("dExtendedUFSFeaturesSupport"));
        }
        (Some(true), None) if descriptors.number("bWriteBoosterBufferType") == Some(1) => {
            without_booster(&mut set, &descriptors.field_with_value("dNumSharedWriteBoosterBufferAllocUnits"));
        }
        (Some(true), Some(_)) => booster(descriptors, &mut set),
        _ => {}
    }
    notes.extend(without_settings(descriptors));
    rows
}

fn booster(descriptors: &UfsDescriptors, set: &mut impl FnMut(&'static str, String, String)) {
    set("slc.mode", "\"cache\"".to_owned(), descriptors.field_with_value("dExtendedUFSFeaturesSupport"));
    if let Some(preserves) = descriptors.number("bWriteBoosterBufferPreserveUserSpaceEn") {
        let from = descriptors.field_with_value("bWriteBoosterBufferPreserveUserSpaceEn");
        set("slc.preserve_user_space", (preserves == 1).to_string(), from);
    }
    let from = descriptors.field_with_value("bWriteBoosterBufferType");
    let is_of = |unit: &&LogicalUnit, number| unit.number == number;
    let unit = match dedicated(descriptors) {
        Some((_, number)) if descriptors.number("bWriteBoosterBufferType") != Some(1) => {
            descriptors.units().iter().find(|unit| is_of(unit, number)).map_or(0, |unit| unit.bytes >> 20)
        }
        _ => 0,
    };
    set("slc.dedicated_mb", unit.to_string(), from);
}

fn without_booster(set: &mut impl FnMut(&'static str, String, String), from: &str) {
    for (key, value) in [
        ("slc.mode", "\"off\""),
        ("slc.blocks", "0"),
        ("slc.fold_after_us", "0.0"),
        ("slc.flush", "\"idle\""),
        ("slc.flush_at_pct", "100"),
        ("slc.preserve_user_space", "false"),
        ("slc.dedicated_mb", "0"),
    ] {
        set(key, value.to_owned(), from.to_owned());
    }
}

/// Notes on features for which the device model has no setting.
fn without_settings(descriptors: &UfsDescriptors) -> Vec<String> {
    let mut notes = vec!["no descriptor has the size of the volatile cache".to_owned()];
    let enhanced =
        descriptors.all("bMemoryType").any(|(_, given)| matches!(given, super::text::DescriptorValue::Number(3..=6)));
    if enhanced {
        notes.push("bMemoryType: logical units of enhanced memory are modelled as normal ones".to_owned());
    }
    if descriptors.number("fHPBEn") == Some(1) {
        notes.push("fHPBEn = 0x1: see mapping.hpb_pages, which needs mapping.scheme = \"dftl\"".to_owned());
    }
    notes
}
