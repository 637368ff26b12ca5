//! The path of commands and data between host and UFS: the queues of the host controller, which transfer commands, and a full-duplex link.
//!
//! Each direction of the link carries one transfer at a time. A transfer uses the first gap that is long enough, so that data does not wait
//! for an earlier command whose data is not ready. Command and response UPIUs take no time on the link, because they have only a few dozen
//! bytes.

use emmclab_base::{Nanos, SECTOR_BYTES};

use crate::events::{CommandFetched, LinkTransfer, Observer, TransferDirection};
use crate::ftl::request_state::RequestState;
use crate::geometry::nanos;
use crate::nand::BusTimeline;
use emmclab_settings::{DeviceSettings, InterfaceSettings};

#[derive(Clone, Debug)]
pub(crate) struct UfsLink {
    /// Transfer time of a sector on the link, in 1/1024 ns.
    sector_time: i64,
    /// Time that a queue needs to transfer a command.
    command: Nanos,
    /// For each queue, the time at which it can transfer its next command.
    queues: Vec<Nanos>,
    /// Index of the queue for the next command.
    next: usize,
    /// Time at which the link has left hibernation.
    pub awake: Nanos,
    to_device: BusTimeline,
    to_host: BusTimeline,
}

impl UfsLink {
    /// Creates the link of a UFS device; `None` for other devices.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let interface = &settings.interface;
        interface.is_ufs().then(|| Self {
            sector_time: sector_time(interface),
            command: nanos(interface.command_us),
            queues: vec![Nanos::MIN; interface.queues.max(1) as usize],
            next: 0,
            awake: Nanos::MIN,
            to_device: BusTimeline::default(),
            to_host: BusTimeline::default(),
        })
    }

    /// Replaces the link times for commands that arrive from now on.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        self.command = nanos(settings.interface.command_us);
    }

    /// Resets the link after a power loss or for a new run, so that no transfers are in progress.
    pub fn rewind(&mut self) {
        self.queues.fill(Nanos::MIN);
        self.next = 0;
        self.awake = Nanos::MIN;
        self.to_device = BusTimeline::default();
        self.to_host = BusTimeline::default();
    }

    /// Transfers a command through a queue between host and device. The queues are used in turn. The command has a tag, and `in_flight` is
    /// the number of commands that have a tag.
    pub fn hand_over<L: Observer>(&mut self, request: &mut RequestState, in_flight: u32, log: &mut L) {
        let waited = request.before.queue;
        let hibernating = self.awake.max(request.ready) - request.ready;
        request.before.wake_up += hibernating;
        request.ready += hibernating;
        let (ready, queue) = (request.ready, &mut self.queues[self.next]);
        request.wait_until(*queue);
        let begin = request.ready;
        request.spend(self.command);
        *queue = request.ready;
        let (queue, end) = (self.next as u32, *queue);
        log.command_taken(&CommandFetched { queue, waited, ready, begin, end, in_flight });
        self.next = if self.next + 1 == self.queues.len() { 0 } else { self.next + 1 };
    }

    /// Transfers the data of a write over the link.
    pub fn receive<L: Observer>(&mut self, request: &mut RequestState, sectors: u32, log: &mut L) {
        let (ready, time) = (request.ready, self.time(sectors));
        let begin = self.to_device.reserve(ready, time);
        request.wait_until(begin);
        request.spend(time);
        let direction = TransferDirection::ToDevice;
        log.link_transfer(&LinkTransfer { direction, sectors, ready, begin, end: begin + time });
    }

    /// Transfers the data of a read over the link.
    pub fn send<L: Observer>(&mut self, request: &mut RequestState, sectors: u32, log: &mut L) {
        let (ready, time) = (request.event.complete, self.time(sectors));
        let begin = self.to_host.reserve(ready, time);
        request.complete_by(begin);
        request.spend_after(time);
        let direction = TransferDirection::ToHost;
        log.link_transfer(&LinkTransfer { direction, sectors, ready, begin, end: begin + time });
    }

    fn time(&self, sectors: u32) -> Nanos {
        Nanos((i64::from(sectors) * self.sector_time) >> 10)
    }
}

fn sector_time(interface: &InterfaceSettings) -> i64 {
    (SECTOR_BYTES as f64 * 1e9 / interface.link_bytes_per_s() as f64 * 1024.0).round() as i64
}
