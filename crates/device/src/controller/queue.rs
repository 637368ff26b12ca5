//! Waiting writes and their dispatch, on devices where reads have priority over writes.
//!
//! Writes begin in the order of the queue. There is one exception: a write may have to wait until the rest of its page is read. Then other
//! writes overtake it, unless they are later writes to the same units.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use rustc_hash::FxHashMap;

use super::{DeviceController, LowerLayers, span_of};
use crate::counters::CountingObserver;
use crate::events::LatencyBreakdown;
use crate::ftl::PageWrite;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;

/// A page of a write that waits for its dispatch to the flash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPage {
    pub request: u64,
    /// First map unit of the page.
    pub first: Lpn,
    pub units: u32,
    pub group: u8,
    /// Earliest time at which the page can be dispatched.
    pub ready: Nanos,
    /// Parts of the page's waiting time so far.
    pub waits: LatencyBreakdown,
}

impl WaitingPage {
    fn units(&self) -> std::ops::Range<u32> {
        self.first.0..self.first.0 + self.units
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first.0 < other.first.0 + other.units && other.first.0 < self.first.0 + self.units
    }
}

/// Requests in flight, and their pages that wait for dispatch.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteQueue {
    pages: VecDeque<WaitingPage>,
    /// Number of waiting pages that contain a map unit, by map unit. Units without waiting pages have no entry.
    waiting: FxHashMap<u32, u32>,
    pub requests: VecDeque<InFlightRequest>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightRequest {
    pub state: RequestState,
    /// Whether the request occupies a slot of the command queue until its completion is known.
    pub holds_slot: bool,
}

impl WriteQueue {
    /// Whether no page is waiting for dispatch.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub fn push_page(&mut self, page: WaitingPage) {
        for unit in page.units() {
            *self.waiting.entry(unit).or_default() += 1;
        }
        self.pages.push_back(page);
    }

    /// The request with this number; `None` if it is not in flight.
    pub fn request(&mut self, id: u64) -> Option<&mut RequestState> {
        self.in_flight(id).map(|request| &mut request.state)
    }

    fn in_flight(&mut self, id: u64) -> Option<&mut InFlightRequest> {
        let first = self.requests.front()?.state.event.id;
        self.requests.get_mut(id.checked_sub(first)? as usize)
    }

    /// Removes and returns the oldest request if all of its pages have been dispatched.
    pub fn pop_complete(&mut self) -> Option<RequestState> {
        if self.requests.front()?.state.outstanding > 0 {
            return None;
        }
        self.requests.pop_front().map(|request| request.state)
    }

    /// Removes all requests. Those that were not dispatched never complete.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.waiting.clear();
        self.requests.clear();
    }

    /// Whether a waiting page contains any of these units.
    pub fn holds(&self, first: Lpn, units: u32) -> bool {
        let end = first.0 + units;
        if units as usize > self.waiting.len() {
            return self.waiting.keys().any(|unit| (first.0..end).contains(unit));
        }
        !self.pages.is_empty() && (first.0..end).any(|unit| self.waiting.contains_key(&unit))
    }

    /// Removes and returns the next page if it can begin before `until`. `free` is the time at which the first flash way becomes free.
    pub fn next(&mut self, free: Nanos, until: Nanos) -> Option<WaitingPage> {
        let (begin, index) = self.first(free)?;
        if begin >= until {
            return None;
        }
        let page = if index == 0 { self.pages.pop_front() } else { self.pages.remove(index) }?;
        for unit in page.units() {
            if let Some(count) = self.waiting.get_mut(&unit) {
                *count -= 1;
                if *count == 0 {
                    self.waiting.remove(&unit);
                }
            }
        }
        Some(page)
    }

    /// Start time of the next page, and its index in the queue. Usually the page at the front of the queue (index 0) is next.
    pub fn first(&self, free: Nanos) -> Option<(Nanos, usize)> {
        match self.pages.front() {
            Some(front) if front.ready <= free => Some((free, 0)),
            _ => self.first_to_begin(free),
        }
    }

    /// Start time and queue index of the page that can begin first.
    fn first_to_begin(&self, free: Nanos) -> Option<(Nanos, usize)> {
        let mut best: Option<(Nanos, usize)> = None;
        for (i, page) in self.pages.iter().enumerate() {
            let begin = page.ready.max(free);
            if best.is_none_or(|(best, _)| begin < best) && !self.pages.iter().take(i).any(|earlier| earlier.overlaps(page)) {
                best = Some((begin, i));
                if begin == free {
                    break;
                }
            }
        }
        best
    }
}

