//! Functions of `WriteBooster` of UFS 4.1 (JESD220G, 13.4.18) beyond an SLC cache: partial flushes, pinned data, changes of size, flushes
//! upon an exception event, and a wear limit. A device without these settings has no [`WriteBooster`].
//!
//! A flush moves whole blocks. Each plane separately determines which blocks may be flushed:
//!
//! * FIFO: the blocks that became full last stay, up to the share of `slc.keep_pct`.
//! * Pinned: pinned data is written to separate blocks, up to the share `slc.keep_pct` of the blocks of a plane; beyond it, pinned data is
//!   written like other data. Such a block stays until less than half of its data is valid.
//! * LRU: as FIFO, in the order of the last write or read of a block.

use std::collections::BTreeSet;
use std::ops::Range;

use emmclab_base::Result;
use emmclab_settings::{BoosterFlush, BoosterResize, DeviceSettings, PartialFlush, SlcMode, SlcSettings, WHOLE};

use super::core::FtlCore;
use super::pool::{BlockPool, WriteStream};
use crate::events::{BoosterNotice, BoosterNoticeKind, Observer};
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId};
use crate::image::{WordReader, damaged};
use crate::nand::Nand;

/// Divisor for the size of one resize step: the buffer grows or shrinks by at most an eighth of its blocks at once.
const STEPS: u32 = 8;

/// Settings and state of the `WriteBooster` functions of UFS 4.1.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting or a flag of the standard by itself")]
#[derive(Clone)]
pub(crate) struct WriteBooster {
    pub partial: PartialFlush,
    keep_pct: u32,
    pinned_units: Range<u32>,
    /// Number of blocks per plane that can belong to the `WriteBooster` buffer.
    blocks: u32,
    current: u32,
    /// Whether the host resizes the `WriteBooster` buffer when the device gives a hint.
    resizes: bool,
    /// Whether a flush of the `WriteBooster` buffer waits for the exception event.
    by_event: bool,
    /// Whether the host has enabled the flush after the exception event (`fWriteBoosterBufferFlushEn`).
    enabled: bool,
    /// Whether the `WriteBooster` buffer is flushed in the current idle time.
    pub flushes: bool,
    /// Erase count of a block at which the `WriteBooster` buffer stops accepting data; 0 = no limit.
    last_erases: u32,
    /// Numbers of the blocks that contain pinned data.
    pub pinned: BTreeSet<u32>,
    /// Whether the device has notified the host that the `WriteBooster` buffer has no room for pinned data.
    pinned_is_full: bool,
    /// Sequence number of the last use of each block of the device; empty unless blocks are flushed in LRU order.
    last_use: Vec<u64>,
    uses: u64,
}

fn is_configured(slc: &SlcSettings) -> bool {
    slc.mode == SlcMode::Cache
        && (slc.partial_flush != PartialFlush::None
            || slc.flush == BoosterFlush::Event
            || slc.size_pct != WHOLE
            || slc.resize != BoosterResize::Off
            || slc.life_limit_pct > 0)
}

fn share(blocks: u32, pct: u32) -> u32 {
    (u64::from(blocks) * u64::from(pct) / 100) as u32
}

