//! Wear: moves for levelling, erase counts, lifetime.

use emmclab_device::{Device, Geometry};
use serde::Serialize;

use super::distribution::Distribution;

/// Wear of the blocks, and the work against it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wear {
    /// Blocks moved to even out wear.
    pub moved_blocks: u64,
    /// Blocks gone bad.
    pub bad_blocks: u64,
    /// Erases of all blocks, by block.
    pub erase_counts: Distribution,
    /// How long the device would live under this workload; only with an erase limit and erases.
    pub lifetime: Option<Lifetime>,
}

impl Wear {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            moved_blocks: device.counters().wear_moves,
            bad_blocks: device.counters().bad_blocks,
            erase_counts: Distribution::of(device.blocks().map(|block| block.erases)),
            lifetime: Lifetime::of(device, device.geometry()),
        }
    }
}

/// Bytes that the host can write to the device in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lifetime {
    /// Until every block has reached its erase limit: perfect levelling.
    pub even_host_bytes: f64,
    /// Until the most worn block reaches its limit, wear going on as it did.
    pub first_block_host_bytes: f64,
}

impl Lifetime {
    fn of(device: &Device, geometry: &Geometry) -> Option<Self> {
        let counters = device.counters();
        let written = counters.host_bytes_written as f64;
        let erases = counters.block_erases() as f64;
        let budget: f64 = geometry
            .groups
            .iter()
            .map(|group| f64::from(group.erase_limit) * f64::from(group.blocks) * f64::from(geometry.planes))
            .sum();
        let worst = device
            .blocks()
            .filter_map(|block| {
                let limit = geometry.groups[usize::from(block.group)].erase_limit;
                (limit > 0).then(|| f64::from(block.erases) / f64::from(limit))
            })
            .fold(0.0, f64::max);
        (erases > 0.0 && budget > 0.0 && worst > 0.0).then(|| Self {
            even_host_bytes: written * budget / erases,
            first_block_host_bytes: written / worst,
        })
    }
}
