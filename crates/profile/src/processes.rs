//! I/O by process and by device; a name has the same index in all batches and traces.

use emmclab_timeline::{DurationHistogram, SparseHistogram};
use emmclab_trace::{NameId, NameTable, Op, Request};

use crate::bins::pct;
use crate::elapsed;
use crate::report::{DeviceRow, ProcessRow, SharePercentile, ShareRow};

/// Maximum number of rows in the table; the other names are combined into one row.
const ROWS: usize = 64;
/// Number of names that have their own histogram of response times: the first names that occur in requests. With times of up to a second,
/// the histograms take 7 MB.
const TIMED: usize = 1_024;

/// Counts for each name of a process or device.
#[derive(Clone, Debug, Default)]
pub(crate) struct IoShareTable {
    names: NameMap,
    /// Counts of each name, by its index in `names`; index 0 is for requests without a name.
    counts: Vec<IoShare>,
    /// Response times of reads and writes, for the first [`TIMED`] names.
    times: Vec<DurationHistogram>,
    /// Response times of all other names.
    other_times: DurationHistogram,
}

/// The process ids that requests with the same process name have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProcessIds {
    #[default]
    None,
    One(i32),
    /// Several ids, or at least one request with an unknown id.
    Several,
}

impl ProcessIds {
    #[inline]
    fn add(&mut self, pid: Self) {
        *self = match (*self, pid) {
            (Self::None, pid) => pid,
            (known, pid) if known == pid => known,
            _ => Self::Several,
        };
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct IoShare {
    reads: u64,
    writes: u64,
    others: u64,
    read_sectors: u64,
    write_sectors: u64,
    pids: ProcessIds,
}

impl IoShareTable {
    /// Adds the names of a table. It must be called before requests with these names are added.
    pub fn follow(&mut self, names: &NameTable) {
        self.names.follow(names);
    }

    #[inline]
    pub fn add(&mut self, request: &Request, name: Option<NameId>) {
        let index = self.names.index(name) as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, IoShare::default());
        }
        let share = &mut self.counts[index];
        match request.op {
            Op::Read => {
                share.reads += 1;
                share.read_sectors += u64::from(request.sectors);
            }
            Op::Write => {
                share.writes += 1;
                share.write_sectors += u64::from(request.sectors);
            }
            _ => share.others += 1,
        }
        share.pids.add(request.pid.map_or(ProcessIds::Several, ProcessIds::One));
        if let (Some(complete), true) = (request.succeeded(), request.op.has_data()) {
            self.times_of(index).add(elapsed(request.arrival, complete));
        }
    }

    /// The histogram of response times for the name with this index.
    #[inline]
    fn times_of(&mut self, index: usize) -> &mut DurationHistogram {
        if index >= TIMED {
            return &mut self.other_times;
        }
        if index >= self.times.len() {
            self.times.resize_with(index + 1, DurationHistogram::default);
        }
        &mut self.times[index]
    }

    pub fn merge(&mut self, other: &Self) {
        let index_of = self.names.merge(&other.names);
        for (theirs, index) in other.counts.iter().zip(&index_of) {
            let index = *index as usize;
            if index >= self.counts.len() {
                self.counts.resize(index + 1, IoShare::default());
            }
            self.counts[index].add(theirs);
        }
        for (theirs, index) in other.times.iter().zip(&index_of) {
            self.times_of(*index as usize).merge(theirs);
        }
        self.other_times.merge(&other.other_times);
    }

    /// The rows of a table of processes, with these percentiles of response times.
    pub fn processes(&self, percentiles: &[f64]) -> Vec<ProcessRow> {
        self.rows(percentiles).into_iter().map(|(process, share)| ProcessRow { process, share }).collect()
    }

    pub fn devices(&self) -> Vec<DeviceRow> {
        self.rows(&[]).into_iter().map(|(device, share)| DeviceRow { device, share }).collect()
    }

