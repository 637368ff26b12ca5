//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test may fail")]

mod calibrate;
mod fio;
mod what_is_measured;
