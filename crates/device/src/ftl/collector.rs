//! When collection works, and what its policy is.

use std::sync::Arc;

use super::gc::VictimPolicy;
use emmclab_settings::{GcMode, Levelling, Settings};

/// Settings and policy of garbage collection.
#[derive(Clone)]
pub(crate) struct Collector {
    pub policy: Option<Arc<dyn VictimPolicy>>,
    /// Free blocks at or below which a write waits for collection.
    pub low_watermark: u32,
    /// Free blocks at or below which incremental collection works.
    pub high_watermark: u32,
    /// Pages that incremental collection moves for each page of the host; 0 = collection is not incremental.
    pub pages_per_step: u32,
    /// Spread of erases above which cold data is moved; 0 = off.
    pub wear_threshold: u32,
    /// Decisions of the policy so far.
    pub decisions: u64,
}

impl Collector {
    pub fn new(settings: &Settings, policy: Option<Arc<dyn VictimPolicy>>) -> Self {
        let gc = &settings.gc;
        let incremental = policy.is_some() && gc.mode == GcMode::Incremental;
        Self {
            policy,
            low_watermark: gc.low_watermark,
            high_watermark: gc.high_watermark,
            pages_per_step: if incremental { gc.pages_per_step } else { 0 },
            wear_threshold: match settings.wear.levelling {
                Levelling::Static => settings.wear.threshold,
                Levelling::None | Levelling::Dynamic => 0,
            },
            decisions: 0,
        }
    }

    /// Other limits from now on; the policy and what it has seen stay.
    pub fn reconfigure(&mut self, settings: &Settings) {
        *self = Self { decisions: self.decisions, ..Self::new(settings, self.policy.take()) };
    }

    /// Whether there is collection at all.
    #[inline]
    pub fn collects(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether each page of the host is followed by some collection.
    #[inline]
    pub fn is_incremental(&self) -> bool {
        self.pages_per_step > 0
    }
}
