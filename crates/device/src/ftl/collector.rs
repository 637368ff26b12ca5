//! Thresholds and policy of garbage collection.

use std::sync::Arc;

use super::gc::VictimPolicy;
use emmclab_settings::{DeviceSettings, GcMode, WearLevelling};

/// Settings and policy of garbage collection.
#[derive(Clone)]
pub(crate) struct GarbageCollector {
    pub policy: Option<Arc<dyn VictimPolicy>>,
    /// Free blocks at or below which a write waits for collection.
    pub low_watermark: u32,
    /// Free blocks at or below which incremental collection works.
    pub high_watermark: u32,
    /// Pages that incremental collection moves for each host page; 0 = collection is not incremental.
    pub pages_per_step: u32,
    /// Difference of erase counts above which cold data is moved; 0 = off.
    pub wear_threshold: u32,
    /// Number of decisions of the policy so far.
    pub decisions: u64,
}

impl GarbageCollector {
    pub fn new(settings: &DeviceSettings, policy: Option<Arc<dyn VictimPolicy>>) -> Self {
        let gc = &settings.gc;
        let incremental = policy.is_some() && gc.mode == GcMode::Incremental;
        Self {
            policy,
            low_watermark: gc.low_watermark,
            high_watermark: gc.high_watermark,
            pages_per_step: if incremental { gc.pages_per_step } else { 0 },
            wear_threshold: match settings.wear.levelling {
                WearLevelling::Static => settings.wear.threshold,
                WearLevelling::None | WearLevelling::Dynamic => 0,
            },
            decisions: 0,
        }
    }

    /// Changes the thresholds; the policy and its number of decisions stay.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        *self = Self { decisions: self.decisions, ..Self::new(settings, self.policy.take()) };
    }

    /// Whether garbage collection is enabled.
    #[inline]
    pub fn collects(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether each host page is followed by a step of collection.
    #[inline]
    pub fn is_incremental(&self) -> bool {
        self.pages_per_step > 0
    }
}
