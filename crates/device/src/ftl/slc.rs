//! Blocks in SLC mode. They hold either a region of the address space permanently (the enhanced area of JESD84-A441), or a cache that
//! writes go to first and that is folded into the other blocks later. On a UFS the cache is `WriteBooster`.
//!
//! They are a block group of their own, the last one, which only the code here uses. As a region, they count towards the capacity and are
//! collected like any group. As a cache, they do not count: the other groups have room for the data of the cache, and folding moves it
//! there, the oldest block first. `WriteBooster` may preserve the user's space: then the capacity is that of all blocks, and `WriteBooster`
//! accepts data only while the user has enough free space.

use emmclab_base::Nanos;

use crate::geometry::{Geometry, nanos};
use emmclab_settings::{BoosterFlush, DeviceSettings, SlcMode};

/// The use of blocks in SLC mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlcBlocks {
    pub(super) mode: SlcMode,
    /// Their block group.
    pub(super) group: u8,
    /// Longest write that goes to the cache.
    pub(super) max_sectors: u32,
    /// Idle time before folding; `None` = fold when full.
    pub(super) fold_after: Option<Nanos>,
    /// First unit that is not written to the cache.
    pub(super) end: u32,
    /// Free share of the cache, in percent, at or below which idle time folds it.
    pub(super) flush_at_pct: u32,
    /// Units of the user's free space that a block of the cache uses; 0 = none.
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

    /// Whether no block is in SLC mode.
    #[inline]
    pub fn is_off(self) -> bool {
        self.mode == SlcMode::Off
    }

    /// Whether collection of this group folds its data into other groups.
    #[inline]
    pub fn folds(self, group: u8) -> bool {
        self.mode == SlcMode::Cache && group == self.group
    }

    /// Whether blocks of this group are in SLC mode.
    #[inline]
    pub fn holds(self, group: u8) -> bool {
        self.mode != SlcMode::Off && group == self.group
    }

    /// Idle time after which the cache is folded; `None` if it is folded only when full, or there is none.
    #[inline]
    pub fn folds_after(self) -> Option<Nanos> {
        self.fold_after.filter(|_| self.mode == SlcMode::Cache)
    }
}

/// Idle time before the cache is folded; `None` = when it is full.
fn fold_after(settings: &DeviceSettings) -> Option<Nanos> {
    let after = match settings.slc.flush {
        BoosterFlush::Idle => settings.slc.fold_after_us,
        BoosterFlush::Hibernate => settings.power.sleep_after_us,
        BoosterFlush::Event => 0.0,
    };
    settings.slc.flushes_in_gaps().then(|| nanos(after))
}
