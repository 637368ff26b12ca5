//! One layer of the stack, with the requests that it holds and those in flight.

use std::collections::VecDeque;

use emmclab_device::Modifiers;
use emmclab_layers::{Flight, Hold, HostRequest, Layer};
use emmclab_trace::Op;

use crate::result::LayerResult;

/// A request at a level, from when it comes until the layer plans it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub request: HostRequest,
    /// Flags that its writes carry to the device.
    pub modifiers: Modifiers,
    pub arrival: i64,
    /// The plan of the layer above that it is a command of.
    pub parent: Option<u32>,
}

impl Arrived {
    /// What stands for a request in the plans that a layer runs on its own.
    pub fn own(at: i64) -> Self {
        let request = HostRequest { id: 0, op: Op::Flush, sector: 0, sectors: 0 };
        Self { request, modifiers: Modifiers::NONE, arrival: at, parent: None }
    }
}

/// A layer and its state in the run.
pub(super) struct Level {
    pub layer: Box<dyn Layer>,
    pub flight: Flight,
    pub held: VecDeque<Arrived>,
    /// Whether background work is under way.
    pub busy: bool,
    held_full: u64,
    held_overlap: u64,
    pub held_ns: i64,
}

impl Level {
    pub fn new(layer: Box<dyn Layer>) -> Self {
        Self {
            layer,
            flight: Flight::default(),
            held: VecDeque::new(),
            busy: false,
            held_full: 0,
            held_overlap: 0,
            held_ns: 0,
        }
    }

    /// Holds a request that has come, until the layer lets it go on.
    pub fn hold(&mut self, arrived: Arrived, why: Hold) {
        match why {
            Hold::Full => self.held_full += 1,
            Hold::Overlap => self.held_overlap += 1,
        }
        self.held.push_back(arrived);
    }

    /// What the layer did.
    pub fn result(&self) -> LayerResult {
        LayerResult {
            name: self.layer.name().to_owned(),
            held_full: self.held_full,
            held_overlap: self.held_overlap,
            held_ms: self.held_ns as f64 / 1e6,
            counters: self.layer.counters().into_iter().collect(),
        }
    }
}
