//! The seam between the controller and the mapping schemes.
//!
//! The device keeps what every scheme shares: where each unit lies (`map`, `reverse`), blocks and pools, timelines and
//! counters. A scheme decides where new data goes and what has to be moved for it. It is asked once per command.

use super::blocks::Blocks;
use super::demand::Demand;
use super::place::Span;
use crate::config::{Scheme, Settings};
use crate::controller::Progress;
use crate::device::Device;
use crate::event::Observer;
use crate::geometry::Geometry;

/// Bytes of an entry of the page map.
const ENTRY_BYTES: u64 = 4;

/// What a scheme knows beside the device.
pub(crate) enum Mapping {
    /// The page map needs nothing else.
    Page,
    /// A page map on the flash.
    Demand(Box<Demand>),
    /// Data and log blocks; see `ftl/blocks`.
    Blocks(Box<Blocks>),
}

impl Mapping {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        match settings.mapping.scheme {
            Scheme::Page => Mapping::Page,
            Scheme::Dftl => Mapping::Demand(Box::new(Demand::new(settings, geometry))),
            _ => Blocks::new(settings, geometry)
                .map_or(Mapping::Page, |blocks| Mapping::Blocks(Box::new(blocks))),
        }
    }

    /// Units that the scheme itself keeps on the flash, behind those of the host.
    pub fn map_units(&self) -> u32 {
        match self {
            Mapping::Demand(map) => map.map_units(),
            _ => 0,
        }
    }

    /// Whether pages of a block may be left out.
    pub fn skips_pages(&self) -> bool {
        !matches!(self, Mapping::Page | Mapping::Demand(_))
    }

    /// The scheme's own state as words, for an image.
    pub fn words(&self) -> Vec<u32> {
        match self {
            Mapping::Page => Vec::new(),
            Mapping::Demand(map) => map.words(),
            Mapping::Blocks(blocks) => blocks.words(),
        }
    }

    /// Takes up such a state; `None` where it is not one.
    pub fn restore(&mut self, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        match self {
            Mapping::Page => Some(()),
            Mapping::Demand(map) => map.restore(words),
            Mapping::Blocks(blocks) => blocks.restore(words),
        }
    }

    /// The first thing in which the scheme's tables and the flash disagree.
    pub fn fault(&self, device: &Device) -> Option<String> {
        match self {
            Mapping::Page | Mapping::Demand(_) => None,
            Mapping::Blocks(blocks) => blocks.fault(device),
        }
    }

    /// The run starts anew: what was in memory only as a copy is gone.
    pub fn power_cycle(&mut self) {
        if let Mapping::Blocks(blocks) = self {
            blocks.power_cycle();
        }
    }
}

impl Device {
    /// Bytes of memory that the map takes inside the device, by its scheme.
    pub fn map_ram_bytes(&self) -> u64 {
        match &self.mapping {
            Mapping::Page => u64::from(self.geometry.logical_units) * ENTRY_BYTES,
            Mapping::Demand(map) => map.ram_bytes(),
            Mapping::Blocks(blocks) => blocks.ram_bytes(),
        }
    }

    /// Runs `work` with a block-mapped scheme beside the device, where both are changed.
    fn beside(&mut self, work: impl FnOnce(&mut Blocks, &mut Self)) {
        let mut mapping = std::mem::replace(&mut self.mapping, Mapping::Page);
        if let Mapping::Blocks(blocks) = &mut mapping {
            work(blocks, self);
        }
        self.mapping = mapping;
    }

    /// Writes the span of a request.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing but a choice")]
    pub(crate) fn write_mapped<O: Observer>(
        &mut self,
        progress: &mut Progress,
        span: Span,
        observer: &mut O,
    ) {
        match self.mapping {
            Mapping::Page => self.write_pages(progress, span, observer),
            Mapping::Demand(_) => {
                let (first, units) = self.units_of(span.first, progress.event.sectors);
                self.look_up_on_demand(progress, first, units, true, observer);
                if self.stop.is_none() {
                    self.write_pages(progress, span, observer);
                    self.write_stale_map(progress.ready, observer);
                }
            }
            Mapping::Blocks(_) => {
                self.beside(|blocks, device| blocks.write(device, progress, span, observer));
            }
        }
    }

    /// Finds out where units lie, before they are read.
    #[inline]
    pub(crate) fn look_up<O: Observer>(
        &mut self,
        progress: &mut Progress,
        first: u32,
        units: u32,
        observer: &mut O,
    ) {
        match self.mapping {
            Mapping::Page => {}
            Mapping::Demand(_) => {
                self.look_up_on_demand(progress, first, units, false, observer);
                self.write_stale_map(progress.ready, observer);
            }
            Mapping::Blocks(_) => {
                self.beside(|blocks, device| blocks.fetch_maps(device, progress, first, units));
            }
        }
    }

    /// Forgets whole units.
    pub(crate) fn discard_mapped<O: Observer>(
        &mut self,
        ready: i64,
        first: u32,
        count: u32,
        observer: &mut O,
    ) {
        for unit in first..first + count {
            let slot = self.map[unit as usize];
            if slot != 0 {
                self.books().invalidate(slot - 1);
                self.map[unit as usize] = 0;
                self.counters.trimmed_units += 1;
                self.entry_changed(unit);
            }
        }
        self.write_stale_map(ready, observer);
    }

    /// The entry of a unit changed otherwise than by a write of the host's.
    #[inline]
    pub(super) fn entry_changed(&mut self, unit: u32) {
        if let Mapping::Demand(map) = &mut self.mapping {
            map.changed(unit);
        }
    }
}
