//! The result of a profile: plain data, ready for JSON. Field names end in their unit; 1 KB is 1,024 bytes.
//!
//! Figures that a trace cannot give (service times of a trace without completions, say) are `None`, in JSON `null`,
//! and rows that cannot be drawn are left out; nothing is guessed.

mod clock;
mod figures;
mod finding;
mod journal;
mod reissues;
mod tables;

pub use emmclab_cache::MissRatioRow;
pub use emmclab_timeline::OverTimeRow;

pub use clock::{ClockJumpRow, KeyFigures};
pub use figures::{
    AddressTimeRow, AlignmentRow, DepthRow, DepthTimeRow, DeviceRow, Figures, FlagRow, HotPagesRow,
    IdleGapRow, InterArrivalRow, IoTimeRow, LatencyRow, ProcessRow, ReissueRow, ResponseBySizeRow, ReuseRow,
    RunRow, ShareRow, SizeRow, StallRow, ThroughputRow, UpdateRow, WakeRow, WorkingSetRow,
};
pub use finding::{Finding, FindingKind, Shown};
pub use journal::{
    ChangedRow, CommitRateRow, Commits, JournalReport, JournalTimeRow, KindRow, Logged, RoleRow, SignRow,
    SynchronousRow, SynchronousWrites,
};
pub use reissues::{ReissueFigures, Reissues};
pub use tables::{
    IdleGc, Locality, OperationRow, PercentileRow, PowerSaving, Quantiles, QueueSummary, Tables, WorkingSet,
};

use emmclab_trace::{Header, Ledger};
use serde::Serialize;

/// Everything that a profile says about one trace.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileReport {
    /// The trace's name.
    pub name: String,
    /// Tables III and IV, flat, in the columns of the published tables.
    #[serde(flatten)]
    pub tables: Tables,
    /// The records that the import kept, changed or lost.
    pub ledger: Ledger,
    /// Where the trace comes from.
    pub header: Header,
    /// Clock jumps or pauses of the recording, in the order of the requests; the first 64 of each direction.
    pub clock_jumps: Vec<ClockJumpRow>,
    /// Figures that a jump of the clock distorts, as recorded.
    pub key_figures: KeyFigures,
    /// The same without the jumps that are left in the trace; `None` if there are none.
    pub key_figures_without_jumps: Option<KeyFigures>,
    /// Suspected re-issues; `None` if the trace does not show them.
    pub reissues: Option<Reissues>,
    /// Sizes and times for each operation that occurs, then `all` (reads and writes together).
    pub by_operation: Vec<OperationRow>,
    /// Locality beyond Table IV.
    pub locality: Locality,
    /// Unique pages; `None` without reads and writes.
    pub working_set: Option<WorkingSet>,
    /// How many requests are outstanding; `None` without completion times.
    pub queue: Option<QueueSummary>,
    /// Garbage collection that fits into idle gaps; `None` without completion times.
    pub idle_gc: Option<IdleGc>,
    /// The device's low-power threshold and wake-up cost.
    pub power_saving: PowerSaving,
    /// The cost of journaling; `None` if the trace has no block notes.
    pub journal: Option<JournalReport>,
    /// Rows of the figures.
    pub figures: Figures,
    /// The six characteristics and five implications of the paper (sections III and IV), judged on this trace.
    pub findings: Vec<Finding>,
}

impl ProfileReport {
    /// Leaves of the figures those whose rows have a name each, not a place in a distribution, in time or in a list: what many
    /// traces are compared by, in a fraction of the size.
    #[must_use]
    pub fn without_distributions(self) -> Self {
        let Figures { hot_pages, alignment, flags, .. } = self.figures;
        Self { figures: Figures { hot_pages, alignment, flags, ..Figures::default() }, ..self }
    }
}
