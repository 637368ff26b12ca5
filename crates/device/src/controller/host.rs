//! What the host asks for: reads, writes and discards, and writes that wait their turn. Where data goes is the mapping's.

use super::progress::Progress;
use crate::config::UnwrittenRead;
use crate::device::Device;
use crate::event::{Cause, Observer, PageRead, Trimmed, Waits};
use crate::ftl::place::{PageWrite, Span};
use crate::nand::{Block, Operation};

impl Device {
    #[inline]
    pub(crate) fn units_of(&self, sector: u64, sectors: u32) -> (u32, u32) {
        let shift = self.geometry.unit_shift;
        let first = sector >> shift;
        let end = (sector + u64::from(sectors) + u64::from(self.geometry.unit_sectors - 1)) >> shift;
        (first as u32, (end - first) as u32)
    }

    #[inline]
    pub(crate) fn write<O: Observer>(&mut self, progress: &mut Progress, observer: &mut O) {
        progress.spend(self.commands.before_write(progress.event.sectors));
        self.write_data(progress, observer);
    }

    /// The part of a write after its data has come.
    #[inline]
    pub(super) fn write_data<O: Observer>(&mut self, progress: &mut Progress, observer: &mut O) {
        let (sector, sectors) = (progress.event.sector, progress.event.sectors);
        self.counters.host_bytes_written += u64::from(sectors) * 512;
        let span = Span { first: sector, end: sector + u64::from(sectors) };
        self.write_mapped(progress, span, observer);
    }

    #[inline]
    pub(crate) fn read_page<O: Observer>(
        &mut self,
        slot: u32,
        ready: i64,
        bytes: u32,
        cause: Cause,
        observer: &mut O,
    ) -> Operation {
        let block = self.geometry.block_of(slot);
        let Block { plane, group, .. } = self.blocks[block as usize];
        let kind = &self.geometry.groups[usize::from(group)];
        let page = self.geometry.offset_of(slot) >> kind.page_shift;
        let op = self.flash.read(u32::from(plane), kind, page, ready, bytes);
        self.count_read(group, bytes, cause);
        observer.page_read(&PageRead { block, page, cause, begin: op.begin, end: op.end });
        op
    }

    #[inline]
    pub(crate) fn count_read(&mut self, group: u8, bytes: u32, cause: Cause) {
        self.counters.page_reads[cause as usize] += 1;
        self.counters.group_reads[usize::from(group)] += 1;
        self.counters.bus_bytes += u64::from(bytes);
    }

    #[inline]
    pub(crate) fn read<O: Observer>(&mut self, progress: &mut Progress, observer: &mut O) {
        progress.spend(self.commands.before_read());
        self.read_data(progress, observer);
        let out = self.commands.host(progress.event.sectors);
        progress.event.complete += out;
        progress.event.waits.controller_ns += out;
    }

    /// The part of a read before its data goes to the host.
    #[inline]
    pub(super) fn read_data<O: Observer>(&mut self, progress: &mut Progress, observer: &mut O) {
        let (sector, sectors) = (progress.event.sector, progress.event.sectors);
        self.counters.host_bytes_read += u64::from(sectors) * 512;
        let span = Span { first: sector, end: sector + u64::from(sectors) };
        let (first, units) = self.units_of(sector, sectors);
        self.look_up(progress, first, units, observer);
        while self.read_first && self.pending.holds(first, units) && self.stop.is_none() {
            // Data that waits to be written is written before it is read.
            self.dispatch_next(i64::MAX, observer);
        }
        if self.cache.is_some() {
            self.read_through(progress, span, first, first + units, observer);
        } else {
            self.read_units(progress, span, first, first + units, observer);
        }
        if progress.event.subrequests == 0 {
            progress.without_flash(progress.ready);
        }
    }

    /// Reads units from the flash, each page once.
    #[inline]
    pub(super) fn read_units<O: Observer>(
        &mut self,
        progress: &mut Progress,
        span: Span,
        first: u32,
        end: u32,
        observer: &mut O,
    ) {
        let mut at = first;
        while at < end {
            let from = at;
            let slot = self.map[at as usize];
            at += 1;
            if slot == 0 {
                at = self.unwritten_run(from, end);
                self.read_unwritten(progress, span, from, at);
                continue;
            }
            let shift = self.geometry.groups
                [usize::from(self.blocks[self.geometry.block_of(slot - 1) as usize].group)]
            .page_shift;
            while at < end && {
                let other = self.map[at as usize];
                other != 0 && (other - 1) >> shift == (slot - 1) >> shift
            } {
                at += 1;
            }
            let bytes = self.bytes_between(span, from, at);
            let op = self.read_page(slot - 1, progress.ready, bytes, Cause::Host, observer);
            progress.absorb(Waits::of(&op, progress.ready, op.end), op.begin, op.end);
        }
    }

