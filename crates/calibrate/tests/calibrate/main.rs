//! The tests of this crate through its public interface: one program, so that they are linked once.

mod calibrate;
mod what_is_measured;
