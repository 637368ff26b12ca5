//! Effects of a power cut on the mapping table of the FTL.
//!
//! The tables are updated when a program is planned, before its cells are written. After a cut, the map entries of pages that were not yet
//! programmed return to the previous version if the flash and the mapping scheme still contain it; otherwise the unit is unmapped. Moves by
//! collection and wear levelling remain, because both copies have the same data. Afterwards, a device with `cache.lies = "late_trim"`
//! executes its recent discards again.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_settings::{CacheLie, LATE_TRIM_MS};

use crate::device::Device;
use crate::events::{BlockErased, Observer, OperationCause, OperationsDelayed, PageProgrammed, UnitsTrimmed};
use crate::ids::{BlockId, Lpn, PlaneId, Ppn};

/// A unit of a programmed page whose mapping a power cut may still revert ([`PageProgrammed::durable`]).
#[derive(Clone, Copy, Debug)]
struct UndoEntry {
    durable: Nanos,
    lpn: Lpn,
    to: Ppn,
    /// Location of the previous version of the unit; `None` if there is none, or if its block has been erased since.
    from: Option<Ppn>,
    /// Whether the page program only copied the unit from its previous location, without new data of the host.
    carried: bool,
}

/// A log of host page programs that a power cut may revert, and of discards that it may repeat. The log observes the device. It contains
/// only programs and discards that a cut after the last call of [`UndoLog::retire`] may affect.
pub struct UndoLog {
    /// Base-2 logarithm of the number of unit locations in a block.
    stride_shift: u32,
    blocks_per_plane: u32,
    page_shifts: Vec<u32>,
    planned: Vec<UndoEntry>,
    /// Range of each discard: first unit and number of units.
    trims: LateTrims<(Lpn, u32)>,
}

impl UndoLog {
    /// Creates an empty log for a device before its first use.
    pub fn of(device: &Device) -> Self {
        let geometry = device.geometry();
        Self {
            stride_shift: geometry.stride_shift,
            blocks_per_plane: geometry.blocks_per_plane,
            page_shifts: geometry.groups.iter().map(|group| group.page_shift).collect(),
            planned: Vec::new(),
            trims: LateTrims::default(),
        }
    }

    /// Removes programs that are durable at `now`, and discards that a power cut can no longer repeat. Later power cuts must not be before
    /// `now`.
    pub fn retire(&mut self, now: Nanos) {
        self.planned.retain(|planned| planned.durable > now);
        self.trims.retire(now);
    }
}

impl Observer for UndoLog {
    fn trimmed(&mut self, event: &UnitsTrimmed) {
        self.trims.add(event.at, (event.first, event.count));
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if event.cause != OperationCause::Host {
            return;
        }
        let page_shift = self.page_shifts[usize::from(event.group)];
        let first = Ppn(event.block.0 << self.stride_shift).plus(event.page << page_shift);
        for (to, unit) in (0..).map(|i| first.plus(i)).zip(event.units) {
            let (durable, carried) = (event.durable, unit.covered == 0 && unit.from.is_some());
            self.planned.push(UndoEntry { durable, lpn: unit.lpn, to, from: unit.from, carried });
        }
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        for planned in &mut self.planned {
            let plane = PlaneId((planned.to.0 >> self.stride_shift) / self.blocks_per_plane);
            if event.affects(plane, planned.durable) {
                planned.durable += event.delay;
            }
        }
    }

    fn block_erased(&mut self, event: &BlockErased) {
        for i in 0..self.planned.len() {
            let UndoEntry { from: Some(from), carried, .. } = self.planned[i] else { continue };
            if BlockId(from.0 >> self.stride_shift) != event.block {
                continue;
            }
            // A unit that was only copied exists at its old or its new location. Therefore, the copy counts as durable if its source was
            // durable.
            if carried {
                let first = self.planned[..i].iter().rfind(|first| first.to == from);
                self.planned[i].durable = first.map_or(Nanos::MIN, |first| first.durable);
            }
            self.planned[i].from = None;
        }
    }
}

impl Device {
    /// Cuts the power at `at` and restores it at once. Commands in flight never complete, RAM is empty, and all parts of the device are
    /// idle; data, wear and counters remain. `undo` must have observed the device since it was last idle. The next command may arrive from
    /// `at` on.
    pub fn cut(&mut self, at: Nanos, undo: &mut UndoLog) {
        let undone = undo.planned.drain(..).filter(|planned| planned.durable > at);
        // The page programs are undone in reverse order, from the newest to the oldest.
        for UndoEntry { lpn, to, from, .. } in undone.collect::<Vec<_>>().into_iter().rev() {
            self.ftl.take_back(&self.nand, lpn, to, from);
        }
        if self.controller.lies == CacheLie::LateTrim {
            for units in undo.trims.repeated(at) {
                self.ftl.unmap(*units);
            }
        }
        undo.trims.clear();
        self.nand.timelines.cut();
        self.ftl.power_cycle();
        self.controller.cut(at);
        self.controller.restore_zones(&self.ftl);
    }
}

/// Discards that a power cut may repeat ([`emmclab_settings::CacheLie::LateTrim`]), with their times, in the order of execution.
#[derive(Clone, Debug)]
pub struct LateTrims<T>(VecDeque<(Nanos, T)>);

impl<T> Default for LateTrims<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

fn is_late(at: Nanos, cut: Nanos) -> bool {
    cut.saturating_sub(at) < Nanos::from_millis(LATE_TRIM_MS)
}

impl<T> LateTrims<T> {
    /// Adds a discard that was executed at `at`.
    pub fn add(&mut self, at: Nanos, trim: T) {
        self.0.push_back((at, trim));
    }

    /// Removes the discards that a power cut at `now` or later does not repeat.
    pub fn retire(&mut self, now: Nanos) {
        while self.0.front().is_some_and(|(at, _)| !is_late(*at, now)) {
            self.0.pop_front();
        }
    }

    /// The discards that a power cut at time `cut` repeats, in order.
    pub fn repeated(&self, cut: Nanos) -> impl Iterator<Item = &T> {
        self.0.iter().filter(move |(at, _)| is_late(*at, cut)).map(|(_, trim)| trim)
    }

    /// All recorded discards, in order.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, trim)| trim)
    }

    /// Removes all discards.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether no discard is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
