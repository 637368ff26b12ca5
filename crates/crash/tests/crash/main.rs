//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod annotate;
mod cuts;
mod log;
mod states;
mod support;
mod zones;
