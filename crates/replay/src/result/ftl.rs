//! Work of the FTL in addition to host operations: mapping, garbage collection, SLC folding, RAM for data.

use emmclab_device::{BlockState, Device, DeviceCounters, DeviceSettings};
use schemars::JsonSchema;
use serde::Serialize;

use super::flash::BlockDistribution;

/// Returns `part` as a percentage of `of`; 0 if `of` is 0.
fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * part as f64 / of as f64 }
}

/// Memory and lookups of the map from logical to physical addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct MapCounts {
    /// Memory of the map inside the device.
    pub ram_bytes: u64,
    /// Share of the lookups whose map entry was in the mapping cache; null if all entries are always in memory.
    pub cache_hit_pct: Option<f64>,
    /// Lookups of map entries, cached or not; 0 if all entries are always in memory.
    pub lookups: u64,
    /// Requests whose map entries were looked up; 0 if all entries are always in memory.
    pub requests: u64,
    /// Requests of `map.requests` for which a page of the map was read from the flash.
    pub missed_requests: u64,
    /// Percentage of `map.requests` for which a page of the map was read from the flash. It is comparable between mapping schemes. Null if
    /// all entries are always in memory.
    pub request_miss_pct: Option<f64>,
    /// Map entries that were loaded into the mapping cache together with requested ones.
    pub prefetched_entries: u64,
    /// Useless page reads, because a learned map led to another page than that of the data.
    #[schemars(extend("unit" = "page"))]
    pub double_reads: u64,
    /// Size of the map entries in memory at the end; null if the map is not on the flash.
    pub cached_bytes: Option<u64>,
    /// Learned segments of the whole map (`leaftl`), or runs of map entries in memory (`rqftl`), at the end; null if the map is not on the
    /// flash.
    pub segments: Option<u64>,
    /// Number of map units whose locations the entries counted in `map.segments` describe.
    pub segment_units: Option<u64>,
    /// Reads of map units that were never written.
    pub unwritten_unit_reads: u64,
    /// Share of the read bytes that neither the workload nor the preconditioning wrote; null without reads. With
    /// `mapping.unwritten_read = "flash"`, they are read as if they had been written in address order before the run.
    #[schemars(extend("label" = "Read without having been written", "short" = "Unwritten", "digits" = 1))]
    pub unwritten_read_pct: Option<f64>,
    /// Share of the reads that touch units that neither the workload nor the preconditioning wrote; null without reads.
    #[schemars(extend("label" = "Reads of data never written", "digits" = 1))]
    pub unwritten_request_pct: Option<f64>,
    /// Pages in which the model reads data that was never written, by page size, as a list.
    pub unwritten_pages: Vec<UnwrittenPages>,
    /// Discarded map units; null if there were none, and the trace records no discards.
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
            request_miss_pct: (needed > 0).then(|| share(counters.map_missed_requests, counters.map_requests)),
            prefetched_entries: counters.map_prefetched,
            double_reads: counters.map_double_reads,
            cached_bytes: figures.map(|figures| figures.cached_bytes),
            segments: figures.map(|figures| figures.segments),
            segment_units: figures.map(|figures| figures.segment_units),
            cache_hit_pct: (needed > 0).then(|| share(counters.map_hits, needed)),
            unwritten_unit_reads: counters.unwritten_reads,
            unwritten_read_pct: (counters.host_bytes_read > 0)
                .then(|| share(counters.unwritten_bytes_read, counters.host_bytes_read)),
            unwritten_request_pct: (counters.host_reads > 0).then(|| share(counters.unwritten_requests, counters.host_reads)),
            unwritten_pages: UnwrittenPages::of(device),
            discarded_units: Some(counters.trimmed_units),
            log_block_merges: LogBlockMerges {
                switch: counters.switch_merges,
                partial: counters.partial_merges,
                full: counters.full_merges,
            },
        }
    }
}

/// Data that was never written, and that is read in pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnwrittenPages {
    /// Page size.
    pub page_kb: u32,
    /// Bytes read.
    pub bytes_read: u64,
}

impl UnwrittenPages {
    fn of(device: &Device) -> Vec<Self> {
        let groups = device.geometry().groups.iter().zip(&device.counters().group_unwritten_bytes);
        groups
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(group, bytes)| Self { page_kb: group.page_bytes / 1024, bytes_read: *bytes })
            .collect()
    }
}

/// Merges of log blocks by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct LogBlockMerges {
    /// Log blocks that replaced their data block without a copy.
    pub switch: u64,
    /// Log blocks that replaced their data block after the rest of the valid data was copied into the log block.
    pub partial: u64,
    /// Logical blocks copied to a free block.
    pub full: u64,
}

/// Summary of garbage collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct GcSummary {
    /// Number of blocks that were collected.
    #[schemars(extend("label" = "Blocks collected"))]
    pub blocks: u64,
    /// Blocks of `gc.blocks` that were collected while the device was idle.
    #[schemars(extend("label" = "Blocks collected in idle time"))]
    pub idle_blocks: u64,
    /// Requests that interrupted idle collection.
    #[schemars(extend("label" = "Collections interrupted by requests"))]
    pub interruptions: u64,
    /// Flash time of copies and erases for collection, folding of the SLC cache (`slc.folded_blocks`) and wear levelling
    /// (`wear.moved_blocks`).
    pub busy_s: f64,
    /// Part of `gc.busy_s` while the device was idle, for collection (`gc.idle_blocks`) and folding of the SLC cache.
    pub idle_busy_s: f64,
    /// Distribution of the number of valid map units over the full blocks: `min`, `max`, `mean`, `deviation`, and a histogram with the
    /// lower bound (`from`) and the number of blocks (`blocks`) of each step.
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

/// Use of blocks in SLC mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SlcCounts {
    /// Blocks folded from the SLC cache into other blocks.
    #[schemars(extend("label" = "SLC blocks folded"))]
    pub folded_blocks: u64,
    /// Bytes that were moved from the SLC cache to other blocks by folding.
    #[schemars(extend("label" = "Bytes folded"))]
    pub folded_bytes: u64,
}

/// Use of the device's write buffer and read cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CacheCounts {
    /// Map units of written data that the write buffer received.
    pub units_written: u64,
    /// Share of `cache.units_written` that replaced data in the buffer, which saved a program.
    pub write_hit_pct: f64,
    /// Map units that the host read.
    pub units_read: u64,
    /// Share of `cache.units_read` that was in RAM.
    pub read_hit_pct: f64,
    /// Flushes, and preflushes of writes, while the buffer contained written data; null if there were none, and the trace does not record
    /// them.
    #[schemars(extend("label" = "Cache flushes with data", "short" = "Cache flushes"))]
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
