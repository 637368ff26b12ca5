//! Miss ratios by policy and size over a stream of requests.

use emmclab_base::{Request, Result};
use serde::Serialize;

use crate::lru::{LruMissCurve, MOST};
use crate::misses::MissEstimate;
use crate::options::CacheOptions;
use crate::page_hash::{Key, key_of};
use crate::policy::{Make, ReplacementPolicy, SimulationMethod};
use crate::sampled_tier::SampledTier;

/// Sectors in a page of 4 KB.
const PAGE_SECTORS: u64 = 8;
const PAGE_KB: u64 = 4;
/// Maximum number of pages of one request that count: 1 GB.
const MAX_PAGES: u64 = 1 << 18;
/// Up to this number of touches, a trace is simulated exactly. They are kept until it is known whether the trace is longer; 8 MB.
const EXACT_TOUCHES: usize = 1 << 20;
/// Least number of pages of a sampled cache: CLOCK with few pages evicts otherwise than with many. A cache that would have fewer is
/// simulated exactly.
const LEAST_PAGES: u64 = 128;
/// A sample has at most one page in `2^3`.
const FINEST: u32 = 3;
/// The sampled caches of a policy have at most this number of pages together.
const MOST_PAGES: u64 = 1 << 19;

/// A point of a miss-ratio curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissRatioRow {
    /// Name of the policy.
    pub policy: &'static str,
    /// Size of the cache in KB.
    pub cache_kb: u64,
    /// The requests that use it: `all` (reads and writes), `read` or `write`.
    pub op: &'static str,
    /// Percentage of touches of 4 KB pages that miss; first touches count as misses.
    pub miss_pct: f64,
    /// Half of the 95 % confidence interval of `miss_pct`, in percentage points; 0 if exact.
    pub error_pct: f64,
    /// One page in this many was simulated; 1 means exact.
    pub sampling: u64,
}

/// Miss ratios of caches.
///
/// LRU is exact for all sizes, by one pass over the stack distances, as long as its pages fit into 100 MB, as those of a cache of
/// 4 GB do; of more pages one in `2^k` is simulated, the same for all sizes.
///
/// The other policies are simulated exactly for a trace of up to 2^20 page touches. For a longer one, they are simulated with one
/// page in `2^k`, chosen by its hash, at `1 / 2^k` of their size: SHARDS with a fixed rate (Waldspurger et al., "Efficient MRC
/// Construction with SHARDS", FAST 2015). `k` is 3, or larger if all caches of a policy together would have more than 2^19 pages
/// (about 80 MB); it is the same for all sizes, except that a cache that would have fewer than 128 pages is simulated exactly.
///
/// The sample gives the difference of a policy to LRU, which is known without it. The error follows from the differences between 16
/// groups of pages.
#[derive(Clone, Debug)]
pub struct MissRatios {
    options: CacheOptions,
    kinds: Vec<ReplacementPolicy>,
    /// Sizes in pages, ascending.
    sizes: Vec<u64>,
    lru: LruMissCurve,
    /// The policies with one cache for each size.
    constructors: Vec<Make>,
    /// One page in `2^sample` is simulated of them in a long trace.
    sample: u32,
    /// The touches so far, until there are too many for an exact simulation of `each`.
    first_touches: Vec<Key>,
    /// From the finest sampling to the coarsest; empty until the first touches are replayed.
    tiers: Vec<SampledTier>,
    touches: u64,
    other_recordings: OtherRecordingSums,
}

/// Sums of other recordings: touches, and misses by policy and size.
#[derive(Clone, Debug, Default)]
struct OtherRecordingSums {
    touches: u64,
    misses: Vec<Vec<MissEstimate>>,
}

impl MissRatios {
    /// Creates empty caches.
    ///
    /// # Errors
    /// [`emmclab_base::ErrorClass::Config`] for unknown policies and impossible sizes.
    pub fn new(options: &CacheOptions) -> Result<Self> {
        let (kinds, sizes) = (options.kinds()?, options.sizes_pages()?);
        let make = |kind: &ReplacementPolicy| match kind.method {
            SimulationMethod::Stack => None,
            SimulationMethod::Each(make) => Some(make),
        };
        let pages: u64 = sizes.iter().sum();
        let sample = FINEST.max(pages.div_ceil(MOST_PAGES).next_power_of_two().ilog2());
        let others = OtherRecordingSums {
            touches: 0,
            misses: vec![vec![MissEstimate::default(); sizes.len()]; kinds.len()],
        };
        let mut ratios = Self {
            options: options.clone(),
            lru: LruMissCurve::new(&sizes, if options.exact { usize::MAX } else { MOST }, 0),
            constructors: kinds.iter().filter_map(make).collect(),
            sample,
            kinds,
            sizes,
            first_touches: Vec::new(),
            tiers: Vec::new(),
            touches: 0,
            other_recordings: others,
        };
        if options.exact {
            ratios.start(0);
        }
        Ok(ratios)
    }

    /// Adds a request to the device with the number `space`.
    #[inline]
    pub fn add(&mut self, request: &Request, space: u32) {
        if !self.options.ops.include(request.op) {
            return;
        }
        let from = request.sector.0 / PAGE_SECTORS;
        let to = request.end().0.div_ceil(PAGE_SECTORS).clamp(from, from + MAX_PAGES);
        self.touches += to - from;
        for page in from..to {
            self.touch(key_of(space, page));
        }
    }

