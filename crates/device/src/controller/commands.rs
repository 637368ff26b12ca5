//! The fixed part of a command, and its slot of the command queue.

use emmclab_base::{Nanos, SECTOR_BYTES};

use super::draws::{Draws, mix};
use super::slots::Slots;
use crate::geometry::nanos;
use emmclab_settings::Settings;

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
    /// Time that a discard takes on top.
    pub discard: Nanos,
    read_stalls: Draws,
    write_stalls: Draws,
    /// The slots of the queue; none if there is no limit.
    slots: Slots,
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
            discard: nanos(settings.controller.discard_us),
            read_stalls: Draws::new(&controller.read_stalls, mix(settings.power.seed ^ u64::from(b'r'))),
            write_stalls: Draws::new(&controller.write_stalls, mix(settings.power.seed ^ u64::from(b'w'))),
            slots: Slots::new(controller.queue_depth as usize),
        }
    }

    /// Commands that come from now on take the times of these settings.
    pub fn reconfigure(&mut self, settings: &Settings) {
        let mut new = Self { slots: std::mem::take(&mut self.slots), ..Self::new(settings) };
        for (old, new) in
            [(&self.read_stalls, &mut new.read_stalls), (&self.write_stalls, &mut new.write_stalls)]
        {
            new.continue_from(old);
        }
        *self = new;
    }

    pub fn rewind(&mut self) {
        self.slots.rewind();
        self.read_stalls.rewind();
        self.write_stalls.rewind();
    }

    /// Whether the queue has a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.slots.len() > 0
    }

    /// When the device takes a request that comes at `arrival`: the host has fetched it, and a slot is free.
    #[inline]
    pub fn start(&self, arrival: Nanos) -> Nanos {
        (arrival + self.fetch).max(self.slots.first_free())
    }

    /// Gives the slot that [`Commands::start`] found until `complete`.
    #[inline]
    pub fn occupy(&mut self, complete: Nanos) {
        self.slots.take(complete);
    }

    /// Takes the slot that [`Commands::start`] found for a command whose end is not known; false if there is no limit.
    pub fn hold(&mut self) -> bool {
        self.slots.take(Nanos::MAX);
        self.is_limited()
    }

    /// A command that holds a slot ends at `complete`.
    pub fn release(&mut self, complete: Nanos) {
        self.slots.release(complete);
    }

    /// Commands in the queue at `at`.
    #[inline]
    pub fn in_flight(&self, at: Nanos) -> u32 {
        self.slots.in_use(at)
    }

    /// How many commands the queue holds; 0 if there is no limit.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Time that the next read takes on top.
    #[inline]
    pub fn read_stall(&mut self) -> Nanos {
        self.read_stalls.draw()
    }

    /// Time that the next write takes on top.
    #[inline]
    pub fn write_stall(&mut self) -> Nanos {
        self.write_stalls.draw()
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
