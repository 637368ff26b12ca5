//! Discards that a power cut repeats, on a device with `cache.lies = "late_trim"`.

use std::collections::VecDeque;

use emmclab_base::Nanos;
use emmclab_settings::LATE_TRIM_MS;

/// Discards in the order of their execution, each with its time, as long as a cut may repeat them ([`emmclab_settings::CacheLie::LateTrim`]).
#[derive(Clone, Debug)]
pub struct LateTrims<T>(VecDeque<(Nanos, T)>);

impl<T> Default for LateTrims<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

fn is_late(at: Nanos, cut: Nanos) -> bool {
    cut.saturating_sub(at) < Nanos::from_millis(LATE_TRIM_MS)
}

impl<T> LateTrims<T> {
    /// Adds a discard that was executed at `at`.
    pub fn add(&mut self, at: Nanos, trim: T) {
        self.0.push_back((at, trim));
    }

    /// Forgets the discards that a cut at `now` or later does not repeat.
    pub fn retire(&mut self, now: Nanos) {
        while self.0.front().is_some_and(|(at, _)| !is_late(*at, now)) {
            self.0.pop_front();
        }
    }

    /// The discards that a cut at this time repeats, in order.
    pub fn repeated(&self, cut: Nanos) -> impl Iterator<Item = &T> {
        self.0.iter().filter(move |(at, _)| is_late(*at, cut)).map(|(_, trim)| trim)
    }

    /// All discards that are kept, in order.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, trim)| trim)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
