//! I/O, queue depth and working set over time, and a heatmap of requests by time and address with at most 64 x 64 cells.

use emmclab_timeline::{BinContent, BinWidth, CoarseningBins, DataDirection, OverTimeBin, OverTimeRow, RequestsOverTime};
use emmclab_trace::{Nanos, Op, Request};

use crate::elapsed;
use crate::pages::NewPages;
use crate::report::{AddressTimeRow, DepthTimeRow, IoTimeRow, WorkingSet, WorkingSetRow};

#[derive(Clone, Debug, Default)]
pub(crate) struct IoTimeline(RequestsOverTime<TimelineBin>);

/// The counts of a time bin other than those of reads and writes.
#[derive(Clone, Debug, Default)]
struct TimelineBin {
    others: u64,
    new_pages: u64,
    new_written: u64,
    depth_known: u64,
    depth_sum: u64,
    depth_max: u64,
}

impl BinContent for TimelineBin {
    fn add(&mut self, other: &Self) {
        self.others += other.others;
        self.new_pages += other.new_pages;
        self.new_written += other.new_written;
        self.depth_known += other.depth_known;
        self.depth_sum += other.depth_sum;
        self.depth_max = self.depth_max.max(other.depth_max);
    }
}

fn is_used(bin: &OverTimeBin<TimelineBin>) -> bool {
    bin.requests(DataDirection::Read) + bin.requests(DataDirection::Write) + bin.extra.others > 0
}

/// The rows of all figures over time.
#[derive(Debug, Default)]
pub(crate) struct TimelineRows {
    pub io: Vec<IoTimeRow>,
    pub depth: Vec<DepthTimeRow>,
    pub working_set: Vec<WorkingSetRow>,
}

impl IoTimeline {
    pub fn new(width: BinWidth) -> Self {
        Self(RequestsOverTime::new(width))
    }

    /// Adds a request to its time bin: data and response time of a read or write, or the count of another operation.
    #[inline]
    pub fn add_data(&mut self, request: &Request) {
        let side = match request.op {
            Op::Read => DataDirection::Read,
            Op::Write => DataDirection::Write,
            _ => {
                self.0.extra(request.arrival).others += 1;
                return;
            }
        };
        let response = request.succeeded().map(|complete| elapsed(request.arrival, complete));
        self.0.add(request.arrival, side, request.sectors, response);
    }

    /// Adds the queue depth and the newly touched pages of a request to its time bin.
    #[inline]
    pub fn add(&mut self, request: &Request, depth: Option<u64>, new: NewPages) {
        let bin = self.0.extra(request.arrival);
        bin.new_pages += new.touched;
        bin.new_written += new.written;
        if let Some(depth) = depth {
            bin.depth_known += 1;
            bin.depth_sum += depth;
            bin.depth_max = bin.depth_max.max(depth);
        }
    }

    /// Merges another timeline. If `aligned` is set, both timelines begin at the same time.
    pub fn merge(&mut self, other: Self, aligned: bool) {
        self.0.merge(other.0, aligned);
    }

    /// Returns the rows of all figures over time. Merged parts of a trace may count the same page as new, so the sum of new pages is
    /// limited to the true `total`.
    pub fn rows(&self, origin: Nanos, total: WorkingSet) -> TimelineRows {
        let mut rows = TimelineRows::default();
        let (mut unique, mut written) = (0, 0);
        let bins = self.0.bins();
        for (time_s, width_s, bin) in bins.iter(origin).filter(|(_, _, bin)| is_used(bin)) {
            let TimelineBin { others, new_pages, new_written, depth_known, depth_sum, depth_max } = bin.extra;
            rows.io.push(IoTimeRow { data: OverTimeRow::new(time_s, width_s, bin), others });
            if depth_known > 0 {
                let mean_depth = depth_sum as f64 / depth_known as f64;
                rows.depth.push(DepthTimeRow { time_s, width_s, mean_depth, max_depth: depth_max });
            }
            unique += new_pages;
            written += new_written;
            rows.working_set.push(WorkingSetRow {
                time_s: time_s + width_s,
                unique_kb: 4 * unique.min(total.unique_pages),
                written_kb: 4 * written.min(total.written_pages),
            });
        }
        rows
    }
}

const TIMES: usize = 64;
const ADDRESSES: usize = 64;
/// Binary logarithm of the number of sectors in a MB. A cell of the heatmap is initially 1 MB high.
const SECTOR_TO_MB: u32 = 11;

/// Counts of requests by time and start address. The width or height of the cells doubles when a trace extends beyond the heatmap. The
/// addresses of all devices of a trace share one axis.
#[derive(Clone, Debug)]
pub(crate) struct AddressHeatmap {
    rows: CoarseningBins<HeatmapRow>,
    /// The height of a cell is `2^shift` MB.
    shift: u32,
}

/// Counts of reads and writes by address, for one time step of the heatmap.
#[derive(Clone, Debug)]
struct HeatmapRow([[u64; 2]; ADDRESSES]);

impl Default for HeatmapRow {
    fn default() -> Self {
        Self([[0; 2]; ADDRESSES])
    }
}

impl BinContent for HeatmapRow {
    fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine[0] += theirs[0];
            mine[1] += theirs[1];
        }
    }
}

impl Default for AddressHeatmap {
    fn default() -> Self {
        Self { rows: CoarseningBins::new(TIMES), shift: 0 }
    }
}

impl AddressHeatmap {
    /// Adds a read or write to its cell of the heatmap.
    #[inline]
    pub fn add(&mut self, request: &Request) {
        let mb = request.sector.0 >> SECTOR_TO_MB;
        while mb >> self.shift >= ADDRESSES as u64 {
            self.coarsen();
        }
        let cell = (mb >> self.shift) as usize;
        self.rows.at(request.arrival).0[cell][usize::from(request.op == Op::Write)] += 1;
    }

    /// Doubles the height of the cells.
    fn coarsen(&mut self) {
        self.shift += 1;
        self.rows.for_each_mut(|row| {
            for cell in 0..ADDRESSES {
                let pair = [2 * cell, 2 * cell + 1];
                let both = pair.map(|from| row.0.get(from).copied().unwrap_or_default());
                row.0[cell] = [both[0][0] + both[1][0], both[0][1] + both[1][1]];
            }
        });
    }

    /// Merges another heatmap. If `aligned` is set, both heatmaps begin at the same time.
    pub fn merge(&mut self, mut other: Self, aligned: bool) {
        while self.shift < other.shift {
            self.coarsen();
        }
        while other.shift < self.shift {
            other.coarsen();
        }
        self.rows.merge(other.rows, aligned);
    }

    pub fn rows(&self, origin: Nanos) -> Vec<AddressTimeRow> {
        let mut rows = Vec::new();
        for (time_s, width_s, row) in self.rows.iter(origin) {
            for (cell, &[reads, writes]) in (0_u64..).zip(&row.0) {
                if reads + writes > 0 {
                    let (low_mb, high_mb) = (cell << self.shift, (cell + 1) << self.shift);
                    rows.push(AddressTimeRow { time_s, width_s, low_mb, high_mb, reads, writes });
                }
            }
        }
        rows
    }
}
