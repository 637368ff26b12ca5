//! Settings of Advil and their checks.

use emmclab_base::{ByteSize, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{DisksBelow, ReservedArea};
use crate::registry::SettingFaults;

/// Settings of Advil (Kim & Kim). The defaults are those of the paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
pub struct AdvilSettings {
    /// Size of the reserved area, which is divided into two equal sections.
    pub reserved: ByteSize,
    /// Whether the reserved area is on the second device.
    pub second_device: bool,
    /// Start of the reserved area; by default at the end of the same device, or at the start of the second device.
    pub reserved_at: Option<ByteSize>,
    /// Size of the original area, which begins at sector 0; by default all of the device except the reserved area.
    pub original: Option<ByteSize>,
    /// Length below which a write counts as a small random write, unless it continues the previous request.
    pub small: ByteSize,
    /// Size of a clustered page of the device with the original area.
    pub clustered_page: ByteSize,
    /// Size of a clustered block of the device that contains the original area.
    pub clustered_block: ByteSize,
    /// Whether holes in a clustered page are filled when the page is moved to the original area.
    pub page_padding: bool,
    /// Whether the holes in a clustered block are filled when the block is moved. They are filled only if more of its pages are dirty than
    /// `block_padding_over`.
    pub block_padding: bool,
    /// The holes in a clustered block are filled if more clustered pages than this number are dirty; by default half of the pages of the
    /// block.
    #[schemars(extend("unit" = "clustered pages"))]
    pub block_padding_over: Option<u32>,
    /// Maximum distance of two holes that the mover reads with a single command. The command also reads the data between the holes, which
    /// is not used. A good value is the amount that the device reads sequentially in the time of an additional command. 0 reads each hole
    /// separately; by default a clustered page.
    pub read_through: Option<ByteSize>,
    /// Which data stays in the reserved area when a section is emptied.
    pub hot: HotPolicy,
    /// What counts as invalidated data, for the policy `paper`. The hot region grows if there is more invalidated data than it can store,
    /// and shrinks if there is less. `pages`: clustered pages that were written more than once; each page that stays occupies a whole
    /// clustered page of the region. `data`: bytes of logged data that were overwritten in the log; each page that stays occupies only its
    /// logged bytes.
    pub hot_invalidated: InvalidationMeasure,
    /// Initial size of the hot region in percent of a section. With the policy `rewritten`, this is the maximum size.
    pub hot_start_pct: u32,
    /// Change of the size of the hot region between sections (`paper`), in percent of a section; 0 keeps the initial size.
    pub hot_step_pct: u32,
    /// Maximum size of the hot region in percent of a section. The rest is the log region.
    pub hot_most_pct: u32,
    /// When the mover empties the full section.
    pub mover: MoverSchedule,
    /// Whether log records have headers that describe their data, so that a power cut loses no flushed data.
    pub recovery: bool,
    /// With `recovery`: amount of logged data between two checkpoints of the map. With checkpoints, recovery need not read the whole
    /// reserved area. 0 disables checkpoints; the default is an eighth of the reserved area.
    pub checkpoint: Option<ByteSize>,
}

/// Which data stays in the reserved area when one of its two sections is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HotPolicy {
    /// No data stays.
    None,
    /// The most frequently written clustered pages stay, as many as fit into the hot region (Kim & Kim, IV-B).
    #[default]
    Paper,
    /// Only clustered pages whose logged data was overwritten in the log. They stay only while this costs less work than moving all data.
    /// The hot region has the size that these pages need, up to `hot_start_pct`.
    Rewritten,
}

/// The measure that determines the size of the hot region. The text of the paper permits both measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidationMeasure {
    /// Clustered pages that were written more than once while a section was filled. The size of the region is a number of clustered pages.
    /// A page that stays counts as a whole page, even if little of its data is in the log.
    #[default]
    Pages,
    /// Logged data that was overwritten while a section was filled, in bytes. The size of the hot region is also a number of bytes.
    Data,
}

/// When the mover empties the full section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MoverSchedule {
    /// The mover runs concurrently with requests. It starts when a section is full and new data goes to the other section.
    #[default]
    Thread,
    /// Logged data is moved while no request is in flight, or when a request is deferred because of missing space.
    Idle,
}

