//! Fits a model to a trace. The model contains no address of the trace.

use std::collections::{BTreeMap, HashMap};

use emmclab_trace::{Batch, Error, ErrorClass, Op, Request, Result, Sector};
use rustc_hash::FxHashSet;

use crate::distribute::{OctaveHistogram, round, sizes_kb};
use crate::fit_load::LoadFitter;
use crate::fit_times::TimingFitter;
use crate::model::{OperationModel, VERSION, WorkloadModel};

/// Maximum number of requests that can be counted exactly in a model.
const MOST_REQUESTS: u64 = 1 << 40;

/// Fits a [`WorkloadModel`] to the reads and writes of a trace, in one pass.
///
/// The model has counts and distributions only: a trace with other addresses (that are reused in the same order), other names or another
/// clock gives the same model.
pub struct WorkloadFitter {
    name: String,
    sizes: [BTreeMap<u64, u64>; 2],
    addresses: AddressFitter,
    timeline: TimingFitter,
    load: LoadFitter,
    others: u64,
}

impl WorkloadFitter {
    /// Creates an empty fit of a workload model called `name`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            sizes: [BTreeMap::new(), BTreeMap::new()],
            addresses: AddressFitter::default(),
            timeline: TimingFitter::default(),
            load: LoadFitter::default(),
            others: 0,
        }
    }

    /// Adds the next requests of the trace, in order of arrival.
    pub fn push(&mut self, batch: &Batch) {
        for request in batch {
            self.timeline.span(&request);
            if request.op.has_data() && request.sectors > 0 {
                self.add_request(&request);
            } else {
                self.others += 1;
            }
        }
    }

    fn add_request(&mut self, request: &Request) {
        *self.sizes[request.op as usize].entry(u64::from(request.sectors)).or_default() += 1;
        let sequential = self.addresses.add_request(request);
        let coming = self.timeline.add_request(request, sequential);
        self.load.add_request(request, coming);
    }

    /// The model of all requests that were added.
    /// Errors: [`ErrorClass::Empty`] if there were no reads and writes, [`ErrorClass::Value`] if the trace has no duration or has values
    /// outside the range of a model.
    pub fn finish(self) -> Result<WorkloadModel> {
        let requests: u64 = self.sizes.iter().flat_map(BTreeMap::values).sum();
        if requests == 0 {
            return Err(Error::new(ErrorClass::Empty, "the trace has no reads and writes to fit a model to")
                .hint("give a trace with reads or writes; `emmclab explain TRACE` counts its requests"));
        }
        if requests > MOST_REQUESTS {
            return Err(Error::new(ErrorClass::Value, format!("{requests} requests are too many to fit one model"))
                .hint("fit the model to a part of the trace"));
        }
        let followed = self.load.finish();
        let timing = self.timeline.finish(requests, followed.op_mixing_pct);
        if timing.duration_s <= 0.0 {
            return Err(
                Error::new(ErrorClass::Value, "all requests arrive at the same time").hint("give a trace with arrival times")
            );
        }
        let operation = |op: Op| OperationModel { sizes_kb: sizes_kb(&self.sizes[op as usize]), ..self.addresses.operation(op) };
        let largest = self.sizes.iter().filter_map(BTreeMap::last_key_value).map(|(sectors, _)| *sectors);
        let largest = largest.max().unwrap_or(0);
        let note =
            (self.others > 0).then(|| format!("{} flushes, discards and other requests without data were left out", self.others));
        let model = WorkloadModel {
            version: VERSION,
            name: self.name,
            source: "fitted to a trace".to_owned(),
            made_from: BTreeMap::new(),
            note,
            duration_s: timing.duration_s,
            address_space_gb: self.addresses.gigabytes(largest),
            reads: operation(Op::Read),
            writes: operation(Op::Write),
            bursts: timing.bursts,
            service: timing.service,
            load: followed.load,
        };
        model.check()?;
        Ok(model)
    }
}

