//! The part of the FTL that every mapping scheme uses: tables, allocation and garbage collection.

use std::sync::Arc;

use emmclab_base::{CommandFlags, Nanos};
use emmclab_settings::{BoosterFlush, CacheLie, DeviceSettings, RECENT_MS, SlcMode, UnwrittenRead, WearLevelling, WriteComplete};

use super::allocation::PageAllocator;
use super::booster::WriteBooster;
use super::collect::GarbageCollector;
use super::gc::{self, VictimPolicy};
use super::pool::{BlockPool, FullBlockOrder};
use super::tables::FtlTables;
use super::write::{RequestSectors, next_page};
use crate::geometry::{Geometry, nanos};
use crate::ids::{Lpn, Ppn};
use crate::nand::{Nand, PageOperationTimes};

/// Reasons for which a device refuses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// No page is free, and collection is off or cannot free one.
    Full,
    /// No spare block was left to replace a bad one.
    WornOut,
}

impl StopReason {
    /// The reason as a sentence for users.
    pub const fn reason(self) -> &'static str {
        match self {
            StopReason::Full => "the device is full: no page is free, and collection can free none",
            StopReason::WornOut => "the device is worn out: a block went bad and no spare block was left",
        }
    }
}

/// The part of the FTL that all mapping schemes share.
#[derive(Clone)]
pub(crate) struct FtlCore {
    pub geometry: Geometry,
    pub tables: FtlTables,
    pub allocator: PageAllocator,
    pub collector: GarbageCollector,
    pub slc: SlcBlocks,
    /// State of the `WriteBooster` functions beyond an SLC cache; `None` if the settings do not use them.
    pub booster: Option<Box<WriteBooster>>,
    /// Units whose map entries changed without a host write, for a scheme with its mapping table on the flash; otherwise `None`.
    pub changed_entries: Option<Vec<Lpn>>,
    pub stop: Option<StopReason>,
    /// Time at which the latest page program ends.
    pub last_program: Nanos,
    /// Time at which the latest page of the host becomes durable; `None` if host pages become durable independently of each other.
    pub in_order: Option<Nanos>,
    /// Time from the end of a page program for the host until the page is durable. It is not 0 on a device that loses its most recent
    /// programs in a power cut.
    pub counts_after: Nanos,
    /// Whether a write is complete when its data is transferred.
    pub transferred: bool,
    pub unwritten: UnwrittenRead,
    /// Maximum size in sectors of a request whose data is treated as hot.
    hot_sectors: u32,
}

impl FtlCore {
    /// Creates the shared FTL state of a new device. A mapping table on the flash occupies `map_units` units after those of the host.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry, nand: &Nand, map_units: u32) -> Self {
        let policy: Option<Arc<dyn VictimPolicy>> =
            gc::find(&settings.gc.policy).map(|policy| Arc::from((policy.make)(&settings.gc.options)));
        let pools = pools(settings, geometry, policy.as_deref());
        let units = geometry.logical_units + map_units;
        Self {
            tables: FtlTables::new(geometry, units as usize, pools),
            allocator: PageAllocator::new(settings, nand),
            collector: GarbageCollector::new(settings, policy),
            slc: SlcBlocks::new(settings, geometry),
            booster: WriteBooster::new(settings, geometry),
            changed_entries: (map_units > 0).then(Vec::new),
            stop: None,
            last_program: Nanos::MIN,
            in_order: settings.keeps_write_order().then_some(Nanos::MIN),
            counts_after: counts_after(settings),
            transferred: settings.timing.write_complete == WriteComplete::Transferred,
            unwritten: settings.mapping.unwritten_read,
            hot_sectors: settings.allocation.hot_max_kb.saturating_mul(2),
            geometry: geometry.clone(),
        }
    }

    /// Returns the time at which a page program is complete for a request with these command flags. A write that is durable on completion
    /// waits for the end of the program, whatever `timing.write_complete` says.
    #[inline]
    pub fn completion(&self, op: &PageOperationTimes, modifiers: CommandFlags) -> Nanos {
        if self.transferred && !modifiers.durable() { op.transferred } else { op.end }
    }

    /// Whether data of a request of this many sectors is hot, that is, expected to change soon.
    #[inline]
    pub fn is_hot(&self, sectors: u32) -> bool {
        sectors <= self.hot_sectors
    }

    /// Selects the next page for the data of a write of `sectors` sectors. Returns the block group of the page, and the number of map units
    /// that fit into the page.
    #[inline]
    pub fn page_for(&self, first: Lpn, units: u32, sectors: u32) -> (u8, u32) {
        if self.slc.mode == SlcMode::Off { next_page(&self.geometry, units) } else { self.page_for_slc(first, units, sectors) }
    }

    /// Index of the page that contains a physical location, within its block.
    #[inline]
    pub fn page_of(&self, ppn: Ppn, group: u8) -> u32 {
        self.geometry.offset_of(ppn) >> self.geometry.groups[usize::from(group)].page_shift
    }

    /// Number of bytes on the flash bus for a page that the host covers in part: new data of the host, and preserved old data.
    pub fn bytes_to_move(&self, span: RequestSectors, first: Lpn, units: u32) -> u32 {
        (first.0..first.0 + units)
            .map(|unit| match self.tables.lookup(Lpn(unit)) {
                Some(_) => self.geometry.unit_bytes,
                None => span.covered(Lpn(unit), self.geometry.unit_sectors).count_ones() * 512,
            })
            .sum()
    }

    /// Stops the device because it is full, unless it has already stopped.
    pub fn stop_full(&mut self) {
        self.stop.get_or_insert(StopReason::Full);
    }

    /// Restarts the clock for a new run; the data is kept.
    pub fn rewind(&mut self) {
        self.last_program = Nanos::MIN;
        self.in_order = self.in_order.map(|_| Nanos::MIN);
    }
}

