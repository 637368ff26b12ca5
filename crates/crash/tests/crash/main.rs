//! The tests of this crate's public interface, in one program so that they are linked only once.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod annotate;
mod cuts;
mod log;
mod states;
mod support;
mod zones;
