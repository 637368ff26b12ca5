//! DFTL: a page map that lies on the flash, with the entries in use in memory (Gupta, Kim and Urgaonkar, "DFTL: a flash translation
//! layer employing demand-based selective caching of page-level address mappings", ASPLOS 2009).
//!
//! The map is cut into pages, which are written to blocks of their own and found through a directory in memory. An entry that is
//! needed is read with its page; a changed one that has to make room is written back, and with it every other changed
//! entry of its page. Collection changes entries in memory where they are, and rewrites the pages of the others. Pages of the map
//! are units behind those of the host: block counts, collection and wear treat both alike.

mod hints;
mod mapping_cache;

use emmclab_base::Nanos;

use crate::events::{Cause, MapHinted, MapLookedUp, Observer};
use crate::ftl::allocate::Place;
use crate::ftl::allocation::PageRequest;
use crate::ftl::commit::{Programmed, Run};
use crate::ftl::core::{Core, Stop};
use crate::ftl::pool::Stream;
use crate::ftl::request_state::RequestState;
use crate::ftl::span::Span;
use crate::geometry::Geometry;
use crate::ids::{Lpn, Ppn};
use crate::nand::{Nand, Operation};
use emmclab_settings::{PolicyKind, PolicySetting, Settings};
use hints::Hints;
use mapping_cache::MappingCache;

/// The scheme in the registry.
pub(super) const KIND: PolicyKind = PolicyKind {
    name: "dftl",
    about: "As `page`, but the map is on the flash and the entries in use are in memory (Gupta et al., ASPLOS 2009).",
    settings: &[CACHED_ENTRIES, HPB_PAGES],
};

const CACHED_ENTRIES: PolicySetting = PolicySetting {
    key: "cached_entries",
    about: "Map entries in memory.",
    default: 4096,
    range: (1, 1 << 28),
};

/// Pages of the map that the host of a UFS holds.
pub(crate) const HPB_PAGES: PolicySetting = PolicySetting {
    key: "hpb_pages",
    about: "Pages of the map that the host of a UFS holds (HPB), so that reads bring their entries along; 0 = no HPB.",
    default: 0,
    range: (0, 1 << 20),
};

/// Bytes of an entry on the flash, and of one in memory: logical and physical address.
const ENTRY_BYTES: u32 = 4;
const CACHED_BYTES: u64 = 8;

/// Sectors of no host request.
const NO_SECTORS: Span = Span { first: 0, end: 0 };

/// A map on demand.
#[derive(Clone)]
pub(crate) struct Demand {
    cache: MappingCache,
    /// Entries that the host holds.
    hints: Option<Hints>,
    /// First unit of the map; the host's lie before it.
    base: u32,
    /// Entries and map units in a page of the map.
    per_page: u32,
    units: u32,
    /// Group of the map's pages: the smallest.
    group: u8,
    /// Pages with entries that changed outside the cache and have to be rewritten; whether a page is among them.
    stale: Vec<u32>,
    is_stale: Vec<bool>,
}

