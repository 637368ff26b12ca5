//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod benchmarks;
mod fio_jobs;
mod support;
mod synth_fit;
mod synth_published;
mod synth_rules;
