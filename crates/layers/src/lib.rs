//! Host software between the workload and the device.
//!
//! A [`Layer`] turns each request into a [`Plan`] of commands for the disks below it. It decides on addresses alone, owns
//! no clock and touches no data, so that the same object runs in simulated time, where only the commands' times matter,
//! and under a live block device, where an [`Executor`] moves the bytes.

mod advil;
mod checksum;
mod cleaning;
mod counters;
mod executor;
mod in_flight;
mod interval_map;
mod journal;
mod kind;
mod layer;
mod lfs;
mod nvm_buffer;
mod pair;
mod pass_through;
mod plan;
mod registry;
mod request;
mod ressd;
mod setting;
mod size;
mod stack;
mod stripes;
mod window;

pub use advil::{Advil, AdvilSettings, HotPolicy, Invalidated, Mover};
pub use cleaning::{Candidate, Cleaning};
pub use executor::{Disk, Executor, Running};
pub use in_flight::InFlight;
pub use journal::{Journal, JournalSettings, Mode as JournalMode};
pub use kind::Kind as LayerKind;
pub use layer::{Area, Background, Below, Decision, Defer, Layer, ReadAt, Zones};
pub use lfs::LfsSettings;
pub use nvm_buffer::NvmBufferSettings;
pub use pair::{PairSettings, Routing};
pub use pass_through::PassThrough;
pub use plan::{Bytes, Command, Memory, MemoryCopy, Piece, Plan, Step};
pub use registry::layers;
pub use request::HostRequest;
pub use ressd::RessdSettings;
pub use setting::Setting;
pub use size::Size;
pub use stack::{LayerConfig, build_stack};
