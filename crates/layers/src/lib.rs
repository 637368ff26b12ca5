//! Host software between the workload and the device.
//!
//! A [`Layer`] turns each request into a [`CommandPlan`] of commands for the disks below it. It decides on addresses alone, owns
//! no clock and touches no data, so that the same object runs in simulated time, where only the commands' times matter,
//! and under a live block device, where an [`ImmediateStack`] moves the bytes.

mod advil;
mod area_reader;
mod checksum;
mod counters;
mod immediate_stack;
mod in_flight;
mod interval_map;
mod journal;
mod layer;
mod layer_kind;
mod layer_setting;
mod lfs;
mod nvm_buffer;
mod pair;
mod pass_through;
mod plan;
mod registry;
mod request;
mod ressd;
mod stack;
mod stripes;

pub use advil::{Advil, AdvilSettings, HotPolicy, InvalidationMeasure, MoverSchedule};
pub use immediate_stack::{ImmediateStack, RunningPlan, SectorDisk};
pub use in_flight::InFlightRequests;
pub use journal::{JournalLayer, JournalLayerMode as JournalMode, JournalLayerSettings};
pub use layer::{
    BackgroundDecision, DeferReason, DiskZones, DisksBelow, Layer, RecoveryReader, RequestDecision, ReservedArea,
};
pub use layer_kind::LayerKind;
pub use layer_setting::LayerSetting;
pub use lfs::LfsSettings;
pub use nvm_buffer::NvmBufferSettings;
pub use pair::{PairRouting, PairSettings};
pub use pass_through::PassThrough;
pub use plan::{CommandPlan, MemoryCopy, MemoryRange, PlanBuffers, PlanCommand, PlanMemory, PlanStep};
pub use registry::layers;
pub use request::HostRequest;
pub use ressd::RessdSettings;
pub use stack::{LayerConfig, build_stack};
