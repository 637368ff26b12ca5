//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test may fail")]

mod clock_jumps;
mod common;
mod definitions;
mod golden;
mod journal;
mod merging;
mod phones;
mod published;
mod reissues;