impl DeviceController {
    /// Divides a write into flash pages, the largest first, and adds them to the queue. If a map unit is only partly covered by the write,
    /// the rest of the unit is read at once.
    pub(super) fn enqueue_pages<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let Some(queue) = &mut self.queue else { return };
        let (span, id, sectors) = (span_of(request), request.event.id, request.event.sectors);
        let (unit_sectors, unit_shift) = {
            let geometry = &below.ftl.core.geometry;
            (geometry.unit_sectors, geometry.unit_shift)
        };
        let (mut first, mut left) = span.units(unit_shift);
        while left > 0 {
            let (group, units) = below.ftl.core.page_for(first, left, sectors);
            let (mut ready, mut waits) = (request.ready, LatencyBreakdown::default());
            if !span.is_whole(unit_sectors) && span.is_partial(first, units, unit_shift) {
                let waiting = |lpn| queue.holds(lpn, 1);
                (ready, waits) = below.ftl.core.read_rest(below.nand, span, (first, units), ready, waiting, below.log);
            }
            queue.push_page(WaitingPage { request: id, first, units, group, ready, waits });
            request.outstanding += 1;
            first = first.plus(units);
            left -= units;
        }
    }

    /// Dispatches pages until none of these units is waiting.
    #[inline]
    pub(super) fn dispatch_units<L: CountingObserver>(&mut self, (first, units): (Lpn, u32), below: &mut LowerLayers<'_, L>) {
        while self.queue.as_ref().is_some_and(|queue| queue.holds(first, units)) && below.ftl.core.stop.is_none() {
            self.dispatch_next(Nanos::MAX, below);
        }
    }

    /// Dispatches the pages that begin before `until`, and reports the requests that they complete.
    pub(super) fn dispatch_until<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) {
        if self.queue.is_none() {
            return;
        }
        while !self.all_dispatched() && below.ftl.core.stop.is_none() && self.dispatch_next(until, below) {
            self.report_completed(below);
        }
        if let Some(queue) = &mut self.queue
            && below.ftl.core.stop.is_some()
        {
            queue.clear();
        }
        self.report_completed(below);
    }

    /// Dispatches the page that begins next, if it begins before `until`. Returns whether a page was dispatched.
    fn dispatch_next<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) -> bool {
        let Some(queue) = &mut self.queue else { return false };
        let Some(page) = queue.next(below.nand.timelines.first_free(), until) else { return false };
        let Some(request) = queue.request(page.request) else { return false };
        let (span, hot) = (span_of(request), below.ftl.core.is_hot(request.event.sectors));
        let whole = span.is_whole(below.ftl.core.geometry.unit_sectors);
        let (mut first, mut left) = (page.first, page.units);
        while left > 0 {
            let (group, command) = (page.group, Some(page.request));
            let write = PageWrite { first, units: left, group, span, whole_units: whole, hot, command };
            let Some((op, taken)) = below.ftl.core.program_host(below.nand, page.ready, write, below.log) else {
                return false;
            };
            let complete = below.ftl.core.completion(&op, request.event.modifiers);
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

    /// Frees the command queue slot of a request. Called when the completion of the request is known.
    pub(super) fn end_of(&mut self, id: u64) {
        let Some(request) = self.queue.as_mut().and_then(|queue| queue.in_flight(id)) else { return };
        if std::mem::take(&mut request.holds_slot) {
            self.commands.slots.release(request.state.event.complete);
        }
    }

    /// Dispatches the waiting pages that begin before a slot of the command queue is free. If more requests wait than there are slots,
    /// pages are dispatched whatever their start time.
    #[inline(never)]
    pub(super) fn dispatch_for_a_slot<L: CountingObserver>(&mut self, arrival: Nanos, below: &mut LowerLayers<'_, L>) {
        let most = self.commands.slots.len();
        let is_passed = |queue: &WriteQueue| queue.requests.len() > most;
        while below.ftl.core.stop.is_none() {
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
