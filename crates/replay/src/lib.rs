//! Drives a workload through layers into a device: open and closed loop, preconditioning, measurement.
//!
//! [`simulate`] runs whole traces; [`Simulation`] accepts requests batch by batch, for callers that show progress or stop early.

mod bandwidth;
mod closed_loop;
mod direct;
mod disk;
mod disks;
mod engine;
mod fitted;
mod flushes;
mod found;
mod host;
mod images;
mod in_order;
mod layered;
mod measure;
mod numbered;
mod options;
mod over_time;
mod pace;
mod precondition;
mod preflight;
mod recorded;
mod recorder;
mod result;
mod rows;
mod simulation;
mod stack;
mod tally;
mod tap;
mod tracks;
mod wrap_addresses;

pub use bandwidth::{Bandwidth, CommandTimes, Sync, Transfers, UsedDevice, bandwidth};
pub use closed_loop::ClosedLoop;
pub use direct::DirectIo;
pub use fitted::{FittedFigure, fitted_figures};
pub use host::{DriverCounts, HostCounts};
pub use images::ImageStore;
pub use measure::Measure;
pub use options::{Mode, Rate, ReplayOptions};
pub use over_time::{RunOverTime, RunTimeRow};
pub use precondition::{Precondition, Use, age_by_traces, preconditioned_bytes, prepare, prepare_by_traces};
pub use preflight::{Chosen, preflight};
pub use recorder::Recorder;
pub use result::{
    ByOperation, CacheCounts, Collection, Computing, Configuration, Distribution, DurableTimes, Energy,
    FlashOperations, LayerResult, Lifetime, LinkDirection, Load, LogBlockMerges, MapCounts, PageOperations,
    PercentileRow, Percentiles, PowerStates, RecordedBeside, Requests, ResponseRow, ResponseTimes, Run,
    SecondDevice, ServiceTimes, ShareBeside, SimulationResult, SlcCounts, Space, TimeBeside, UfsUse,
    Utilisation, WaitTimes, Wear, WriteAmplification, WriteBoosterUse, ZoneUse,
};
pub use rows::RequestRows;
pub use simulation::{Simulation, simulate};
pub use stack::{Answer, Part, Stack};
pub use tally::Times;
pub use tap::Tap;
pub use tracks::RunTracks;
