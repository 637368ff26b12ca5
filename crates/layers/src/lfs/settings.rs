//! Settings of the log, and the layout of the disk below.

use emmclab_base::{ByteSize, CleaningPolicy, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::records::PackLayout;
use crate::layer::{DiskZones, DisksBelow};
use crate::registry::SettingFaults;

/// Number of sectors in a block of the log.
pub(super) const BLOCK: u64 = 8;
/// Maximum number of block locations that a map entry can represent.
const MOST_BLOCKS: u64 = (1 << 30) - 2;
/// Number of segments that stay free for cleaning and for the log of records.
pub(super) const FOR_CLEANING: u32 = 2;
/// Length in sectors of the longest request for which space is kept free: 32 MB, the maximum of NBD. On a small disk, at most an eighth of
/// the disk is kept free.
const LONGEST: u64 = 32 << 11;

/// Settings of the log-structured layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LfsSettings {
    /// Size of a segment: a multiple of 4 KB, and a multiple or a divisor of the erase unit; by default the fewest erase units of at least
    /// 2 MB in total, halved until the disk has 64 segments. On a zoned device a segment is a zone, and this setting must be absent.
    pub segment: Option<ByteSize>,
    /// Number of logs for data, each with an open segment. One log receives the blocks that cleaning moves. The others receive blocks by
    /// the number of their rewrites since the last move. A further log contains the records that recovery reads.
    #[schemars(extend("unit" = "logs, 2 to 5"))]
    pub logs: u32,
    /// Share of the disk that is not part of the capacity, in percent, so that cleaning finds segments with few live blocks.
    pub spare_pct: u32,
    /// How the segment to clean is chosen while requests wait for space or are about to wait.
    pub pressed: CleaningPolicy,
    /// How the segment to clean is chosen while no request is in flight.
    pub idle: CleaningPolicy,
    /// Cleaning runs concurrently with requests if less than this share of the spare segments is free.
    pub low_pct: u32,
    /// Cleaning runs while no request is in flight if less than this share of the spare segments is free.
    pub idle_pct: u32,
    /// Amount of data copied in one step of cleaning.
    pub step: ByteSize,
    /// Amount of data logged between two checkpoints.
    pub checkpoint: ByteSize,
    /// Whether reads of blocks that were never written also read the disk, which takes time, before they return zeros.
    pub read_unwritten: bool,
}

impl Default for LfsSettings {
    fn default() -> Self {
        Self {
            segment: None,
            logs: 3,
            spare_pct: 7,
            pressed: CleaningPolicy::Greedy,
            idle: CleaningPolicy::CostBenefit,
            low_pct: 25,
            idle_pct: 50,
            step: ByteSize::kb(512),
            checkpoint: ByteSize::mb(256),
            read_unwritten: true,
        }
    }
}

/// The checked settings, converted to blocks.
#[derive(Clone, Debug)]
pub(super) struct LfsParameters {
    /// Number of blocks that the layer offers.
    pub blocks: u32,
    /// First sector of the log, after the checkpoints and the map.
    pub log_sector: u64,
    pub segments: u32,
    pub segment: u32,
    /// Writes end at multiples of this many blocks.
    pub align: u32,
    /// Whether segments must be written sequentially.
    pub is_zoned: bool,
    pub logs: usize,
    pub pressed: CleaningPolicy,
    pub idle: CleaningPolicy,
    /// Number of free segments below which cleaning runs concurrently with requests.
    pub low: u32,
    /// Number of free segments below which cleaning runs in idle time.
    pub idle_low: u32,
    pub step: u32,
    pub checkpoint: u64,
    pub read_unwritten: bool,
    /// Whether a single write can be made durable at a lower cost than a flush.
    pub durable_writes: bool,
    pub pack: PackLayout,
}

impl LfsParameters {
    /// Returns the first sector of a location in the log.
    pub fn sector(&self, place: u32) -> u64 {
        self.log_sector + u64::from(place) * BLOCK
    }
}

