//! Tests of the NBD server: its bytes, its data compared with a model, misbehaving clients, and tools of other projects.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    dead_code,
    reason = "helpers of tests fail as tests do, and some are for other exports"
)]

#[path = "../common/devices.rs"]
mod devices;
mod faults;
mod foreign;
mod model;
mod negotiation;
mod support;
mod transmission;