/// Maximum number of start addresses whose last use is stored. Further addresses are counted, but without reuse distances.
const MOST_STARTS: usize = 1 << 22;
const SECTORS_PER_GB: u64 = 1 << 21;
/// The largest device that a model can describe, GB.
const LARGEST_GB: u64 = 2_048;

#[derive(Default)]
struct OperationLocality {
    requests: u64,
    sequential: u64,
    /// Number of runs of sequential requests.
    runs: u64,
    reaccess: u64,
    /// Number of requests that are sequential and also start where an earlier request started.
    sequential_reaccess: u64,
    /// For each start address, the number of its last request, and whether that request was a return to the address. The order of the map
    /// has no effect, because the map is only searched and counted.
    last: HashMap<u64, (u64, bool)>,
    /// Number of requests that return to an earlier start address, by size in sectors.
    returning: BTreeMap<u64, u64>,
    /// Reuse distances: the number of requests until a start address is used again.
    distances: OctaveHistogram,
}

/// Collects statistics on the addresses of a trace.
#[derive(Default)]
pub(crate) struct AddressFitter {
    start_addresses: FxHashSet<u64>,
    end: Option<Sector>,
    in_run: bool,
    furthest: u64,
    by_op: [OperationLocality; 2],
}

impl AddressFitter {
    /// Adds a read or a write; returns whether it is sequential.
    pub(crate) fn add_request(&mut self, request: &Request) -> bool {
        let start = request.sector.0;
        let sequential = self.end == Some(request.sector);
        let returns = !self.start_addresses.insert(start);
        self.end = Some(request.end());
        self.furthest = self.furthest.max(request.end().0);
        let own = &mut self.by_op[request.op as usize];
        own.requests += 1;
        own.sequential += u64::from(sequential);
        own.runs += u64::from(sequential && !self.in_run);
        self.in_run = sequential;
        own.sequential_reaccess += u64::from(sequential && returns);
        if returns {
            own.reaccess += 1;
            *own.returning.entry(u64::from(request.sectors)).or_default() += 1;
        }
        let before = if own.last.len() < MOST_STARTS || own.last.contains_key(&start) {
            own.last.insert(start, (own.requests, returns))
        } else {
            None
        };
        if let Some((before, _)) = before {
            own.distances.push(own.requests - before, 1);
        }
        sequential
    }

    /// The model of an operation with its locality; the sizes are left empty.
    pub(crate) fn operation(&self, op: Op) -> OperationModel {
        let own = &self.by_op[op as usize];
        let share = |part: u64, whole: u64| round(100.0 * part as f64 / whole.max(1) as f64, 1e4);
        let reused = own.last.values().filter(|(_, returned)| *returned).count() as u64;
        let mut reuse_requests: Vec<(u64, u64)> = own.distances.means().collect();
        if reuse_requests.is_empty() && own.reaccess > 0 {
            // Before each repeated access, only the other operation had used the address: only writes before a read, only reads before a
            // write.
            reuse_requests.push((1, 1));
        }
        OperationModel {
            sizes_kb: Vec::new(),
            sequential_pct: share(own.sequential, own.requests),
            reaccess_pct: share(own.reaccess, own.requests),
            run_requests: round(1.0 + own.sequential.max(1) as f64 / own.runs.max(1) as f64, 1e3).max(2.0),
            sequential_reaccess_pct: share(own.sequential_reaccess, own.sequential),
            reaccess_kb: sizes_kb(&own.returning),
            reused_starts_pct: share(reused, own.last.len() as u64),
            reuse_requests,
        }
    }

    /// The size of the address space in GB: the smallest power of two that contains all addresses and is at least four times as large as
    /// the largest request. `largest` is the length of that request in sectors.
    pub(crate) fn gigabytes(&self, largest: u64) -> u64 {
        self.furthest.max(4 * largest).div_ceil(SECTORS_PER_GB).clamp(1, LARGEST_GB).next_power_of_two()
    }
}
