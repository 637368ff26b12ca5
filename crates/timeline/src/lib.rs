//! Counts over time, in bounded memory: bins of time that are merged in pairs whenever there would be too many.
//!
//! [`Coarsening`] bins hold anything that adds up; [`OverTime`] holds requests, data and response times in them.

mod classes;
mod coarsening;
mod over_time;
mod row;
mod times;

pub use coarsening::{Cell, Coarsening};
pub use over_time::{BinWidth, OverTime, OverTimeBin, Side};
pub use row::OverTimeRow;
pub use times::{Histogram, Times};
