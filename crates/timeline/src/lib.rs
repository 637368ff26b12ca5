//! Counts over time, in bounded memory: bins of time that are merged in pairs whenever there would be too many.
//!
//! [`CoarseningBins`] is generic over the contents of the bins; [`RequestsOverTime`] counts requests, data and response times in them.

mod coarsening;
mod duration_histogram;
mod over_time;

pub use coarsening::{BinContent, CoarseningBins};
pub use duration_histogram::{DurationHistogram, SparseHistogram};
pub use over_time::{BinWidth, DataDirection, OverTimeBin, OverTimeRow, RequestsOverTime};
