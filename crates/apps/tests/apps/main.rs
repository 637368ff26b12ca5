//! The tests of this crate through its public interface: one program, so that they are linked once.

mod attribution;
mod engine;
mod learn;
mod programs;
mod support;
