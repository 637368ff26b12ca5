//! Host software between the workload and the device.
//!
//! A [`Layer`] is asked what to do with each request and answers with a [`Plan`] of commands for the disks below it. It
//! decides on addresses alone, owns no clock and touches no data, so that the same object runs in simulated time, where
//! only the commands' times matter, and under a live block device, where an [`Executor`] moves the bytes.

mod advil;
mod checksum;
mod executor;
mod flight;
mod kind;
mod knobs;
mod layer;
mod pass_through;
mod plan;
mod registry;
mod request;
mod ressd;
mod size;
mod stack;

pub use advil::{Advil, AdvilSettings, HotPolicy, Mover};
pub use executor::{Disk, Executor, Running};
pub use flight::Flight;
pub use kind::Kind as LayerKind;
pub use knobs::Knob;
pub use layer::{Answer, Area, Below, Hold, Layer, ReadAt, Work};
pub use pass_through::PassThrough;
pub use plan::{Command, Memory, Piece, Plan, Step};
pub use registry::layers;
pub use request::HostRequest;
pub use ressd::RessdSettings;
pub use size::Size;
pub use stack::{LayerConfig, build_stack};
