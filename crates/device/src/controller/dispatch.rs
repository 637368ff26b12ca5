//! Dispatch of waiting writes, on devices where reads have priority.

use emmclab_base::Nanos;

use super::DeviceController;
use super::lower_layers::{LowerLayers, span_of};
use super::queue::{WaitingPage, WriteQueue};
use crate::counters::CountingObserver;
use crate::events::LatencyBreakdown;
use crate::ftl::PageWrite;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;

impl DeviceController {
    /// Divides a write into pages, the largest first, which wait in the queue. If it covers a unit only in part, the rest of the unit is
    /// read at once.
    pub(super) fn enqueue_pages<L: CountingObserver>(
        &mut self,
        request: &mut RequestState,
        below: &mut LowerLayers<'_, L>,
    ) {
        let Some(queue) = &mut self.queue else { return };
        let (span, id, sectors) = (span_of(request), request.event.id, request.event.sectors);
        let (unit_sectors, unit_shift) = {
            let geometry = below.ftl.geometry();
            (geometry.unit_sectors, geometry.unit_shift)
        };
        let (mut first, mut left) = span.units(unit_shift);
        while left > 0 {
            let (group, units) = below.ftl.page_for(first, left, sectors);
            let (mut ready, mut waits) = (request.ready, LatencyBreakdown::default());
            if !span.is_whole(unit_sectors) && span.is_partial(first, units, unit_shift) {
                let waiting = |lpn| queue.holds(lpn, 1);
                (ready, waits) = below.read_rest(span, (first, units), ready, waiting);
            }
            queue.push_page(WaitingPage { request: id, first, units, group, ready, waits });
            request.outstanding += 1;
            first = first.plus(units);
            left -= units;
        }
    }

    /// Dispatches pages until none of these units is waiting.
    #[inline]
    pub(super) fn dispatch_units<L: CountingObserver>(
        &mut self,
        (first, units): (Lpn, u32),
        below: &mut LowerLayers<'_, L>,
    ) {
        while self.queue.as_ref().is_some_and(|queue| queue.holds(first, units)) && below.stop().is_none() {
            self.dispatch_next(Nanos::MAX, below);
        }
    }

    /// Dispatches the pages that begin before `until`, and reports the requests that they complete.
    pub(super) fn dispatch_until<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) {
        if self.queue.is_none() {
            return;
        }
        while !self.all_dispatched() && below.stop().is_none() && self.dispatch_next(until, below) {
            self.report_completed(below);
        }
        if let Some(queue) = &mut self.queue
            && below.stop().is_some()
        {
            queue.clear();
        }
        self.report_completed(below);
    }

    /// Dispatches the page that begins next, if it begins before `until`; returns whether it did.
    fn dispatch_next<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Some(page) = queue.next(below.nand.first_free(), until) else { return false };
        let Some(request) = queue.request(page.request) else { return false };
        let (span, hot) = (span_of(request), below.ftl.is_hot(request.event.sectors));
        let whole = span.is_whole(below.ftl.geometry().unit_sectors);
        let (mut first, mut left) = (page.first, page.units);
        while left > 0 {
            let (group, command) = (page.group, Some(page.request));
            let write = PageWrite { first, units: left, group, span, whole_units: whole, hot, command };
            let Some((op, taken)) = below.write_page(page.ready, write) else { return false };
            let complete = below.ftl.completion(&op, request.event.modifiers);
            let waits = page.waits.then(LatencyBreakdown::of(&op, page.ready, complete));
            request.absorb(waits, op.begin, complete);
            first = first.plus(taken);
            left -= taken;
        }
        request.outstanding -= 1;
        if request.outstanding == 0 {
            self.end_of(page.request);
        }
        true
    }

    /// Called when the completion of a request is known: frees its slot of the queue.
    pub(super) fn end_of(&mut self, id: u64) {
        if let Some(complete) = self.queue.as_mut().and_then(|queue| queue.give_slot_back(id)) {
            self.commands.release(complete);
        }
    }

    /// Dispatches pages that begin before a slot of the queue is free, and pages that have been overtaken by as many later commands as
    /// there are slots.
    #[inline(never)]
    pub(super) fn dispatch_for_a_slot<L: CountingObserver>(&mut self, arrival: Nanos, below: &mut LowerLayers<'_, L>) {
        let most = self.commands.depth();
        let is_passed = |queue: &WriteQueue| queue.requests() > most;
        while below.stop().is_none() {
            let overdue = self.queue.as_deref().is_some_and(is_passed);
            let until = if overdue { Nanos::MAX } else { self.commands.start(arrival) };
            if !self.dispatch_next(until, below) {
                break;
            }
            self.report_completed(below);
        }
    }

    /// Reports requests whose pages have all been dispatched, in order of arrival.
    pub(super) fn report_completed<L: CountingObserver>(&mut self, below: &mut LowerLayers<'_, L>) {
        while let Some(request) = self.queue.as_mut().and_then(|queue| queue.pop_complete()) {
            self.complete(&request.event, below.log);
        }
    }
}
