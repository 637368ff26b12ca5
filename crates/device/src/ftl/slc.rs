//! Blocks in SLC mode: a region of the address space that lies in them for good (the enhanced area of JESD84-A441), or a
//! cache that small writes go to first and that is folded into the other blocks later.
//!
//! They are a block group of their own, last in the list and used only where asked for here. As a region they count
//! towards the capacity and are collected like any group. As a cache they do not: the data of the cache finds room in the
//! other groups, where folding moves it, oldest block first.

use emmclab_base::Nanos;

use crate::geometry::{Geometry, nanos};
use crate::settings::{Settings, SlcMode};

/// The use of blocks in SLC mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slc {
    pub(super) mode: SlcMode,
    /// Their block group.
    pub(super) group: u8,
    /// Longest write that goes to the cache.
    pub(super) max_sectors: u32,
    /// Idle time before folding; 0 = fold when full.
    pub(super) fold_after: Nanos,
}

impl Slc {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        let slc = &settings.slc;
        Self {
            mode: slc.mode,
            group: geometry.groups.len() as u8 - 1,
            max_sectors: slc.max_kb.saturating_mul(2),
            fold_after: nanos(slc.fold_after_us),
        }
    }

    /// Whether no block is in SLC mode.
    #[inline]
    pub fn is_off(self) -> bool {
        self.mode == SlcMode::Off
    }

    /// Whether collection of this group means folding into others.
    #[inline]
    pub fn folds(self, group: u8) -> bool {
        self.mode == SlcMode::Cache && group == self.group
    }

    /// Whether blocks of this group are in SLC mode.
    #[inline]
    pub fn holds(self, group: u8) -> bool {
        self.mode != SlcMode::Off && group == self.group
    }

    /// Idle time after which the cache is folded; `None` where it is folded only when full, or there is none.
    #[inline]
    pub fn folds_after(self) -> Option<Nanos> {
        (self.mode == SlcMode::Cache && self.fold_after > Nanos::ZERO).then_some(self.fold_after)
    }
}
