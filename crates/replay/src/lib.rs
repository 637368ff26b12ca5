//! Drives a workload through layers into a device: open and closed loop, preconditioning, measurement.
//!
//! [`simulate`] runs whole traces; [`Simulation`] takes batches step by step, for callers that show progress or stop early.

mod bandwidth;
mod direct;
mod fold;
mod images;
mod layered;
mod measure;
mod options;
mod pace;
mod precondition;
mod result;
mod rows;
mod simulation;

pub use bandwidth::{Bandwidth, bandwidth};
pub use direct::DirectIo;
pub use images::ImageStore;
pub use measure::Measure;
pub use options::{Mode, Precondition, Rate, ReplayOptions};
pub use precondition::age_by_traces;
pub use result::{
    Distribution, LayerResult, Lifetime, SecondDevice, SimulationResult, Times, Utilisation, WafByCause,
};
pub use rows::RequestRows;
pub use simulation::{Simulation, simulate};
