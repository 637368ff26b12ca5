//! Histograms with the same bins for every trace, so that those of many traces can be added.

use emmclab_trace::Op;
use serde::Serialize;

use crate::arrivals::ArrivalCounters;
use crate::bins::{DoublingBins, QuarterOctaveBins};
use crate::operations::OperationTable;
use crate::queue::QueueStatistics;
use crate::reuse_distance::ReuseDistances;

/// Counts of one quantity in fixed bins with exclusive lower and inclusive upper edges; the last bin has no upper edge.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FixedBinHistogram {
    /// The quantity: `size_read`, `size_write`, `response_read`, `response_write`, `inter_arrival`, `idle_gap` or
    /// `reuse_distance`.
    pub name: &'static str,
    /// A description of what is counted.
    pub about: &'static str,
    /// The unit of the edges.
    pub unit: &'static str,
    /// The upper edges of all bins except the last.
    pub edges: Vec<f64>,
    /// The counts of the bins.
    pub counts: Vec<u64>,
}

/// The histograms of a profile.
pub(crate) fn of(
    operations: &OperationTable,
    arrivals: &ArrivalCounters,
    queue: &QueueStatistics,
    reuse: &ReuseDistances,
) -> Vec<FixedBinHistogram> {
    let (reads, writes) = (operations.of(Op::Read), operations.of(Op::Write));
    let (reuse_edges_kb, touches) = reuse.histogram();
    vec![
        doubling("size_read", "reads by size", "KB", reads.size_bins(), 2.0),
        doubling("size_write", "writes by size", "KB", writes.size_bins(), 2.0),
        quarters("response_read", "reads by response time", &reads.response_quarters()),
        quarters("response_write", "writes by response time", &writes.response_quarters()),
        quarters("inter_arrival", "gaps between the arrivals of reads and writes", arrivals.quarters()),
        doubling("idle_gap", "times without an unfinished request", "ms", queue.gap_bins(), 1e6),
        FixedBinHistogram {
            name: "reuse_distance",
            about: "touches of 4 KB pages by reuse distance, which is below the upper edge; in the last range first touches",
            unit: "KB",
            edges: reuse_edges_kb,
            counts: touches,
        },
    ]
}

fn quarters(name: &'static str, about: &'static str, counts: &QuarterOctaveBins) -> FixedBinHistogram {
    let edges = QuarterOctaveBins::edges().map(|ns| ns as f64 / 1e6).collect();
    FixedBinHistogram { name, about, unit: "ms", edges, counts: counts.counts().to_vec() }
}

fn doubling<const UNIT: u64, const N: usize>(
    name: &'static str,
    about: &'static str,
    unit: &'static str,
    bins: &DoublingBins<UNIT, N>,
    per_unit: f64,
) -> FixedBinHistogram {
    FixedBinHistogram {
        name,
        about,
        unit,
        edges: bins.bins().filter_map(|bin| bin.high).map(|high| high as f64 / per_unit).collect(),
        counts: bins.bins().map(|bin| bin.count).collect(),
    }
}
