//! The flash translation layer: maps logical to physical addresses and reclaims space.
//!
//! The FTL uses only the flash. Commands, queues, write buffer and power belong to the controller.

mod allocation;
mod booster;
mod collect;
mod commit;
mod core;
mod fold;
pub mod gc;
pub(crate) mod pool;
mod read;
pub(crate) mod request_state;
mod reverse;
mod schemes;
mod state;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod write;

use emmclab_base::{Error, ErrorClass, Nanos, Result};
use emmclab_settings::DeviceSettings;

use crate::events::{CollectionPurpose, Observer, UnitsTrimmed};
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use crate::nand::{BlockState, Nand};
use booster::WriteBooster;
use gc::VictimPolicy;
use request_state::RequestState;
use schemes::MappingScheme;
use write::RequestSectors;

pub(crate) use allocation::POLICIES as ALLOCATION_POLICIES;
pub(crate) use core::FtlCore;
pub use core::StopReason;
pub(crate) use schemes::blocks::{logs, rows};
pub(crate) use schemes::demand::{HPB_PAGES, maps_on_demand};
pub use schemes::demand::{LOOKUP_NJ, MapCacheSummary};
pub(crate) use schemes::{kinds as scheme_kinds, maps_blocks};
pub(crate) use write::PageWrite;

/// Maximum number of requests whose table entries [`Ftl::prefetch`] reads.
pub const PREFETCHED: usize = 64;

/// The FTL of a device: a mapping scheme, and the part that all schemes share.
#[derive(Clone)]
pub(crate) struct Ftl {
    pub core: FtlCore,
    scheme: MappingScheme,
}

