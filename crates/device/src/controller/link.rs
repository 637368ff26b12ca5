//! The path of commands and data between host and device. UFS: the queues of the host controller, which transfer commands, and a full-duplex
//! link. SD card, and eMMC with a command queue: the command line, and a bus for the data of both directions.
//!
//! Each direction of the link, and the bus, carries one transfer at a time. A transfer uses the first gap that is long enough, so that data
//! does not wait for an earlier command whose data is not ready. Command and response UPIUs take no time on the link, because they have only a
//! few dozen bytes.
//!
//! Commands of an SD card (Physical Layer Simplified Specification 6.00): CMD23 sets the number of blocks, and CMD18 or CMD25
//! transfers them. With the command queue, CMD44 and CMD45 add a task while other data may be on the bus, and when the bus is free CMD13 asks
//! which tasks are ready, and CMD46 or CMD47 transfers the data of one. Each has a command and a response of 48 bits, and waits for at least two
//! clocks before the response and eight after it.

use emmclab_base::{Nanos, SECTOR_BYTES};

use crate::events::{CommandFetched, LinkTransfer, Observer, TransferDirection};
use crate::ftl::request_state::RequestState;
use crate::geometry::nanos;
use crate::nand::BusTimeline;
use emmclab_settings::{DeviceSettings, InterfaceKind};

/// Clocks of a command of an SD card and its response.
const COMMAND_CLOCKS: i64 = 48 + 2 + 48 + 8;

#[derive(Clone, Debug)]
pub(crate) struct HostLink {
    kind: InterfaceKind,
    /// Transfer time of a sector, in 1/1024 ns.
    sector_time: i64,
    /// Time that a queue or the command line needs to transfer a command.
    command: Nanos,
    /// Time for which the commands before the data of a queued task keep the bus of an SD card.
    execute: Nanos,
    /// For each queue, the time at which it can transfer its next command.
    queues: Vec<Nanos>,
    /// Index of the queue for the next command.
    next: usize,
    /// Time at which the link has left hibernation.
    pub awake: Nanos,
    /// Transfers to the device; of an SD card or an eMMC, all transfers.
    to_device: BusTimeline,
    to_host: BusTimeline,
}

impl HostLink {
    /// Creates the link of a UFS, or the bus of an SD card or of an eMMC with a command queue; `None` for another eMMC, whose commands
    /// contain their transfers.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let interface = &settings.interface;
        let (command, execute) = command_times(settings);
        has_link(settings).then(|| Self {
            kind: interface.kind,
            sector_time: sector_time(settings),
            command,
            execute,
            queues: vec![Nanos::MIN; interface.queues.max(1) as usize],
            next: 0,
            awake: Nanos::MIN,
            to_device: BusTimeline::default(),
            to_host: BusTimeline::default(),
        })
    }

    /// Replaces the link times for commands that arrive from now on.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        self.sector_time = sector_time(settings);
        (self.command, self.execute) = command_times(settings);
    }

    /// Resets the link after a power loss or for a new run, so that no transfers are in progress.
    pub fn rewind(&mut self) {
        self.queues.fill(Nanos::MIN);
        self.next = 0;
        self.awake = Nanos::MIN;
        self.to_device = BusTimeline::default();
        self.to_host = BusTimeline::default();
    }

    /// Promises that all later transfers begin at `at` or later.
    pub fn forget_before(&mut self, at: Nanos) {
        self.to_device.forget_before(at);
        self.to_host.forget_before(at);
    }

    /// Transfers a command through a queue or the command line between host and device. The queues are used in turn. The command has a tag, and `in_flight` is
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
        let lane = if self.kind == InterfaceKind::Ufs { &mut self.to_host } else { &mut self.to_device };
        let begin = lane.reserve(ready, time);
        request.complete_by(begin);
        request.spend_after(time);
        let direction = TransferDirection::ToHost;
        log.link_transfer(&LinkTransfer { direction, sectors, ready, begin, end: begin + time });
    }

    fn time(&self, sectors: u32) -> Nanos {
        self.execute + Nanos((i64::from(sectors) * self.sector_time) >> 10)
    }
}

/// Whether the transfers of commands may wait for each other, which those of an eMMC without a command queue never do: it executes one
/// command after another, or has no limit of any kind (`controller.queue_depth` = 0).
pub(super) fn has_link(settings: &DeviceSettings) -> bool {
    settings.interface.kind != InterfaceKind::Emmc || settings.controller.queue_depth > 1
}

/// Transfer time of a sector between host and device, in 1/1024 ns.
pub(super) fn sector_time(settings: &DeviceSettings) -> i64 {
    let (interface, controller) = (&settings.interface, &settings.controller);
    let link = interface.is_ufs().then(|| interface.link_bytes_per_s());
    match link.or(controller.bus_mode.bytes_per_s()) {
        Some(rate) => (SECTOR_BYTES as f64 * 1e9 / rate as f64 * 1024.0).round() as i64,
        None => (controller.host_us_per_kb * 1000.0 * 1024.0 / 2.0).round() as i64,
    }
}

/// Time of a command until the device has it, and time of the commands that keep the bus before its data.
fn command_times(settings: &DeviceSettings) -> (Nanos, Nanos) {
    let Some(mhz) = settings.controller.bus_mode.sd_clock_mhz() else {
        return (nanos(settings.interface.command_us), Nanos::ZERO);
    };
    let two = Nanos(2 * COMMAND_CLOCKS * 1000 / i64::from(mhz));
    (two, if settings.controller.queue_depth > 1 { two } else { Nanos::ZERO })
}
