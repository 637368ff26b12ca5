//! I/O, queue depth and working set over time, in at most 256 bins.

use emmclab_trace::{Nanos, Op, Request};

use crate::coarsening::{Cell, CoarseningBins};
use crate::pages::NewPages;
use crate::report::{DepthTimeRow, IoTimeRow, WorkingSet, WorkingSetRow};

/// Bins at most; at least half as many once a trace is longer than this many milliseconds.
const BINS: usize = 256;

/// Content of each bin.
#[derive(Clone, Debug)]
pub(crate) struct Timeline(CoarseningBins<Activity>);

#[derive(Clone, Debug, Default)]
struct Activity {
    reads: u64,
    writes: u64,
    others: u64,
    read_sectors: u64,
    write_sectors: u64,
    new_pages: u64,
    new_written: u64,
    depth_known: u64,
    depth_sum: u64,
    depth_max: u64,
}

impl Cell for Activity {
    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_sectors += other.read_sectors;
        self.write_sectors += other.write_sectors;
        self.new_pages += other.new_pages;
        self.new_written += other.new_written;
        self.depth_known += other.depth_known;
        self.depth_sum += other.depth_sum;
        self.depth_max = self.depth_max.max(other.depth_max);
    }
}

impl Activity {
    fn requests(&self) -> u64 {
        self.reads + self.writes + self.others
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self(CoarseningBins::new(BINS))
    }
}

impl Timeline {
    #[inline]
    pub fn add(&mut self, request: &Request, depth: Option<u64>, new: NewPages) {
        let bin = self.0.at(request.arrival);
        let sectors = u64::from(request.sectors);
        match request.op {
            Op::Read => {
                bin.reads += 1;
                bin.read_sectors += sectors;
            }
            Op::Write => {
                bin.writes += 1;
                bin.write_sectors += sectors;
            }
            _ => bin.others += 1,
        }
        bin.new_pages += new.touched;
        bin.new_written += new.written;
        if let Some(depth) = depth {
            bin.depth_known += 1;
            bin.depth_sum += depth;
            bin.depth_max = bin.depth_max.max(depth);
        }
    }

    /// With `aligned` as if both had started together.
    pub fn merge(&mut self, other: Self, aligned: bool) {
        self.0.merge(other.0, aligned);
    }

    pub fn io_rows(&self, origin: Nanos) -> Vec<IoTimeRow> {
        let width_s = self.0.width_s();
        let used = self.0.iter(origin).filter(|(_, bin)| bin.requests() > 0);
        used.map(|(time_s, bin)| IoTimeRow {
            time_s,
            width_s,
            reads: bin.reads,
            writes: bin.writes,
            others: bin.others,
            read_kb: bin.read_sectors as f64 / 2.0,
            write_kb: bin.write_sectors as f64 / 2.0,
        })
        .collect()
    }

    pub fn depth_rows(&self, origin: Nanos) -> Vec<DepthTimeRow> {
        let width_s = self.0.width_s();
        let known = self.0.iter(origin).filter(|(_, bin)| bin.depth_known > 0);
        known
            .map(|(time_s, bin)| DepthTimeRow {
                time_s,
                width_s,
                mean_depth: bin.depth_sum as f64 / bin.depth_known as f64,
                max_depth: bin.depth_max,
            })
            .collect()
    }

    /// Pages are new to the piece of the trace that was profiled in one go, so growth never passes the true `total`.
    pub fn working_set_rows(&self, origin: Nanos, total: WorkingSet) -> Vec<WorkingSetRow> {
        let width_s = self.0.width_s();
        let (mut unique, mut written) = (0, 0);
        let mut rows = Vec::new();
        for (time_s, bin) in self.0.iter(origin).filter(|(_, bin)| bin.requests() > 0) {
            unique += bin.new_pages;
            written += bin.new_written;
            rows.push(WorkingSetRow {
                time_s: time_s + width_s,
                unique_kb: 4 * unique.min(total.unique_pages),
                written_kb: 4 * written.min(total.written_pages),
            });
        }
        rows
    }
}
