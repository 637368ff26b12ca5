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
    /// Until the most worn block reaches its limit: the work of the run, as unevenly spread as all wear of the device so far.
    pub first_block_host_bytes: f64,
    /// Share of that life that is over, in percent: what the most worn block has of its limit.
    pub used_pct: f64,
}

impl Lifetime {
    fn of(device: &Device, geometry: &Geometry) -> Option<Self> {
        let counters = device.counters();
        let written = counters.host_bytes_written as f64;
        let limit = |group: usize| f64::from(geometry.groups[group].erase_limit);
        let limited = |group: &usize| limit(*group) > 0.0;
        let budget: f64 = (0..geometry.groups.len())
            .map(|group| limit(group) * f64::from(geometry.groups[group].blocks) * f64::from(geometry.planes))
            .sum();
        // Of the run; the blocks may have seen more before.
        let erases: u64 =
            (0..geometry.groups.len()).filter(limited).map(|group| counters.group_erases[group]).sum();
        let (mut worst, mut all_erases) = (0.0_f64, 0_u64);
        for block in device.blocks().filter(|block| limited(&usize::from(block.group))) {
            worst = worst.max(f64::from(block.erases) / limit(usize::from(block.group)));
            all_erases += u64::from(block.erases);
        }
        (erases > 0 && worst > 0.0).then(|| Self {
            even_host_bytes: written * budget / erases as f64,
            first_block_host_bytes: written / worst * (all_erases as f64 / erases as f64),
            used_pct: 100.0 * worst,
        })
    }
}
