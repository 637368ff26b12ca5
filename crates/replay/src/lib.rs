//! Drives a workload through layers into a device, in open or closed loop, after preconditioning, and measures it.
//!
//! [`simulate`] executes whole traces. [`Simulation`] accepts requests batch by batch, for callers that show progress or stop early.

mod arrival_pacer;
mod arrival_state;
mod bandwidth;
mod disk;
mod engine;
mod fitted_figures;
mod host;
mod images;
mod live_stack;
mod options;
mod precondition;
mod recorder;
mod request_rows;
mod result;
mod run_measurement;
mod sequence_map;
mod simulated_stack;
mod simulation;
mod time_histogram;
mod tracks;

pub use arrival_pacer::{ArrivalPacer, CommandBuilder, PeriodicFlushes};
pub use bandwidth::{BandwidthRow, CommandTimes, DirectIo, SyncMethod, TransferPattern, UsedDevice, bandwidth};
pub use disk::DeviceEventSink;
pub use fitted_figures::{FittedFigure, fitted_figures};
pub use host::{DriverCounts, HostCounts};
pub use images::ImageStore;
pub use live_stack::{LiveCompletion, LiveStack, StackDevice};
pub use options::{ModeChoice, RateFactor, ReplayMode, ReplayOptions, preflight, preflight_on};
pub use precondition::{PhoneUse, Precondition, age_by_traces, preconditioned_bytes, prepare, prepare_by_traces};
pub use recorder::{RunOverTime, RunRecorder, RunTimeRow};
pub use request_rows::RequestRows;
pub use result::*;
pub use run_measurement::RunMeasurement;
pub use simulation::{ClosedLoop, FioHostCost, FioRun, Simulation, simulate};
pub use time_histogram::TimeSummary;
pub use tracks::RunTracks;
