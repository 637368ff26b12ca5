//! Drives a workload through layers into a device: open and closed loop, preconditioning, measurement.
//!
//! [`simulate`] runs whole traces; [`Simulation`] accepts requests batch by batch, for callers that show progress or stop early.

mod arrival_pacer;
mod arrival_state;
mod bandwidth;
mod closed_loop;
mod direct;
mod disk;
mod disk_pair;
mod engine;
mod event_sink;
mod fitted_figures;
mod host;
mod images;
mod live_stack;
mod options;
mod over_time;
mod periodic_flushes;
mod precondition;
mod preflight;
mod recorded_times;
mod recorder;
mod reorder_buffer;
mod request_rows;
mod result;
mod run_measurement;
mod sequence_map;
mod simulated_stack;
mod simulation;
mod time_histogram;
mod tracks;
mod wrap_addresses;

pub use bandwidth::{BandwidthRow, CommandTimes, SyncMethod, TransferPattern, UsedDevice, bandwidth};
pub use closed_loop::ClosedLoop;
pub use direct::DirectIo;
pub use event_sink::DeviceEventSink;
pub use fitted_figures::{FittedFigure, fitted_figures};
pub use host::{DriverCounts, HostCounts};
pub use images::ImageStore;
pub use live_stack::{LiveCompletion, LiveStack, StackDevice};
pub use options::{RateFactor, ReplayMode, ReplayOptions};
pub use over_time::{RunOverTime, RunTimeRow};
pub use precondition::{PhoneUse, Precondition, age_by_traces, preconditioned_bytes, prepare, prepare_by_traces};
pub use preflight::{ModeChoice, preflight};
pub use recorder::RunRecorder;
pub use request_rows::RequestRows;
pub use result::{
    BlockDistribution, ByOperation, CacheCounts, ComputeCost, ConfigurationSummary, DurableTimes, EnergyUse,
    FlashOperations, GcSummary, LayerResult, LifetimeEstimate, LinkDirection, LoadSummary, LogBlockMerges, MapCounts,
    PageOperations, PowerStateTimes, RecordedComparison, ReplaySummary, RequestTotals, ResponseHistogramRow,
    ResponsePercentileRow, ResponseTimeSummary, SecondDevice, ServiceTimeSummary, ShareComparison, SimulationResult,
    SlcCounts, SpaceUse, TimeComparison, TimePercentiles, UfsUse, Utilisation, WaitTimes, WearSummary,
    WriteAmplification, WriteBoosterUse, ZoneUse,
};
pub use run_measurement::RunMeasurement;
pub use simulation::{Simulation, simulate};
pub use time_histogram::TimeSummary;
pub use tracks::RunTracks;
