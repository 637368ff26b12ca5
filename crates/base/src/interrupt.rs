//! Interruption of long-running work, from any thread.
//!
//! The caller sets a poll function for the work of its thread; loops that may run for long call [`check`]. The cause of
//! the interruption (a signal, a button, a time limit) is known only to the caller.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::{Error, ErrorClass, Result};

/// Minimum time between two calls of the poll function, which may have to wait for the lock of the Python interpreter.
const EVERY: Duration = Duration::from_millis(50);

/// A function that returns true if the current work must end.
pub type Poll = fn() -> bool;

thread_local! {
    static POLL: Cell<Option<Poll>> = const { Cell::new(None) };
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Guard that restores the previous poll function when it is dropped, also after a panic.
struct PreviousPoll(Option<Poll>);

impl Drop for PreviousPoll {
    fn drop(&mut self) {
        POLL.set(self.0);
    }
}

/// Executes `work`. While it runs, calls of [`check`] fail once `poll` returns true; work on other threads is not affected.
pub fn interruptible<T>(poll: Poll, work: impl FnOnce() -> T) -> T {
    let _former = PreviousPoll(POLL.replace(Some(poll)));
    work()
}

/// Fails with [`ErrorClass::Interrupted`] if the poll function of this thread returns true. Each call reads the clock; the poll
/// function is called at most every 50 ms.
pub fn check() -> Result<()> {
    let Some(poll) = POLL.get() else { return Ok(()) };
    let now = Instant::now();
    if LAST.get().is_some_and(|last| now.duration_since(last) < EVERY) {
        return Ok(());
    }
    LAST.set(Some(now));
    if poll() { Err(Error::new(ErrorClass::Interrupted, "the operation was interrupted")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` until it fails, for at most a minute. Returns true if it failed because of an interruption.
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
