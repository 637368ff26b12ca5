//! Checks of the mapping scheme, for settings that are otherwise possible.

use super::faults::SettingFaults;
use crate::ftl::{logs, maps_blocks, rows};
use crate::geometry::Geometry;
use crate::geometry::MAX_UNITS;
use emmclab_settings::{
    DeviceSettings, GcMode, GcSettings, PageScheduling, ParallelUnit, PlaneClustering, WearLevelling,
};

/// Blocks of a plane that a merge needs in addition to data and log blocks.
const MERGE_BLOCKS: u64 = 1;

/// Finds all impossible or contradictory values.
pub(super) fn faults(settings: &DeviceSettings, faults: &mut SettingFaults) {
    clustering(settings, faults);
    let scheme = settings.mapping.scheme.as_str();
    if scheme != "page" && settings.controller.scheduling == PageScheduling::ReadFirst {
        faults.add("`controller.scheduling` = \"read_first\" works with mapping.scheme = \"page\" only");
    }
    if maps_blocks(scheme) {
        policies(settings, faults);
        sizes(settings, faults);
    }
}

fn clustering(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let (level, geometry) = (settings.mapping.clustering, &settings.geometry);
    let parallelism = settings.timing.parallelism;
    let planes = matches!(parallelism, ParallelUnit::MultiPlane | ParallelUnit::Both);
    let dies = matches!(parallelism, ParallelUnit::Interleave | ParallelUnit::Both);
    if level >= PlaneClustering::Planes && geometry.planes_per_die > 1 && !planes {
        faults.add(
            "`mapping.clustering` lets planes of a die work as one, which needs multi-plane commands: set timing.parallelism to multi_plane or both",
        );
    }
    if level >= PlaneClustering::Dies && geometry.dies_per_chip > 1 && !dies {
        faults.add(
            "`mapping.clustering` lets dies of a chip work as one, which needs interleaving: set timing.parallelism to interleave or both",
        );
    }
    for (i, group) in geometry.block_groups.iter().enumerate() {
        let cluster = [
            (PlaneClustering::Planes, geometry.planes_per_die),
            (PlaneClustering::Dies, geometry.dies_per_chip),
            (PlaneClustering::Chips, geometry.chips_per_channel),
            (PlaneClustering::Channels, geometry.channels),
        ]
        .iter()
        .filter(|(from, _)| level >= *from)
        .map(|(_, count)| u64::from(*count))
        .product::<u64>();
        let units = cluster * u64::from(group.page_kb / settings.mapping.unit_kb);
        if !cluster.is_power_of_two() || units > MAX_UNITS as u64 {
            faults.add(format!(
                "`mapping.clustering` makes {cluster} pages of group {i} one clustered page of {units} map units; planes must be a power of two and units at most {MAX_UNITS}: cluster less or take a larger mapping.unit_kb"
            ));
        }
    }
}

/// Finds settings of the page map that have no effect if logical blocks are merged.
fn policies(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let word = "if mapping.scheme maps blocks, which are merged and not collected";
    let (gc, usual) = (&settings.gc, GcSettings::default());
    if gc.policy != usual.policy || gc.mode != GcMode::Blocking || gc.idle_after_us > 0.0 {
        faults.add(format!("`gc.policy`, `gc.mode` and `gc.idle_after_us` must be left as they are {word}"));
    }
    if settings.allocation.policy != "dynamic" || settings.allocation.hot_max_kb > 0 {
        faults.add(format!("`allocation.policy` and `allocation.hot_max_kb` must be left as they are {word}"));
    }
    if settings.wear.levelling == WearLevelling::Static {
        faults.add(format!("`wear.levelling` = \"static\" has no block to move {word}"));
    }
    if settings.geometry.block_groups.len() > 1 {
        faults.add("`geometry.block_groups` has several groups, but a scheme that maps blocks needs one kind of block");
    }
}

fn sizes(settings: &DeviceSettings, faults: &mut SettingFaults) {
    let geometry = Geometry::new(settings);
    let [group] = geometry.groups.as_slice() else { return };
    let data = u64::from(rows(&geometry));
    let needed = data + u64::from(logs(settings)) + MERGE_BLOCKS;
    let usable = u64::from(group.blocks - group.spare_blocks);
    if needed > usable {
        faults.add(format!(
            "a plane has {usable} blocks but needs {needed}: {data} for data, {} for logs (`mapping.log_blocks`) and {MERGE_BLOCKS} to merge; take a larger capacity.over_provisioning_pct or fewer log blocks",
            logs(settings)
        ));
    }
}