    /// Bytes of the span in the units `from..to`.
    #[inline]
    fn bytes_between(&self, span: Span, from: u32, to: u32) -> u32 {
        let unit = u64::from(self.geometry.unit_sectors);
        let begin = span.first.max(u64::from(from) * unit);
        let end = span.end.min(u64::from(to) * unit);
        (end - begin) as u32 * 512
    }

    /// The end of the run of unwritten units that starts at `from` and would have been one page.
    fn unwritten_run(&self, from: u32, end: u32) -> u32 {
        let group = self.geometry.by_size[0];
        let slots = self.geometry.groups[usize::from(group)].slots_per_page();
        let page_end = (from / slots + 1).saturating_mul(slots).min(end);
        (from + 1..page_end).find(|unit| self.map[*unit as usize] != 0).unwrap_or(page_end)
    }

    /// Reads what was never written: as if it had been there, or for nothing.
    fn read_unwritten(&mut self, progress: &mut Progress, span: Span, from: u32, to: u32) {
        self.counters.unwritten_reads += u64::from(to - from);
        if self.unwritten == UnwrittenRead::Free {
            return;
        }
        let (group, _) = self.page_for(from, to - from, u32::MAX);
        let plane = self.home_plane(from, group);
        let bytes = self.bytes_between(span, from, to);
        let op = self.flash.read(plane, &self.geometry.groups[usize::from(group)], 0, progress.ready, bytes);
        self.count_read(group, bytes, Cause::Host);
        progress.absorb(Waits::of(&op, progress.ready, op.end), op.begin, op.end);
    }

    /// Forgets the units that lie wholly in the range.
    pub(crate) fn discard<O: Observer>(&mut self, progress: &mut Progress, observer: &mut O) {
        let (sector, sectors) = (progress.event.sector, progress.event.sectors);
        progress.spend(self.commands.before_write(0));
        let unit = u64::from(self.geometry.unit_sectors);
        let first = sector.div_ceil(unit) as u32;
        let end = ((sector + u64::from(sectors)) / unit) as u32;
        let count = end.saturating_sub(first);
        while self.read_first && self.pending.holds(first, count) && self.stop.is_none() {
            self.dispatch_next(i64::MAX, observer);
        }
        if count > 0 {
            self.uncache(first, count);
            self.discard_mapped(progress.ready, first, count, observer);
            observer.trimmed(&Trimmed { first, count });
        }
        progress.without_flash(progress.ready);
    }

    /// Dispatches the pages that begin before `until`.
    pub(crate) fn dispatch_until<O: Observer>(&mut self, until: i64, observer: &mut O) {
        while !self.pending.is_empty() && self.stop.is_none() && self.dispatch_next(until, observer) {}
        if self.stop.is_some() {
            self.pending.clear();
        }
        self.tell_completed(observer);
    }

    /// Dispatches the page that begins next, if before `until`.
    fn dispatch_next<O: Observer>(&mut self, until: i64, observer: &mut O) -> bool {
        let free = self.flash.first_free();
        let Some(page) = self.pending.next(free, until) else { return false };
        let Some(request) = self.pending.request(page.request) else { return false };
        let (sector, sectors) = (request.event.sector, request.event.sectors);
        let span = Span { first: sector, end: sector + u64::from(sectors) };
        let hot = sectors <= self.hot_sectors;
        let (mut first, mut left) = (page.first, page.units);
        while left > 0 {
            let write = PageWrite { first, units: left, group: page.group, span, hot };
            let Some((op, taken)) = self.program_host(page.ready, write, observer) else {
                return false;
            };
            let complete = self.completion(&op);
            let waits = page.waits.then(Waits::of(&op, page.ready, complete));
            if let Some(request) = self.pending.request(page.request) {
                request.absorb(waits, op.begin, complete);
            }
            first += taken;
            left -= taken;
        }
        if let Some(request) = self.pending.request(page.request) {
            request.outstanding -= 1;
        }
        true
    }

    pub(crate) fn tell_completed<O: Observer>(&mut self, observer: &mut O) {
        while let Some(progress) = self.pending.pop_complete() {
            self.complete(&progress.event, observer);
        }
    }
}