impl LfsSettings {
    /// Checks all settings against the disk below.
    pub(super) fn shape(&self, layer: &'static str, below: &DisksBelow) -> Result<LfsParameters> {
        let mut faults = SettingFaults::of(layer);
        let mut need = |good: bool, fault: String| faults.need(good, fault);
        let Self { logs, spare_pct, low_pct, idle_pct, step, checkpoint, .. } = *self;
        need((2..=5).contains(&logs), format!("`logs` is {logs}; it must be 2 to 5"));
        need((1..=50).contains(&spare_pct), format!("`spare_pct` is {spare_pct}; it must be 1 to 50"));
        need(
            low_pct <= idle_pct && idle_pct <= 100,
            format!(
                "`low_pct` is {low_pct} and `idle_pct` {idle_pct}; the first must not be greater than the second, the second at most 100"
            ),
        );
        for (name, size) in [("step", step), ("checkpoint", checkpoint)] {
            need(
                size.0 >= 4096 && size.0.is_multiple_of(4096) && size.0 < 1 << 40,
                format!("`{name}` is {size}; it must be a multiple of 4KB, and less than 1024GB"),
            );
        }
        let open = logs + 1;
        if let Some(DiskZones { max_open, max_active, .. }) = below.zones {
            let limit = [max_open, max_active].into_iter().filter(|limit| *limit > 0).min();
            need(
                limit.is_none_or(|limit| open <= limit),
                format!(
                    "{logs} logs and the log of records need {open} open zones, but the device allows {}: set `logs` to fewer",
                    limit.unwrap_or(0)
                ),
            );
            need(self.segment.is_none(), "a segment is a zone on a zoned device: remove `segment`".to_owned());
        }
        let disk = self.place(below, &mut need);
        faults.check()?;
        let DiskLayout { segments, segment, log_sector, align, pack, spare } = disk;
        let kept = FOR_CLEANING + 1;
        let share = |pct: u32| kept + (spare - kept.min(spare)) * pct / 100;
        Ok(LfsParameters {
            blocks: (segments - spare) * segment,
            log_sector,
            segments,
            segment,
            align,
            is_zoned: below.zones.is_some(),
            logs: logs as usize,
            pressed: self.pressed,
            idle: self.idle,
            low: share(low_pct) + 1,
            idle_low: share(idle_pct) + 1,
            step: ((step.sectors() / BLOCK) as u32).next_multiple_of(align),
            checkpoint: checkpoint.sectors() / BLOCK,
            read_unwritten: self.read_unwritten,
            durable_writes: below.durable_writes,
            pack,
        })
    }

    /// Default length of a segment on a disk without zones, in sectors.
    fn usual(unit: u64, disk: u64) -> u64 {
        let mut size = (2_u64 << 11).next_multiple_of(unit);
        while disk / size < 64 && size > 32 * BLOCK && size.is_multiple_of(2 * BLOCK) {
            size /= 2;
        }
        size
    }

    /// Divides the disk into checkpoints, map and log.
    fn place(&self, below: &DisksBelow, need: &mut dyn FnMut(bool, String)) -> DiskLayout {
        let (segment, align, room, count) = if let Some(zones) = below.zones {
            let (size, align) = (zones.sectors / BLOCK, u64::from(zones.write_sectors).div_ceil(BLOCK).max(1));
            need(
                zones.sectors.is_multiple_of(align * BLOCK) && zones.first.is_multiple_of(BLOCK),
                format!("zones of {} sectors are no multiple of 4KB", zones.sectors),
            );
            need(size >= 4 * align, format!("zones of {} sectors are too short", zones.sectors));
            (size, align, Some(zones.first), u64::from(zones.count))
        } else {
            let unit = (u64::from(below.erase_sectors)).max(BLOCK);
            let unit = if unit.is_multiple_of(BLOCK) { unit } else { unit * BLOCK };
            let size = self.segment.map_or_else(|| Self::usual(unit, below.main), ByteSize::sectors);
            need(
                size >= 8 * BLOCK && size.is_multiple_of(BLOCK) && size <= 1 << 22,
                format!("`segment` is {}; it must be a multiple of 4KB from 32KB to 2GB", ByteSize(size * 512)),
            );
            need(
                self.segment.is_none() || size.is_multiple_of(unit) || unit.is_multiple_of(size.max(1)),
                format!(
                    "`segment` is {}; it must be a multiple or a divisor of the erase unit, {}",
                    ByteSize(size * 512),
                    ByteSize(unit * 512)
                ),
            );
            (size / BLOCK, 1, None, below.main / size.max(1))
        };
        if segment == 0 || segment >= 1 << 30 {
            need(false, "segments must have at least one block of 4KB".to_owned());
            return DiskLayout::default();
        }
        // The map has space for all blocks of the log, including spare segments. Its size therefore does not depend on their share.
        let pack = PackLayout::new(count * segment);
        let meta = pack.end();
        let (log_sector, count) = if let Some(first) = room {
            need(
                meta <= first,
                format!(
                    "checkpoints and the map need {} in conventional zones, but there are {}: increase their number with --set zones.conventional",
                    ByteSize(meta.next_multiple_of(2048) * 512),
                    ByteSize(first * 512)
                ),
            );
            (first, count)
        } else {
            let log = meta.next_multiple_of(segment * BLOCK);
            (log, below.main.saturating_sub(log) / (segment * BLOCK))
        };
        let least = u64::from(FOR_CLEANING) + 3 + u64::from(self.logs) + 1;
        let burst = LONGEST.div_ceil(segment * BLOCK).min(count / 8);
        let spare = (count * u64::from(self.spare_pct)).div_ceil(100).max(least + burst);
        need(
            count >= 2 * least && spare < count,
            format!("the disk has {count} segments of {}; at least {} are necessary", ByteSize(segment * 4096), 2 * least),
        );
        need(
            count * segment <= MOST_BLOCKS,
            format!("the log would have {}; the maximum is 4TB", ByteSize(count * segment * 4096)),
        );
        DiskLayout { segments: count as u32, segment: segment as u32, log_sector, align: align as u32, pack, spare: spare as u32 }
    }
}

#[derive(Default)]
struct DiskLayout {
    segments: u32,
    segment: u32,
    log_sector: u64,
    align: u32,
    pack: PackLayout,
    spare: u32,
}