impl WriteBooster {
    /// Creates the state of a new device; `None` if the settings use none of the `WriteBooster` functions of UFS 4.1.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Box<Self>> {
        let slc = &settings.slc;
        let group = geometry.groups.last().filter(|_| is_configured(slc))?;
        let unit = |mb: u32| ((u64::from(mb) << 20) / u64::from(geometry.unit_bytes)) as u32;
        let limit = u64::from(slc.erase_limit) * u64::from(slc.life_limit_pct);
        let uses = if slc.partial_flush == PartialFlush::Lru { geometry.blocks() as usize } else { 0 };
        Some(Box::new(Self {
            partial: slc.partial_flush,
            keep_pct: slc.keep_pct,
            pinned_units: unit(slc.pinned_from_mb)..unit(slc.pinned_to_mb),
            blocks: group.blocks,
            current: share(group.blocks, slc.size_pct),
            resizes: slc.resize == BoosterResize::Hint,
            by_event: slc.flush == BoosterFlush::Event,
            enabled: false,
            flushes: true,
            last_erases: if limit == 0 { 0 } else { limit.div_ceil(100).max(1) as u32 },
            pinned: BTreeSet::new(),
            pinned_is_full: false,
            last_use: vec![0; uses],
            uses: 0,
        }))
    }

    /// Returns the state after a change of the settings. If the new settings do not pin data, pinned blocks are released. The current size
    /// is kept only if the host resizes the buffer under the old and the new settings.
    pub fn reconfigured(old: Option<Box<Self>>, settings: &DeviceSettings, geometry: &Geometry) -> Option<Box<Self>> {
        let mut new = Self::new(settings, geometry)?;
        let Some(old) = old else { return Some(new) };
        if new.partial == PartialFlush::Pinned {
            (new.pinned, new.pinned_is_full) = (old.pinned, old.pinned_is_full);
        }
        if new.partial == old.partial {
            (new.last_use, new.uses) = (old.last_use, old.uses);
        }
        if new.resizes && old.resizes {
            new.current = old.current;
        }
        new.enabled = old.enabled && new.by_event;
        Some(new)
    }

    /// Clears the flags that do not survive a power loss.
    pub fn power_cycle(&mut self) {
        self.enabled = false;
        self.pinned_is_full = false;
    }

    #[inline]
    pub fn pins(&self, unit: Lpn) -> bool {
        self.partial == PartialFlush::Pinned && self.pinned_units.contains(&unit.0)
    }

    /// Length in units of the run that starts at `first`, at most `units`. Either all units of the run are pinned, or none of them is.
    pub fn equally_pinned(&self, first: Lpn, units: u32) -> u32 {
        if self.partial != PartialFlush::Pinned {
            return units;
        }
        let Range { start, end } = self.pinned_units;
        let border = [start, end].into_iter().find(|border| *border > first.0);
        border.map_or(units, |border| units.min(border - first.0))
    }

    /// Records a write or read of a page of a block.
    #[inline]
    pub fn note_use(&mut self, block: BlockId) {
        if let Some(last) = self.last_use.get_mut(block.index()) {
            self.uses += 1;
            *last = self.uses;
        }
    }

    /// Number of blocks per plane that remain in the `WriteBooster` buffer after a partial flush. For pinned data, the maximum number of
    /// pinned blocks.
    fn blocks_to_keep(&self) -> u32 {
        share(self.current, self.keep_pct)
    }

    fn pinned_in(&self, pool: &BlockPool) -> u32 {
        let first = pool.block_at(0).0;
        self.pinned.range(first..first + pool.blocks).count() as u32
    }

    /// Whether a plane may open another block of the `WriteBooster` buffer for a write stream.
    pub fn may_open(&self, pool: &BlockPool, stream: WriteStream) -> bool {
        let pins = stream == WriteStream::PINNED;
        pool.in_use() < self.current && (!pins || self.pinned_in(pool) < self.blocks_to_keep())
    }

    /// Whether a plane uses more `WriteBooster` blocks than the current size of the buffer permits.
    fn is_over(&self, pool: &BlockPool) -> bool {
        pool.in_use() > self.current
    }
}

impl FtlCore {
    /// Current number of blocks of each plane in the SLC cache.
    pub fn slc_blocks(&self) -> u32 {
        let all = self.geometry.groups[usize::from(self.slc.group)].blocks;
        self.booster.as_ref().map_or(all, |booster| booster.current)
    }

    /// Whether the buffer has reached its wear limit.
    pub(super) fn booster_is_worn(&self, booster: &WriteBooster) -> bool {
        booster.last_erases > 0 && self.slc_pools().any(|pool| pool.most_erases >= booster.last_erases)
    }

    /// Whether the buffer has room for a page of a write stream: in an open block, or in a block that may be opened.
    pub(super) fn booster_has_room(&self, booster: &WriteBooster, stream: WriteStream) -> bool {
        let low = self.collector.low_watermark;
        self.slc_pools().any(|pool| pool.open(stream).is_some() || pool.free() > low && booster.may_open(pool, stream))
    }

    /// Returns the write stream for a host page that is written to the `WriteBooster` buffer. Data at pinned addresses has its own stream
    /// while there is room for it.
    pub(super) fn booster_stream<L: Observer>(&mut self, first: Lpn, stream: WriteStream, log: &mut L) -> WriteStream {
        let Some(booster) = &self.booster else { return stream };
        if !booster.pins(first) {
            return stream;
        }
        let room = self.booster_has_room(booster, WriteStream::PINNED);
        let already_notified = booster.pinned_is_full;
        if let Some(booster) = &mut self.booster {
            booster.pinned_is_full = !room;
        }
        if !room && !already_notified {
            log.booster_notice(&BoosterNotice { notice: BoosterNoticeKind::PinnedFull });
        }
        if room { WriteStream::PINNED } else { stream }
    }

    /// Marks a newly opened block of the SLC cache as pinned if its write stream is pinned.
    pub(super) fn opened_in_booster(&mut self, pool: PoolId, stream: WriteStream, block: BlockId) {
        if stream == WriteStream::PINNED
            && self.is_slc_cache(pool)
            && let Some(booster) = &mut self.booster
        {
            booster.pinned.insert(block.0);
        }
    }

    pub(super) fn is_slc_cache(&self, pool: PoolId) -> bool {
        self.slc.folds(self.geometry.of_pool(pool).1)
    }

