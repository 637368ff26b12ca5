//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod beside_recorded;
mod closed_loop;
mod common;
mod driving;
mod fio_jobs;
mod fitted_presets;
mod host_queue;
mod images;
mod layered;
mod live_stack;
mod nexus5;
mod pair;
mod preflight;
mod reordering;
mod used;
