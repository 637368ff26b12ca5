//! Host software between the workload and the device.
//!
//! A [`Layer`] turns each request into a [`CommandPlan`], which contains commands for the disks below. Its decisions depend only on
//! addresses, and not on time or data. Therefore the same layer runs in simulated time, where only the times of commands matter, and under
//! a live block device, where an [`ImmediateStack`] moves the data.

mod advil;
mod immediate_stack;
mod interval_map;
mod journal;
mod layer;
mod lfs;
mod nvm_buffer;
mod pair;
mod plan;
mod records;
mod registry;
mod ressd;

pub use advil::{Advil, AdvilSettings, HotPolicy, InvalidationMeasure};
pub use immediate_stack::{ImmediateStack, RunningPlan, SectorDisk};
pub use layer::{
    BackgroundDecision, DeferReason, DiskZones, DisksBelow, HostRequest, InFlightRequests, Layer, PassThrough, RecoveryReader,
    RequestDecision, ReservedArea,
};
pub use plan::{CommandPlan, MemoryCopy, MemoryRange, PlanBuffers, PlanCommand, PlanMemory, PlanStep};
pub use registry::{LayerConfig, LayerKind, LayerSetting, build_stack, layers, recoverable};
