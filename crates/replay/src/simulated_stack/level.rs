//! One layer of the stack, with its deferred requests and those in flight.

use std::collections::VecDeque;

use emmclab_device::CommandFlags;
use emmclab_layers::{DeferReason, HostRequest, InFlightRequests, Layer};
use emmclab_trace::{BlockNote, Nanos, Op};

use crate::result::LayerResult;

/// The command in a plan of the layer above that became this request.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParentCommand {
    pub task: u32,
    /// The command, whose pieces state where its data is located.
    pub command: emmclab_layers::PlanCommand,
}

/// A request at a level, from its arrival until the layer plans it.
#[derive(Clone, Debug)]
pub(super) struct ArrivedRequest {
    pub request: HostRequest,
    pub arrival: Nanos,
    /// `None` for requests of the workload.
    pub parent: Option<ParentCommand>,
    /// Number of earlier requests, for a request of the workload.
    pub number: u64,
    /// The roles of a write's blocks; only for a request of the workload.
    pub notes: Vec<BlockNote>,
    /// The data of a write; empty if the stack does not move data.
    pub data: Vec<u8>,
}

impl ArrivedRequest {
    /// A placeholder for the request in plans that a layer runs without one.
    pub fn placeholder(at: Nanos) -> Self {
        let request = HostRequest { id: 0, op: Op::Flush, sector: 0, sectors: 0, modifiers: CommandFlags::empty() };
        Self { request, arrival: at, parent: None, number: 0, notes: Vec::new(), data: Vec::new() }
    }
}

/// A layer and its state in the run.
pub(super) struct SimulatedLevel {
    pub layer: Box<dyn Layer>,
    /// Flags that its requests may have.
    pub accepts: CommandFlags,
    pub in_flight: InFlightRequests,
    pub deferred: VecDeque<ArrivedRequest>,
    /// Whether background work is in progress.
    pub background_running: bool,
    /// Memory of the layer that is kept between plans, if the stack moves data.
    pub layer_memory: Vec<u8>,
    deferred_full: u64,
    deferred_overlap: u64,
    pub deferred_time: Nanos,
}

impl SimulatedLevel {
    pub fn new(layer: Box<dyn Layer>) -> Self {
        Self {
            accepts: layer.accepts(),
            layer,
            in_flight: InFlightRequests::default(),
            deferred: VecDeque::new(),
            background_running: false,
            layer_memory: Vec::new(),
            deferred_full: 0,
            deferred_overlap: 0,
            deferred_time: Nanos::ZERO,
        }
    }

    /// Keeps an arrived request until the layer accepts it.
    pub fn defer(&mut self, arrived: ArrivedRequest, why: DeferReason) {
        match why {
            DeferReason::Full => self.deferred_full += 1,
            DeferReason::Overlap => self.deferred_overlap += 1,
        }
        self.deferred.push_back(arrived);
    }

    /// Resets the counts of the layer to 0.
    pub fn clear_counters(&mut self) {
        (self.deferred_full, self.deferred_overlap, self.deferred_time) = (0, 0, Nanos::ZERO);
        self.layer.clear_counters();
    }

    /// The counts of the layer.
    pub fn result(&self) -> LayerResult {
        LayerResult {
            name: self.layer.name().to_owned(),
            held_full: self.deferred_full,
            held_overlap: self.deferred_overlap,
            held_ms: self.deferred_time.as_millis_f64(),
            left_out: self.layer.left_out().to_vec(),
            counters: self.layer.counters().into_iter().collect(),
        }
    }
}
