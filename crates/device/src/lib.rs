//! The simulated eMMC or UFS: NAND geometry and timing, FTL, controller, events and checker.
//!
//! A [`Device`] accepts requests in order of arrival and returns the completion time of each. It is created from a [`DeviceConfig`] and
//! reports its events to an [`Observer`], whose methods cost nothing unless they are overridden.
//!
//! Each layer uses only those below it: controller, FTL, NAND, then settings and ids.
#![allow(clippy::inline_always, reason = "on hot paths arguments stay in registers")]

mod capabilities;
pub mod checker;
pub mod contract;
mod controller;
mod counters;
mod cut;
mod device;
mod events;
mod ftl;
mod geometry;
mod ids;
mod image;
mod load;
mod lru;
mod nand;
mod paired_pages;
pub mod persistence;
mod reconfigure;
mod zones;

pub use capabilities::{AnnouncedCapabilities, DeviceCapabilities, ExtCsdField};
pub use counters::{BoosterCounters, DeviceCounters, FetchCounters, LinkCounters, SleepStageCounters, ZoneCounters};
pub use cut::{LateTrims, UndoLog};
pub use device::{Device, DeviceCommand, EraseBlockSummary};
pub use emmclab_base::CommandFlags;
pub use emmclab_settings::*;
pub use events::*;
pub use ftl::{LOOKUP_NJ, MapCacheSummary, PREFETCHED, StopReason, gc};
pub use geometry::{Geometry, GroupGeometry, ZoneLayout};
pub use ids::{BlockId, Lpn, PlaneId, Ppn, WayId};
pub use load::{DeviceConfig, DevicePreset, SettingExplanation, decides_contents, json_schema, presets};
pub use nand::{BlockState, FlashBusyTimes, RetryCount};
pub use paired_pages::{EndangeredUnit, PairedPageTracker};
pub use reconfigure::{CHANGEABLE, SettingChange, is_changeable};
pub use zones::{ZoneAction, ZoneDescriptor, ZoneState};
