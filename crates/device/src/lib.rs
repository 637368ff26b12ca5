//! The simulated eMMC or UFS: NAND geometry and timing, FTL, controller, events and checker.
//!
//! A [`Device`] accepts requests in order of arrival and returns when each completes. It is built from a [`DeviceConfig`] and reports
//! everything it does to an [`Observer`], whose methods cost nothing unless they are overridden.
//!
//! Each layer uses only those below it: controller, FTL, NAND, then settings and ids.

mod bit_set;
mod capabilities;
pub mod checker;
mod command;
pub mod contract;
mod controller;
mod counters;
mod cut;
mod device;
mod events;
mod ftl;
mod geometry;
mod health;
mod ids;
mod image;
mod late_trims;
mod links;
mod load;
mod lru;
mod nand;
pub mod persistence;
mod reconfigure;
mod wear;
mod words;
mod zones;

pub use capabilities::{Capabilities, ExtCsdField};
pub use command::Command;
pub use counters::{BoosterCounts, CommandLoad, Counters, LinkLoad, ZoneCounts};
pub use cut::UndoLog;
pub use device::{Block, Device};
pub use emmclab_base::Modifiers;
pub use emmclab_settings::*;
pub use events::*;
pub use ftl::{LOOKUP_NJ, MapFigures, PREFETCHED, Stop, gc};
pub use geometry::{Geometry, Group, ZoneLayout};
pub use ids::{BlockId, Lpn, PlaneId, Ppn, WayId};
pub use late_trims::LateTrims;
pub use load::{DeviceConfig, Preset, Row, decides_contents, json_schema, presets};
pub use nand::{BlockState, Load};
pub use reconfigure::{CHANGEABLE, SettingChange, is_changeable};
pub use zones::{Zone, ZoneAction, ZoneState};
