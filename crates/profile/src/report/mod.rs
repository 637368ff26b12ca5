//! The result of a profile: plain data, ready for JSON. Field names end in their unit; 1 KB is 1,024 bytes.
//!
//! Figures that cannot be computed from a trace (for example service times without completions) are `None`, in JSON `null`; rows that
//! cannot be computed are omitted. Nothing is guessed.

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
    /// Tables III and IV, as fields of this object, in the columns of the published tables.
    #[serde(flatten)]
    pub tables: PaperTables,
    /// Counts of the records that the import kept, changed or lost.
    pub ledger: Ledger,
    /// The origin of the trace.
    pub header: TraceHeader,
    /// Clock jumps or pauses of the recording, in the order of the requests; the first 64 of each direction.
    pub clock_jumps: Vec<ClockJumpRow>,
    /// Figures that are distorted by a clock jump, as recorded.
    pub key_figures: KeyFigures,
    /// The same without the jumps that are still in the trace; `None` if there are none.
    pub key_figures_without_jumps: Option<KeyFigures>,
    /// Suspected re-issues; `None` if the trace does not show them.
    pub reissues: Option<ReissueSummary>,
    /// Sizes and times for each operation that occurs, then `all` (reads and writes together).
    pub by_operation: Vec<OperationRow>,
    /// Locality beyond Table IV.
    pub locality: LocalitySummary,
    /// Unique pages; `None` without reads and writes.
    pub working_set: Option<WorkingSet>,
    /// Queue depth; `None` without completion times.
    pub queue: Option<QueueSummary>,
    /// Garbage collection that fits into idle gaps; `None` without completion times.
    pub idle_gc: Option<IdleGc>,
    /// The device's low-power threshold and wake-up cost.
    pub power_saving: PowerSaving,
    /// The cost of journaling; `None` if the trace has no block notes.
    pub journal: Option<JournalReport>,
    /// Where the time of waits for durability goes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<FsyncReport>,
    /// Rows of the figures.
    pub figures: FigureRows,
    /// The six characteristics and five implications of the paper (sections III and IV), applied to this trace.
    pub findings: Vec<Finding>,
}

impl ProfileReport {
    /// Removes the figures that are distributions, time series or lists, and keeps those whose rows have fixed names. This is sufficient to
    /// compare many traces, and much smaller.
    #[must_use]
    pub fn without_distributions(self) -> Self {
        let FigureRows { hot_pages, alignment, flags, .. } = self.figures;
        Self { figures: FigureRows { hot_pages, alignment, flags, ..FigureRows::default() }, ..self }
    }
}
