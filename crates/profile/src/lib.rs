//! One-pass, mergeable, deterministic characterisation of a trace: Tables III and IV and figures 3-7 of the IISWC
//! 2015 paper (Zhou et al.), and what they leave out.

mod options;
pub mod report;

pub use options::{GcCost, ProfileOptions};
pub use report::ProfileReport;