    /// Returns the next block of a plane to flush from the buffer; `None` if all blocks stay.
    pub(super) fn next_to_leave_booster(&self, booster: &WriteBooster, nand: &Nand, pool: PoolId) -> Option<BlockId> {
        let pool = self.tables.pool(pool);
        let over = booster.is_over(pool);
        if !booster.flushes && !over {
            return None;
        }
        let ordered = matches!(booster.partial, PartialFlush::Fifo | PartialFlush::Lru);
        if ordered && !over && pool.full <= booster.blocks_to_keep() {
            return None;
        }
        let half = self.geometry.groups[usize::from(self.slc.group)].units_per_block() / 2;
        let is_pinned = |block: &BlockId| booster.pinned.contains(&block.0);
        // If the buffer was shrunk and is too small for its pinned data, pinned blocks are flushed first.
        let too_many = !booster.pinned.is_empty() && booster.pinned_in(pool) > booster.blocks_to_keep();
        let stays = |block: &BlockId| is_pinned(block) && !too_many && self.tables.valid(*block) >= half.max(1);
        let age = |block: &BlockId| {
            let used = booster.last_use.get(block.index()).copied().unwrap_or(0);
            (too_many && !is_pinned(block), used, self.tables.closed(*block))
        };
        pool.full_blocks(nand).filter(|block| !stays(block)).min_by_key(age)
    }

    /// Begins an idle time. Resizes the buffer and raises the exception event if necessary. Returns whether blocks of the buffer are
    /// flushed in this time.
    pub fn begin_booster_gap<L: Observer>(&mut self, nand: &Nand, due: bool, log: &mut L) -> bool {
        self.resize_booster(log);
        let Some(mut booster) = self.booster.take() else { return due };
        booster.flushes = due || booster.enabled;
        if booster.by_event && booster.flushes {
            let mut planes = (0..self.geometry.planes).map(PlaneId);
            let leaves = planes.any(|plane| self.next_to_leave_booster(&booster, nand, self.slc_pool(plane)).is_some());
            if leaves && !booster.enabled {
                log.booster_notice(&BoosterNotice { notice: BoosterNoticeKind::FlushNeeded });
            }
            (booster.enabled, booster.flushes) = (leaves, leaves);
        }
        let works = booster.flushes || self.slc_pools().any(|pool| booster.is_over(pool));
        self.booster = Some(booster);
        works
    }

    /// Resizes the buffer by one step if the device gives a hint. The buffer shrinks if it is larger than the free space of the user, and
    /// grows if it is full and the free space permits it.
    fn resize_booster<L: Observer>(&mut self, log: &mut L) {
        let Some(booster) = self.booster.as_ref().filter(|booster| booster.resizes) else { return };
        let (blocks, current) = (booster.blocks, booster.current);
        let step = (blocks / STEPS).max(1);
        let space = self.user_free() / (self.slc.units_per_block.max(1) * self.geometry.planes);
        let full = !self.booster_has_room(booster, WriteStream::Host);
        let larger = (current + step).min(blocks);
        let (current, notice) = if space < current {
            (space.max(current.saturating_sub(step)), BoosterNoticeKind::Shrunk)
        } else if full && current < blocks && space >= larger {
            (larger, BoosterNoticeKind::Grown)
        } else {
            return;
        };
        if let Some(booster) = &mut self.booster {
            booster.current = current;
        }
        log.booster_notice(&BoosterNotice { notice });
    }

    /// The state of the buffer, encoded as words of a device image.
    pub fn booster_words(&self) -> Vec<u32> {
        let state = |booster: &WriteBooster| {
            let head = [booster.current, booster.pinned.len() as u32];
            head.into_iter().chain(booster.pinned.iter().copied()).collect()
        };
        self.booster.as_deref().map_or(Vec::new(), state)
    }

    /// Restores the state of the buffer from a device image.
    pub fn restore_booster(&mut self, nand: &Nand, image: &mut WordReader<'_>) -> Result<()> {
        let Some(booster) = &mut self.booster else { return Ok(()) };
        booster.current = image.word()?;
        for _ in 0..image.word()? {
            let block = image.word()?;
            if block >= self.geometry.blocks() {
                return Err(damaged("a pinned block is outside the device"));
            }
            booster.pinned.insert(block);
        }
        if booster.current > booster.blocks {
            return Err(damaged("WriteBooster is larger than it can be"));
        }
        self.booster_fault(nand).map_or(Ok(()), |fault| Err(damaged(&fault)))
    }

    /// Describes the first inconsistency between the blocks that `WriteBooster` pins and the contents of the flash; `None` if there is
    /// none.
    pub fn booster_fault(&self, nand: &Nand) -> Option<String> {
        let booster = self.booster.as_ref()?;
        booster.pinned.iter().map(|block| BlockId(*block)).find_map(|block| {
            let first = self.geometry.first_ppn(block);
            let units = self.tables.reverse.valid(first..first.plus(1 << self.geometry.stride_shift));
            let foreign = units.map(|(_, unit)| unit).find(|unit| !booster.pins(*unit));
            match foreign {
                _ if !self.slc.folds(nand.group(block)) => Some(format!("block {block} is pinned outside WriteBooster")),
                Some(unit) => Some(format!("block {block} is pinned, but holds unit {unit}, which is not")),
                None => None,
            }
        })
    }
}