impl Default for AdvilSettings {
    fn default() -> Self {
        Self {
            reserved: ByteSize::mb(256),
            second_device: false,
            reserved_at: None,
            original: None,
            small: ByteSize::kb(8),
            clustered_page: ByteSize::kb(32),
            clustered_block: ByteSize::mb(4),
            page_padding: true,
            block_padding: true,
            block_padding_over: None,
            read_through: None,
            hot: HotPolicy::Paper,
            hot_invalidated: InvalidationMeasure::Pages,
            hot_start_pct: 30,
            hot_step_pct: 2,
            hot_most_pct: 70,
            mover: MoverSchedule::Thread,
            recovery: false,
            checkpoint: None,
        }
    }
}

/// The checked settings, converted to sectors.
#[derive(Clone, Debug)]
pub(super) struct AdvilParameters {
    /// Number of sectors of the layer.
    pub capacity: u64,
    pub reserved: ReservedArea,
    pub small: u32,
    pub page: u32,
    pub block: u32,
    /// A clustered block with more dirty clustered pages than this is written back as a whole; `None` = never.
    pub fill_over: Option<u32>,
    pub page_padding: bool,
    /// Maximum number of sectors between two holes that the mover reads with a single command.
    pub read_through: u32,
    pub hot: HotPolicy,
    pub hot_invalidated: InvalidationMeasure,
    pub hot_start_pct: u32,
    pub hot_step_pct: u32,
    pub hot_most_pct: u32,
    pub idle_only: bool,
    /// Sectors of a record header; 0 without recovery.
    pub header: u32,
    /// Number of sectors of a section.
    pub section: u32,
    /// Number of sectors before the first section.
    pub before: u32,
    /// Number of sectors of each of the two checkpoint slots; 0 without checkpoints.
    pub slot: u32,
    /// Number of sectors that are logged between two checkpoints.
    pub interval: u32,
}

impl AdvilParameters {
    /// Number of log sectors after a checkpoint that recovery must read. These are two intervals: one until the next checkpoint is due, and
    /// one while it is written.
    pub fn reach(&self) -> u32 {
        if self.slot > 0 { self.interval * 2 } else { u32::MAX }
    }
}

const ALIGN: u64 = 4096;

