//! The layer between the host and the FTL. It determines the times of commands, sleep, the order of execution, and which data is in RAM.
//!
//! The controller calls the FTL to write, read and discard units, and never changes the tables of the FTL.

mod background;
mod buffered_io;
mod commands;
mod link;
mod power;
mod queue;
mod write_buffer;
mod zones;

use emmclab_base::{CommandFlags, Error, ErrorClass, Nanos, Op, Result};
use emmclab_settings::{BoosterFlush, CacheLie, DeviceSettings, InterfaceKind, PageScheduling};

use crate::counters::CountingObserver;
use crate::device::DeviceCommand;
use crate::events::{DataMoved, Observer, RequestCompleted, WokeUp};
use crate::ftl::Ftl;
use crate::ftl::request_state::{AcceptedRequest, RequestState};
use crate::ftl::write::RequestSectors;
use crate::geometry::{Geometry, nanos};
use crate::ids::Lpn;
use crate::nand::{DelayedEnds, Nand};
use crate::zones::{ZoneAction, ZoneState};
use background::BackgroundScheduler;
use buffered_io::ReadCache;
use commands::CommandPath;
use link::HostLink;
use power::{SleepEnd, SleepTiming};
use queue::{InFlightRequest, WriteQueue};
use write_buffer::WriteBuffer;

pub(crate) use zones::ZoneTable;

/// Earliest arrival time. Arrivals are at most 73 years from 0, so that all times of a run fit into `Nanos`. It is also the initial value
/// for the last arrival.
const EARLIEST: Nanos = Nanos(-(1 << 61));
const LATEST: Nanos = Nanos(1 << 61);

/// The kind of the first write or flush that the host has sent since power-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstCommand {
    Write,
    Flush,
}

/// Numbers and times of the requests to a controller: the number of the next request, and the latest arrival and completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControllerClock {
    pub next_id: u64,
    last_arrival: Nanos,
    /// Time at which all accepted requests are complete.
    idle_from: Nanos,
    /// Completion time of the request that was reported last.
    pub last_complete: Nanos,
}

impl ControllerClock {
    const NEW: Self = Self { next_id: 0, last_arrival: EARLIEST, idle_from: Nanos::MIN, last_complete: Nanos::ZERO };
}

/// The controller of a device: command path, write buffer, power and background work.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
#[derive(Clone)]
pub(crate) struct DeviceController {
    commands: CommandPath,
    power: SleepTiming,
    /// Interface of the device.
    pub interface: InterfaceKind,
    link: Option<Box<HostLink>>,
    /// Queue of writes that reads may overtake; `None` if the device executes commands in order.
    queue: Option<Box<WriteQueue>>,
    pub write_buffer: Option<Box<WriteBuffer>>,
    read_cache: Option<Box<ReadCache>>,
    background: BackgroundScheduler,
    /// State of the zones that are written sequentially.
    pub zones: Option<Box<ZoneTable>>,
    share_packed_pages: bool,
    /// Whether background work runs during hibernation.
    works_asleep: bool,
    pub promises_write_order: bool,
    /// Whether the device supports reliable writes (UFS: FUA) and barriers. If not, a flush replaces them.
    pub reliable_writes: bool,
    barriers: bool,
    pub lies: CacheLie,
    /// The first write or flush since power-on; `None` until there is one.
    first_since_power_on: Option<FirstCommand>,
    /// Entries of a packed command; the memory is reused.
    pack: Vec<RequestState>,
    pub clock: ControllerClock,
}

impl DeviceController {
    /// Executes a zone management command of the host.
    pub fn manage_zone<L: CountingObserver>(
        &mut self, zone: u32, action: ZoneAction, below: &mut LowerLayers<'_, L>,
    ) -> Result<()> {
        let Some(zones) = &mut self.zones else {
            return Err(Error::new(ErrorClass::Value, "the device has no zones").hint("set zones.blocks to get a zoned device"));
        };
        // A zone that became full by writing is not marked as finished, because a power cut may lose a part of its data.
        let was_full = zones.report(zone).is_some_and(|zone| zone.state == ZoneState::Full);
        zones.manage(zone, action, self.clock.last_arrival, below.log)?;
        if action == ZoneAction::Finish && !was_full {
            below.ftl.finish_zone(zone);
        }
        Ok(())
    }

    /// Restores the state of the zones from the flash: after a power cut, or from an image of the device.
    pub fn restore_zones(&mut self, ftl: &Ftl) {
        if let Some(zones) = &mut self.zones {
            zones.restore(ftl);
        }
    }

