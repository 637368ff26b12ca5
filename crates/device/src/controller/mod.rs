//! Between the host and the FTL: how long commands take, when the device sleeps, and what goes first.

mod cache;
mod cached;
mod host;
mod packed;
mod pending;
mod power;
mod progress;
mod recency;
mod short;

pub(crate) use cache::Cache;
pub(crate) use pending::{Pending, Waiting};
pub(crate) use power::Power;
pub(crate) use progress::Progress;
pub(crate) use short::Short;

use emmclab_trace::SECTOR_BYTES;

use crate::config::Settings;
use crate::geometry::ns;

/// The fixed part of a command, and the slots of the command queue.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    read_overhead: i64,
    write_overhead: i64,
    /// Time of a sector between host and device in 1/1024 ns.
    sector_time: i64,
    /// What a reliable write takes on top.
    pub reliable: i64,
    /// When each slot of the queue is free; empty where there is no limit.
    slots: Vec<i64>,
}

impl Commands {
    pub fn new(settings: &Settings) -> Self {
        let controller = &settings.controller;
        Self {
            read_overhead: ns(controller.read_overhead_us),
            write_overhead: ns(controller.write_overhead_us),
            sector_time: match controller.bus_mode.bytes_per_s() {
                Some(rate) => (SECTOR_BYTES as f64 * 1e9 / rate as f64 * 1024.0).round() as i64,
                None => (controller.host_us_per_kb * 1000.0 * 1024.0 / 2.0).round() as i64,
            },
            reliable: ns(controller.reliable_write_us),
            slots: vec![i64::MIN; controller.queue_depth as usize],
        }
    }

    pub fn rewind(&mut self) {
        self.slots.fill(i64::MIN);
    }

    /// When the device takes a request that comes at `arrival`.
    #[inline]
    pub fn start(&self, arrival: i64) -> i64 {
        self.slots.iter().min().map_or(arrival, |free| arrival.max(*free))
    }

    /// Gives the slot that [`Commands::start`] found until `complete`.
    #[inline]
    pub fn occupy(&mut self, complete: i64) {
        if let Some(slot) = self.slots.iter_mut().min() {
            *slot = complete;
        }
    }

    /// Time between start and flash for a write or other command of `sectors`.
    #[inline]
    pub fn before_write(&self, sectors: u32) -> i64 {
        self.write_overhead + self.host(sectors)
    }

    /// Time between start and flash for a read.
    #[inline]
    pub fn before_read(&self) -> i64 {
        self.read_overhead
    }

    /// Time of `sectors` between host and device.
    #[inline]
    pub fn host(&self, sectors: u32) -> i64 {
        (i64::from(sectors) * self.sector_time) >> 10
    }
}
