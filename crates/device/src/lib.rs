//! The simulated eMMC: NAND geometry and timing, FTL, controller, events and checker.
//!
//! A [`Device`] takes requests in order of arrival and says when each completes. It is built from a [`DeviceConfig`]
//! and tells everything it does to an [`Observer`]; an observer that listens to nothing costs nothing.

pub mod checker;
mod command;
mod config;
mod controller;
mod counters;
mod device;
mod event;
pub mod ftl;
mod geometry;
mod image;
mod nand;
pub mod persistence;

pub use command::{Command, Modifiers};
pub use config::*;
pub use counters::{Counters, Load};
pub use device::{Device, Stop};
pub use event::{
    BlockErased, BlockRetired, Cause, GcFinished, GcStarted, Observer, OnCompletion, PageProgrammed,
    PageRead, Quiet, RequestCompleted, Trimmed, UnitCached, UnitWritten, Waits, WokeUp,
};
pub use ftl::fetch::FETCHED;
pub use geometry::{Geometry, Group};
pub use nand::{Block, BlockState};
