//! The fixed part of a command, and the slots of the command queue.

use emmclab_base::{Nanos, SECTOR_BYTES};

use crate::geometry::nanos;
use crate::settings::Settings;

/// Times of commands, and when the slots of the queue are free.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    read_overhead: Nanos,
    write_overhead: Nanos,
    /// Time of a sector between host and device in 1/1024 ns.
    sector_time: i64,
    /// Time that the host needs to fetch a request.
    pub fetch: Nanos,
    /// Time that a reliable write, or FUA, takes on top.
    pub reliable: Nanos,
    /// Time that a flush takes on top.
    pub flush: Nanos,
    /// When each slot of the queue is free; empty where there is no limit.
    slots: Vec<Nanos>,
}

impl Commands {
    pub fn new(settings: &Settings) -> Self {
        let controller = &settings.controller;
        Self {
            read_overhead: nanos(controller.read_overhead_us),
            write_overhead: nanos(controller.write_overhead_us),
            // The link of a UFS takes its own time.
            sector_time: match controller.bus_mode.bytes_per_s() {
                Some(rate) => (SECTOR_BYTES as f64 * 1e9 / rate as f64 * 1024.0).round() as i64,
                None => (controller.host_us_per_kb * 1000.0 * 1024.0 / 2.0).round() as i64,
            },
            fetch: settings.host.fetch(),
            reliable: nanos(if settings.interface.is_ufs() {
                settings.interface.fua_us
            } else {
                controller.reliable_write_us
            }),
            flush: nanos(settings.cache.flush_us),
            slots: vec![Nanos::MIN; controller.queue_depth as usize],
        }
    }

    /// Commands that come from now on take the times of these settings.
    pub fn reconfigure(&mut self, settings: &Settings) {
        *self = Self { slots: std::mem::take(&mut self.slots), ..Self::new(settings) };
    }

    pub fn rewind(&mut self) {
        self.slots.fill(Nanos::MIN);
    }

    /// Whether the queue has a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        !self.slots.is_empty()
    }

    /// When the device takes a request that comes at `arrival`: the host has fetched it, and a slot is free.
    #[inline]
    pub fn start(&self, arrival: Nanos) -> Nanos {
        let arrival = arrival + self.fetch;
        match self.slots.as_slice() {
            [] => arrival,
            [only] => arrival.max(*only),
            slots => slots.iter().min().map_or(arrival, |free| arrival.max(*free)),
        }
    }

    /// Gives the slot that [`Commands::start`] found until `complete`.
    #[inline]
    pub fn occupy(&mut self, complete: Nanos) {
        if let Some(slot) = self.slots.iter_mut().min() {
            *slot = complete;
        }
    }

    /// Takes the slot that [`Commands::start`] found for a command whose end is not known, and returns its number.
    pub fn hold(&mut self) -> Option<usize> {
        let (slot, free) = self.slots.iter_mut().enumerate().min_by_key(|(_, free)| **free)?;
        *free = Nanos::MAX;
        Some(slot)
    }

    /// The command that holds this slot ends at `complete`.
    pub fn release(&mut self, slot: usize, complete: Nanos) {
        self.slots[slot] = complete;
    }

    /// Commands in the queue at `at`.
    pub fn in_flight(&self, at: Nanos) -> u32 {
        self.slots.iter().filter(|free| **free > at).count() as u32
    }

    /// How many commands the queue holds; 0 where there is no limit.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Time between start and flash for a write or other command of `sectors`.
    #[inline]
    pub fn before_write(&self, sectors: u32) -> Nanos {
        self.write_overhead + self.host(sectors)
    }

    /// Time between start and flash for a read.
    #[inline]
    pub fn before_read(&self) -> Nanos {
        self.read_overhead
    }

    /// Time of `sectors` between host and device.
    #[inline]
    pub fn host(&self, sectors: u32) -> Nanos {
        Nanos((i64::from(sectors) * self.sector_time) >> 10)
    }
}
