//! Mapping schemes. The core keeps what every scheme shares: where each unit lies, blocks and pools, timelines and counters. A scheme
//! decides where new data goes and what has to be moved for it. It is asked once per command.

pub(crate) mod blocks;
pub(crate) mod demand;
mod zones;

use emmclab_base::Nanos;

use super::core::Core;
use super::request_state::RequestState;
use super::span::Span;
use crate::events::Observer;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::nand::Nand;
use emmclab_settings::{PolicyKind, Settings};

use blocks::Blocks;
use demand::{Demand, MapFigures};
use zones::Zones;

/// Bytes of an entry of the page map.
const ENTRY_BYTES: u64 = 4;

/// The page map in memory.
const PAGE: PolicyKind = PolicyKind {
    name: "page",
    about: "Every unit may lie anywhere; the whole map is in memory.",
    settings: &[],
};

/// Every scheme.
pub(crate) fn kinds() -> impl Iterator<Item = PolicyKind> {
    [PAGE].into_iter().chain(blocks::KINDS.iter().copied()).chain(demand::kinds())
}

/// Whether a scheme gives logical blocks blocks of their own, which are merged instead of collected.
pub(crate) fn maps_blocks(scheme: &str) -> bool {
    blocks::KINDS.iter().any(|kind| kind.name == scheme)
}

/// The state of a scheme beside the core.
#[derive(Clone)]
pub(crate) enum Scheme {
    /// A page map in memory: every unit may lie anywhere.
    Page,
    /// A page map on the flash.
    Demand(Box<Demand>),
    /// Data and log blocks.
    Blocks(Box<Blocks>),
    /// Blocks of zones.
    Zones(Box<Zones>),
}

impl Scheme {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        if let Some(layout) = geometry.zones {
            return Scheme::Zones(Box::new(Zones::new(layout, geometry)));
        }
        if let Some(map) = Demand::new(settings, geometry) {
            return Scheme::Demand(Box::new(map));
        }
        Blocks::new(settings, geometry).map_or(Scheme::Page, |blocks| Scheme::Blocks(Box::new(blocks)))
    }

    /// Units that the scheme itself keeps on the flash, after those of the host.
    pub fn map_units(&self) -> u32 {
        match self {
            Scheme::Demand(map) => map.map_units(),
            Scheme::Page | Scheme::Blocks(_) | Scheme::Zones(_) => 0,
        }
    }

    /// Whether logical blocks have blocks of their own, in which pages may be left out.
    pub fn maps_blocks(&self) -> bool {
        matches!(self, Scheme::Blocks(_))
    }

    /// Whether it holds open blocks itself.
    pub fn holds_open_blocks(&self) -> bool {
        matches!(self, Scheme::Blocks(_) | Scheme::Zones(_))
    }

    /// The blocks of zones.
    pub fn zones(&self) -> Option<&Zones> {
        if let Scheme::Zones(zones) = self { Some(zones) } else { None }
    }

    /// The same, to be changed.
    pub fn zones_mut(&mut self) -> Option<&mut Zones> {
        if let Scheme::Zones(zones) = self { Some(zones) } else { None }
    }

    /// Bytes of memory that the map takes inside the device.
    pub fn ram_bytes(&self, geometry: &Geometry) -> u64 {
        match self {
            Scheme::Page => u64::from(geometry.logical_units) * ENTRY_BYTES,
            Scheme::Demand(map) => map.ram_bytes(),
            Scheme::Blocks(blocks) => blocks.ram_bytes(),
            Scheme::Zones(zones) => zones.ram_bytes(),
        }
    }

    /// What a map on the flash has in memory; `None` for other schemes.
    pub fn figures(&self) -> Option<MapFigures> {
        if let Scheme::Demand(map) = self { Some(map.figures()) } else { None }
    }

    /// The scheme's own state as words, for an image.
    pub fn words(&self) -> Vec<u32> {
        match self {
            Scheme::Page => Vec::new(),
            Scheme::Demand(map) => map.words(),
            Scheme::Blocks(blocks) => blocks.words(),
            Scheme::Zones(zones) => zones.words(),
        }
    }

    /// Takes up such a state; `None` if it is not one.
    pub fn restore(&mut self, geometry: &Geometry, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        match self {
            Scheme::Page => Some(()),
            Scheme::Demand(map) => map.restore(words),
            Scheme::Blocks(blocks) => blocks.restore(words),
            Scheme::Zones(zones) => zones.restore(geometry, words),
        }
    }

    /// The first thing in which the scheme's tables and the flash disagree.
    pub fn fault(&self, core: &Core, nand: &Nand) -> Option<String> {
        match self {
            Scheme::Page => None,
            Scheme::Demand(map) => map.fault(core),
            Scheme::Blocks(blocks) => blocks.fault(core, nand),
            Scheme::Zones(zones) => zones.fault(core, nand),
        }
    }

    /// The run starts anew: copies in memory are gone.
    pub fn power_cycle(&mut self) {
        match self {
            Scheme::Page | Scheme::Zones(_) => {}
            Scheme::Demand(map) => map.power_cycle(),
            Scheme::Blocks(blocks) => blocks.power_cycle(),
        }
    }

    /// Writes the span of a request.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing but a choice")]
    pub fn write<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        request: &mut RequestState,
        span: Span,
        log: &mut L,
    ) {
        match self {
            Scheme::Page => core.write_pages(nand, request, span, log),
            Scheme::Demand(map) => map.write(core, nand, request, span, log),
            Scheme::Blocks(blocks) => blocks.write(core, nand, request, span, log),
            Scheme::Zones(zones) => zones.write(core, nand, request, span, log),
        }
    }

    /// Finds out where units lie, before they are read.
    #[inline]
    pub fn look_up<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        request: &mut RequestState,
        units: (Lpn, u32),
        log: &mut L,
    ) {
        match self {
            Scheme::Page | Scheme::Zones(_) => {}
            Scheme::Demand(map) => map.look_up_to_read(core, nand, request, units, log),
            Scheme::Blocks(blocks) => blocks.fetch_maps(core, nand, request, units, log),
        }
    }

    /// Takes up entries that collection changed.
    #[inline]
    pub fn follow(&mut self, core: &mut Core) {
        if let Scheme::Demand(map) = self {
            map.follow(core);
        }
    }

    /// Units were discarded: writes what that left stale of a map on the flash, and erases the blocks of zones that lie wholly among them.
    pub fn discarded<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        units: (Lpn, u32),
        ready: Nanos,
        log: &mut L,
    ) {
        match self {
            Scheme::Page | Scheme::Blocks(_) => {}
            Scheme::Demand(map) => map.settle(core, nand, ready, log),
            Scheme::Zones(zones) => zones.reset(core, nand, units, ready, log),
        }
    }
}
