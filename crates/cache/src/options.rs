//! Options of the simulated caches.

use emmclab_base::{Error, ErrorClass, Op, Result};
use serde::{Deserialize, Serialize};

use crate::policy::{ReplacementPolicy, policies};

/// Size of a page in KB.
const PAGE_KB: u64 = 4;
/// Size of the largest cache in KB: 64 TB.
const LARGEST_KB: u64 = 1 << 36;

/// Default sizes of caches in KB: 1 MB to 4 GB.
pub const DEFAULT_SIZES_KB: [u64; 13] = {
    let mut sizes = [1 << 10; 13];
    let mut index = 0;
    while index < sizes.len() {
        sizes[index] <<= index;
        index += 1;
    }
    sizes
};

/// The requests that use the cache; other requests do not touch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachedOps {
    /// Reads and writes.
    #[default]
    All,
    /// Reads.
    Read,
    /// Writes.
    Write,
}

impl CachedOps {
    /// Name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Whether a request of this operation touches the cache.
    #[inline]
    pub(crate) fn include(self, op: Op) -> bool {
        match self {
            Self::All => op.has_data(),
            Self::Read => op == Op::Read,
            Self::Write => op == Op::Write,
        }
    }
}

/// The caches to simulate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheOptions {
    /// Names of policies.
    pub policies: Vec<String>,
    /// Sizes in KB, multiples of a page of 4 KB.
    pub sizes_kb: Vec<u64>,
    /// The requests that use the cache.
    pub ops: CachedOps,
    /// Whether all pages of a trace of any length are simulated, without sampling.
    pub exact: bool,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            policies: policies().iter().map(|kind| kind.name.to_owned()).collect(),
            sizes_kb: DEFAULT_SIZES_KB.to_vec(),
            ops: CachedOps::All,
            exact: false,
        }
    }
}

impl CacheOptions {
    /// Returns the policies, each once, in the order of [`policies`].
    ///
    /// # Errors
    /// [`ErrorClass::Config`] for an unknown name, or an empty list.
    pub(crate) fn kinds(&self) -> Result<Vec<ReplacementPolicy>> {
        let all = || policies().iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        let unknown = self.policies.iter().find(|name| !policies().iter().any(|kind| kind.name == **name));
        if let Some(name) = unknown {
            return Err(Error::new(ErrorClass::Config, format!("`{name}` is not a cache policy"))
                .hint(format!("choose one of: {}", all())));
        }
        if self.policies.is_empty() {
            return Err(Error::new(ErrorClass::Config, "there is no cache policy to simulate")
                .hint(format!("choose one of: {}", all())));
        }
        Ok(policies()
            .iter()
            .filter(|kind| self.policies.iter().any(|name| name == kind.name))
            .copied()
            .collect())
    }

    /// Returns the sizes in pages, each once, in ascending order.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] for a size that is not a positive multiple of a page or is too large, or for an empty list.
    pub(crate) fn sizes_pages(&self) -> Result<Vec<u64>> {
        if let Some(kb) =
            self.sizes_kb.iter().find(|kb| **kb == 0 || !kb.is_multiple_of(PAGE_KB) || **kb > LARGEST_KB)
        {
            return Err(Error::new(ErrorClass::Config, format!("a cache of {kb} KB is impossible"))
                .hint("give a multiple of 4 KB, up to 64 TB"));
        }
        if self.sizes_kb.is_empty() {
            return Err(Error::new(ErrorClass::Config, "there is no cache size to simulate")
                .hint("name one, for example 16MB"));
        }
        let mut sizes: Vec<u64> = self.sizes_kb.iter().map(|kb| kb / PAGE_KB).collect();
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }
}
