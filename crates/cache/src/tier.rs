//! Caches of several sizes that follow the same sample of pages.

use crate::hash::{Key, is_sampled};
use crate::lru::Stack;
use crate::policy::{Method, Policy, PolicyKind};

/// Simulates one page in `2^shift` in caches of `1 / 2^shift` of their size (miniature simulation: Waldspurger et al., "Cache
/// Modeling and Optimization using Miniature Simulations", USENIX ATC 2017).
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    shift: u32,
    /// Sizes of the miniature caches in pages, ascending.
    pages: Vec<usize>,
    caches: Vec<Caches>,
}

/// The caches of all sizes of one policy.
#[derive(Clone, Debug)]
enum Caches {
    /// For each size, the number of touches whose distance fits into it but not into a smaller one; last, those that fit into none.
    Stack { stack: Stack, fits: Vec<u64> },
    /// Each cache with its number of misses.
    Each(Vec<(Box<dyn Policy>, u64)>),
}

impl Tier {
    /// Creates caches of these policies and sizes (in pages, ascending).
    pub fn new(shift: u32, kinds: &[PolicyKind], sizes: &[u64]) -> Self {
        let pages: Vec<usize> = sizes.iter().map(|size| ((size >> shift) as usize).max(1)).collect();
        let caches = kinds
            .iter()
            .map(|kind| match kind.method {
                Method::Stack => Caches::Stack {
                    stack: Stack::new(pages.last().copied().unwrap_or(1)),
                    fits: vec![0; pages.len() + 1],
                },
                Method::Each(make) => Caches::Each(pages.iter().map(|pages| (make(*pages), 0)).collect()),
            })
            .collect();
        Self { shift, pages, caches }
    }

    /// The sampling: one page in `2^shift` is simulated.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// Touches a page; false if it is not sampled.
    #[inline]
    pub fn touch(&mut self, page: Key) -> bool {
        if !is_sampled(page, self.shift) {
            return false;
        }
        for caches in &mut self.caches {
            match caches {
                Caches::Stack { stack, fits } => {
                    let distance = stack.touch(page).unwrap_or(usize::MAX);
                    fits[self.pages.partition_point(|pages| *pages <= distance)] += 1;
                }
                Caches::Each(each) => {
                    for (cache, misses) in each {
                        *misses += u64::from(!cache.touch(page));
                    }
                }
            }
        }
        true
    }

    /// Misses of all touches, estimated from the sample: by policy, then by size.
    pub fn misses(&self) -> impl Iterator<Item = Vec<u64>> {
        self.caches.iter().map(|caches| {
            let sampled: Vec<u64> = match caches {
                Caches::Stack { fits, .. } => {
                    (0..self.pages.len()).map(|size| fits[size + 1..].iter().sum()).collect()
                }
                Caches::Each(each) => each.iter().map(|(_, misses)| *misses).collect(),
            };
            sampled.into_iter().map(|misses| misses << self.shift).collect()
        })
    }
}
