//! Reads map units from the flash. Each page is read only once.

use emmclab_base::Nanos;
use emmclab_settings::UnwrittenRead;

use super::core::FtlCore;
use super::request_state::RequestState;
use super::write::RequestSectors;
use crate::events::{LatencyBreakdown, Observer, OperationCause, PageRead, UnplacedRead, UnwrittenUnits};
use crate::ids::{Lpn, PlaneId, Ppn};
use crate::nand::{Nand, PageOperationTimes};

/// Reports that operations end later because of the last read.
#[inline(always)]
fn report_delay<L: Observer>(nand: &mut Nand, log: &mut L) {
    if let Some(delay) = nand.timelines.take_delay() {
        log.operations_delayed(&delay);
    }
}

impl FtlCore {
    /// Reads the flash page at a location. `bytes` is the number of bytes transferred over the flash bus.
    #[inline]
    pub fn read_page<L: Observer>(
        &mut self, nand: &mut Nand, ppn: Ppn, ready: Nanos, bytes: u32, cause: OperationCause, log: &mut L,
    ) -> PageOperationTimes {
        let block = self.geometry.block_of(ppn);
        let group = nand.group(block);
        let page = self.page_of(ppn, group);
        let of_block = nand.retries(block, ready);
        let retries = of_block.of(page);
        let op = nand.read((block, page), ready, bytes, of_block.time(retries), cause == OperationCause::Host);
        report_delay(nand, log);
        let (bus_bytes, begin, end) = (u64::from(bytes), op.begin, op.end);
        log.page_read(&PageRead { block, page, pages: 1, group, bus_bytes, retries, cause, begin, end });
        op
    }

    /// Reads a page of a plane and a block group. The page is in no simulated block. `bytes` is the number of bytes transferred over the
    /// flash bus.
    #[inline]
    pub fn read_unplaced<L: Observer>(
        nand: &mut Nand, (plane, group, page): (PlaneId, u8, u32), ready: Nanos, bytes: u32, cause: OperationCause, log: &mut L,
    ) -> PageOperationTimes {
        let op = nand.read_somewhere((plane, group, page), ready, bytes, cause == OperationCause::Host);
        report_delay(nand, log);
        let (bus_bytes, begin, end) = (u64::from(bytes), op.begin, op.end);
        log.unplaced_read(&UnplacedRead { plane, group, bus_bytes, cause, begin, end });
        op
    }

    /// Reads the units `first..end` of a request from the flash.
    #[inline]
    pub fn read_units<L: Observer>(
        &mut self, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, (first, end): (Lpn, Lpn), log: &mut L,
    ) {
        let mut at = first;
        while at < end {
            let from = at;
            at = at.plus(1);
            let Some(ppn) = self.tables.lookup(from) else {
                at = self.unwritten_run(from, end);
                self.read_unwritten(nand, request, span, (from, at), log);
                continue;
            };
            let group = nand.group(self.geometry.block_of(ppn));
            let shift = self.geometry.groups[usize::from(group)].page_shift;
            while at < end && self.tables.lookup(at).is_some_and(|other| other.0 >> shift == ppn.0 >> shift) {
                at = at.plus(1);
            }
            let bytes = span.bytes_between(from, at, self.geometry.unit_shift);
            let op = self.read_page(nand, ppn, request.ready, bytes, OperationCause::Host, log);
            request.absorb(LatencyBreakdown::of(&op, request.ready, op.end), op.begin, op.end);
            if let Some(booster) = &mut self.booster {
                booster.note_use(self.geometry.block_of(ppn));
            }
        }
    }

    /// Returns the end of the run of never-written units from `from` on, limited to the units that one flash page would contain.
    fn unwritten_run(&self, from: Lpn, end: Lpn) -> Lpn {
        let by_size = &self.geometry.by_size;
        let group = by_size[if self.unwritten == UnwrittenRead::FlashSmall { by_size.len() - 1 } else { 0 }];
        let units = self.geometry.groups[usize::from(group)].units_per_page();
        let page_end = (from.0 / units + 1).saturating_mul(units).min(end.0);
        let written = |lpn: &u32| self.tables.lookup(Lpn(*lpn)).is_some();
        Lpn((from.0 + 1..page_end).find(written).unwrap_or(page_end))
    }

    /// Reads data that was never written: either as if it had been written, or at no cost (setting `mapping.unwritten_read`).
    fn read_unwritten<L: Observer>(
        &mut self, nand: &mut Nand, request: &mut RequestState, span: RequestSectors, (from, to): (Lpn, Lpn), log: &mut L,
    ) {
        let count = to.0 - from.0;
        let bytes = span.bytes_between(from, to, self.geometry.unit_shift);
        let begins = request.unwritten_units == 0;
        request.unwritten_units += count;
        let group = match self.unwritten {
            UnwrittenRead::Free => None,
            UnwrittenRead::Flash => Some(self.page_for(from, count, u32::MAX).0),
            UnwrittenRead::FlashSmall => self.geometry.by_size.last().copied(),
        };
        log.unwritten_read(&UnwrittenUnits { first: from, count, bytes, group, begins });
        let Some(group) = group else { return };
        let plane = self.geometry.home_plane(from, group);
        let place = (plane, group, self.geometry.home_page(from, group));
        let op = Self::read_unplaced(nand, place, request.ready, bytes, OperationCause::Host, log);
        request.absorb(LatencyBreakdown::of(&op, request.ready, op.end), op.begin, op.end);
    }
}
