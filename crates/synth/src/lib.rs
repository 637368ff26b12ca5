//! Workload synthesis: a small model of an application's storage requests, and traces generated from it.
//!
//! A [`WorkloadModel`] is a TOML file of a few kilobytes. The models in [`presets`] contain what the IISWC 2015 paper (Zhou et al.)
//! publishes about its 25 traces; a [`WorkloadFitter`] fits a model to any trace. A [`Synthesizer`] generates requests from a model, of any
//! number, duration or rate.
//!
//! **Exact figures.** The generator does not rely on averages of random draws. It works in chapters of at most 65,536 requests. Each
//! chapter gets its share of every total (reads, writes, sizes, sequential requests, re-accesses, requests that do not wait, service time,
//! response time, idle time), distributes that share over its requests, and shuffles them.
//!
//! **Terms.** A *round* is a request that arrives at an idle device, with the requests that wait for it. A *burst* is a run of rounds
//! separated by short think times; idle gaps separate bursts. A burst of writes may end like a journal transaction: data, journal blocks,
//! commit block.
//!
//! **Load over time.** A fitted model describes the load by a curve of a few hundred rows, each with its own requests, data, bursts and
//! duration. A preset has no curve; its load is constant over time.
//!
//! **Times.** Each request gets arrival, start, issue and completion from the service times of the model, so that the trace has the model's
//! no-wait share and mean service and response time. A closed-loop replay uses only the think time between a completion and the next
//! arrival, and takes service times from the simulated device.

mod address_space;
pub mod benchmarks;
mod distribute;
pub mod fio;
mod fit;
mod fit_load;
mod fit_times;
mod load_schedule;
mod model;
pub mod presets;
mod request_order;
mod service;
mod synthesizer;

pub use fit::WorkloadFitter;
pub use model::{BurstModel, LoadModel, OperationModel, ServiceModel, WorkloadModel};
pub use synthesizer::{SynthOptions, Synthesizer};
