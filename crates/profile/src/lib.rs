//! One-pass, mergeable, deterministic characterisation of a trace: Tables III and IV and figures 3-7 of the IISWC 2015 paper (Zhou et al.),
//! the paper's findings, and further figures.
//!
//! ```no_run
//! use emmclab_profile::{Profile, ProfileOptions};
//! use emmclab_trace::{ReadOptions, TraceReader};
//!
//! let mut reader = TraceReader::open("trace.txt".as_ref(), &ReadOptions::default())?;
//! let mut profile = Profile::new(ProfileOptions { name: "Messaging".into(), ..ProfileOptions::default() });
//! while let Some(batch) = reader.next_batch()? {
//!     profile.update(&batch);
//! }
//! let report = profile.finish(&reader.ledger(), &reader.header());
//! println!("{:?}", report.tables.mean_response_ms);
//! # Ok::<(), emmclab_trace::Error>(())
//! ```

mod arrivals;
mod bins;
mod clock_jumps;
mod findings;
mod fsync;
mod journal;
mod locality;
mod operations;
mod options;
mod pages;
mod processes;
mod profile;
pub mod published;
mod queue;
mod reissues;
pub mod report;
mod reuse_distance;
mod timeline;
mod wake_up;

pub use emmclab_timeline::BinWidth;
pub use journal::JournalProfile;
pub use options::{GcCost, MergeRelation, ProfileOptions};
pub use profile::{FixedBinHistogram, Profile};
pub use report::{JournalReport, ProfileReport};

/// Number of the longest gaps between requests that are left out to test a verdict. If the verdict then changes, it does not describe the
/// workload.
const FEW_GAPS: usize = 10;

/// Nanoseconds from one time to another; 0 if the second is not later.
#[inline]
fn elapsed(from: emmclab_trace::Nanos, to: emmclab_trace::Nanos) -> u64 {
    to.0.saturating_sub(from.0).max(0) as u64
}
