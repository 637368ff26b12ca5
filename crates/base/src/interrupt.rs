//! Interruption of long work, by any thread.
//!
//! The caller sets a poll function for the work of its thread; loops that may run for long call [`check`]. The cause of
//! the interruption (a signal, a button, a time limit) is known only to the caller.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::{Error, ErrorClass, Result};

/// Time between two polls, which may cost the lock of an interpreter.
const EVERY: Duration = Duration::from_millis(50);

/// Returns whether the work must end.
pub type Poll = fn() -> bool;

thread_local! {
    static POLL: Cell<Option<Poll>> = const { Cell::new(None) };
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Restores the previous poll when it is dropped, so also if the work panics.
struct PreviousPoll(Option<Poll>);

impl Drop for PreviousPoll {
    fn drop(&mut self) {
        POLL.set(self.0);
    }
}

/// Executes `work`, in which [`check`] fails once `poll` returns true; work on other threads is not affected.
pub fn interruptible<T>(poll: Poll, work: impl FnOnce() -> T) -> T {
    let _former = PreviousPoll(POLL.replace(Some(poll)));
    work()
}

/// Fails if the work of this thread is to be interrupted. Reads the clock on each call, and polls at most every 50 ms.
/// Fails with [`ErrorClass::Interrupted`] if the poll returns true.
pub fn check() -> Result<()> {
    let Some(poll) = POLL.get() else { return Ok(()) };
    let now = Instant::now();
    if LAST.get().is_some_and(|last| now.duration_since(last) < EVERY) {
        return Ok(());
    }
    LAST.set(Some(now));
    if poll() { Err(Error::new(ErrorClass::Interrupted, "interrupted")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first failure of `check` within a generous time.
    fn fails() -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(1) {
            if let Err(error) = check() {
                return error.kind() == ErrorClass::Interrupted;
            }
            if POLL.get().is_none() {
                return false;
            }
        }
        false
    }

    #[test]
    fn work_ends_when_the_poll_says_so_and_not_without_one() {
        assert!(!fails());
        assert!(interruptible(|| true, fails));
        assert!(!fails(), "the poll is gone with the work");
        interruptible(
            || false,
            || {
                assert!(interruptible(|| true, fails));
                assert!(POLL.get().is_some(), "that of the outer work is back");
            },
        );
    }
}
