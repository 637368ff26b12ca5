//! Mapping schemes. A scheme is called once per command. It determines where new data is written, and which existing data must be moved for
//! this. All schemes share the core of the FTL: locations of units, blocks and pools, timelines and counters.

pub(crate) mod blocks;
pub(crate) mod demand;
mod zones;

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, PolicyDescription};

use super::core::FtlCore;
use super::request_state::RequestState;
use super::write::RequestSectors;
use crate::events::Observer;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::nand::Nand;
use blocks::BlockMapping;
use demand::{DemandMapping, MapCacheSummary};
use zones::ZonedMapping;

/// Size of an entry of a page-level mapping table, in bytes.
const ENTRY_BYTES: u64 = 4;

/// The scheme with a page-level mapping table that is completely in RAM.
const PAGE: PolicyDescription =
    PolicyDescription { name: "page", about: "Any unit can be stored at any place; the whole map is in memory.", settings: &[] };

pub(crate) fn kinds() -> impl Iterator<Item = PolicyDescription> {
    [PAGE].into_iter().chain(blocks::KINDS.iter().copied()).chain(demand::kinds())
}

/// Whether a scheme assigns physical blocks to logical blocks. Such blocks are merged instead of garbage-collected.
pub(crate) fn maps_blocks(scheme: &str) -> bool {
    blocks::KINDS.iter().any(|kind| kind.name == scheme)
}

/// The state that a mapping scheme has in addition to the shared part of the FTL.
#[derive(Clone)]
pub(crate) enum MappingScheme {
    /// A page-level mapping table in RAM: a unit may be at any location.
    Page,
    /// A page-level mapping table on the flash, with a cache in RAM.
    Demand(Box<DemandMapping>),
    /// Block mapping with data blocks and log blocks.
    Blocks(Box<BlockMapping>),
    /// Zoned mapping: each zone has its own blocks.
    Zones(Box<ZonedMapping>),
}

