//! Writes that have arrived but not begun, on devices where reads have priority.
//!
//! They begin in the order of the queue, with one exception: a write that waits for the rest of its page to be read lets others overtake
//! it, but nothing overtakes an earlier write to the same units.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use rustc_hash::FxHashMap;

use crate::events::LatencyBreakdown;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;

/// A page of a write that has not begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPage {
    /// Number of its request.
    pub request: u64,
    /// First map unit, and number of units.
    pub first: Lpn,
    pub units: u32,
    pub group: u8,
    /// When it may begin.
    pub ready: Nanos,
    /// Its waits so far.
    pub waits: LatencyBreakdown,
}

impl WaitingPage {
    /// The range of its map units.
    fn units(&self) -> std::ops::Range<u32> {
        self.first.0..self.first.0 + self.units
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first.0 < other.first.0 + other.units && other.first.0 < self.first.0 + self.units
    }
}

/// Requests in flight and their pages that have not begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteQueue {
    pages: VecDeque<WaitingPage>,
    /// For each map unit, the number of `pages` that hold it; only units with at least one.
    waiting: FxHashMap<u32, u32>,
    requests: VecDeque<InFlightRequest>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlightRequest {
    state: RequestState,
    /// Whether it occupies a slot of the queue until its completion is known.
    holds_slot: bool,
}

impl WriteQueue {
    /// Whether no page waits.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Number of requests that have not been reported.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are such requests.
    pub fn holds_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    pub fn push_page(&mut self, page: WaitingPage) {
        for unit in page.units() {
            *self.waiting.entry(unit).or_default() += 1;
        }
        self.pages.push_back(page);
    }

    pub fn push_request(&mut self, state: RequestState, holds_slot: bool) {
        self.requests.push_back(InFlightRequest { state, holds_slot });
    }

    /// Frees the slot of a request whose completion is known; returns the completion, or `None` if the request has no slot.
    pub fn give_slot_back(&mut self, id: u64) -> Option<Nanos> {
        let request = self.in_flight(id)?;
        std::mem::take(&mut request.holds_slot).then(|| request.state.complete())
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

    /// Removes everything; requests that were not dispatched will never complete.
    pub fn clear(&mut self) {
        self.pages.clear();
        self.waiting.clear();
        self.requests.clear();
    }

    /// Whether a waiting page holds any of these units.
    pub fn holds(&self, first: Lpn, units: u32) -> bool {
        let end = first.0 + units;
        if units as usize > self.waiting.len() {
            return self.waiting.keys().any(|unit| (first.0..end).contains(unit));
        }
        !self.pages.is_empty() && (first.0..end).any(|unit| self.waiting.contains_key(&unit))
    }

    /// Removes and returns the page that begins next if it begins before `until`; `free` is when the first way of the flash is free.
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

    /// When the next page begins; `None` if none waits. `free` is when the first way of the flash is free.
    pub fn next_begin(&self, free: Nanos) -> Option<Nanos> {
        self.first(free).map(|(begin, _)| begin)
    }

    /// When the next page begins, and its index, which is mostly 0.
    fn first(&self, free: Nanos) -> Option<(Nanos, usize)> {
        match self.pages.front() {
            Some(front) if front.ready <= free => Some((free, 0)),
            _ => self.first_to_begin(free),
        }
    }

    /// When the page begins that can begin first, and its index.
    fn first_to_begin(&self, free: Nanos) -> Option<(Nanos, usize)> {
        let mut best: Option<(Nanos, usize)> = None;
        for (i, page) in self.pages.iter().enumerate() {
            let begin = page.ready.max(free);
            if best.is_none_or(|(best, _)| begin < best)
                && !self.pages.iter().take(i).any(|earlier| earlier.overlaps(page))
            {
                best = Some((begin, i));
                if begin == free {
                    break;
                }
            }
        }
        best
    }
}
