//! Makes a stream of batches from a model.

use std::sync::Arc;

use emmclab_trace::{Batch, BatchBuilder, NameTable, Op, Result};

use crate::address_space::AddressSpace;
use crate::chapter::SynthesisPlan;
use crate::distribute::SynthesisRng;
use crate::load_schedule::LoadSchedule;
use crate::model::WorkloadModel;
use crate::options::{SynthOptions, SynthesisTotals};
use crate::service::ModelTimes;

/// Makes a trace of a model, batch by batch, in order of arrival. The same model, options and version give the same bytes.
///
/// Memory is bounded by one batch, by the sizes dealt to the rows of a load curve (counts), and by the set of start
/// addresses used.
pub struct Synthesizer {
    plan: SynthesisPlan,
    load: LoadSchedule,
    space: AddressSpace,
    dice: SynthesisRng,
    /// Time at which all requests so far were complete, ns after the first arrival.
    clock: u64,
    names: Arc<NameTable>,
}

impl Synthesizer {
    /// Plans a trace of `model`.
    ///
    /// # Errors
    /// [`emmclab_trace::ErrorClass::Config`] if the model or the options are impossible, or the device would be busy for
    /// longer than the trace.
    pub fn new(model: &WorkloadModel, options: &SynthOptions) -> Result<Self> {
        let mut model = model.clone();
        model.address_space_gb = options.address_space_gb.unwrap_or(model.address_space_gb);
        model.check()?;
        let totals = SynthesisTotals::new(&model, options)?;
        let reaccess_sizes = [Op::Read, Op::Write].map(|op| {
            let sizes = &model.of(op).reaccess_kb;
            sizes.iter().map(|(kb, count)| ((kb * 2.0).round() as u64, *count)).collect()
        });
        let mut dice = SynthesisRng::new(options.seed);
        let space = AddressSpace::new(&model, &mut dice);
        let load = LoadSchedule::new(&model, &totals);
        let plan = SynthesisPlan { times: ModelTimes::new(&model), model, totals, reaccess_sizes };
        Ok(Self { plan, load, space, dice: SynthesisRng::new(options.seed), clock: 0, names: Arc::default() })
    }

    /// Requests in the whole trace.
    pub fn requests(&self) -> u64 {
        self.plan.totals.requests()
    }
}

impl Iterator for Synthesizer {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let chapter = self.load.next(&mut self.dice)?;
        let requests = self.plan.make(&chapter, &mut self.clock, &mut self.space, &mut self.dice);
        let mut builder = BatchBuilder::default();
        for request in &requests {
            builder.push(request);
        }
        Some(builder.finish(&self.names, &self.names))
    }
}
