//! From a trace to its model.

use std::collections::BTreeMap;

use emmclab_trace::{Batch, Error, ErrorClass, Op, Request, Result};

use crate::fit_addresses::AddressFitter;
use crate::fit_load::LoadFitter;
use crate::fit_times::TimingFitter;
use crate::model::{OperationModel, VERSION, WorkloadModel};
use crate::octave_histogram::sizes_kb;

/// Maximum number of requests for which a model has exact counts.
const MOST_REQUESTS: u64 = 1 << 40;

/// Fits a [`WorkloadModel`] to a trace in one pass. Only reads and writes count.
///
/// The model holds counts and distributions only: a trace with other addresses (in the same order of re-use), other
/// names or another clock gives the same one.
pub struct WorkloadFitter {
    name: String,
    sizes: [BTreeMap<u64, u64>; 2],
    addresses: AddressFitter,
    timeline: TimingFitter,
    load: LoadFitter,
    others: u64,
}

impl WorkloadFitter {
    /// Starts a model that will be called `name`.
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

    /// The model of all requests added.
    ///
    /// # Errors
    /// [`ErrorClass::Empty`] if there was no read and no write, [`ErrorClass::Value`] if the trace has no duration or has values
    /// beyond the range of a model.
    pub fn finish(self) -> Result<WorkloadModel> {
        let requests: u64 = self.sizes.iter().flat_map(BTreeMap::values).sum();
        if requests == 0 {
            return Err(Error::new(ErrorClass::Empty, "there is no read or write to which a model could be fitted")
                .hint("give a trace with reads or writes; `emmclab explain TRACE` counts its requests"));
        }
        if requests > MOST_REQUESTS {
            return Err(Error::new(ErrorClass::Value, format!("{requests} requests are too many for one model"))
                .hint("fit the model to a part of the trace"));
        }
        let followed = self.load.finish();
        let timing = self.timeline.finish(requests, followed.op_mixing_pct);
        if timing.duration_s <= 0.0 {
            return Err(Error::new(ErrorClass::Value, "all requests arrive at the same time")
                .hint("give a trace with arrival times"));
        }
        let operation =
            |op: Op| OperationModel { sizes_kb: sizes_kb(&self.sizes[op as usize]), ..self.addresses.operation(op) };
        let largest = self.sizes.iter().filter_map(BTreeMap::last_key_value).map(|(sectors, _)| *sectors);
        let largest = largest.max().unwrap_or(0);
        let note = (self.others > 0).then(|| format!("{} flushes, discards and the like left out", self.others));
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
