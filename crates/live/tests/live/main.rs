//! Tests of live devices.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

mod lies_in_logs;
mod lines_in_logs;
mod live_device;
mod live_equals_simulated;
mod support;