    pub fn new(settings: &DeviceSettings, ftl: &Ftl) -> Self {
        let geometry = &ftl.core.geometry;
        let write_buffer = WriteBuffer::new(settings, geometry).map(Box::new);
        Self {
            commands: CommandPath::new(settings),
            power: SleepTiming::new(settings),
            interface: settings.interface.kind,
            link: HostLink::new(settings).map(Box::new),
            queue: match settings.controller.scheduling {
                PageScheduling::Fifo => None,
                PageScheduling::ReadFirst => Some(Box::default()),
            },
            background: BackgroundScheduler::new(settings, geometry, ftl.core.slc.folds_after(), write_buffer.is_some()),
            write_buffer,
            read_cache: ReadCache::new(settings, geometry).map(Box::new),
            zones: ZoneTable::new(settings, geometry).map(Box::new),
            share_packed_pages: settings.controller.share_packed_pages,
            works_asleep: settings.slc.flush == BoosterFlush::Hibernate,
            promises_write_order: settings.cache.promises_write_order(),
            reliable_writes: settings.features.reliable_write || settings.interface.is_ufs(),
            barriers: settings.features.barrier,
            lies: settings.cache.lies,
            first_since_power_on: None,
            pack: Vec::new(),
            clock: ControllerClock::NEW,
        }
    }

