//! Counts over time, in bounded memory: bins of time that are merged in pairs whenever there would be too many.
//!
//! [`CoarseningBins`] bins hold anything that adds up; [`RequestsOverTime`] holds requests, data and response times in them.

mod coarsening;
mod duration_classes;
mod duration_histogram;
mod over_time;
mod over_time_row;

pub use coarsening::{BinContent, CoarseningBins};
pub use duration_histogram::{DurationHistogram, SparseHistogram};
pub use over_time::{BinWidth, DataDirection, OverTimeBin, RequestsOverTime};
pub use over_time_row::OverTimeRow;
