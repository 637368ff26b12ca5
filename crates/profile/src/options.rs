//! The options of a profile (its name, and assumptions about what a trace does not contain), and the relation of merged profiles.

use emmclab_timeline::BinWidth;
use serde::Serialize;

/// Settings of a profile.
#[derive(Clone, Debug, Default)]
pub struct ProfileOptions {
    /// The trace's name in tables.
    pub name: String,
    /// Assumed cost of garbage collection.
    pub gc: GcCost,
    /// Percentiles of response and service times to report in addition to the usual ones, in percent.
    pub percentiles: Vec<f64>,
    /// Width of the bins of figures over time.
    pub bin: BinWidth,
}

/// The assumed cost of reclaiming one erase block: each valid page is read and programmed, and then the block is erased. The operations do
/// not overlap.
///
/// The default is the device 4PS of the IISWC 2015 paper (Table V), with half of the victim's pages valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GcCost {
    /// Size of a flash page, KB.
    pub page_kb: u64,
    /// Pages in an erase block.
    pub pages_per_block: u64,
    /// Percentage of a victim's pages that are valid and must be moved (0 - 99).
    pub valid_pct: u64,
    /// Time to read a page, microseconds.
    pub page_read_us: u64,
    /// Time to program a page, microseconds.
    pub page_write_us: u64,
    /// Time to erase a block, microseconds.
    pub block_erase_us: u64,
}

impl Default for GcCost {
    fn default() -> Self {
        Self { page_kb: 4, pages_per_block: 1_024, valid_pct: 50, page_read_us: 160, page_write_us: 1_385, block_erase_us: 3_800 }
    }
}

impl GcCost {
    /// Number of pages of a victim block that must be moved: at most all pages but one.
    pub fn valid_pages(&self) -> u64 {
        (self.pages_per_block.saturating_mul(self.valid_pct) / 100).min(self.pages_per_block.saturating_sub(1))
    }

    /// Time to reclaim one block, nanoseconds; at least 1.
    pub fn block_ns(&self) -> u64 {
        let page_us = self.page_read_us.saturating_add(self.page_write_us);
        let us = self.valid_pages().saturating_mul(page_us).saturating_add(self.block_erase_us);
        us.saturating_mul(1_000).max(1)
    }

    /// Bytes that reclaiming one block frees.
    pub fn won_bytes(&self) -> u64 {
        (self.pages_per_block - self.valid_pages().min(self.pages_per_block)).saturating_mul(self.page_kb * 1_024)
    }
}

/// Whether a profile continues the profile into which it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeRelation {
    /// The next piece of the same recording: runs and gaps continue across the boundary.
    Consecutive,
    /// Another recording (of a fleet) with its own device, clock and addresses; durations are added.
    Separate,
}
