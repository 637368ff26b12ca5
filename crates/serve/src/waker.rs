//! Wakes a polling thread by an eventfd.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// An event that a thread polls, and whether the thread must end.
pub(crate) struct ThreadWaker {
    pub event: OwnedFd,
    stopping: AtomicBool,
}

impl ThreadWaker {
    pub fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, stopping: AtomicBool::new(false) })
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        // This fails only if the counter is at its maximum, in which case the thread is woken anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Resets the event so that it can be polled again. Returns whether it was signalled.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.event, &mut [0; 8]).is_ok()
    }

    /// Requests the end of the thread.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
