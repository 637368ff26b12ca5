//! Miss-ratio curves: the share of page touches that a cache of each size and policy would miss.
//!
//! ```
//! use emmclab_base::{Nanos, Op, Request, Sector};
//! use emmclab_cache::{CacheOptions, MissRatios};
//!
//! let options = CacheOptions { policies: vec!["lru".into()], ..CacheOptions::default() };
//! let mut ratios = MissRatios::new(&options)?;
//! for sector in [0, 8, 0, 8] {
//!     ratios.add(&Request::new(Nanos::ZERO, Op::Read, Sector(sector), 8), 0);
//! }
//! assert_eq!(ratios.rows()[0].miss_pct, 50.0);
//! # Ok::<(), emmclab_base::Error>(())
//! ```

mod arc;
mod clock;
mod fifo;
mod lru;
mod miss_ratios;
mod misses;
mod options;
mod page_hash;
mod page_lists;
mod policy;
mod s3_fifo;
mod sampled_tier;

pub use miss_ratios::{MissRatioRow, MissRatios};
pub use options::{CacheOptions, CachedOps, DEFAULT_SIZES_KB};
pub use page_hash::hash_page;
pub use policy::{ReplacementPolicy, policies};
