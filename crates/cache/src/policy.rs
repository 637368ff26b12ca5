//! Replacement policies by name.

use std::fmt::Debug;

use crate::page_hash::Key;
use crate::{arc, clock, fifo, s3_fifo};

/// A cache of a fixed number of pages.
pub(crate) trait SimulatedCache: CloneCache + Debug + Send {
    /// Touches a page and, on a miss, adds it to the cache. Returns whether it was a hit.
    fn touch(&mut self, page: Key) -> bool;
}

/// Allows caches of any policy to be cloned.
pub(crate) trait CloneCache {
    fn clone_box(&self) -> Box<dyn SimulatedCache>;
}

impl<P: SimulatedCache + Clone + 'static> CloneCache for P {
    fn clone_box(&self) -> Box<dyn SimulatedCache> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn SimulatedCache> {
    fn clone(&self) -> Self {
        (**self).clone_box()
    }
}

/// How a policy is simulated for several sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SimulationMethod {
    /// One pass for all sizes, with stack distances.
    Stack,
    /// One cache for each size.
    Each(Make),
}

/// Creates a cache of a number of pages.
pub(crate) type Make = fn(usize) -> Box<dyn SimulatedCache>;

/// A replacement policy.
#[derive(Clone, Copy, Debug)]
pub struct ReplacementPolicy {
    /// Its name in options and results.
    pub name: &'static str,
    /// The pages that it evicts, in a few words.
    pub about: &'static str,
    pub(crate) method: SimulationMethod,
}

const POLICIES: [ReplacementPolicy; 5] = [
    ReplacementPolicy {
        name: "lru",
        about: "evicts the page touched longest ago",
        method: SimulationMethod::Stack,
    },
    ReplacementPolicy {
        name: "fifo",
        about: "evicts the page loaded longest ago",
        method: SimulationMethod::Each(|pages| Box::new(fifo::FifoCache::new(pages))),
    },
    ReplacementPolicy {
        name: "clock",
        about: "evicts as FIFO, but gives a page touched since another round (second chance)",
        method: SimulationMethod::Each(|pages| Box::new(clock::ClockCache::new(pages))),
    },
    ReplacementPolicy {
        name: "arc",
        about: "divides itself between pages touched once and pages touched again, by what evictions turn out to cost",
        method: SimulationMethod::Each(|pages| Box::new(arc::ArcCache::new(pages))),
    },
    ReplacementPolicy {
        name: "s3-fifo",
        about: "three FIFO queues; a page not touched again in the small one leaves early",
        method: SimulationMethod::Each(|pages| Box::new(s3_fifo::S3Fifo::new(pages))),
    },
];

/// All policies, in the order of results.
pub fn policies() -> &'static [ReplacementPolicy] {
    &POLICIES
}
