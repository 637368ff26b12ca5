//! The tests of this crate's public interface, in one program so that they are linked only once.
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