    /// Whether all accepted commands have been dispatched to the flash.
    pub fn all_dispatched(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Time at which all accepted commands and the background work are complete.
    #[inline]
    pub fn idle_from(&self) -> Nanos {
        let buffered = self.write_buffer.as_ref().map_or(Nanos::MIN, |buffer| buffer.busy_until);
        self.clock.idle_from.max(buffered).max(self.background.busy_until)
    }

    /// Time from which the idle time before sleep counts. Usually this is the end of all work. A UFS that flushes `WriteBooster` in
    /// hibernation only waits for the end of all commands and of write-back.
    fn sleeps_from(&self) -> Nanos {
        if !self.works_asleep {
            return self.idle_from();
        }
        let buffered = self.write_buffer.as_ref().map_or(Nanos::MIN, |buffer| buffer.busy_until);
        self.clock.idle_from.max(buffered)
    }

    /// Resets time, command numbers and RAM for a new run. The write buffer must be empty.
    pub fn rewind(&mut self) {
        self.first_since_power_on = None;
        self.commands.rewind();
        self.power.rewind();
        self.background.rewind();
        if let Some(link) = &mut self.link {
            link.rewind();
        }
        if let Some(buffer) = &mut self.write_buffer {
            buffer.rewind();
        }
        self.clock = ControllerClock::NEW;
    }

    /// Replaces the settings at time `at`. Queues, buffers and their contents stay.
    pub fn reconfigure(&mut self, settings: &DeviceSettings, geometry: &Geometry, fold_after: Option<Nanos>, at: Nanos) {
        let idle_from = self.idle_from().max(at);
        self.commands.reconfigure(settings);
        self.power.reconfigure(settings);
        if let Some(link) = &mut self.link {
            link.reconfigure(settings);
        }
        self.lies = settings.cache.lies;
        if let Some(buffer) = &mut self.write_buffer {
            buffer.write_back = settings.cache.write_back;
            buffer.newest_first = settings.cache.lies == CacheLie::Reorder;
            buffer.idle_after = nanos(settings.cache.idle_after_us);
            // The new settings may start a write-back of old data. This write-back must not begin before the time of the change.
            buffer.since = buffer.since.max(at);
        }
        let background = BackgroundScheduler::new(settings, geometry, fold_after, self.write_buffer.is_some());
        self.background.replace_with(background, idle_from);
    }

    /// Handles a power loss at `at`: data in RAM is lost, and all operations are stopped.
    pub fn cut(&mut self, at: Nanos) {
        self.first_since_power_on = None;
        self.commands.rewind();
        self.background.rewind();
        if let Some(link) = &mut self.link {
            link.rewind();
        }
        if let Some(queue) = &mut self.queue {
            queue.clear();
        }
        if let Some(buffer) = &mut self.write_buffer {
            while let Some((from, to)) = buffer.next_to_leave() {
                buffer.forget(from, to);
            }
            buffer.rewind();
        }
        if let Some(cache) = &mut self.read_cache {
            cache.clear();
        }
        // Layers above the device may already have sent commands that arrive later than the power cut, so the last arrival is reset.
        self.clock.last_arrival = at;
        self.clock.idle_from = at;
    }

    /// Checks a command against the limits of the device and the time of earlier commands.
    #[inline]
    pub fn accept(&self, command: &DeviceCommand, geometry: &Geometry) -> Result<()> {
        if command.sector.saturating_add(u64::from(command.sectors)) > geometry.sectors() {
            return Err(out_of_range(*command, geometry));
        }
        let out_of_time = command.arrival < self.clock.last_arrival || command.arrival > LATEST;
        if out_of_time || is_empty(command) {
            return Err(invalid_command(*command));
        }
        self.zones.as_ref().map_or(Ok(()), |zones| zones.check(command))
    }

    /// Executes a command that has been checked. Returns its completion time; `None` if it is not known yet or the device has stopped.
    #[inline]
    pub fn submit<L: CountingObserver>(&mut self, command: &DeviceCommand, below: &mut LowerLayers<'_, L>) -> Option<Nanos> {
        if below.ftl.core.stop.is_some() {
            return None;
        }
        let mut request = self.begin(command, below);
        if below.ftl.core.stop.is_some() {
            return None;
        }
        self.clock.next_id += 1;
        if let Some(zones) = &mut self.zones {
            zones.take(command, command.arrival, below.log);
        }
        match command.op {
            Op::Write if self.is_plain_write(command) => {
                self.take_data(&mut request, below);
                self.write_data(&mut request, below);
            }
            Op::Read => self.read(&mut request, below),
            Op::Write => {
                self.take_data(&mut request, below);
                self.write_modified(&mut request, command.modifiers, below);
            }
            Op::Discard | Op::SecureErase => self.discard(&mut request, below),
            Op::Flush => self.flush(&mut request, command.modifiers, below),
        }
        if below.ftl.core.stop.is_some() {
            return None;
        }
        if let Some(queue) = &mut self.queue {
            queue.requests.push_back(InFlightRequest { state: request, holds_slot: self.commands.hold() });
            if request.outstanding == 0 {
                self.end_of(request.event.id);
            }
            self.report_completed(below);
            return None;
        }
        self.commands.slots.take(request.event.complete);
        self.complete(&request.event, below.log);
        Some(request.event.complete)
    }

    /// Whether a command is a write that is only programmed to the flash: the device has no RAM for data, and the command has no flags that
    /// promise durability or an order.
    #[inline]
    fn is_plain_write(&self, command: &DeviceCommand) -> bool {
        self.write_buffer.is_none() && self.read_cache.is_none() && !command.modifiers.intersects(CommandFlags::PROMISES)
    }

    /// Advances the clock to the arrival of a command: executes background work until then, wakes the device, and occupies a slot of the
    /// command queue.
    #[inline(always)]
    fn begin<L: CountingObserver>(&mut self, command: &DeviceCommand, below: &mut LowerLayers<'_, L>) -> RequestState {
        let arrival = command.arrival;
        self.clock.last_arrival = arrival;
        if self.queue.is_some() {
            self.dispatch_until(arrival, below);
        }
        let interruption = if self.background.works { self.interrupt(arrival, below) } else { Nanos::ZERO };
        below.nand.timelines.forget_before(arrival);
        let start = self.start(arrival, below);
        let DeviceCommand { op, modifiers, sector, sectors, .. } = *command;
        let (id, queue_limited) = (self.clock.next_id, self.commands.is_limited());
        let fetch = self.commands.fetch;
        let mut request =
            RequestState::new(AcceptedRequest { id, op, modifiers, sector, sectors, arrival, fetch, start, queue_limited });
        if interruption > Nanos::ZERO {
            request.before.gc += interruption;
            request.ready += interruption;
        }
        if self.power.sleeps()
            && !self.is_at_work()
            && let Some(SleepEnd { asleep, took, stage }) = self.power.wake(self.sleeps_from(), arrival)
        {
            request.before.wake_up = took;
            request.ready += took;
            below.log.woke_up(&WokeUp { at: arrival, asleep, took, stage });
            if let Some(link) = &mut self.link {
                link.awake = request.ready;
            }
        }
        if let Some(link) = &mut self.link {
            link.forget_before(arrival);
            let in_flight = 1 + self.commands.slots.in_use(start);
            link.hand_over(&mut request, in_flight, below.log);
        }
        request
    }

    /// Returns the time at which the device accepts a command that arrives at `arrival`. A UFS may have no free tag while reads have
    /// priority. Then waiting pages are dispatched until a tag is free.
    #[inline]
    fn start<L: CountingObserver>(&mut self, arrival: Nanos, below: &mut LowerLayers<'_, L>) -> Nanos {
        if self.queue.is_some() && self.commands.is_limited() {
            self.dispatch_for_a_slot(arrival, below);
        }
        self.commands.start(arrival)
    }

    /// Whether the device has commands whose completion time is not known yet.
    fn is_at_work(&self) -> bool {
        self.link.is_some() && self.queue.as_ref().is_some_and(|queue| !queue.requests.is_empty())
    }

    /// Ends the idle time before a command, after its background work. Returns the time that interrupting the background work takes.
    #[inline(never)]
    fn interrupt<L: CountingObserver>(&mut self, arrival: Nanos, below: &mut LowerLayers<'_, L>) -> Nanos {
        let idle_from = self.idle_from();
        if idle_from == Nanos::MIN {
            return Nanos::ZERO;
        }
        self.background.interrupt(arrival, idle_from, self.write_buffer.as_deref_mut(), below)
    }

    /// Executes all work that begins before `until` without a command: waiting pages, then background work. Several calls have the same
    /// effect as the last of them alone.
    pub fn advance<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) {
        self.dispatch_until(until, below);
        let idle_from = self.idle_from();
        if self.background.works && idle_from > Nanos::MIN && self.all_dispatched() {
            self.background.work_until(until, idle_from, self.write_buffer.as_deref_mut(), below);
        }
    }