/// Time from the end of a host program until the page is durable.
pub(super) fn counts_after(settings: &DeviceSettings) -> Nanos {
    if settings.cache.lies == CacheLie::Recent { Nanos(RECENT_MS * 1_000_000) } else { Nanos::ZERO }
}

fn pools(settings: &DeviceSettings, geometry: &Geometry, policy: Option<&dyn VictimPolicy>) -> Vec<BlockPool> {
    let order = policy.map_or(FullBlockOrder::Age, VictimPolicy::order);
    let by_wear = settings.wear.levelling != WearLevelling::None;
    // Valid data may occupy the nominal capacity of a pool and half of its over-provisioning. Further data goes to other pools.
    let share = settings.capacity.over_provisioning_pct / 100.0;
    let fill = (1.0 + share / 2.0) / (1.0 + share);
    let mut pools = Vec::with_capacity(geometry.planes as usize * geometry.groups.len());
    for plane in 0..geometry.planes {
        for (index, group) in geometry.groups.iter().enumerate() {
            let mut pool = BlockPool::new(plane, geometry.blocks_per_plane, group, order, by_wear);
            let ordinary = settings.slc.mode != SlcMode::Cache || index + 1 < geometry.groups.len();
            if policy.is_some() && ordinary {
                let units = (group.blocks - group.spare_blocks) * group.units_per_block();
                pool.valid_limit = (f64::from(units) * fill) as u32;
            }
            pools.push(pool);
        }
    }
    pools
}

// Blocks in SLC mode are either a region of the address space (the enhanced area of JESD84-A441), or a write cache that is folded into the
// other blocks later. On a UFS device the cache is `WriteBooster`.
//
// The SLC blocks form a separate block group, which is the last one. As a region, they are part of the capacity and are garbage-collected
// like any group. As a cache, they are not part of the capacity: folding moves their data to the other groups, the oldest block first. If
// `WriteBooster` preserves the user's space, the capacity is that of all blocks, and `WriteBooster` accepts data only while the user has
// enough free space.

/// How the device uses blocks in SLC mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlcBlocks {
    pub(super) mode: SlcMode,
    /// Block group whose blocks are in SLC mode.
    pub(super) group: u8,
    /// Maximum size in sectors of a write that goes to the SLC cache.
    pub(super) max_sectors: u32,
    /// Idle time before the SLC cache is folded; `None` = only when it is full.
    pub(super) fold_after: Option<Nanos>,
    /// End of the range of map units that may be written to the SLC cache.
    pub(super) end: u32,
    /// Threshold for folding in idle time: the SLC cache is folded if at most this share of it is free, in percent.
    pub(super) flush_at_pct: u32,
    /// Number of map units of the user's free space that each block of the SLC cache takes up; 0 if the cache does not use this space.
    pub(super) units_per_block: u32,
}

impl SlcBlocks {
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        let slc = &settings.slc;
        Self {
            mode: slc.mode,
            group: geometry.groups.len() as u8 - 1,
            max_sectors: slc.max_kb.saturating_mul(2),
            fold_after: fold_after(settings),
            end: match slc.dedicated_mb {
                0 => u32::MAX,
                mb => u32::try_from((u64::from(mb) << 20) / u64::from(geometry.unit_bytes)).unwrap_or(u32::MAX),
            },
            flush_at_pct: slc.flush_at_pct,
            units_per_block: match geometry.groups.get(slc.group as usize) {
                Some(group) if slc.preserve_user_space => group.units_per_block(),
                _ => 0,
            },
        }
    }

    /// Changes the idle time and the threshold of folding.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        self.fold_after = fold_after(settings);
        self.flush_at_pct = settings.slc.flush_at_pct;
    }

    /// Whether garbage collection of this block group folds its data into other groups.
    #[inline]
    pub fn folds(self, group: u8) -> bool {
        self.mode == SlcMode::Cache && group == self.group
    }

    /// Whether blocks of this block group are in SLC mode.
    #[inline]
    pub fn holds(self, group: u8) -> bool {
        self.mode != SlcMode::Off && group == self.group
    }

    /// Idle time after which the SLC cache is folded; `None` if it is folded only when full, or if there is no cache.
    #[inline]
    pub fn folds_after(self) -> Option<Nanos> {
        self.fold_after.filter(|_| self.mode == SlcMode::Cache)
    }
}

/// Idle time before the SLC cache is folded; `None` = only when it is full.
fn fold_after(settings: &DeviceSettings) -> Option<Nanos> {
    let after = match settings.slc.flush {
        BoosterFlush::Idle => settings.slc.fold_after_us,
        BoosterFlush::Hibernate => settings.power.sleeps_after_us(),
        BoosterFlush::Event => 0.0,
    };
    settings.slc.flushes_in_gaps().then(|| nanos(after))
}