impl AdvilSettings {
    /// Checks all settings against the disks below, and converts them to sectors.
    pub(super) fn shape(&self, layer: &'static str, below: &DisksBelow) -> Result<AdvilParameters> {
        let mut faults = SettingFaults::of(layer);
        let mut need = |good: bool, fault: String| faults.need(good, fault);
        let Self { reserved, clustered_page: page, clustered_block: block, small, .. } = *self;
        let aligned = |size: ByteSize| size.0.is_multiple_of(ALIGN);
        need(page.0 > 0 && aligned(page), format!("`clustered_page` is {page}; it must be a multiple of 4KB"));
        let whole = page.0 > 0 && block.0 > 0 && block.0.is_multiple_of(page.0);
        need(whole, format!("`clustered_block` is {block}; it must be a multiple of the clustered page, {page}"));
        need(block.0 <= 1 << 30, format!("`clustered_block` is {block}; more than 1GB cannot be moved at once"));
        need(
            reserved.0 >= block.0.saturating_mul(2),
            format!("`reserved` is {reserved}; it must be at least two clustered blocks of {block}"),
        );
        need(
            reserved.0.is_multiple_of(2 * ALIGN) && reserved.0 < 1 << 40,
            format!("`reserved` is {reserved}; it must be a multiple of 8KB, for two sections, and less than 1024GB"),
        );
        need(
            small.0 > 0 && small.0.is_multiple_of(512) && small.0 <= block.0,
            format!("`small` is {small}; it must be a multiple of 512 bytes up to the clustered block, {block}"),
        );
        let read_through = self.read_through.unwrap_or(page);
        need(
            self.read_through.is_none() || (read_through.0.is_multiple_of(512) && read_through.0 <= block.0),
            format!("`read_through` is {read_through}; it must be a multiple of 512 bytes up to the clustered block, {block}"),
        );
        let Self { hot_start_pct: start, hot_step_pct: step, hot_most_pct: most, .. } = *self;
        need(
            start <= most && step <= most && most <= 100,
            format!(
                "`hot_start_pct` is {start}, `hot_step_pct` {step}, `hot_most_pct` {most}; the last must be at least the \
                 others and at most 100"
            ),
        );
        let interval = match self.checkpoint {
            _ if !self.recovery => ByteSize(0),
            Some(interval) => interval,
            None => ByteSize((reserved.0 / 8).max(small.0.saturating_add(ALIGN)).div_ceil(ALIGN) * ALIGN),
        };
        let least = small.0.saturating_add(ALIGN);
        need(
            self.recovery || self.checkpoint.is_none_or(|interval| interval.0 == 0),
            format!("`checkpoint` is {}, but `recovery` is false", self.checkpoint.unwrap_or_default()),
        );
        need(
            interval.0 == 0 || (aligned(interval) && interval.0 >= least && interval.0 <= reserved.0),
            format!(
                "`checkpoint` is {interval}; it must be 0, or a multiple of 4KB from `small` plus 4KB ({}) to the \
                 reserved area ({reserved})",
                ByteSize(least)
            ),
        );
        // A checkpoint slot is twice as large as the checkpoint in the paper's estimate. It has 1 MB for a reserved area of 128 MB.
        let slot = if interval.0 > 0 { (reserved.0 / 128).div_ceil(ALIGN) * ALIGN } else { 0 };
        // If recovery is enabled, the reserved area begins with 4 KB of start records and two checkpoint slots.
        let before = if self.recovery { ALIGN + 2 * slot } else { 0 };
        let log = (reserved.0.saturating_sub(before) / 2).saturating_sub(ALIGN) / 100 * u64::from(100 - most.min(100));
        need(
            log >= small.0.saturating_add(ALIGN),
            format!("the largest hot region leaves {log} bytes for the log region; a small write of {small} must fit"),
        );
        let pages = if whole { block.0 / page.0 } else { 1 };
        let fill_over = self.block_padding_over.unwrap_or((pages / 2) as u32);
        need(
            self.block_padding_over.is_none() || !self.block_padding || u64::from(fill_over) < pages,
            format!("`block_padding_over` is {fill_over}; it must be less than the {pages} clustered pages of a clustered block"),
        );

        let size = if self.second_device { below.second } else { Some(below.main) };
        need(size.is_some(), "`second_device` is true, but there is no second device".to_owned());
        let size = size.unwrap_or(u64::MAX);
        let first = match self.reserved_at {
            Some(at) => at.sectors(),
            None if self.second_device => 0,
            None => size.saturating_sub(reserved.sectors()) / 8 * 8,
        };
        let at = ByteSize(first.saturating_mul(512));
        need(aligned(self.reserved_at.unwrap_or_default()), format!("`reserved_at` is {at}; it must be a multiple of 4KB"));
        need(
            first.saturating_add(reserved.sectors()) <= size,
            format!(
                "`reserved` ends after the end of the device: {reserved} from {at} on, of {}",
                ByteSize(size.saturating_mul(512))
            ),
        );
        let free = if self.second_device { below.main } else { first };
        let capacity = self.original.map_or(free, ByteSize::sectors);
        let original = ByteSize(capacity.saturating_mul(512));
        need(
            capacity > 0 && capacity <= below.main && self.original.is_none_or(aligned),
            format!("`original` is {original}; it must be a multiple of 4KB within the device"),
        );
        need(
            self.second_device || capacity <= first || first.saturating_add(reserved.sectors()) == 0,
            format!("the original area ({original}) and the reserved area (from {at} on) overlap"),
        );
        let clusters = original.0.checked_div(page.0).unwrap_or(0);
        need(clusters < 1 << 28, format!("there are {clusters} clustered pages, more than can be counted"));
        faults.check()?;
        let before = ByteSize(before).sectors();
        Ok(AdvilParameters {
            capacity,
            reserved: ReservedArea { disk: u8::from(self.second_device), sector: first, sectors: reserved.sectors() },
            small: small.sectors() as u32,
            page: page.sectors() as u32,
            block: block.sectors() as u32,
            fill_over: self.block_padding.then_some(fill_over),
            page_padding: self.page_padding,
            read_through: read_through.sectors() as u32,
            hot: self.hot,
            hot_invalidated: self.hot_invalidated,
            hot_start_pct: self.hot_start_pct,
            hot_step_pct: self.hot_step_pct,
            hot_most_pct: self.hot_most_pct,
            idle_only: self.mover == MoverSchedule::Idle,
            header: u32::from(self.recovery),
            section: ((reserved.sectors() - before) / 16 * 8) as u32,
            before: before as u32,
            slot: ByteSize(slot).sectors() as u32,
            interval: interval.sectors() as u32,
        })
    }
}