    /// Rows by name, with the most requests first; empty if no request has a name.
    fn rows(&self, percentiles: &[f64]) -> Vec<(String, ShareRow)> {
        if self.counts.len() <= 1 {
            return Vec::new();
        }
        let mut used: Vec<usize> = (0..self.counts.len()).filter(|index| self.counts[*index].requests() > 0).collect();
        let name = |index: usize| self.names.name(index).unwrap_or("(unknown)");
        used.sort_by(|a, b| {
            let (x, y) = (self.counts[*a].requests(), self.counts[*b].requests());
            y.cmp(&x).then_with(|| name(*a).cmp(name(*b)))
        });
        let mut all = IoShare::default();
        for index in &used {
            all.add(&self.counts[*index]);
        }
        let rest = if used.len() > ROWS { used.split_off(ROWS - 1) } else { Vec::new() };
        let times = |index: &usize| self.times.get(*index).map(DurationHistogram::times).unwrap_or_default();
        let mut rows: Vec<_> = used
            .iter()
            .map(|index| (name(*index).to_owned(), self.counts[*index].row(&all, &times(index), percentiles)))
            .collect();
        if !rest.is_empty() {
            let (mut share, mut others) = (IoShare::default(), self.other_times.times());
            for index in &rest {
                share.add(&self.counts[*index]);
                others.add(&times(index));
            }
            rows.push(("(others)".to_owned(), share.row(&all, &others, percentiles)));
        }
        rows
    }
}

impl IoShare {
    fn requests(&self) -> u64 {
        self.reads + self.writes + self.others
    }

    fn sectors(&self) -> u64 {
        self.read_sectors + self.write_sectors
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_sectors += other.read_sectors;
        self.write_sectors += other.write_sectors;
        self.pids.add(other.pids);
    }

    fn row(&self, all: &Self, times: &SparseHistogram, percentiles: &[f64]) -> ShareRow {
        let percentile =
            |percentile: &f64| SharePercentile { percentile: *percentile, response_ms: times.percentile_ms(*percentile) };
        ShareRow {
            reads: self.reads,
            writes: self.writes,
            others: self.others,
            read_kb: self.read_sectors as f64 / 2.0,
            write_kb: self.write_sectors as f64 / 2.0,
            requests_pct: pct(self.requests(), all.requests()).unwrap_or(0.0),
            data_pct: pct(self.sectors(), all.sectors()).unwrap_or(0.0),
            write_requests_pct: pct(self.writes, self.reads + self.writes),
            pid: match self.pids {
                ProcessIds::One(pid) => Some(pid),
                ProcessIds::None | ProcessIds::Several => None,
            },
            response_mean_ms: times.mean_ms(),
            response_p50_ms: times.percentile_ms(50.0),
            response_p90_ms: times.percentile_ms(90.0),
            response_p99_ms: times.percentile_ms(99.0),
            response_max_ms: times.max_ms(),
            percentiles: percentiles.iter().map(percentile).collect(),
        }
    }
}

/// Maps the names of the current trace to those of the profile.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameMap {
    names: NameTable,
    profile_ids: Vec<u32>,
    /// The name table of the current trace, for which `profile_ids` is valid.
    trace_names: NameTable,
}

impl NameMap {
    /// Adds the names of a name table of the trace to [`NameMap::profile_ids`].
    pub fn follow(&mut self, theirs: &NameTable) {
        // The name table of each batch begins with the names of the previous batch, possibly millions, which are not processed again.
        let known = if theirs.continues(&self.trace_names) { self.trace_names.len() } else { 0 };
        if known == theirs.len() {
            return;
        }
        self.trace_names = theirs.clone();
        for (id, name) in (known..).zip(theirs.from(known)) {
            if self.profile_ids.get(id).and_then(|ours| self.names.get(NameId(*ours))) != Some(name) {
                let ours = self.names.intern(name).0;
                match self.profile_ids.get_mut(id) {
                    Some(known) => *known = ours,
                    None => self.profile_ids.push(ours),
                }
            }
        }
    }

    /// Returns the index of a trace's name in the profile; 0 for a request without a name.
    #[inline]
    pub fn index(&self, theirs: Option<NameId>) -> u32 {
        theirs.and_then(|id| self.profile_ids.get(id.0 as usize)).map_or(0, |ours| ours + 1)
    }

    /// Adds the names of another map. Returns the index in this map for each index of the other map.
    pub fn merge(&mut self, other: &Self) -> Vec<u32> {
        std::iter::once(0).chain(other.names.iter().map(|name| self.names.intern(name).0 + 1)).collect()
    }

    pub fn name(&self, index: usize) -> Option<&str> {
        index.checked_sub(1).and_then(|id| self.names.get(NameId(id as u32)))
    }
}
