//! Bins of time as rows of a table.

use schemars::JsonSchema;
use serde::Serialize;

use crate::over_time::{DataDirection, OverTimeBin};

/// Reads and writes that arrive in a bin of time. Response times are `None` if they are not known; percentiles are at most
/// 1 / 32 too high.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OverTimeRow {
    /// Start of the bin after the first arrival, seconds.
    pub time_s: f64,
    /// Width of the bin, seconds.
    pub width_s: f64,
    /// Reads that arrive.
    pub reads: u64,
    /// Writes that arrive.
    pub writes: u64,
    /// Data read, KB.
    pub read_kb: f64,
    /// Data written, KB.
    pub write_kb: f64,
    /// Reads and writes per second.
    pub iops: f64,
    /// Data read and written per second, MB.
    pub mb_per_s: f64,
    /// Mean response time, ms.
    pub response_mean_ms: Option<f64>,
    /// 99th percentile of the response time, ms.
    pub response_p99_ms: Option<f64>,
    /// Longest response time, ms.
    pub response_max_ms: Option<f64>,
    /// Mean response time of reads, ms.
    pub read_mean_ms: Option<f64>,
    /// 99th percentile of the response time of reads, ms.
    pub read_p99_ms: Option<f64>,
    /// Mean response time of writes, ms.
    pub write_mean_ms: Option<f64>,
    /// 99th percentile of the response time of writes, ms.
    pub write_p99_ms: Option<f64>,
}

impl OverTimeRow {
    /// The row of a bin.
    pub fn new<X>(time_s: f64, width_s: f64, bin: &OverTimeBin<X>) -> Self {
        let (reads, writes) = (bin.requests(DataDirection::Read), bin.requests(DataDirection::Write));
        let [read_kb, write_kb] =
            [DataDirection::Read, DataDirection::Write].map(|side| bin.bytes(side) as f64 / 1_024.0);
        let [read, write, all] = [bin.times(DataDirection::Read), bin.times(DataDirection::Write), &bin.all_times()];
        Self {
            time_s,
            width_s,
            reads,
            writes,
            read_kb,
            write_kb,
            iops: (reads + writes) as f64 / width_s,
            mb_per_s: (read_kb + write_kb) / 1_024.0 / width_s,
            response_mean_ms: all.mean_ms(),
            response_p99_ms: all.percentile_ms(99.0),
            response_max_ms: all.max_ms(),
            read_mean_ms: read.mean_ms(),
            read_p99_ms: read.percentile_ms(99.0),
            write_mean_ms: write.mean_ms(),
            write_p99_ms: write.percentile_ms(99.0),
        }
    }
}
