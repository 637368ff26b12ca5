//! Paired pages: what a power cut during a page program damages in the earlier pages of the same word line.
//!
//! The pages of a word line share their cells, so an interrupted program of a later page changes the charge that represents the earlier pages
//! (Tseng, Grupp and Swanson, Understanding the Impact of Power Loss on Flash Memory, DAC 2011). A device with `cache.lies = "paired_pages"`
//! does not protect their data. A unit that has a newer durable version elsewhere, or that was discarded, loses nothing.

use emmclab_base::Nanos;
use emmclab_settings::CacheLie;

use crate::device::Device;
use crate::events::{Observer, PageProgrammed, UnitsTrimmed};
use crate::geometry::GroupGeometry;
use crate::ids::{BlockId, Lpn};

/// A map unit whose page is in a word line that is not completely programmed.
#[derive(Clone, Copy, Debug)]
struct PairedUnit {
    lpn: Lpn,
    block: BlockId,
    page: u32,
    /// Time from which a power cut leaves the unit in this page.
    from: Nanos,
    /// Time at which a newer version is durable elsewhere, the unit is discarded, or its word line is completely programmed.
    until: Nanos,
}

/// The program of a page that is not the first of its word line.
#[derive(Clone, Copy, Debug)]
struct LaterPageProgram {
    block: BlockId,
    /// The first page of the word line.
    first: u32,
    page: u32,
    begin: Nanos,
    end: Nanos,
}

/// A map unit that a power cut damages from `begin` on and before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named for what they hold")]
pub struct EndangeredUnit {
    pub lpn: Lpn,
    pub begin: Nanos,
    pub end: Nanos,
}

impl LaterPageProgram {
    /// The units that a power cut during this program damages. Units of other pages, and those that are elsewhere, are left out.
    fn endangers(self, units: &[PairedUnit]) -> impl Iterator<Item = EndangeredUnit> {
        let Self { block, first, page, begin, end } = self;
        let of_line = units.iter().filter(move |unit| unit.block == block && (first..page).contains(&unit.page));
        let endangered =
            of_line.map(move |unit| EndangeredUnit { lpn: unit.lpn, begin: unit.from.max(begin), end: unit.until.min(end) });
        endangered.filter(|unit| unit.begin < unit.end)
    }
}

/// Follows the word lines of a device that does not protect paired pages. It observes the device.
#[derive(Debug)]
pub struct PairedPageTracker {
    groups: Vec<GroupGeometry>,
    units: Vec<PairedUnit>,
    programs: Vec<LaterPageProgram>,
}

impl PairedPageTracker {
    /// A tracker for a device without operations in progress; `None` if the device protects paired pages.
    pub fn of(device: &Device) -> Option<Self> {
        if device.controller.lies != CacheLie::PairedPages {
            return None;
        }
        let (geometry, reverse) = (device.geometry(), &device.ftl.core.tables.reverse);
        let mut units = Vec::new();
        for block in (0..geometry.blocks()).map(BlockId) {
            let view = device.nand.block(block);
            let group = &geometry.groups[usize::from(view.group)];
            let open = if view.written < group.pages_per_block { group.word_line(view.written).start } else { view.written };
            for page in open..view.written {
                let first = geometry.first_ppn(block).plus(page << group.page_shift);
                let held = (0..group.units_per_page()).filter_map(|i| reverse.get(first.plus(i)));
                units.extend(held.map(|lpn| PairedUnit { lpn, block, page, from: Nanos::MIN, until: Nanos::MAX }));
            }
        }
        Some(Self { groups: geometry.groups.clone(), units, programs: Vec::new() })
    }

    /// The units whose data a power cut at `at` damages. A unit may occur more than once.
    pub fn damaged(&self, at: Nanos) -> impl Iterator<Item = Lpn> {
        let during = self.programs.iter().filter(move |program| (program.begin..program.end).contains(&at));
        let endangered = during.flat_map(|program| program.endangers(&self.units));
        endangered.filter(move |unit| (unit.begin..unit.end).contains(&at)).map(|unit| unit.lpn)
    }

    /// The units that the page program endangers that was observed last.
    pub fn newly_endangered(&self, event: &PageProgrammed<'_>) -> impl Iterator<Item = EndangeredUnit> {
        let last = self.programs.last().filter(|last| (last.block, last.page, last.end) == (event.block, event.page, event.end));
        last.into_iter().flat_map(|last| last.endangers(&self.units))
    }

    /// Drops what only a power cut before `now` could damage.
    pub fn retire(&mut self, now: Nanos) {
        self.programs.retain(|program| program.end > now);
        self.units.retain(|unit| unit.until > now);
    }

    fn leave(&mut self, at: Nanos, leaves: impl Fn(&PairedUnit) -> bool) {
        for unit in self.units.iter_mut().filter(|unit| leaves(unit)) {
            unit.until = unit.until.min(at);
        }
    }
}

impl Observer for PairedPageTracker {
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        let &PageProgrammed { block, page, group, cause, units, begin, end, durable, .. } = event;
        let group = &self.groups[usize::from(group)];
        let line = group.word_line(page);
        if page > line.start {
            // A move begins with a read.
            let begin = if cause.moves() { begin.max(end - group.times(page).program) } else { begin };
            self.programs.push(LaterPageProgram { block, first: line.start, page, begin, end });
        }
        self.leave(durable, |unit| units.iter().any(|moved| moved.lpn == unit.lpn));
        if page + 1 == line.end {
            self.leave(end, |unit| unit.block == block && line.contains(&unit.page));
        } else {
            let paired = units.iter().map(|unit| PairedUnit { lpn: unit.lpn, block, page, from: durable, until: Nanos::MAX });
            self.units.extend(paired);
        }
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        let range = event.first..event.first.plus(event.count);
        self.leave(event.at, |unit| range.contains(&unit.lpn));
    }
}
