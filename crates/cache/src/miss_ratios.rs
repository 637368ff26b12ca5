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
/// Pages of one request that are followed: 1 GB.
const MAX_PAGES: u64 = 1 << 18;
/// Touches up to which a trace is followed page by page, kept until it is known which; 8 MB.
const EXACT_TOUCHES: usize = 1 << 20;
/// Pages that a sampled cache keeps at least, where the sampling allows.
const LEAST_PAGES: u64 = 32;
/// At most one page in `2^6` = 64 is followed.
const COARSEST: u32 = 6;

/// A point of a miss-ratio curve.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissRatioRow {
    /// Name of the policy.
    pub policy: &'static str,
    /// Size of the cache, KB.
    pub cache_kb: u64,
    /// The requests that go through it: `all` (reads and writes), `read` or `write`.
    pub op: &'static str,
    /// Touches of 4 KB pages that miss, first touches among them, percent.
    pub miss_pct: f64,
    /// One page in this many was followed; 1 means exact.
    pub sampling: u64,
}

/// Miss ratios of caches, by sampled simulation.
///
/// A trace of up to 2^20 page touches is simulated exactly. In a longer one, a cache follows one page in `2^k`, found by its
/// hash, at `1 / 2^k` of its size: SHARDS with a fixed rate (Waldspurger et al., "Efficient MRC Construction with SHARDS",
/// FAST 2015). `k` is the largest at which the small cache still has 32 pages, at most 6. Where the sample has more or
/// fewer touches than its share, the difference counts as hits (SHARDS-adj). Memory is that of the small caches and of what
/// they remember: at most about 100 bytes for each page of the largest cache in 64, or of the trace in 64, and policy.
#[derive(Clone, Debug)]
pub struct MissRatios {
    options: CacheOptions,
    kinds: Vec<PolicyKind>,
    /// In pages, ascending.
    sizes: Vec<u64>,
    /// Touches so far, as long as they are few.
    first: Vec<Key>,
    /// From the finest sampling to the coarsest; empty before the first touches are replayed.
    tiers: Vec<Tier>,
    touches: u64,
    /// Of other recordings: touches, estimated misses by policy and size, and the coarsest sampling by size.
    others: Others,
}

#[derive(Clone, Debug, Default)]
struct Others {
    touches: u64,
    misses: Vec<Vec<u64>>,
    shifts: Vec<u32>,
}

impl MissRatios {
    /// Caches that hold nothing yet.
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

    /// Adds a request to a device with this number.
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

    /// Sets the caches up, with a sampling no coarser than this, and replays what was kept.
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

    /// Takes in the caches of another recording, or of the next piece of this one, with the same options: each begins with
    /// empty caches. The caches of a next piece go on; those of another recording do not.
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

    /// Misses by policy and size, and the coarsest sampling by size, with those of other recordings.
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

    /// The curves, policy by policy; nothing if no request went through a cache.
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
