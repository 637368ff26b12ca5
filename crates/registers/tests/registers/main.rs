//! The tests of this crate through its public interface.
#![allow(clippy::expect_used, clippy::format_collect, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod damaged;
mod ext_csd;
mod health;
mod support;
mod ufs;
