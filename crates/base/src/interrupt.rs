//! Interruption of long work, by any thread.
//!
//! The caller names a poll for the work of its thread; loops that may run for longer than a moment call [`check`]. Nothing
//! here knows what interrupts: a signal, a button, a time limit.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};

/// Time between two polls, which may cost the lock of an interpreter.
const EVERY: Duration = Duration::from_millis(50);

/// Says whether the work shall end.
pub type Poll = fn() -> bool;

thread_local! {
    static POLL: Cell<Option<Poll>> = const { Cell::new(None) };
    static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The poll that was there before comes back however the work ends.
struct Former(Option<Poll>);

impl Drop for Former {
    fn drop(&mut self) {
        POLL.set(self.0);
    }
}

/// Does `work`, in which [`check`] fails once `poll` says so; work on other threads is not concerned.
pub fn interruptible<T>(poll: Poll, work: impl FnOnce() -> T) -> T {
    let _former = Former(POLL.replace(Some(poll)));
    work()
}

/// Ends work that is to be interrupted. Costs a look at the clock; polls every 50 ms.
///
/// # Errors
/// [`Kind::Interrupted`] where the poll says so.
pub fn check() -> Result<()> {
    let Some(poll) = POLL.get() else { return Ok(()) };
    let now = Instant::now();
    if LAST.get().is_some_and(|last| now.duration_since(last) < EVERY) {
        return Ok(());
    }
    LAST.set(Some(now));
    if poll() { Err(Error::new(Kind::Interrupted, "interrupted")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first failure of `check` within a generous time.
    fn fails() -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_mins(1) {
            if let Err(error) = check() {
                return error.kind() == Kind::Interrupted;
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
