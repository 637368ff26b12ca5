//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::expect_used, clippy::format_collect, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod bad_input;
mod blktrace;
mod clock_jumps;
mod combining;
mod driver_requests;
mod edited;
mod formats;
mod notes;
mod pairing;
mod parquet;
mod pasted;
mod perfetto;
mod read_ahead;
mod round_trip;
mod screen;
mod snoop;
mod support;
mod systrace;
mod tables;
mod zones;
