//! Wear: moves for levelling, erase counts, lifetime.

use emmclab_device::{Device, DeviceSettings, SlcMode};
use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::BlockDistribution;

/// Wear of the blocks, and the work against it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct WearSummary {
    /// Moved to even out wear.
    #[schemars(extend("label" = "Blocks moved by wear levelling"))]
    pub moved_blocks: u64,
    /// Blocks that went bad.
    #[schemars(extend("label" = "Blocks that went bad"))]
    pub bad_blocks: u64,
    /// Distribution of erases over all blocks, in the same form.
    pub erase_counts: BlockDistribution,
    /// Null without an erase limit; blocks without a limit (`slc.erase_limit = 0`) are left out.
    pub lifetime: Option<LifetimeEstimate>,
}

impl WearSummary {
    pub(super) fn new(settings: &DeviceSettings, device: &Device) -> Self {
        Self {
            moved_blocks: device.counters().wear_moves,
            bad_blocks: device.counters().bad_blocks,
            erase_counts: BlockDistribution::of(device.blocks().map(|block| block.erases)),
            lifetime: LifetimeEstimate::of(settings, device),
        }
    }
}

/// Bytes that the host can write to the device in its life, which ends with that of the first kind of block (block group, those in SLC mode
/// among them). Blocks without an erase limit are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LifetimeEstimate {
    /// Bytes that the host can write until all blocks of one kind (a block group, or those in SLC mode) have reached their erase limit,
    /// with as many programs and erases for each byte as in the run; null if it erased no block.
    #[schemars(extend("label" = "Lifetime, even wear", "short" = "Life", "digits" = 2, "better" = "higher", "shown_in" = "TB"))]
    pub even_host_bytes: Option<f64>,
    /// Bytes that the host can write until the most worn block reaches its limit, with as many programs and erases for each byte as in
    /// the run, and as unevenly distributed as all wear so far; null if the run erased no block.
    pub first_block_host_bytes: Option<f64>,
    /// Erases of the most worn block over its limit, preconditioning included.
    #[schemars(extend("label" = "Wear so far", "short" = "Wear", "digits" = 2, "better" = "lower"))]
    pub used_pct: f64,
    /// The same of the blocks in SLC mode alone; null without such blocks or without a limit of theirs.
    #[schemars(extend("label" = "Wear so far, SLC mode", "short" = "Wear of SLC", "digits" = 2, "better" = "lower"))]
    pub used_slc_pct: Option<f64>,
}

impl LifetimeEstimate {
    fn of(settings: &DeviceSettings, device: &Device) -> Option<Self> {
        let groups = &device.geometry().groups;
        let kinds: Vec<_> = (0..groups.len())
            .filter(|group| groups[*group].erase_limit > 0)
            .map(|group| GroupLifetime::of(settings, device, group))
            .collect();
        // Blocks in SLC mode are the last group.
        let limited = groups.last().is_some_and(|group| group.erase_limit > 0);
        let slc = kinds.last().filter(|_| limited && settings.slc.mode != SlcMode::Off);
        let least = |life: fn(&GroupLifetime) -> f64| kinds.iter().map(life).fold(f64::INFINITY, f64::min);
        let used = kinds.iter().map(|kind| kind.used).reduce(f64::max)?;
        let erased = kinds.iter().any(|kind| kind.erases > 0);
        let even = least(|kind| kind.even);
        Some(Self {
            even_host_bytes: erased.then_some(even),
            first_block_host_bytes: erased.then(|| least(|kind| kind.first_block).min(even)),
            used_pct: 100.0 * used,
            used_slc_pct: slc.map(|kind| 100.0 * kind.used),
        })
    }
}

/// The life of the blocks of one group, in bytes that the host writes to the device; endless where the run did not touch them.
struct GroupLifetime {
    even: f64,
    first_block: f64,
    /// What the most worn block has of its limit.
    used: f64,
    /// Of the run; the blocks may have seen more before.
    erases: u64,
}

impl GroupLifetime {
    fn of(settings: &DeviceSettings, device: &Device, number: usize) -> Self {
        let (counters, geometry) = (device.counters(), device.geometry());
        let group = &geometry.groups[number];
        let (written, limit) = (counters.host_bytes_written as f64, f64::from(group.erase_limit));
        let blocks = f64::from(group.blocks) * f64::from(geometry.planes);
        let erases = counters.group_erases[number];
        // A block is erased once for each time that it is filled: the run may have filled free ones, or erased those that are still free.
        let block_bytes = f64::from(group.pages_per_block) * f64::from(group.page_bytes);
        let filled = counters.group_programs[number] as f64 / f64::from(group.pages_per_block)
            + still_to_fold(settings, device, number) / block_bytes;
        let (mut most, mut all) = (0_u32, 0_u64);
        for block in device.blocks().filter(|block| usize::from(block.group) == number) {
            most = most.max(block.erases);
            all += u64::from(block.erases);
        }
        let used = f64::from(most) / limit;
        Self {
            even: written * limit * blocks / filled.max(erases as f64),
            first_block: if erases > 0 { written / used * (all as f64 / erases as f64) } else { f64::INFINITY },
            used,
            erases,
        }
    }
}

/// Bytes that the run left in the SLC cache, from which they have yet to be folded into blocks of this group.
fn still_to_fold(settings: &DeviceSettings, device: &Device, number: usize) -> f64 {
    let slc = &settings.slc;
    if slc.mode != SlcMode::Cache || slc.group as usize != number {
        return 0.0;
    }
    let geometry = device.geometry();
    let cache = geometry.groups.len() - 1;
    let more = device.valid_units(cache).saturating_sub(device.counters().group_valid_before[cache]);
    more as f64 * f64::from(geometry.unit_bytes)
}
