//! Host software between the workload and the device.
//!
//! A [`Layer`] turns each request into a [`CommandPlan`] of commands for the disks below it. It decides on addresses alone, owns
//! no clock and touches no data, so that the same object runs in simulated time, where only the commands' times matter,
//! and under a live block device, where an [`ImmediateStack`] moves the bytes.

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
pub use registry::{LayerConfig, LayerKind, LayerSetting, build_stack, layers};
