//! Caches of several sizes that follow the same sample of pages.

use crate::lru::LruMissCurve;
use crate::misses::MissEstimate;
use crate::page_hash::{Key, is_sampled};
use crate::policy::{Make, SimulatedCache};

/// Simulates one page in `2^shift` in caches of `1 / 2^shift` of their size (miniature simulation: Waldspurger et al., "Cache
/// Modeling and Optimization using Miniature Simulations", USENIX ATC 2017).
#[derive(Clone, Debug)]
pub(crate) struct SampledTier {
    shift: u32,
    /// The caches of all sizes of each policy, with their misses.
    caches: Vec<Vec<(Box<dyn SimulatedCache>, MissEstimate)>>,
    /// LRU caches of the same sizes for the same sample; none if all pages are simulated.
    lru: Option<LruMissCurve>,
}

impl SampledTier {
    /// Creates caches of these policies and sizes (in pages, ascending).
    pub fn new(shift: u32, policies: &[Make], sizes: &[u64]) -> Self {
        let pages: Vec<u64> = sizes.iter().map(|size| (size >> shift).max(1)).collect();
        let each =
            |make: &Make| pages.iter().map(|size| (make(*size as usize), MissEstimate::default())).collect();
        Self {
            shift,
            caches: policies.iter().map(each).collect(),
            lru: (shift > 0).then(|| LruMissCurve::new(&pages, usize::MAX, shift)),
        }
    }

    /// Touches a page; false if it is not sampled.
    #[inline]
    pub fn touch(&mut self, page: Key) -> bool {
        if !is_sampled(page, self.shift) {
            return false;
        }
        for (cache, misses) in self.caches.iter_mut().flatten() {
            if !cache.touch(page) {
                misses.count(page, self.shift);
            }
        }
        if let Some(lru) = &mut self.lru {
            lru.touch(page);
        }
        true
    }

    /// Misses by policy, then by size. `lru` are the misses of LRU by size without this sample: the misses of the sample are wrong
    /// by about as much for every policy, so that the sample only gives the difference of a policy to LRU.
    pub fn misses(&self, lru: &[MissEstimate]) -> Vec<Vec<MissEstimate>> {
        let sampled = self.lru.as_ref().map(LruMissCurve::misses);
        let of_size = |(size, (_, misses)): (usize, &(Box<dyn SimulatedCache>, MissEstimate))| match &sampled
        {
            Some(sampled) => lru[size].plus(misses).minus(&sampled[size]),
            None => *misses,
        };
        self.caches.iter().map(|caches| caches.iter().enumerate().map(of_size).collect()).collect()
    }
}
