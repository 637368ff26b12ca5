//! Counts over time, in bounded memory: bins of time that are merged in pairs whenever there would be too many.
//!
//! [`CoarseningBins`] bins hold anything that adds up; [`RequestsOverTime`] holds requests, data and response times in them.

mod coarsening;
mod duration_histogram;
mod over_time;

pub use coarsening::{BinContent, CoarseningBins};
pub use duration_histogram::{DurationHistogram, SparseHistogram};
pub use over_time::{BinWidth, DataDirection, OverTimeBin, OverTimeRow, RequestsOverTime};
