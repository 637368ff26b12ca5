//! The tests of this crate through its public interface: one program, so that they are linked once.

mod annotate;
mod log;
mod states;
mod support;
