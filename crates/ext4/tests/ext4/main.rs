//! The tests of this crate's public interface, in one program so that they are linked only once.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod annotate;
mod annotate_kernel;
mod crash_images;
mod fast_commits;
mod files;
mod replay;
mod support;