impl Demand {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        let group = geometry.by_size[geometry.by_size.len() - 1];
        let kind = &geometry.groups[usize::from(group)];
        let per_page = kind.page_bytes / ENTRY_BYTES;
        let pages = geometry.logical_units.div_ceil(per_page) as usize;
        Self {
            cache: MappingCache::new(CACHED_ENTRIES.count(&settings.mapping.options), geometry.logical_units),
            hints: Hints::new(HPB_PAGES.count(&settings.mapping.options), per_page, pages),
            base: geometry.logical_units,
            per_page,
            units: kind.units_per_page(),
            group,
            stale: Vec::with_capacity(pages),
            is_stale: vec![false; pages],
        }
    }

    /// Units that the map takes behind those of the host.
    pub fn map_units(&self) -> u32 {
        self.is_stale.len() as u32 * self.units
    }

    /// Bytes of memory: cached entries and the directory.
    pub fn ram_bytes(&self) -> u64 {
        u64::from(self.cache.most()) * CACHED_BYTES + self.is_stale.len() as u64 * u64::from(ENTRY_BYTES)
    }

    /// The cached entries, for an image.
    pub fn words(&self) -> Vec<u32> {
        self.cache.words()
    }

    /// Takes up such entries; `None` where they are none.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        self.cache.restore(words, self.base)
    }

    /// Writes the span of a request.
    pub fn write<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        request: &mut RequestState,
        span: Span,
        log: &mut L,
    ) {
        let units = span.units(core.geometry.unit_shift);
        self.look_up(core, nand, request, units, true, log);
        if core.stop.is_none() {
            core.write_pages(nand, request, span, log);
            self.settle(core, nand, request.ready, log);
        }
    }

    /// Brings the entries of units that are read into memory.
    pub fn look_up_to_read<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        request: &mut RequestState,
        units: (Lpn, u32),
        log: &mut L,
    ) {
        self.look_up(core, nand, request, units, false, log);
        self.settle(core, nand, request.ready, log);
    }

    /// Takes up the entries that collection or discards changed.
    pub fn follow(&mut self, core: &mut Core) {
        let Some(changed) = &mut core.changed_entries else { return };
        for unit in changed.drain(..) {
            let page = unit.0 / self.per_page;
            if let Some(hints) = &mut self.hints {
                hints.change(unit.0);
            }
            if unit.0 < self.base && !self.cache.mark(unit) && !self.is_stale[page as usize] {
                self.is_stale[page as usize] = true;
                self.stale.push(page);
            }
        }
    }

    /// Rewrites the pages of the map that collection or discards left stale; later commands wait for it.
    pub fn settle<L: Observer>(&mut self, core: &mut Core, nand: &mut Nand, ready: Nanos, log: &mut L) {
        self.follow(core);
        // Collection on the way makes pages stale again, but ever fewer; a device on which that does not end is full.
        let mut patience = 16 * self.is_stale.len() + 16;
        while core.stop.is_none()
            && let Some(page) = self.stale.pop()
        {
            if !self.is_stale[page as usize] {
                continue;
            }
            if patience == 0 {
                core.stop = Some(Stop::Full);
                return;
            }
            patience -= 1;
            self.write_page(core, nand, page, ready, log);
        }
    }

    fn look_up<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        request: &mut RequestState,
        (first, units): (Lpn, u32),
        changes: bool,
        log: &mut L,
    ) {
        let mut fetched = None;
        for unit in (first.0..first.0 + units).map(Lpn) {
            let page = unit.0 / self.per_page;
            if !changes && self.hints.as_mut().is_some_and(|hints| hints.gives(unit.0)) {
                log.map_hinted(&MapHinted { lpn: unit });
                continue;
            }
            let hit = self.cache.touch(unit);
            log.map_looked_up(&MapLookedUp { hit });
            if !hit {
                if let Some(evicted) = self.cache.make_room()
                    && let Some(op) =
                        self.write_page(core, nand, evicted.0 / self.per_page, request.ready, log)
                {
                    request.look_up(&op);
                }
                let home = Lpn(self.base + page * self.units);
                if fetched != Some(page)
                    && let Some(ppn) = core.lookup(home)
                {
                    let op = read_map_page(core, nand, ppn, request.ready, log);
                    request.look_up(&op);
                    if let Some(hints) = &mut self.hints {
                        hints.take(page);
                    }
                }
                fetched = Some(page);
                self.cache.insert(unit);
            }
            if changes {
                self.cache.mark(unit);
                if let Some(hints) = &mut self.hints {
                    hints.change(unit.0);
                }
            }
        }
    }

    /// The host starts anew.
    pub fn power_cycle(&mut self) {
        if let Some(hints) = &mut self.hints {
            hints.clear();
        }
    }

    /// Writes a page of the map anew, with all changed entries; `None` where the device is full.
    fn write_page<L: Observer>(
        &mut self,
        core: &mut Core,
        nand: &mut Nand,
        page: u32,
        ready: Nanos,
        log: &mut L,
    ) -> Option<Operation> {
        let first = Lpn(self.base + page * self.units);
        let mut at = ready;
        if let Some(ppn) = core.lookup(first) {
            at = read_map_page(core, nand, ppn, ready, log).end;
        }
        let request = PageRequest { ready: at, first, group: self.group };
        let place = core.allocate(nand, request, Stream::Map, log);
        // Allocation may have collected, and changed more entries of this very page.
        self.follow(core);
        let Some(Place { group, block, .. }) = place else {
            core.stop_full();
            return None;
        };
        self.written(page);
        let bytes = self.units * core.geometry.unit_bytes;
        let next = nand.program_next(block, at, bytes);
        let programmed = Programmed::next(block, group, &next, bytes, Cause::Map, Stream::Map);
        let unit_sectors = core.geometry.unit_sectors;
        let units = Run { first, units: self.units, span: NO_SECTORS, unit_sectors, command: None };
        core.commit_page(programmed, &units, log);
        Some(next.op)
    }

    fn written(&mut self, page: u32) {
        self.is_stale[page as usize] = false;
        let first = page * self.per_page;
        for unit in first..(first + self.per_page).min(self.base) {
            self.cache.clean(Lpn(unit));
        }
    }
}

fn read_map_page<L: Observer>(
    core: &mut Core,
    nand: &mut Nand,
    ppn: Ppn,
    ready: Nanos,
    log: &mut L,
) -> Operation {
    let group = nand.block(core.geometry.block_of(ppn)).group;
    let bytes = core.geometry.groups[usize::from(group)].page_bytes;
    core.read_page(nand, ppn, ready, bytes, Cause::Map, log)
}