impl MappingScheme {
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        if let Some(layout) = geometry.zones {
            return MappingScheme::Zones(Box::new(ZonedMapping::new(layout, geometry)));
        }
        if let Some(map) = DemandMapping::new(settings, geometry) {
            return MappingScheme::Demand(Box::new(map));
        }
        BlockMapping::new(settings, geometry).map_or(MappingScheme::Page, |blocks| MappingScheme::Blocks(Box::new(blocks)))
    }

    /// Writes the mapping table of data that was stored with the scheme `page`, if this scheme has its table on the flash.
    pub fn write_whole<L: Observer>(&mut self, core: &mut FtlCore, nand: &mut Nand, log: &mut L) {
        if let MappingScheme::Demand(map) = self {
            map.write_whole(core, nand, log);
        }
    }

    /// Number of map units that the scheme itself stores on the flash. They follow those of the host.
    pub fn map_units(&self) -> u32 {
        match self {
            MappingScheme::Demand(map) => map.map_units(),
            MappingScheme::Page | MappingScheme::Blocks(_) | MappingScheme::Zones(_) => 0,
        }
    }

    /// Whether the scheme assigns physical blocks to logical blocks. Pages of such blocks may be skipped.
    pub fn maps_blocks(&self) -> bool {
        matches!(self, MappingScheme::Blocks(_))
    }

    /// Whether the scheme records its open blocks itself, instead of in the block pools.
    pub fn holds_open_blocks(&self) -> bool {
        matches!(self, MappingScheme::Blocks(_) | MappingScheme::Zones(_))
    }

    /// The zoned mapping; `None` for other schemes.
    pub fn zones(&self) -> Option<&ZonedMapping> {
        if let MappingScheme::Zones(zones) = self { Some(zones) } else { None }
    }

    /// The zoned mapping, mutable; `None` for other schemes.
    pub fn zones_mut(&mut self) -> Option<&mut ZonedMapping> {
        if let MappingScheme::Zones(zones) = self { Some(zones) } else { None }
    }

    /// Bytes of device RAM that the mapping table needs.
    pub fn ram_bytes(&self, geometry: &Geometry) -> u64 {
        match self {
            MappingScheme::Page => u64::from(geometry.logical_units) * ENTRY_BYTES,
            MappingScheme::Demand(map) => map.ram_bytes(),
            MappingScheme::Blocks(blocks) => blocks.ram_bytes(),
            MappingScheme::Zones(zones) => zones.ram_bytes(),
        }
    }

    /// State of the cached part of the mapping table, for schemes that store the table on the flash; `None` for other schemes.
    pub fn figures(&self) -> Option<MapCacheSummary> {
        if let MappingScheme::Demand(map) = self { Some(map.figures()) } else { None }
    }

    /// The state of the scheme, encoded as words of a device image.
    pub fn words(&self) -> Vec<u32> {
        match self {
            MappingScheme::Page => Vec::new(),
            MappingScheme::Demand(map) => map.words(),
            MappingScheme::Blocks(blocks) => blocks.words(),
            MappingScheme::Zones(zones) => zones.words(),
        }
    }

    /// Restores the state of the scheme from a device image; `None` if the words are invalid.
    pub fn restore(&mut self, geometry: &Geometry, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        match self {
            MappingScheme::Page => Some(()),
            MappingScheme::Demand(map) => map.restore(words),
            MappingScheme::Blocks(blocks) => blocks.restore(words),
            MappingScheme::Zones(zones) => zones.restore(geometry, words),
        }
    }

    /// Describes the first inconsistency between the tables of the scheme and the flash; `None` if there is none.
    pub fn fault(&self, core: &FtlCore, nand: &Nand) -> Option<String> {
        match self {
            MappingScheme::Page => None,
            MappingScheme::Demand(map) => map.fault(core),
            MappingScheme::Blocks(blocks) => blocks.fault(core, nand),
            MappingScheme::Zones(zones) => zones.fault(core, nand),
        }
    }

    /// Handles a restart of the device, at which cached parts of the mapping table are lost.
    pub fn power_cycle(&mut self) {
        match self {
            MappingScheme::Page | MappingScheme::Zones(_) => {}
            MappingScheme::Demand(map) => map.power_cycle(),
            MappingScheme::Blocks(blocks) => blocks.power_cycle(),
        }
    }

    /// Writes the data of a request.
    #[inline(always)]
    pub fn write<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, log: &mut L,
    ) {
        match self {
            MappingScheme::Page => core.write_pages(nand, request, span, log),
            MappingScheme::Demand(map) => map.write(core, nand, request, span, log),
            MappingScheme::Blocks(blocks) => blocks.write(core, nand, request, span, log),
            MappingScheme::Zones(zones) => zones.write(core, nand, request, span, log),
        }
    }

    /// Looks up the locations of units before they are read.
    #[inline]
    pub fn look_up<L: Observer>(
        &mut self, core: &mut FtlCore, nand: &mut Nand, request: &mut RequestState, units: (Lpn, u32), log: &mut L,
    ) {
        match self {
            MappingScheme::Page | MappingScheme::Zones(_) => {}
            MappingScheme::Demand(map) => map.look_up_to_read(core, nand, request, units, log),
            MappingScheme::Blocks(blocks) => blocks.fetch_maps(core, nand, request, units, log),
        }
    }

    /// Updates the mapping table entries that garbage collection changed.
    #[inline]
    pub fn follow(&mut self, core: &mut FtlCore) {
        if let MappingScheme::Demand(map) = self {
            map.follow(core);
        }
    }

    /// Completes a discard of units: writes stale pages of a mapping table on the flash, and erases the blocks of zones that are completely
    /// discarded.
    pub fn discarded<L: Observer>(&mut self, core: &mut FtlCore, nand: &mut Nand, units: (Lpn, u32), ready: Nanos, log: &mut L) {
        match self {
            MappingScheme::Page | MappingScheme::Blocks(_) => {}
            MappingScheme::Demand(map) => map.settle(core, nand, ready, log),
            MappingScheme::Zones(zones) => zones.reset(core, nand, units, ready, log),
        }
    }
}
