//! From a trace to its model.

use std::collections::BTreeMap;

use emmclab_trace::{Batch, Error, Kind, Op, Request, Result};

use crate::classes::sizes_kb;
use crate::fit_load::LoadCurve;
use crate::fit_places::Places;
use crate::fit_times::Timeline;
use crate::model::{OperationModel, VERSION, WorkloadModel};

/// Maximum number of requests for which a model has exact counts.
const MOST_REQUESTS: u64 = 1 << 40;

/// Fits a [`WorkloadModel`] to a trace in one pass. Only reads and writes count.
///
/// The model holds counts and distributions only: a trace with other addresses (in the same order of re-use), other
/// names or another clock gives the same one.
pub struct Fitter {
    name: String,
    sizes: [BTreeMap<u64, u64>; 2],
    places: Places,
    timeline: Timeline,
    load: LoadCurve,
    others: u64,
}

impl Fitter {
    /// Starts a model that will be called `name`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            sizes: [BTreeMap::new(), BTreeMap::new()],
            places: Places::default(),
            timeline: Timeline::default(),
            load: LoadCurve::default(),
            others: 0,
        }
    }

    /// Adds the next requests of the trace, in order of arrival.
    pub fn push(&mut self, batch: &Batch) {
        for request in batch {
            self.timeline.span(&request);
            if request.op.has_data() && request.sectors > 0 {
                self.see(&request);
            } else {
                self.others += 1;
            }
        }
    }

    fn see(&mut self, request: &Request) {
        *self.sizes[request.op as usize].entry(u64::from(request.sectors)).or_default() += 1;
        let sequential = self.places.see(request);
        let coming = self.timeline.see(request, sequential);
        self.load.see(request, coming);
    }

    /// The model of all requests added.
    ///
    /// # Errors
    /// [`Kind::Empty`] if there was no read and no write, [`Kind::Value`] if the trace has no duration or has values
    /// beyond the range of a model.
    pub fn finish(self) -> Result<WorkloadModel> {
        let requests: u64 = self.sizes.iter().flat_map(BTreeMap::values).sum();
        if requests == 0 {
            return Err(Error::new(
                Kind::Empty,
                "there is no read or write to which a model could be fitted",
            )
            .hint("give a trace with reads or writes; `emmclab explain TRACE` counts its requests"));
        }
        if requests > MOST_REQUESTS {
            return Err(Error::new(Kind::Value, format!("{requests} requests are too many for one model"))
                .hint("fit the model to a part of the trace"));
        }
        let followed = self.load.finish();
        let timing = self.timeline.finish(requests, followed.op_mixing_pct);
        if timing.duration_s <= 0.0 {
            return Err(Error::new(Kind::Value, "all requests arrive at the same time")
                .hint("give a trace with arrival times"));
        }
        let operation = |op: Op| OperationModel {
            sizes_kb: sizes_kb(&self.sizes[op as usize]),
            ..self.places.operation(op)
        };
        let largest = self.sizes.iter().filter_map(BTreeMap::last_key_value).map(|(sectors, _)| *sectors);
        let largest = largest.max().unwrap_or(0);
        let note =
            (self.others > 0).then(|| format!("{} flushes, discards and the like left out", self.others));
        let model = WorkloadModel {
            version: VERSION,
            name: self.name,
            source: "fitted to a trace".to_owned(),
            made_from: BTreeMap::new(),
            note,
            duration_s: timing.duration_s,
            address_space_gb: self.places.gigabytes(largest),
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
