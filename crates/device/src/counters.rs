//! Counts that every run keeps.

use crate::event::Cause;

/// What a device has done since it was made or its counters were last cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes the host wrote.
    pub host_bytes_written: u64,
    /// Bytes the host read.
    pub host_bytes_read: u64,
    /// Pages read, by [`Cause`].
    pub page_reads: [u64; 5],
    /// Pages programmed, by [`Cause`].
    pub page_programs: [u64; 5],
    /// Bytes of the pages programmed, by [`Cause`].
    pub bytes_programmed: [u64; 5],
    /// Pages read, by block group.
    pub group_reads: Vec<u64>,
    /// Pages programmed, by block group.
    pub group_programs: Vec<u64>,
    /// Blocks erased, by block group.
    pub group_erases: Vec<u64>,
    /// Bytes over the flash bus.
    pub bus_bytes: u64,
    /// Blocks collected for space.
    pub gc_count: u64,
    /// Of these, while the device was idle.
    pub gc_idle_count: u64,
    /// Blocks folded from the SLC cache into others.
    pub folds: u64,
    /// Requests that interrupted idle collection.
    pub gc_interruptions: u64,
    /// Time that flash units spent on idle collection, ns.
    pub gc_idle_ns: u64,
    /// Blocks moved to even out wear.
    pub wear_moves: u64,
    /// Time that flash units spent on collection, ns.
    pub gc_ns: u64,
    /// Units (block-mapped schemes: pages) overwritten in part, whose rest had to be read first.
    pub merges: u64,
    /// Log blocks that took the place of their data block as they were.
    pub switch_merges: u64,
    /// Log blocks that did so after the rest of the data had been copied to them.
    pub partial_merges: u64,
    /// Logical blocks copied to a fresh block.
    pub full_merges: u64,
    /// Map entries found in memory.
    pub map_hits: u64,
    /// Map entries that had to be read from the flash.
    pub map_misses: u64,
    /// Units that the host read and had never written.
    pub unwritten_reads: u64,
    /// Units discarded.
    pub trimmed_units: u64,
    /// Blocks gone bad.
    pub bad_blocks: u64,
    /// Times that the device woke up.
    pub wake_ups: u64,
    /// Time asleep, ns.
    pub asleep_ns: u64,
    /// Time waking up, ns.
    pub waking_ns: u64,
    /// Units of written data that the cache took in.
    pub cache_written: u64,
    /// Of these, units that were there already.
    pub cache_overwritten: u64,
    /// Units that the host read, counted where there is RAM for data.
    pub cache_read: u64,
    /// Of these, units that were in RAM.
    pub cache_read_hits: u64,
    /// Flushes that found written data in the cache.
    pub cache_flushes: u64,
    /// Packed commands.
    pub packs: u64,
}

impl Counters {
    pub(crate) fn new(groups: usize) -> Self {
        Self {
            group_reads: vec![0; groups],
            group_programs: vec![0; groups],
            group_erases: vec![0; groups],
            ..Self::default()
        }
    }

    /// Counts pages of `page_bytes` that were programmed.
    #[inline]
    pub(crate) fn programmed(&mut self, cause: Cause, group: u8, page_bytes: u32, pages: u32) {
        let pages = u64::from(pages);
        self.page_programs[cause as usize] += pages;
        self.bytes_programmed[cause as usize] += pages * u64::from(page_bytes);
        self.group_programs[usize::from(group)] += pages;
    }

    /// Pages read in all.
    pub fn all_page_reads(&self) -> u64 {
        self.page_reads.iter().sum()
    }

    /// Pages programmed in all.
    pub fn all_page_programs(&self) -> u64 {
        self.page_programs.iter().sum()
    }

    /// Blocks erased in all.
    pub fn block_erases(&self) -> u64 {
        self.group_erases.iter().sum()
    }

    /// Bytes programmed for one cause, over the bytes that the host wrote; 0 without writes.
    pub fn waf_of(&self, cause: Cause) -> f64 {
        if self.host_bytes_written == 0 {
            return 0.0;
        }
        self.bytes_programmed[cause as usize] as f64 / self.host_bytes_written as f64
    }

    /// Write amplification: bytes programmed over bytes the host wrote; 0 without writes.
    pub fn waf(&self) -> f64 {
        Cause::ALL.iter().map(|cause| self.waf_of(*cause)).sum()
    }

    /// Bytes the host wrote over the flash bytes that they took; 0 without writes.
    pub fn space_utilisation(&self) -> f64 {
        let taken = self.bytes_programmed[Cause::Host as usize];
        if taken == 0 { 0.0 } else { self.host_bytes_written as f64 / taken as f64 }
    }
}

/// How long each part was busy, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Buses.
    pub channels: Vec<u64>,
    /// Dies.
    pub dies: Vec<u64>,
    /// Planes.
    pub planes: Vec<u64>,
}
