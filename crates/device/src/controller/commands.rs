//! The fixed costs of a command, and the slots of the command queue.

use emmclab_base::{Nanos, SECTOR_BYTES};

use super::command_slots::CommandSlots;
use super::time_sampler::{TimeSampler, mix};
use crate::geometry::nanos;
use emmclab_settings::DeviceSettings;

/// Times of commands, and when the slots of the queue are free.
#[derive(Clone, Debug)]
pub(crate) struct CommandPath {
    read_overhead: Nanos,
    write_overhead: Nanos,
    /// Transfer time of a sector between host and device, in 1/1024 ns.
    sector_time: i64,
    /// Time that the host needs to fetch a request.
    pub fetch: Nanos,
    /// Additional time of a reliable write, or of FUA.
    pub reliable: Nanos,
    /// Additional time of a flush.
    pub flush: Nanos,
    /// Additional time of a discard.
    pub discard: Nanos,
    read_stalls: TimeSampler,
    write_stalls: TimeSampler,
    /// The slots of the queue; empty if there is no limit.
    slots: CommandSlots,
}

impl CommandPath {
    pub fn new(settings: &DeviceSettings) -> Self {
        let controller = &settings.controller;
        Self {
            read_overhead: nanos(controller.read_overhead_us),
            write_overhead: nanos(controller.write_overhead_us),
            // On a UFS, `Link` adds the time of the link.
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
            read_stalls: TimeSampler::new(&controller.read_stalls, mix(settings.power.seed ^ u64::from(b'r'))),
            write_stalls: TimeSampler::new(&controller.write_stalls, mix(settings.power.seed ^ u64::from(b'w'))),
            slots: CommandSlots::new(controller.queue_depth as usize),
        }
    }

    /// Replaces the times for commands that arrive from now on.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        let mut new = Self { slots: std::mem::take(&mut self.slots), ..Self::new(settings) };
        for (old, new) in [(&self.read_stalls, &mut new.read_stalls), (&self.write_stalls, &mut new.write_stalls)] {
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

    /// When the device accepts a request that arrives at `arrival`: after the host has fetched it and when a slot is free.
    #[inline]
    pub fn start(&self, arrival: Nanos) -> Nanos {
        (arrival + self.fetch).max(self.slots.first_free())
    }

    /// Occupies the slot that [`CommandPath::start`] found until `complete`.
    #[inline]
    pub fn occupy(&mut self, complete: Nanos) {
        self.slots.take(complete);
    }

    /// Occupies the slot that [`CommandPath::start`] found for a command whose completion is not known; false if there is no limit.
    pub fn hold(&mut self) -> bool {
        self.slots.take(Nanos::MAX);
        self.is_limited()
    }

    /// Releases the slot of a command, which is complete at `complete`.
    pub fn release(&mut self, complete: Nanos) {
        self.slots.release(complete);
    }

    /// Number of commands in the queue at `at`.
    #[inline]
    pub fn in_flight(&self, at: Nanos) -> u32 {
        self.slots.in_use(at)
    }

    /// Depth of the queue; 0 if there is no limit.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Additional time of the next read.
    #[inline]
    pub fn read_stall(&mut self) -> Nanos {
        self.read_stalls.draw()
    }

    /// Additional time of the next write.
    #[inline]
    pub fn write_stall(&mut self) -> Nanos {
        self.write_stalls.draw()
    }

    /// Time from the start of a write or other command of `sectors` to the flash.
    #[inline]
    pub fn before_write(&self, sectors: u32) -> Nanos {
        self.write_overhead + self.host(sectors)
    }

    /// Time from the start of a read to the flash.
    #[inline]
    pub fn before_read(&self) -> Nanos {
        self.read_overhead
    }

    /// Transfer time of `sectors` between host and device.
    #[inline]
    pub fn host(&self, sectors: u32) -> Nanos {
        Nanos((i64::from(sectors) * self.sector_time) >> 10)
    }
}