    /// The next time at which the device executes a step that may complete a request in flight.
    pub fn next_event(&self, nand: &Nand) -> Option<Nanos> {
        self.queue.as_ref()?.first(nand.timelines.first_free()).map(|(begin, _)| begin)
    }

    /// Executes an orderly power-off: writes all data in the write buffer to the flash.
    pub fn power_off<L: CountingObserver>(&mut self, below: &mut LowerLayers<'_, L>) {
        self.dispatch_until(Nanos::MAX, below);
        self.flush_from(self.idle_from().max(self.clock.last_arrival), false, below);
        self.background.gap = None;
    }

    /// Dispatches all waiting pages to the flash.
    pub fn settle<L: CountingObserver>(&mut self, below: &mut LowerLayers<'_, L>) {
        self.dispatch_until(Nanos::MAX, below);
    }

    /// Reports the completion of a request.
    #[inline]
    fn complete<L: Observer>(&mut self, event: &RequestCompleted, log: &mut L) {
        self.clock.idle_from = self.clock.idle_from.max(event.complete);
        self.clock.last_complete = event.complete;
        log.request_completed(event);
    }

    /// Writes the data of a request after its transfer.
    #[inline(always)]
    fn write_data<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        below.data_moved(request);
        if self.queue.is_some() {
            self.enqueue_pages(request, below);
        } else {
            below.write(request);
        }
    }

    /// Transfers the data of a write from the host.
    #[inline]
    fn take_data<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let sectors = request.event.sectors;
        request.spend(self.commands.before_write(sectors) + self.commands.write_stalls.draw());
        if let Some(link) = &mut self.link {
            link.receive(request, sectors, below.log);
        }
    }

    #[inline]
    fn read<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        request.spend(self.commands.read_overhead + self.commands.read_stalls.draw());
        self.read_data(request, below);
        let sectors = request.event.sectors;
        request.spend_after(self.commands.host(sectors));
        if let Some(link) = &mut self.link {
            link.send(request, sectors, below.log);
        }
    }

    /// Reads the data of a request from RAM or flash, before its transfer to the host.
    #[inline]
    fn read_data<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        below.data_moved(request);
        let (first, units) = below.units_of(request);
        below.ftl.look_up(below.nand, request, (first, units), below.log);
        // Data that still waits to be programmed is programmed before it is read.
        self.dispatch_units((first, units), below);
        let range = (first, first.plus(units));
        if self.write_buffer.is_some() || self.read_cache.is_some() {
            self.read_through(request, range, below);
        } else {
            below.read(request, range);
        }
        if request.event.subrequests == 0 {
            request.without_flash(request.ready);
        }
        if let Some(ends) = below.nand.timelines.take_delayed_ends() {
            self.postpone(ends, below);
        }
    }

    /// Notes that work without a command ends later, because a read suspended it.
    #[cold]
    fn postpone<L>(&mut self, ends: DelayedEnds, below: &mut LowerLayers<'_, L>) {
        below.ftl.core.last_program = below.ftl.core.last_program.max(ends.program);
        self.background.busy_until = self.background.busy_until.max(ends.collection);
        if let Some(buffer) = &mut self.write_buffer {
            buffer.postpone(ends.write_back);
        }
    }

    /// Discards the map units that are completely inside the range of a request.
    fn discard<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let (sector, sectors) = (request.event.sector, request.event.sectors);
        request.spend(self.commands.before_write(0) + self.commands.discard);
        let unit = u64::from(below.ftl.core.geometry.unit_sectors);
        let first = sector.div_ceil(unit) as u32;
        let end = ((sector + u64::from(sectors)) / unit) as u32;
        let units = (Lpn(first), end.saturating_sub(first));
        self.dispatch_units(units, below);
        if units.1 > 0 && self.lies != CacheLie::Trim {
            self.uncache(units.0, units.1);
            below.ftl.discard(below.nand, units, request.ready, below.log);
        }
        request.without_flash(request.ready);
    }

    fn flush<L: CountingObserver>(
        &mut self, request: &mut RequestState, modifiers: CommandFlags, below: &mut LowerLayers<'_, L>,
    ) {
        self.dispatch_until(Nanos::MAX, below);
        request.spend(self.commands.before_write(0));
        let end: Nanos = if modifiers.contains(CommandFlags::BARRIER) && self.barriers {
            self.barrier(request.ready, below);
            request.ready
        } else if self.interface == InterfaceKind::Ufs && request.event.sectors > 0 {
            self.flush_range(request, below)
        } else {
            self.flush_command(request.ready, below)
        };
        request.without_flash(end);
    }
}

