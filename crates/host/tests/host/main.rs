//! The tests of this crate's public interface, in one program so that they are linked only once.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod model;
mod rules;
mod support;
