//! The elevator: the order in which waiting requests are issued to the device. There are few requests (`nr_requests`), so a linear search
//! is used.

use crate::config::ElevatorKind as Kind;
use crate::request::BlockRequestId;

/// Maximum number of requests of one kind in a row while requests of the other kind wait.
const BATCH: u32 = 16;
/// Maximum number of batches of preferred requests that are issued while others wait.
const STARVED: u32 = 2;

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingRequest {
    pub request: u32,
    pub id: BlockRequestId,
    pub sector: u64,
    pub end: u64,
    pub read: bool,
    pub sync: bool,
}

/// The waiting requests, and the position after the last issued one.
#[derive(Debug)]
pub(super) struct ElevatorQueue {
    kind: Kind,
    waiting: Vec<WaitingRequest>,
    /// End of the last issued request, for the order by address.
    position: u64,
    /// Whether the current batch is one of preferred requests, and how many more it may issue.
    preferred: bool,
    left: u32,
    /// Number of consecutive batches of preferred requests while others waited.
    starving: u32,
}

impl ElevatorQueue {
    pub fn new(kind: Kind) -> Self {
        Self { kind, waiting: Vec::new(), position: 0, preferred: true, left: 0, starving: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn insert(&mut self, waiting: WaitingRequest) {
        self.waiting.push(waiting);
    }

    /// Finds a waiting request that `accepts` allows and that is adjacent to a run: the run is after it (true) or before it.
    pub fn adjacent(&self, sector: u64, end: u64, accepts: impl Fn(u32) -> bool) -> Option<(u32, bool)> {
        let near = |one: &&WaitingRequest| (one.end == sector || one.sector == end) && accepts(one.request);
        self.waiting.iter().find(near).map(|one| (one.request, one.end == sector))
    }

    /// Sets the new range of a request that was merged with another.
    pub fn grow(&mut self, request: u32, sector: u64, end: u64) {
        if let Some(found) = self.waiting.iter_mut().find(|one| one.request == request) {
            (found.sector, found.end) = (sector, end);
        }
    }

    fn is_preferred(&self, one: &WaitingRequest) -> bool {
        match self.kind {
            Kind::None => true,
            Kind::Deadline => one.read,
            Kind::Cfq => one.sync,
        }
    }

    /// Removes and returns the request that is issued next.
    pub fn take(&mut self) -> Option<u32> {
        let at = if self.kind == Kind::None { self.oldest()? } else { self.by_address()? };
        let taken = self.waiting.swap_remove(at);
        self.position = taken.end;
        Some(taken.request)
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|at| self.waiting[*at].id)
    }

    /// The next request in ascending order of address from the last one, or else the lowest, of the kind whose turn it is.
    fn by_address(&mut self) -> Option<usize> {
        let some = |preferred| self.waiting.iter().any(|one| self.is_preferred(one) == preferred);
        let (preferred, others) = (some(true), some(false));
        if !preferred && !others {
            return None;
        }
        // CFQ: a synchronous request ends the batch of others, after at least one of them (`cfq_should_preempt`).
        let preempted = self.kind == Kind::Cfq && preferred && !self.preferred && self.left < BATCH;
        if self.left == 0 || preempted || !some(self.preferred) {
            self.preferred = preferred && !(others && self.starving >= STARVED);
            self.starving = if self.preferred && others { self.starving + 1 } else { 0 };
            self.left = BATCH;
        }
        self.left -= 1;
        let turn = (0..self.waiting.len()).filter(|at| self.is_preferred(&self.waiting[*at]) == self.preferred);
        turn.min_by_key(|at| {
            let one = &self.waiting[*at];
            (one.sector < self.position, one.sector, one.id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An elevator with `others` asynchronous requests, numbered from 0.
    fn elevator(kind: Kind, others: u32) -> ElevatorQueue {
        let mut elevator = ElevatorQueue::new(kind);
        (0..others).for_each(|request| elevator.insert(waiting(request, false)));
        elevator
    }

    fn waiting(request: u32, sync: bool) -> WaitingRequest {
        let sector = u64::from(request) * 8;
        let id = BlockRequestId(request.into());
        WaitingRequest { request, id, sector, end: sector + 8, read: sync, sync }
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