#[inline]
fn is_empty(command: &DeviceCommand) -> bool {
    command.sectors == 0 && command.op.has_data()
}

#[cold]
fn invalid_command(command: DeviceCommand) -> Error {
    if is_empty(&command) {
        return Error::new(ErrorClass::Value, "the request transfers no data").of_field("sectors", 0, b"0");
    }
    let at = command.arrival.0.to_string();
    Error::new(ErrorClass::Order, "the arrival of a request must be neither before the previous request nor later than 73 years")
        .of_field("arrival", 0, at.as_bytes())
        .hint("submit requests in order of arrival")
}

#[cold]
fn out_of_range(command: DeviceCommand, geometry: &Geometry) -> Error {
    let end = command.sector.saturating_add(u64::from(command.sectors));
    Error::new(ErrorClass::Value, format!("the request ends after the last sector of the {} device", geometry.capacity()))
        .of_field("sector", 0, end.to_string().as_bytes())
        .hint("use a larger device, or wrap the addresses of the requests around at its capacity")
}

/// The layers below the controller, borrowed for one call.
pub(crate) struct LowerLayers<'a, L> {
    pub ftl: &'a mut Ftl,
    pub nand: &'a mut Nand,
    pub log: &'a mut L,
}

#[inline]
fn span_of(request: &RequestState) -> RequestSectors {
    RequestSectors::new(request.event.sector, request.event.sectors)
}

impl<L: Observer> LowerLayers<'_, L> {
    /// The map units of a request: the first unit and the number of units.
    #[inline]
    pub fn units_of(&self, request: &RequestState) -> (Lpn, u32) {
        span_of(request).units(self.ftl.core.geometry.unit_shift)
    }

    /// The units that follow `unit` in address order and lie in the same flash page; none if the unit was never written.
    pub fn rest_of_page(&self, unit: Lpn) -> impl Iterator<Item = Lpn> + use<'_, L> {
        let (tables, geometry) = (&self.ftl.core.tables, &self.ftl.core.geometry);
        let page = tables.lookup(unit).map(|ppn| {
            let shift = geometry.groups[usize::from(self.nand.group(geometry.block_of(ppn)))].page_shift;
            (ppn.0 >> shift, shift)
        });
        let is_there =
            move |lpn: &Lpn| page.is_some_and(|(page, shift)| tables.lookup(*lpn).is_some_and(|ppn| ppn.0 >> shift == page));
        (unit.0 + 1..geometry.logical_units).map(Lpn).take_while(is_there)
    }

    /// Reports the data transfer of a request to the observer.
    #[inline]
    pub fn data_moved(&mut self, request: &RequestState) {
        self.log.data_moved(&DataMoved { op: request.event.op, sectors: request.event.sectors });
    }

    /// The end of the latest page program, for a request that waits for it. Reads no longer delay programs that end by then.
    pub fn last_program(&mut self) -> Nanos {
        self.nand.timelines.fix(self.ftl.core.last_program);
        self.ftl.core.last_program
    }

    /// Writes the data of a request after its transfer.
    #[inline(always)]
    pub fn write(&mut self, request: &mut RequestState) {
        self.ftl.write(self.nand, request, span_of(request), self.log);
    }

    #[inline]
    pub fn read(&mut self, request: &mut RequestState, (first, end): (Lpn, Lpn)) {
        self.ftl.core.read_units(self.nand, request, span_of(request), (first, end), self.log);
    }
}
