//! Miss ratios by policy and size over a stream of requests.

use emmclab_base::{Request, Result};
use serde::Serialize;

use crate::hash::{Key, key_of};
use crate::options::CacheOptions;
use crate::policy::PolicyKind;
use crate::tier::Tier;

/// Sectors in a page of 4 KB.
const PAGE_SECTORS: u64 = 8;
const PAGE_KB: u64 = 4;
/// Maximum number of pages of one request that count: 1 GB.
const MAX_PAGES: u64 = 1 << 18;
/// Up to this number of touches, a trace is simulated exactly. They are kept until it is known whether the trace is longer; 8 MB.
const EXACT_TOUCHES: usize = 1 << 20;
/// Least number of pages of a sampled cache, if the sampling allows it.
const LEAST_PAGES: u64 = 32;
/// At least one page in `2^6` = 64 is simulated.
const COARSEST: u32 = 6;

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
    /// One page in this many was simulated; 1 means exact.
    pub sampling: u64,
}

/// Miss ratios of caches, by sampled simulation.
///
/// A trace of up to 2^20 page touches is simulated exactly. For a longer one, each cache is simulated with one page in `2^k`,
/// chosen by its hash, at `1 / 2^k` of its size: SHARDS with a fixed rate (Waldspurger et al., "Efficient MRC Construction with
/// SHARDS", FAST 2015). `k` is the largest value for which the small cache still has 32 pages, but at most 6. If the sample has
/// more or fewer touches than expected, the difference counts as hits (SHARDS-adj). Memory is needed for the small caches and for
/// the pages that they remember: for each policy about 100 bytes for one in 64 of the pages of the largest cache or of the trace,
/// at most.
#[derive(Clone, Debug)]
pub struct MissRatios {
    options: CacheOptions,
    kinds: Vec<PolicyKind>,
    /// Sizes in pages, ascending.
    sizes: Vec<u64>,
    /// The touches so far, until there are too many for an exact simulation.
    first: Vec<Key>,
    /// From the finest sampling to the coarsest; empty until the first touches are replayed.
    tiers: Vec<Tier>,
    touches: u64,
    /// Sums of other recordings: touches, estimated misses by policy and size, and the coarsest sampling by size.
    others: Others,
}

#[derive(Clone, Debug, Default)]
struct Others {
    touches: u64,
    misses: Vec<Vec<u64>>,
    shifts: Vec<u32>,
}

impl MissRatios {
    /// Creates empty caches.
    ///
    /// # Errors
    /// [`emmclab_base::Kind::Config`] for unknown policies and impossible sizes.
    pub fn new(options: &CacheOptions) -> Result<Self> {
        let (kinds, sizes) = (options.kinds()?, options.sizes_pages()?);
        let others = Others {
            touches: 0,
            misses: vec![vec![0; sizes.len()]; kinds.len()],
            shifts: vec![0; sizes.len()],
        };
        let mut ratios = Self {
            options: options.clone(),
            kinds,
            sizes,
            first: Vec::new(),
            tiers: Vec::new(),
            touches: 0,
            others,
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
        if self.tiers.is_empty() {
            self.first.push(page);
            if self.first.len() > EXACT_TOUCHES {
                self.start(COARSEST);
            }
            return;
        }
        for tier in &mut self.tiers {
            if !tier.touch(page) {
                return;
            }
        }
    }

    /// Creates the caches, with a sampling no coarser than `coarsest`, and replays the touches that were kept.
    fn start(&mut self, coarsest: u32) {
        let shift = |pages: &u64| (pages / LEAST_PAGES).checked_ilog2().unwrap_or(0).min(coarsest);
        let kinds = &self.kinds;
        self.tiers = self
            .sizes
            .chunk_by(|a, b| shift(a) == shift(b))
            .map(|sizes| Tier::new(shift(&sizes[0]), kinds, sizes))
            .collect();
        for page in std::mem::take(&mut self.first) {
            self.touch(page);
        }
    }

    /// Adds the results of another recording with the same options, or of the next piece of this one. Each starts with empty
    /// caches. With `goes_on`, the caches of `other` are used for later requests; otherwise those of `self` are.
    pub fn merge(&mut self, mut other: Self, goes_on: bool) {
        if goes_on {
            std::mem::swap(self, &mut other);
        }
        let (misses, shifts) = other.sums();
        self.others.touches += other.touches + other.others.touches;
        for (mine, theirs) in self.others.misses.iter_mut().flatten().zip(misses.into_iter().flatten()) {
            *mine += theirs;
        }
        for (mine, theirs) in self.others.shifts.iter_mut().zip(shifts) {
            *mine = theirs.max(*mine);
        }
    }

    /// Returns the misses by policy and size, and the coarsest sampling by size, including other recordings.
    fn sums(&self) -> (Vec<Vec<u64>>, Vec<u32>) {
        let exact;
        let tiers = if self.tiers.is_empty() {
            let mut tier = Tier::new(0, &self.kinds, &self.sizes);
            for page in &self.first {
                tier.touch(*page);
            }
            exact = [tier];
            &exact[..]
        } else {
            &self.tiers
        };
        let mut misses = vec![Vec::new(); self.kinds.len()];
        let mut shifts = Vec::new();
        for tier in tiers {
            for (all, own) in misses.iter_mut().zip(tier.misses()) {
                shifts.resize(all.len() + own.len(), tier.shift());
                all.extend(own);
            }
        }
        for (mine, others) in misses.iter_mut().flatten().zip(self.others.misses.iter().flatten()) {
            *mine += others;
        }
        for (mine, others) in shifts.iter_mut().zip(&self.others.shifts) {
            *mine = (*mine).max(*others);
        }
        (misses, shifts)
    }

    /// Returns the curves, policy by policy; empty if no request used a cache.
    pub fn rows(&self) -> Vec<MissRatioRow> {
        let touches = self.touches + self.others.touches;
        if touches == 0 {
            return Vec::new();
        }
        let (misses, shifts) = self.sums();
        let mut rows = Vec::new();
        for (kind, misses) in self.kinds.iter().zip(misses) {
            for ((size, misses), shift) in self.sizes.iter().zip(misses).zip(&shifts) {
                rows.push(MissRatioRow {
                    policy: kind.name,
                    cache_kb: size * PAGE_KB,
                    op: self.options.ops.name(),
                    miss_pct: (100.0 * misses as f64 / touches as f64).min(100.0),
                    sampling: 1 << shift,
                });
            }
        }
        rows
    }
}
