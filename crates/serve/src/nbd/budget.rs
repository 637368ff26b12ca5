//! Limits the memory that the clients of a server use together. Each client has a private part; the rest is common to all clients and is
//! assigned in the order of the requests for it.
//!
//! What a client uses beyond its private part comes from the common part. If the common part is too small for it, the client waits in a
//! queue, and only the first client in the queue gets memory. Thus short requests, which fit into the private part, never wait for other
//! clients, and long requests wait until the clients before them have read their replies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::waker::ThreadWaker;

/// Number of bytes that each client may use regardless of the other clients.
pub(super) const OWN: usize = 2 << 20;
/// Number of bytes that all clients share in addition to their private parts: eight times the maximum of a client.
const COMMON: usize = 256 << 20;

/// The part of a server's memory that is common to all clients. The private memory of each client is not included.
pub(super) struct NbdMemoryBudget(Mutex<NbdBudgetState>);

struct NbdBudgetState {
    free: usize,
    /// The clients that wait for memory, in the order in which they get it.
    waiting_clients: VecDeque<Arc<ThreadWaker>>,
}

/// The part of the common memory that one client uses. Dropping it returns the memory.
pub(super) struct NbdMemoryShare {
    budget: Arc<NbdMemoryBudget>,
    wake: Arc<ThreadWaker>,
    held_bytes: usize,
    waits: bool,
}

impl NbdMemoryBudget {
    pub fn new() -> Arc<Self> {
        Self::of(COMMON)
    }

    fn of(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(NbdBudgetState { free, waiting_clients: VecDeque::new() })))
    }

    fn lock_state(&self) -> MutexGuard<'_, NbdBudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NbdBudgetState {
    /// Wakes the first client in the queue, which then tries to get memory again.
    fn call(&self) {
        if let Some(first) = self.waiting_clients.front() {
            first.wake();
        }
    }
}

impl NbdMemoryShare {
    pub fn new(budget: Arc<NbdMemoryBudget>, wake: Arc<ThreadWaker>) -> Self {
        Self { budget, wake, held_bytes: 0, waits: false }
    }

    /// Takes memory from the part that all clients share, until the client may use `bytes` bytes. If there is too little, returns false and
    /// adds the client to the queue. The client is woken later.
    pub fn take(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(OWN).saturating_sub(self.held_bytes);
        if missing == 0 {
            self.leave_queue();
            return true;
        }
        let mut common = self.budget.lock_state();
        let is_next = common.waiting_clients.front().is_none_or(|first| Arc::ptr_eq(first, &self.wake));
        if !is_next || common.free < missing {
            if !self.waits {
                common.waiting_clients.push_back(Arc::clone(&self.wake));
                self.waits = true;
            }
            return false;
        }
        common.free -= missing;
        self.held_bytes += missing;
        drop(common);
        self.leave_queue();
        true
    }

    /// Keeps the memory that the client needs for `bytes` bytes, and returns the rest to the memory that all clients share.
    pub fn shrink_to(&mut self, bytes: usize) {
        let excess = self.held_bytes.saturating_sub(bytes.saturating_sub(OWN));
        if excess > 0 {
            self.held_bytes -= excess;
            let mut common = self.budget.lock_state();
            common.free += excess;
            common.call();
        }
    }

    fn leave_queue(&mut self) {
        if std::mem::take(&mut self.waits) {
            let mut common = self.budget.lock_state();
            common.waiting_clients.retain(|waiting| !Arc::ptr_eq(waiting, &self.wake));
            common.call();
        }
    }
}

impl Drop for NbdMemoryShare {
    fn drop(&mut self) {
        self.leave_queue();
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn share(budget: &Arc<NbdMemoryBudget>) -> NbdMemoryShare {
        NbdMemoryShare::new(Arc::clone(budget), Arc::new(ThreadWaker::new().unwrap()))
    }

    fn is_woken(share: &NbdMemoryShare) -> bool {
        share.wake.clear()
    }

    #[test]
    fn a_client_holds_its_own_part_whatever_others_hold() {
        let budget = NbdMemoryBudget::of(10 * MB);
        let [mut greedy, mut modest] = [share(&budget), share(&budget)];
        assert!(greedy.take(OWN + 10 * MB));
        assert!(modest.take(OWN));
        assert!(!modest.take(OWN + 1));
        assert!(modest.take(OWN));
    }

    #[test]
    fn clients_beyond_the_budget_are_served_in_their_order_once_others_give_back() {
        let budget = NbdMemoryBudget::of(10 * MB);
        let [mut first, mut long, mut short] = [share(&budget), share(&budget), share(&budget)];
        assert!(first.take(OWN + 6 * MB));
        assert!(!long.take(OWN + 8 * MB));
        // There is memory for this short request. But if short requests were served first, the long request would wait forever.
        assert!(!short.take(OWN + MB));
        first.shrink_to(OWN + MB);
        assert!(is_woken(&long) && !is_woken(&short));
        assert!(long.take(OWN + 8 * MB));
        assert!(is_woken(&short));
        assert!(short.take(OWN + MB));
        assert!(!first.take(OWN + 2 * MB));
        drop(long);
        assert!(is_woken(&first));
        assert!(first.take(OWN + 2 * MB));
    }

    #[test]
    fn a_client_that_goes_while_it_waits_holds_up_nobody() {
        let budget = NbdMemoryBudget::of(4 * MB);
        let [mut holds, mut goes, mut stays] = [share(&budget), share(&budget), share(&budget)];
        assert!(holds.take(OWN + 2 * MB));
        assert!(!goes.take(OWN + 3 * MB) && !stays.take(OWN + MB));
        drop(goes);
        assert!(is_woken(&stays) && stays.take(OWN + MB));
        drop((holds, stays));
        assert_eq!(budget.lock_state().free, 4 * MB);
    }
}
