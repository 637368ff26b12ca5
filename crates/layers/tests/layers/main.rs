//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::cast_possible_truncation, clippy::panic, clippy::unwrap_used, reason = "a test may fail")]

mod advil_rules;
mod checkpoints;
mod data_survives;
mod journal_modes;
mod lfs_rules;
mod pilots;
mod power_cuts;
mod senseless_settings;
mod support;
