//! What miss-ratio curves cost: nanoseconds per request of one page, for each policy at all default sizes.
//!
//! ```text
//! cargo run --release -p emmclab-cache --example cache_speed [-- REQUESTS]
//! ```
//!
//! Skewed touches of 1,000,000 pages (4 GB): a power of four of a uniform number. Sampled as `emmclab profile
//! --cache-policies` does it, and exactly.

use std::error::Error;
use std::time::Instant;

use emmclab_base::{Nanos, Op, Request, Sector};
use emmclab_cache::{CacheOptions, MissRatios, policies};

const PAGES: f64 = 1e6;

fn main() -> Result<(), Box<dyn Error>> {
    let requests: usize = std::env::args().nth(1).map_or(Ok(20_000_000), |text| text.parse())?;
    println!("{:<10} {:>10} {:>14} {:>14}", "policy", "sampling", "requests", "ns/request");
    for kind in policies() {
        for (exact, requests) in [(false, requests), (true, requests / 10)] {
            let policies = vec![kind.name.to_owned()];
            let mut ratios = MissRatios::new(&CacheOptions { policies, exact, ..CacheOptions::default() })?;
            let mut state = 1_u64;
            let begin = Instant::now();
            for _ in 0..requests {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let uniform = (state >> 11) as f64 / (1_u64 << 53) as f64;
                let page = (PAGES * uniform.powi(4)) as u64;
                ratios.add(&Request::new(Nanos::ZERO, Op::Read, Sector(8 * page), 8), 0);
            }
            let sampling = if exact { "exact" } else { "sampled" };
            let ns = begin.elapsed().as_nanos() as f64 / requests as f64;
            println!("{:<10} {sampling:>10} {requests:>14} {ns:>14.1}", kind.name);
            std::hint::black_box(ratios.rows());
        }
    }
    Ok(())
}
