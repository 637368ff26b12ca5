//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test may fail")]

mod advances;
mod checker_sees_defects;
mod common;
mod config_faults;
mod cuts;
mod emmc_by_hand;
mod health;
mod images;
mod mapping_model;
mod mapping_schemes;
mod persistence;
mod promises;
mod reconfigure;
mod reference_model;
mod timing_by_hand;
mod ufs;
mod victim_policies;
mod zones;
