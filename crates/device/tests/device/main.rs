//! The tests of this crate through its public interface: one program, so that they are linked once.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test may fail")]

mod advances;
mod by_hand;
mod checker_sees_defects;
mod common;
mod config_faults;
mod cuts;
mod data_ages;
mod flash_array;
mod health;
mod images;
mod mapping_model;
mod mapping_schemes;
mod persistence;
mod promises;
mod reconfigure;
mod reference_model;
mod sd_card;
mod suspension;
mod ufs;
mod victim_policies;
mod zones;