impl Ftl {
    /// Creates the FTL of a new device on unused flash.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry, nand: &Nand) -> Self {
        let scheme = MappingScheme::new(settings, geometry);
        Self { core: FtlCore::new(settings, geometry, nand, scheme.map_units()), scheme }
    }

    /// Replaces the scheme `page` by one with its mapping table on the flash, and writes this table.
    pub fn write_map<L: Observer>(&mut self, settings: &DeviceSettings, nand: &mut Nand, log: &mut L) {
        self.scheme = MappingScheme::new(settings, &self.core.geometry);
        self.core.tables.extend(self.scheme.map_units() as usize);
        self.scheme.write_whole(&mut self.core, nand, log);
    }

    /// Changes the settings of garbage collection. The layout of the data stays the same.
    pub fn reconfigure(&mut self, settings: &DeviceSettings, geometry: Geometry) {
        self.core.collector.reconfigure(settings);
        self.core.slc.reconfigure(settings);
        let booster = self.core.booster.take();
        self.core.booster = WriteBooster::reconfigured(booster, settings, &geometry);
        self.core.counts_after = core::counts_after(settings);
        self.core.geometry = geometry;
    }

    /// Bytes of device RAM that the mapping table of this scheme needs.
    pub fn map_ram_bytes(&self) -> u64 {
        self.scheme.ram_bytes(&self.core.geometry)
    }

    /// State of the cached part of the mapping table, for schemes that store the table on the flash; `None` for other schemes.
    pub fn map_figures(&self) -> Option<MapCacheSummary> {
        self.scheme.figures()
    }

    /// Whether pages of a block may be skipped when it is programmed.
    pub fn skips_pages(&self) -> bool {
        self.scheme.maps_blocks()
    }

    /// Whether a program may also copy units that the host did not write.
    pub fn carries_units(&self) -> bool {
        self.scheme.holds_open_blocks()
    }

    /// Returns the number of map units of a zone before its write pointer, and whether the host has finished the zone.
    pub fn zone(&self, zone: u32) -> (u32, bool) {
        self.scheme.zones().map_or((0, false), |zones| zones.state(&self.core, zone))
    }

    pub fn finish_zone(&mut self, zone: u32) {
        if let Some(zones) = self.scheme.zones_mut() {
            zones.finish(zone);
        }
    }

    /// Describes the first inconsistency between the tables of the scheme and the flash; `None` if there is none.
    pub fn fault(&self, nand: &Nand) -> Option<String> {
        self.scheme.fault(&self.core, nand).or_else(|| self.core.booster_fault(nand))
    }

    /// Writes the data of a request after its transfer.
    #[inline(always)]
    pub fn write<L: Observer>(&mut self, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L) {
        self.scheme.write(&mut self.core, nand, request, span, log);
    }

    /// Looks up the locations of units before they are read.
    #[inline]
    pub fn look_up<L: Observer>(&mut self, nand: &mut Nand, request: &mut RequestState, units: (Lpn, u32), log: &mut L) {
        self.scheme.look_up(&mut self.core, nand, request, units, log);
    }

    /// Discards whole units.
    pub fn discard<L: Observer>(&mut self, nand: &mut Nand, (first, count): (Lpn, u32), ready: Nanos, log: &mut L) {
        let mapped = self.unmap((first, count));
        self.scheme.discarded(&mut self.core, nand, (first, count), ready, log);
        log.trimmed(&UnitsTrimmed { first, count, mapped, at: ready });
    }

    /// Unmaps units. Returns how many of them were mapped.
    pub fn unmap(&mut self, (first, count): (Lpn, u32)) -> u32 {
        let mut mapped = 0;
        for lpn in (first.0..first.0 + count).map(Lpn) {
            if self.core.tables.unmap(lpn) {
                mapped += 1;
                if let Some(changed) = &mut self.core.changed_entries {
                    changed.push(lpn);
                }
            }
        }
        mapped
    }

    /// Executes `work`. Returns the end of the latest page program in it, or [`Nanos::MIN`] if there was none.
    pub fn timed(&mut self, work: impl FnOnce(&mut Self)) -> Nanos {
        let before = std::mem::replace(&mut self.core.last_program, Nanos::MIN);
        work(self);
        let own = self.core.last_program;
        self.core.last_program = own.max(before);
        own
    }

    /// Sets whether host pages become durable only in order from now on, or independently of each other.
    pub fn set_in_order(&mut self, in_order: bool) {
        self.core.in_order = in_order.then_some(Nanos::MIN);
    }

    /// Begins an idle period, in which the SLC cache may be resized. Returns whether the cache is folded in this period.
    pub fn begin_slc_gap<L: Observer>(&mut self, nand: &Nand, log: &mut L) -> bool {
        let due = self.core.slc_is_due();
        if self.core.booster.is_none() { due } else { self.core.begin_booster_gap(nand, due, log) }
    }

    #[inline]
    pub fn free_blocks(&self, pool: PoolId) -> u32 {
        self.core.tables.pool(pool).free()
    }

    pub fn full_blocks(&self, pool: PoolId) -> u32 {
        self.core.tables.pool(pool).full
    }

    /// Whether collection of a block of this pool is in progress.
    #[inline]
    pub fn collects_now(&self, pool: PoolId) -> bool {
        self.core.tables.pool(pool).victim.is_some()
    }

    /// Number of block pools.
    pub fn pools(&self) -> u32 {
        self.core.tables.pools.len() as u32
    }

    /// The blocks that were read often, and then the block whose data becomes too old first, with the times from which they need a refresh and
    /// their pools. Blocks that cannot be refreshed now (they are open, or no block is free) are left out.
    pub fn refreshes<'a>(&'a self, nand: &'a Nand) -> impl Iterator<Item = (Nanos, PoolId, BlockId)> + 'a {
        let closed = move |(from, block): (Nanos, BlockId)| {
            let pool = self.core.tables.pool_of(block);
            let has_room = self.collects_now(pool) || self.free_blocks(pool) > 0;
            (has_room && nand.state(block) != BlockState::Open).then_some((from, pool, block))
        };
        let disturbed = nand.disturbed().iter().map(|block| (Nanos::MIN, *block));
        disturbed.filter_map(closed).chain(nand.due().filter_map(closed).take(1))
    }

    /// Moves up to one page of valid data of the victim (the block that is being collected) in a pool; first chooses a victim if there is
    /// none: the block `refresh` if it is given. Returns whether the victim contains more data to move; `None` if no block is worth
    /// collecting.
    pub fn collect_step<L: Observer>(
        &mut self, nand: &mut Nand, (pool, refresh): (PoolId, Option<BlockId>), ready: Nanos, log: &mut L,
    ) -> Option<bool> {
        if let Some(block) = refresh.filter(|_| !self.collects_now(pool)) {
            self.core.start_victim(nand, pool, block, CollectionPurpose::Refresh, ready, log);
        }
        if self.core.stop.is_some() || !self.core.begin_victim(nand, pool, ready, log) {
            return None;
        }
        let goes_on = self.core.move_pages(nand, pool, 1, ready, log);
        self.scheme.follow(&mut self.core);
        Some(goes_on)
    }

    /// Folds the full blocks of the SLC cache into other blocks, regardless of when the settings would begin to fold.
    pub fn fold_cache<L: Observer>(&mut self, nand: &mut Nand, ready: Nanos, log: &mut L) {
        if let Some(booster) = &mut self.core.booster {
            booster.flushes = true;
        }
        for plane in (0..self.core.geometry.planes).map(PlaneId) {
            let pool = self.core.slc_pool(plane);
            // Every block is folded at most once, because new blocks do not become full.
            let mut blocks = if self.core.is_slc_cache(pool) { self.full_blocks(pool) + 1 } else { 0 };
            while blocks > 0
                && let Some(goes_on) = self.collect_step(nand, (pool, None), ready, log)
            {
                blocks -= u32::from(!goes_on);
            }
        }
    }

    /// Changes the victim policy; a collection in progress continues.
    pub fn set_victim_policy(&mut self, policy: Box<dyn VictimPolicy>) -> Result<()> {
        if self.scheme.maps_blocks() {
            return Err(no_victims("its mapping scheme maps blocks, which are merged", "mapping.scheme=page"));
        }
        if self.core.collector.policy.is_none() {
            return Err(no_victims("its gc.policy is none", "gc.policy=greedy"));
        }
        self.core.tables.relist(&self.core.geometry, policy.order());
        self.core.collector.policy = Some(policy.into());
        Ok(())
    }

    /// Prefetches the mapping table entries for these sectors into the CPU cache, for at most [`PREFETCHED`] of the next commands. In a
    /// loop that does nothing else, the cache misses overlap.
    #[inline]
    pub fn prefetch(&mut self, sectors: &[u64]) {
        let shift = self.core.geometry.unit_shift;
        self.core.tables.prefetch(sectors.iter().map(|sector| (sector >> shift) as usize));
    }

    /// The used blocks of a block group, without bad blocks.
    pub fn used_blocks(&self, nand: &Nand, group: u8) -> Vec<BlockId> {
        let pools = self.core.tables.pools.iter();
        let used = pools.flat_map(|pool| pool.all_blocks().filter(|block| pool.was_used(*block)));
        used.filter(|block| nand.block(*block).group == group && nand.state(*block) != BlockState::Bad).collect()
    }

    /// Updates the block pools after a change of the erase counts.
    pub fn note_wear(&mut self, nand: &Nand) {
        for pool in (0..self.pools()).map(PoolId) {
            self.core.tables.pool_mut(pool).note_wear(nand);
        }
    }

    /// Reverts an interrupted program of a unit at location `to`: maps the unit to `from` again, or unmaps it if `from` is `None`.
    pub fn take_back(&mut self, nand: &Nand, lpn: Lpn, to: Ppn, from: Option<Ppn>) {
        if self.core.tables.lookup(lpn) != Some(to) {
            // The program is already superseded: the unit was moved, or a later command has replaced its data.
            return;
        }
        self.core.tables.unmap(lpn);
        let stays = |from: &Ppn| {
            let block = self.core.geometry.block_of(*from);
            matches!(nand.state(block), BlockState::Open | BlockState::Full) && self.core.tables.reverse.get(*from).is_none()
        };
        // A block-mapped scheme cannot map the previous version of the data again, because it stores only one location for each page.
        if let Some(from) = from.filter(stays).filter(|_| !self.scheme.maps_blocks()) {
            self.core.tables.map_again(lpn, from);
        }
        if let Some(changed) = &mut self.core.changed_entries {
            changed.push(lpn);
        }
    }

    /// Resets the state after a power loss: parts of the mapping table that were cached in RAM are lost, and no operation is in progress.
    pub fn power_cycle(&mut self) {
        self.scheme.follow(&mut self.core);
        self.core.rewind();
        self.scheme.power_cycle();
        if let Some(booster) = &mut self.core.booster {
            booster.power_cycle();
        }
        if let Some(zones) = self.scheme.zones() {
            zones.cut(&mut self.core);
        }
    }

    /// Restarts the clock for a new run: parts of the mapping table that were cached in RAM are lost, data remains.
    pub fn rewind(&mut self) {
        self.core.rewind();
        self.scheme.power_cycle();
    }
}

fn no_victims(reason: &str, setting: &str) -> Error {
    Error::new(ErrorClass::Config, format!("a victim policy has nothing to choose on this device: {reason}"))
        .hint(format!("set {setting}"))
}