    #[inline]
    fn touch(&mut self, page: Key) {
        self.lru.touch(page);
        if !self.constructors.is_empty() {
            self.touch_each(page);
        }
    }

    #[inline]
    fn touch_each(&mut self, page: Key) {
        if self.tiers.is_empty() {
            self.first_touches.push(page);
            if self.first_touches.len() > EXACT_TOUCHES {
                self.start(self.sample);
            }
            return;
        }
        for tier in &mut self.tiers {
            if !tier.touch(page) {
                return;
            }
        }
    }

    /// Creates the caches with one page in `2^shift`, but small ones with all, and replays the touches that were kept.
    fn start(&mut self, shift: u32) {
        let small = self.sizes.partition_point(|pages| shift > 0 && pages >> shift < LEAST_PAGES);
        let (small, large) = self.sizes.split_at(small);
        let tiers = [(0, small), (shift, large)].into_iter().filter(|(_, sizes)| !sizes.is_empty());
        self.tiers = tiers.map(|(shift, sizes)| SampledTier::new(shift, &self.constructors, sizes)).collect();
        for page in std::mem::take(&mut self.first_touches) {
            self.touch_each(page);
        }
    }

    /// Adds the results of another recording with the same options, or of the next piece of this one. Each starts with empty
    /// caches. With `goes_on`, the caches of `other` are used for later requests; otherwise those of `self` are.
    pub fn merge(&mut self, mut other: Self, goes_on: bool) {
        if goes_on {
            std::mem::swap(self, &mut other);
        }
        self.other_recordings.touches += other.touches + other.other_recordings.touches;
        add(&mut self.other_recordings.misses, &other.misses());
    }

    /// Returns the misses by policy and size, including those of other recordings.
    fn misses(&self) -> Vec<Vec<MissEstimate>> {
        let exact;
        let tiers = if self.tiers.is_empty() {
            let mut tier = SampledTier::new(0, &self.constructors, &self.sizes);
            for page in &self.first_touches {
                tier.touch(*page);
            }
            exact = [tier];
            &exact[..]
        } else {
            &self.tiers
        };
        let lru = self.lru.misses();
        let mut each = vec![Vec::new(); self.constructors.len()];
        for tier in tiers {
            let smaller = each.first().map_or(0, Vec::len);
            for (all, own) in each.iter_mut().zip(tier.misses(&lru[smaller..])) {
                all.extend(own);
            }
        }
        let mut each = each.into_iter();
        let of_kind = |kind: &ReplacementPolicy| match kind.method {
            SimulationMethod::Stack => Some(lru.clone()),
            SimulationMethod::Each(_) => each.next(),
        };
        let mut own: Vec<Vec<MissEstimate>> = self.kinds.iter().filter_map(of_kind).collect();
        add(&mut own, &self.other_recordings.misses);
        own
    }

    /// Returns the curves, policy by policy; empty if no request used a cache.
    pub fn rows(&self) -> Vec<MissRatioRow> {
        let touches = self.touches + self.other_recordings.touches;
        if touches == 0 {
            return Vec::new();
        }
        let pct = |touched: f64| (100.0 * touched / touches as f64).min(100.0);
        let mut rows = Vec::new();
        for (kind, misses) in self.kinds.iter().zip(self.misses()) {
            for (size, misses) in self.sizes.iter().zip(misses) {
                rows.push(MissRatioRow {
                    policy: kind.name,
                    cache_kb: size * PAGE_KB,
                    op: self.options.ops.name(),
                    miss_pct: pct(misses.total() as f64),
                    error_pct: pct(misses.error()),
                    sampling: 1 << misses.shift,
                });
            }
        }
        rows
    }
}

/// Adds misses by policy and size.
fn add(some: &mut [Vec<MissEstimate>], others: &[Vec<MissEstimate>]) {
    for (one, other) in some.iter_mut().flatten().zip(others.iter().flatten()) {
        *one = one.plus(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches of 20,000 pages, the first ones most often, with scans between. The pages have other hashes in each space.
    fn touch_all(ratios: &mut MissRatios, space: u32) {
        for number in 0..200_000_u64 {
            let uniform = (key_of(7, number) >> 11) as f64 / (1_u64 << 53) as f64;
            let scanned = 20_000 + number / 10 % 80_000;
            let page = if number % 4_000 < 400 { scanned } else { (20_000.0 * uniform.powi(2)) as u64 };
            ratios.touch(key_of(space, page));
            ratios.touches += 1;
        }
    }

    #[test]
    fn the_exact_miss_ratio_is_within_the_error_of_most_samples() {
        let options = CacheOptions { sizes_kb: vec![8_192, 32_768, 131_072], ..CacheOptions::default() };
        let mut exact = MissRatios::new(&CacheOptions { exact: true, ..options.clone() }).unwrap();
        touch_all(&mut exact, 0);
        let exact = exact.rows();
        let (mut within, mut rows) = (0, 0);
        for space in 1..=10 {
            let mut ratios = MissRatios::new(&options).unwrap();
            ratios.start(ratios.sample);
            touch_all(&mut ratios, space);
            for (row, exact) in ratios.rows().iter().zip(&exact) {
                if row.policy == "lru" {
                    assert_eq!(row, exact);
                    continue;
                }
                assert!(row.sampling == 8 && row.error_pct < 4.0, "{row:?}");
                within += usize::from((row.miss_pct - exact.miss_pct).abs() <= row.error_pct);
                rows += 1;
            }
        }
        assert!(10 * within >= 9 * rows, "{within} of {rows} estimates are within their error");
    }
}
