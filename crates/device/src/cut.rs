//! Loss of power at a moment: what of the FTL's map it takes back.
//!
//! The tables enter a program when it is planned; its cells are written later. After a cut, the map entries of pages that were
//! not yet programmed return to the version before, where the flash and the mapping scheme still hold that, or to nothing. Moves by
//! collection and wear levelling stay as they are: either copy holds the same data. A device that repeats its late discards
//! (`cache.lies = "late_trim"`) does so at last.

use emmclab_base::Nanos;

use crate::device::Device;
use crate::events::{BlockErased, Cause, Observer, PageProgrammed, Trimmed};
use crate::ids::{BlockId, Lpn, Ppn};
use crate::late_trims::LateTrims;

/// A unit of a page that may not count yet ([`PageProgrammed::durable`]).
#[derive(Clone, Copy, Debug)]
struct Planned {
    durable: Nanos,
    lpn: Lpn,
    to: Ppn,
    /// Place of the version before; `None` if there is none, or where its block has been erased since.
    from: Option<Ppn>,
    /// Whether the program carried that version on, without data of the host.
    carried: bool,
}

/// The host's page programs that may not count yet, and the discards that a cut may repeat; listens to a device. Its size is bounded
/// by those that a cut after the time given last to [`UndoLog::retire`] may concern.
pub struct UndoLog {
    /// Base-2 logarithms: places of a block, and of a page by block group.
    stride_shift: u32,
    page_shifts: Vec<u32>,
    planned: Vec<Planned>,
    /// First unit, and how many.
    trims: LateTrims<(Lpn, u32)>,
}

impl UndoLog {
    /// For a device that is about to be used.
    pub fn of(device: &Device) -> Self {
        let geometry = device.geometry();
        Self {
            stride_shift: geometry.stride_shift,
            page_shifts: geometry.groups.iter().map(|group| group.page_shift).collect(),
            planned: Vec::new(),
            trims: LateTrims::default(),
        }
    }

    /// Forgets programs that count by `now`, and discards that are no longer late then: no cut will come before.
    pub fn retire(&mut self, now: Nanos) {
        self.planned.retain(|planned| planned.durable > now);
        self.trims.retire(now);
    }
}

impl Observer for UndoLog {
    fn trimmed(&mut self, event: &Trimmed) {
        self.trims.add(event.at, (event.first, event.count));
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if event.cause != Cause::Host {
            return;
        }
        let page_shift = self.page_shifts[usize::from(event.group)];
        let first = Ppn(event.block.0 << self.stride_shift).plus(event.page << page_shift);
        for (to, unit) in (0..).map(|i| first.plus(i)).zip(event.units) {
            let (durable, carried) = (event.durable, unit.covered == 0 && unit.from.is_some());
            self.planned.push(Planned { durable, lpn: unit.lpn, to, from: unit.from, carried });
        }
    }

    fn block_erased(&mut self, event: &BlockErased) {
        for i in 0..self.planned.len() {
            let Planned { from: Some(from), carried, .. } = self.planned[i] else { continue };
            if BlockId(from.0 >> self.stride_shift) != event.block {
                continue;
            }
            // Data that was only carried on is in one of the two places at any time, as with a move: it counts when the first did.
            if carried {
                let first = self.planned[..i].iter().rfind(|first| first.to == from);
                self.planned[i].durable = first.map_or(Nanos::MIN, |first| first.durable);
            }
            self.planned[i].from = None;
        }
    }
}

impl Device {
    /// Power is lost at `at` and back at once: commands in flight never complete, RAM is empty, every part is idle. Data, wear and
    /// counters stay. `undo` has listened since the device was last idle; the next command may come from `at` on.
    pub fn cut(&mut self, at: Nanos, undo: &mut UndoLog) {
        let undone = undo.planned.drain(..).filter(|planned| planned.durable > at);
        // The newest first, so that each finds the map as it left it.
        for Planned { lpn, to, from, .. } in undone.collect::<Vec<_>>().into_iter().rev() {
            self.ftl.take_back(&self.nand, lpn, to, from);
        }
        if self.controller.repeats_late_trims() {
            for units in undo.trims.repeated(at) {
                self.ftl.unmap(*units);
            }
        }
        undo.trims.clear();
        self.nand.cut();
        self.ftl.power_cycle();
        self.controller.cut(at);
        self.controller.restore_zones(&self.ftl);
    }
}
