//! Writes host data as pages: the largest pages first, each in the plane that the allocation policy chooses.
#![expect(clippy::inline_always, reason = "the hottest path; arguments stay in registers")]

use emmclab_base::Nanos;

use super::allocation::PageRequest;
use super::commit::{ProgrammedPages, UnitRun};
use super::core::FtlCore;
use super::open_block::ProgramTarget;
use super::pool::WriteStream;
use super::request_sectors::{RequestSectors, all_sectors};
use super::request_state::RequestState;
use crate::events::{LatencyBreakdown, Observer, OperationCause, PartOverwritten, UnitsPinned};
use crate::ids::Lpn;
use crate::nand::{Nand, PageOperationTimes};

/// A page of host data: the `units` from `first` on, which fit into a page of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWrite {
    pub first: Lpn,
    pub units: u32,
    pub group: u8,
    pub span: RequestSectors,
    /// Whether the span begins and ends with a unit.
    pub whole_units: bool,
    pub hot: bool,
    /// Number of the command that wrote the data; `None` if it comes from the write buffer.
    pub command: Option<u64>,
}

impl FtlCore {
    /// Writes the span of a request page by page.
    #[inline]
    pub fn write_pages<L: Observer>(
        &mut self,
        nand: &mut Nand,
        request: &mut RequestState,
        span: RequestSectors,
        log: &mut L,
    ) {
        let (sectors, command) = (request.event.sectors, request.command());
        let hot = self.is_hot(sectors);
        let whole = span.is_whole(self.geometry.unit_sectors);
        let (mut first, mut left) = span.units(self.geometry.unit_shift);
        while left > 0 {
            let (group, units) = self.page_for(first, left, sectors);
            let (mut ready, mut before) = (request.ready, None);
            if !whole && span.is_partial(first, units, self.geometry.unit_shift) {
                let (read, waits) = self.read_rest(nand, span, (first, units), ready, |_| false, log);
                (ready, before) = (read, Some(waits));
            }
            let page = PageWrite { first, units, group, span, whole_units: whole, hot, command };
            let Some((op, taken)) = self.program_host(nand, ready, page, log) else { return };
            let complete = self.completion(&op, request.event.modifiers);
            let own = LatencyBreakdown::of(&op, ready, complete);
            request.absorb(before.map_or(own, |waits| waits.then(own)), op.begin, complete);
            first = first.plus(taken);
            left -= taken;
        }
    }

    /// Programs a page of host data, in its group if possible, otherwise in another one. Returns how many units the page holds, or `None`
    /// if the device is full.
    #[inline(always)]
    pub fn program_host<L: Observer>(
        &mut self,
        nand: &mut Nand,
        ready: Nanos,
        write: PageWrite,
        log: &mut L,
    ) -> Option<(PageOperationTimes, u32)> {
        let PageWrite { first, units, group, span, whole_units: whole, hot, command } = write;
        let mut stream = if hot { WriteStream::Hot } else { WriteStream::Host };
        if self.booster.is_some() && self.slc.folds(group) {
            stream = self.booster_stream(first, stream, log);
        }
        let Some(place) = self.allocate(nand, PageRequest { ready, first, group }, stream, log) else {
            self.stop_full();
            return None;
        };
        let ProgramTarget { pool, group, block } = place;
        let mut units = units;
        if group != write.group {
            units = units.min(self.geometry.groups[usize::from(group)].units_per_page());
        }
        let unit_sectors = self.geometry.unit_sectors;
        let mut bytes = units * self.geometry.unit_bytes;
        if !whole && span.is_partial(first, units, self.geometry.unit_shift) {
            bytes = self.bytes_to_move(span, first, units);
        }
        let next = nand.program_next(block, ready, bytes);
        let at = ProgrammedPages::next(block, group, &next, bytes, OperationCause::Host, stream);
        self.commit_page(at, &UnitRun { first, units, span, unit_sectors, command }, log);
        if let Some(booster) = &mut self.booster {
            booster.note_use(block);
            if stream == WriteStream::PINNED {
                log.units_pinned(&UnitsPinned { units });
            }
        }
        if self.collector.is_incremental() {
            self.collect_after(nand, pool, ready, log);
        }
        Some((next.op, units))
    }

    /// Reads the rest of the units that a write covers only in part, except units that wait in the controller to be written. Returns when
    /// the data is read, and the waits for it.
    #[cold]
    pub fn read_rest<L: Observer>(
        &mut self,
        nand: &mut Nand,
        span: RequestSectors,
        (first, units): (Lpn, u32),
        ready: Nanos,
        waits_to_be_written: impl Fn(Lpn) -> bool,
        log: &mut L,
    ) -> (Nanos, LatencyBreakdown) {
        let mut done = (ready, LatencyBreakdown::default());
        let unit_sectors = self.geometry.unit_sectors;
        let whole = all_sectors(unit_sectors);
        for lpn in (first.0..first.0 + units).map(Lpn) {
            let covered = span.covered(lpn, unit_sectors);
            if covered == whole || waits_to_be_written(lpn) {
                continue;
            }
            if let Some(ppn) = self.lookup(lpn) {
                log.part_overwritten(&PartOverwritten { lpn });
                let bytes = (whole & !covered).count_ones() * 512;
                let op = self.read_page(nand, ppn, ready, bytes, OperationCause::ReadModifyWrite, log);
                if op.end > done.0 {
                    done = (op.end, LatencyBreakdown::of(&op, ready, op.end));
                }
            }
        }
        done
    }
}
