//! Writes that have arrived but not begun, where reads may go first.
//!
//! The order is that of the queue, with two exceptions: a write that waits for the rest of its page to be read lets others
//! pass, but nothing passes an earlier write to the same units.

use std::collections::VecDeque;

use emmclab_base::Nanos;

use crate::events::LatencyBreakdown;
use crate::ftl::request_state::RequestState;
use crate::ids::Lpn;

/// A page of a write that has not begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingPage {
    /// Number of its request.
    pub request: u64,
    /// First map unit and how many.
    pub first: Lpn,
    pub units: u32,
    pub group: u8,
    /// When it may begin.
    pub ready: Nanos,
    /// Its waits so far.
    pub waits: LatencyBreakdown,
}

impl WaitingPage {
    fn overlaps(&self, other: &Self) -> bool {
        self.first.0 < other.first.0 + other.units && other.first.0 < self.first.0 + self.units
    }
}

/// Requests in flight and their pages that have not begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pages: VecDeque<WaitingPage>,
    /// Number of `pages` that hold each map unit; empty where writes never wait.
    waiting: Vec<u32>,
    requests: VecDeque<RequestState>,
}

impl Queue {
    /// Whether every page has begun.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// For a device of so many map units.
    pub fn new(units: u32) -> Self {
        Self { waiting: vec![0; units as usize], ..Self::default() }
    }

    pub fn push_page(&mut self, page: WaitingPage) {
        for count in &mut self.waiting[page.first.index()..][..page.units as usize] {
            *count += 1;
        }
        self.pages.push_back(page);
    }

    pub fn push_request(&mut self, request: RequestState) {
        self.requests.push_back(request);
    }

    /// The request of this number, while it is in flight.
    pub fn request(&mut self, id: u64) -> Option<&mut RequestState> {
        let first = self.requests.front()?.event.id;
        self.requests.get_mut(id.checked_sub(first)? as usize)
    }

    /// The oldest request, where all of it has been dispatched.
    pub fn pop_complete(&mut self) -> Option<RequestState> {
        if self.requests.front()?.outstanding > 0 {
            return None;
        }
        self.requests.pop_front()
    }

    /// Forgets everything; requests that were not dispatched will never complete.
    pub fn clear(&mut self) {
        for page in self.pages.drain(..) {
            self.waiting[page.first.index()..][..page.units as usize].fill(0);
        }
        self.requests.clear();
    }

    /// Whether a page that has not begun holds any of these units.
    pub fn holds(&self, first: Lpn, units: u32) -> bool {
        !self.pages.is_empty()
            && self.waiting[first.index()..][..units as usize].iter().any(|count| *count > 0)
    }

    /// Takes out the page that begins next if that is before `until`; `free` is when the first way of the flash is free.
    pub fn next(&mut self, free: Nanos, until: Nanos) -> Option<WaitingPage> {
        let (begin, index) = self.first(free)?;
        if begin >= until {
            return None;
        }
        let page = if index == 0 { self.pages.pop_front() } else { self.pages.remove(index) }?;
        for count in &mut self.waiting[page.first.index()..][..page.units as usize] {
            *count -= 1;
        }
        Some(page)
    }

    /// When the next page begins, where one waits; `free` is when the first way of the flash is free.
    pub fn next_begin(&self, free: Nanos) -> Option<Nanos> {
        self.first(free).map(|(begin, _)| begin)
    }

    /// When the next page begins, and its index: most often the first one.
    fn first(&self, free: Nanos) -> Option<(Nanos, usize)> {
        match self.pages.front() {
            Some(front) if front.ready <= free => Some((free, 0)),
            _ => self.first_to_begin(free),
        }
    }

    /// When the page that can begin first can, and its index.
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
