//! Sleep and waking: after a time without work the device sleeps, and whoever comes next waits for it to wake.

use crate::config::Settings;
use crate::geometry::ns;

/// The power state.
#[derive(Clone, Debug)]
pub(crate) struct Power {
    sleep_after: i64,
    wake: i64,
}

impl Power {
    pub fn new(settings: &Settings) -> Self {
        Self { sleep_after: ns(settings.power.sleep_after_us), wake: ns(settings.power.wake_us) }
    }

    /// For a request at `at` after work that ended at `idle_from`: time asleep and time to wake up, where it slept.
    #[inline]
    pub fn wake(&self, idle_from: i64, at: i64) -> Option<(i64, i64)> {
        if self.sleep_after == 0 || idle_from == i64::MIN {
            return None;
        }
        let asleep = at - idle_from - self.sleep_after;
        (asleep > 0).then_some((asleep, self.wake))
    }
}
