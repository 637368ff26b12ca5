//! Replacement policies by name.

use std::fmt::Debug;

use crate::hash::Key;
use crate::{arc, clock, fifo, s3_fifo};

/// A cache of a fixed number of pages.
pub(crate) trait Policy: Cloned + Debug + Send {
    /// Touches a page and, on a miss, adds it to the cache. Returns whether it was a hit.
    fn touch(&mut self, page: Key) -> bool;
}

/// Allows caches of any policy to be cloned.
pub(crate) trait Cloned {
    fn cloned(&self) -> Box<dyn Policy>;
}

impl<P: Policy + Clone + 'static> Cloned for P {
    fn cloned(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        (**self).cloned()
    }
}

/// How a policy is simulated for several sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    /// One pass for all sizes, with stack distances.
    Stack,
    /// One cache for each size.
    Each(Make),
}

/// Creates a cache of a number of pages.
pub(crate) type Make = fn(usize) -> Box<dyn Policy>;

/// A replacement policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKind {
    /// Its name in options and results.
    pub name: &'static str,
    /// The pages that it evicts, in a few words.
    pub about: &'static str,
    pub(crate) method: Method,
}

const POLICIES: [PolicyKind; 5] = [
    PolicyKind { name: "lru", about: "evicts the page touched longest ago", method: Method::Stack },
    PolicyKind {
        name: "fifo",
        about: "evicts the page loaded longest ago",
        method: Method::Each(|pages| Box::new(fifo::Fifo::new(pages))),
    },
    PolicyKind {
        name: "clock",
        about: "evicts as FIFO, but gives a page touched since another round (second chance)",
        method: Method::Each(|pages| Box::new(clock::Clock::new(pages))),
    },
    PolicyKind {
        name: "arc",
        about: "divides itself between pages touched once and pages touched again, by what evictions turn out to cost",
        method: Method::Each(|pages| Box::new(arc::Arc::new(pages))),
    },
    PolicyKind {
        name: "s3-fifo",
        about: "three FIFO queues; a page not touched again in the small one leaves early",
        method: Method::Each(|pages| Box::new(s3_fifo::S3Fifo::new(pages))),
    },
];

/// All policies, in the order of results.
pub fn policies() -> &'static [PolicyKind] {
    &POLICIES
}
