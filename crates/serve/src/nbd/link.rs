//! The part of a connection that other threads use: completions arrive, replies are sent.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

use super::budget::{NbdMemoryBudget, NbdMemoryShare};
use super::pending::PendingNbdRequests;
use crate::device::{CompletionReceiver, ServedCompletion};

/// The part of a link that is protected by its lock.
pub(super) struct NbdLinkState {
    pub pending: PendingNbdRequests,
    /// The connection's thread sleeps until there are completions.
    pub awaits_completions: bool,
    /// The connection's thread sleeps until the socket is writable.
    pub awaits_socket: bool,
}

/// A connection, as the device and the server use it.
pub(super) struct NbdLink {
    pub socket: OwnedFd,
    pub wake: Arc<OwnedFd>,
    state: Mutex<NbdLinkState>,
    owner: OnceLock<ThreadId>,
    stopping: AtomicBool,
}

impl NbdLink {
    /// # Errors
    /// The system's error if there are no more descriptors.
    pub fn new(socket: OwnedFd, budget: &Arc<NbdMemoryBudget>) -> rustix::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let pending = PendingNbdRequests::new(NbdMemoryShare::new(Arc::clone(budget), Arc::clone(&wake)));
        let state = Mutex::new(NbdLinkState { pending, awaits_completions: false, awaits_socket: false });
        Ok(Self { socket, wake, state, owner: OnceLock::new(), stopping: AtomicBool::new(false) })
    }

    /// Makes this thread the owner of the connection. The owner sends its replies itself, many at once.
    pub fn claim_ownership(&self) {
        self.owner.get_or_init(|| thread::current().id());
    }

    pub fn state(&self) -> MutexGuard<'_, NbdLinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the connection to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        wake(&self.wake);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Sends until the socket accepts no more. The lock is released between two system calls.
    pub fn send_all(&self) {
        while self.state().pending.send(&self.socket) {}
    }

    /// Closes the connection; later completions are dropped.
    pub fn close(&self) {
        self.state().pending.break_off();
        // It fails if the client has already disconnected.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl CompletionReceiver for NbdLink {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let mut state = self.state();
        completed.drain(..).for_each(|completion| state.pending.complete(completion));
        if self.owner.get() == Some(&thread::current().id()) {
            // The owner sends the replies before it sleeps.
            return;
        }
        // Only one system call, so that a long queue does not delay the device's thread.
        state.pending.send(&self.socket);
        let unsent = !state.pending.output.is_empty() && !state.awaits_socket;
        if unsent || state.awaits_completions {
            state.awaits_completions = false;
            wake(&self.wake);
        }
    }
}

/// Wakes the thread that polls this event descriptor.
pub(super) fn wake(event: &OwnedFd) {
    // It fails only if the counter is at its maximum, and then the thread is woken anyway.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// Resets an event descriptor, so that it can be polled again.
pub(super) fn clear(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
