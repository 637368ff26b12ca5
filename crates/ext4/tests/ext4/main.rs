//! The tests of this crate through its public interface: one program, so that they are linked once.

mod annotate;
mod annotate_kernel;
mod crash_images;
mod files;
mod replay;
mod support;
