//! Work of the FTL beside the host's own operations: mapping, collection, SLC folding, RAM for data.

use emmclab_device::{BlockState, Device, DeviceCounters, DeviceSettings};
use serde::Serialize;

use super::distribution::BlockDistribution;

/// A share in percent; 0 of nothing.
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

/// The map from logical to physical addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MapCounts {
    /// Bytes of memory that the map takes inside the device.
    pub ram_bytes: u64,
    /// Map entries that the mapping cache held when they were needed, in percent; `None` if all are always in memory.
    pub cache_hit_pct: Option<f64>,
    /// Lookups of map entries, found in memory or not; 0 if all are always in memory.
    pub lookups: u64,
    /// Requests whose map entries were looked up; 0 if all are always in memory.
    pub requests: u64,
    /// Requests among them for which a page of the map had to be read from the flash.
    pub missed_requests: u64,
    /// Their share, in percent; `None` if all entries are always in memory.
    pub request_miss_pct: Option<f64>,
    /// Map entries that came into memory along with others that were needed.
    pub prefetched_entries: u64,
    /// Page reads in vain, because a learned map led to another page than that of the data.
    pub double_reads: u64,
    /// Bytes that map entries in memory take at the end; `None` if the map is not on the flash.
    pub cached_bytes: Option<u64>,
    /// Learned segments of the whole map, or runs in memory, at the end; `None` if the map is not on the flash.
    pub segments: Option<u64>,
    /// Map units whose places these give.
    pub segment_units: Option<u64>,
    /// Map units read that had never been written.
    pub unwritten_unit_reads: u64,
    /// Share of the bytes read that had never been written, in percent; `None` if nothing was read.
    pub unwritten_read_pct: Option<f64>,
    /// Map units discarded; `None` if the trace does not record discards.
    pub discarded_units: Option<u64>,
    /// Merges of log blocks in the block-mapped schemes.
    pub log_block_merges: LogBlockMerges,
}

impl MapCounts {
    pub(super) fn new(device: &Device) -> Self {
        let counters = device.counters();
        let needed = counters.map_hits + counters.map_misses;
        let figures = device.map_figures();
        Self {
            ram_bytes: device.map_ram_bytes(),
            lookups: needed,
            requests: counters.map_requests,
            missed_requests: counters.map_missed_requests,
            request_miss_pct: (needed > 0)
                .then(|| share(counters.map_missed_requests, counters.map_requests)),
            prefetched_entries: counters.map_prefetched,
            double_reads: counters.map_double_reads,
            cached_bytes: figures.map(|figures| figures.cached_bytes),
            segments: figures.map(|figures| figures.segments),
            segment_units: figures.map(|figures| figures.segment_units),
            cache_hit_pct: (needed > 0).then(|| share(counters.map_hits, needed)),
            unwritten_unit_reads: counters.unwritten_reads,
            unwritten_read_pct: (counters.host_bytes_read > 0)
                .then(|| share(counters.unwritten_bytes_read, counters.host_bytes_read)),
            discarded_units: Some(counters.trimmed_units),
            log_block_merges: LogBlockMerges {
                switch: counters.switch_merges,
                partial: counters.partial_merges,
                full: counters.full_merges,
            },
        }
    }
}

/// Merges of log blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LogBlockMerges {
    /// The log block took the place of its data block; no page was copied.
    pub switch: u64,
    /// The rest of the data was copied to the log block first.
    pub partial: u64,
    /// All data was copied to a fresh block.
    pub full: u64,
}

/// Garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GcSummary {
    /// Blocks collected.
    pub blocks: u64,
    /// Blocks among them that were collected while the device was idle.
    pub idle_blocks: u64,
    /// Requests that interrupted idle collection.
    pub interruptions: u64,
    /// Time that flash dies and planes spent on collection, in s.
    pub busy_s: f64,
    /// Time among it while the device was idle, in s.
    pub idle_busy_s: f64,
    /// Valid map units in the full blocks, by block: what a collection would move.
    pub valid_units: BlockDistribution,
}

impl GcSummary {
    pub(super) fn new(device: &Device) -> Self {
        let counters = device.counters();
        let full = device.blocks().filter(|block| block.state == BlockState::Full);
        Self {
            blocks: counters.gc_count,
            idle_blocks: counters.gc_idle_count,
            interruptions: counters.gc_interruptions,
            busy_s: counters.gc_ns as f64 / 1e9,
            idle_busy_s: counters.gc_idle_ns as f64 / 1e9,
            valid_units: BlockDistribution::of(full.map(|block| block.valid)),
        }
    }
}

/// Blocks in SLC mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SlcCounts {
    /// Blocks folded from the SLC cache into others.
    pub folded_blocks: u64,
}

/// The write buffer and the read cache of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CacheCounts {
    /// Map units of written data that the write buffer took in.
    pub units_written: u64,
    /// Share of them that were there already and so cost no program.
    pub write_hit_pct: f64,
    /// Map units that the host read.
    pub units_read: u64,
    /// Share of them that were in RAM.
    pub read_hit_pct: f64,
    /// Flushes that found written data; `None` if the trace does not record flushes.
    pub flushes: Option<u64>,
}

impl CacheCounts {
    pub(super) fn of(settings: &DeviceSettings, counters: &DeviceCounters) -> Option<Self> {
        (settings.cache.size_kb > 0 || settings.cache.read_kb > 0).then(|| Self {
            units_written: counters.cache_written,
            write_hit_pct: share(counters.cache_overwritten, counters.cache_written),
            units_read: counters.cache_read,
            read_hit_pct: share(counters.cache_read_hits, counters.cache_read),
            flushes: Some(counters.cache_flushes),
        })
    }
}
