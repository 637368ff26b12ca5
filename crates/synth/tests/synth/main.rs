//! The tests of this crate's public interface, in one program so that they are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod benchmarks;
mod fio_jobs;
mod support;
mod synth_fit;
mod synth_published;
mod synth_rules;
