//! The elevator: the order in which waiting requests go to the device. The requests are few (`nr_requests`), so they are searched one by
//! one.

use crate::config::Elevator as Kind;
use crate::request::BlockRequestId;

/// Requests of one kind in a row before the other kind has its turn.
const BATCH: u32 = 16;
/// Batches that may go before one that is held back.
const STARVED: u32 = 2;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub request: u32,
    pub id: BlockRequestId,
    pub sector: u64,
    pub end: u64,
    pub read: bool,
    pub sync: bool,
}

/// The requests that wait, and where the last one was.
#[derive(Debug)]
pub(super) struct Elevator {
    kind: Kind,
    waiting: Vec<Waiting>,
    /// The end of the last request, for the order by address.
    position: u64,
    /// Whether the batch is one of preferred requests, and how many of it are left.
    preferred: bool,
    left: u32,
    /// Batches of preferred requests while others waited.
    starving: u32,
}

impl Elevator {
    pub fn new(kind: Kind) -> Self {
        Self { kind, waiting: Vec::new(), position: 0, preferred: true, left: 0, starving: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn insert(&mut self, waiting: Waiting) {
        self.waiting.push(waiting);
    }

    /// The request that a run follows (true) or precedes, among those that `accepts` it.
    pub fn adjacent(&self, sector: u64, end: u64, accepts: impl Fn(u32) -> bool) -> Option<(u32, bool)> {
        let near = |one: &&Waiting| (one.end == sector || one.sector == end) && accepts(one.request);
        self.waiting.iter().find(near).map(|one| (one.request, one.end == sector))
    }

    /// A request has another range now.
    pub fn grow(&mut self, request: u32, sector: u64, end: u64) {
        if let Some(found) = self.waiting.iter_mut().find(|one| one.request == request) {
            (found.sector, found.end) = (sector, end);
        }
    }

    fn is_preferred(&self, one: &Waiting) -> bool {
        match self.kind {
            Kind::None => true,
            Kind::Deadline => one.read,
            Kind::Cfq => one.sync,
        }
    }

    /// Takes the request that goes next.
    pub fn take(&mut self) -> Option<u32> {
        let at = if self.kind == Kind::None { self.oldest()? } else { self.by_address()? };
        let taken = self.waiting.swap_remove(at);
        self.position = taken.end;
        Some(taken.request)
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|at| self.waiting[*at].id)
    }

    /// The next one upwards from the last one, else the lowest, of the kind whose turn it is.
    fn by_address(&mut self) -> Option<usize> {
        let some = |preferred| self.waiting.iter().any(|one| self.is_preferred(one) == preferred);
        let (preferred, others) = (some(true), some(false));
        if !preferred && !others {
            return None;
        }
        // CFQ: a synchronous request ends the turn of others, which have had one of them at least (`cfq_should_preempt`).
        let preempted = self.kind == Kind::Cfq && preferred && !self.preferred && self.left < BATCH;
        if self.left == 0 || preempted || !some(self.preferred) {
            self.preferred = preferred && !(others && self.starving >= STARVED);
            self.starving = if self.preferred && others { self.starving + 1 } else { 0 };
            self.left = BATCH;
        }
        self.left -= 1;
        let turn =
            (0..self.waiting.len()).filter(|at| self.is_preferred(&self.waiting[*at]) == self.preferred);
        turn.min_by_key(|at| {
            let one = &self.waiting[*at];
            (one.sector < self.position, one.sector, one.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests 0 to `others` that no task waits for, in front of those that come.
    fn elevator(kind: Kind, others: u32) -> Elevator {
        let mut elevator = Elevator::new(kind);
        (0..others).for_each(|request| elevator.insert(waiting(request, false)));
        elevator
    }

    fn waiting(request: u32, sync: bool) -> Waiting {
        let sector = u64::from(request) * 8;
        let id = BlockRequestId(request.into());
        Waiting { request, id, sector, end: sector + 8, read: sync, sync }
    }

    #[test]
    fn cfq_ends_a_batch_of_write_back_when_a_sync_request_comes() {
        for (kind, next) in [(Kind::Cfq, 100), (Kind::Deadline, 1)] {
            let mut elevator = elevator(kind, 40);
            assert_eq!(elevator.take(), Some(0));
            elevator.insert(waiting(100, true));
            assert_eq!(elevator.take(), Some(next), "{kind:?}");
        }
    }

    #[test]
    fn no_kind_of_request_starves() {
        for kind in [Kind::Cfq, Kind::Deadline] {
            let mut elevator = elevator(kind, 4);
            let mut taken = Vec::new();
            for request in 100..300 {
                elevator.insert(waiting(request, true));
                taken.extend(elevator.take());
            }
            assert!((0..4).all(|other| taken.contains(&other)), "{kind:?}: {taken:?}");
        }
    }
}
