//! The result of a profile: plain data that can be written as JSON. Field names end in their unit; 1 KB is 1,024 bytes.
//!
//! Figures that cannot be computed from a trace (for example service times without completions) are `None`, in JSON `null`; rows that
//! cannot be computed are omitted.

mod figures;
mod fsync;
mod journal;
mod tables;

pub use emmclab_timeline::OverTimeRow;

pub use figures::*;
pub use fsync::*;
pub use journal::*;
pub use tables::*;

use emmclab_trace::{Ledger, TraceHeader};
use serde::Serialize;

/// The results of a profile of one trace.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileReport {
    /// The trace's name.
    pub name: String,
    /// The figures of the paper's Tables III and IV, computed for this trace. In JSON, they are direct fields of the report, named after
    /// the columns of the published tables.
    #[serde(flatten)]
    pub tables: PaperTables,
    /// Counts of the records that the import kept, changed or lost.
    pub ledger: Ledger,
    /// Properties of the trace that the file states or the reader detected.
    pub header: TraceHeader,
    /// Clock jumps or pauses of the recording, in the order of the requests; at most 64 forward and 64 backward jumps.
    pub clock_jumps: Vec<ClockJumpRow>,
    /// The figures that clock jumps distort, computed from the times in the trace, including jumps.
    pub key_figures: KeyFigures,
    /// The key figures computed without the clock jumps; `None` if the trace has no jumps.
    pub key_figures_without_jumps: Option<KeyFigures>,
    /// Suspected re-issues of requests; `None` if the trace lacks the data to recognise re-issues.
    pub reissues: Option<ReissueSummary>,
    /// Sizes and times for each operation that occurs, then `all` (reads and writes together).
    pub by_operation: Vec<OperationRow>,
    /// Figures of locality that the paper's Table IV does not contain.
    pub locality: LocalitySummary,
    /// Unique pages; `None` without reads and writes.
    pub working_set: Option<WorkingSet>,
    /// Queue depth; `None` without completion times.
    pub queue: Option<QueueSummary>,
    /// Garbage collection that fits into idle gaps; `None` without completion times.
    pub idle_gc: Option<IdleGc>,
    /// The idle time after which the device sleeps, and the cost of waking it.
    pub power_saving: PowerSaving,
    /// The cost of journaling; `None` if the trace has no notes about block roles.
    pub journal: Option<JournalReport>,
    /// The parts of waits for durability; `None` unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<FsyncReport>,
    /// Rows of the figures.
    pub figures: FigureRows,
    /// The six characteristics and five implications of the paper (sections III and IV), applied to this trace.
    pub findings: Vec<Finding>,
}

impl ProfileReport {
    /// Removes distributions, time series and lists, and keeps the figures whose rows have fixed names. The smaller result is sufficient
    /// for comparing many traces.
    #[must_use]
    pub fn without_distributions(self) -> Self {
        let FigureRows { hot_pages, alignment, flags, .. } = self.figures;
        Self { figures: FigureRows { hot_pages, alignment, flags, ..FigureRows::default() }, ..self }
    }
}
