//! Fits the spread of a trace's requests over the addresses, without keeping any address.

use std::collections::{BTreeMap, HashMap};

use emmclab_trace::{Op, Request, Sector};
use rustc_hash::FxHashSet;

use crate::model::OperationModel;
use crate::octave_histogram::sizes_kb;
use crate::octave_histogram::{OctaveHistogram, round};

/// Maximum number of start addresses whose last use is stored. Further ones are counted, but without reuse distances.
const MOST_STARTS: usize = 1 << 22;
const SECTORS_PER_GB: u64 = 1 << 21;
/// The largest device that a model may name, GB.
const LARGEST_GB: u64 = 2_048;

/// Locality of one operation.
#[derive(Default)]
struct OperationLocality {
    requests: u64,
    sequential: u64,
    /// Runs of sequential requests.
    runs: u64,
    reaccess: u64,
    /// Requests that are sequential and also start at an earlier start address.
    sequential_reaccess: u64,
    /// For each start address, the number of the last request there, and whether that one had returned to it. The order
    /// of the map has no effect, because the map is only searched and counted.
    last: HashMap<u64, (u64, bool)>,
    /// Number of requests that return to an earlier start address, by their size in sectors.
    returning: BTreeMap<u64, u64>,
    /// Reuse distances: the number of requests until a start address is used again.
    distances: OctaveHistogram,
}

/// Collects the addresses of a trace.
#[derive(Default)]
pub(crate) struct AddressFitter {
    start_addresses: FxHashSet<u64>,
    end: Option<Sector>,
    in_run: bool,
    furthest: u64,
    by_op: [OperationLocality; 2],
}

impl AddressFitter {
    /// Adds a read or a write; true if it is sequential.
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

    /// The operation's locality; sizes are left empty.
    pub(crate) fn operation(&self, op: Op) -> OperationModel {
        let own = &self.by_op[op as usize];
        let share = |part: u64, whole: u64| round(100.0 * part as f64 / whole.max(1) as f64, 1e4);
        let reused = own.last.values().filter(|(_, returned)| *returned).count() as u64;
        let mut reuse_requests: Vec<(u64, u64)> = own.distances.means().collect();
        if reuse_requests.is_empty() && own.reaccess > 0 {
            // All returns are to addresses that only the other operation used before.
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

    /// The smallest power of two in GB that holds all addresses and four times the largest request, which is given in sectors.
    pub(crate) fn gigabytes(&self, largest: u64) -> u64 {
        self.furthest.max(4 * largest).div_ceil(SECTORS_PER_GB).clamp(1, LARGEST_GB).next_power_of_two()
    }
}
