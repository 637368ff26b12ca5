//! Between the host and the FTL: how long commands take, when the device sleeps, what goes first, and what is kept in RAM.
//!
//! The controller asks the FTL to write, read and discard units, and never touches its tables.

mod background;
mod below;
mod buffered;
mod commands;
mod dispatch;
mod draws;
mod host;
mod link;
mod packed;
mod power;
mod queue;
mod read_cache;
mod slots;
mod write_buffer;
mod zones;

use emmclab_base::{Error, Kind, Modifiers, Nanos, Op, Result};

use crate::command::Command;
use crate::events::{Observer, RequestCompleted, WokeUp};
use crate::ftl::Ftl;
use crate::ftl::request_state::{RequestState, Taken};
use crate::geometry::{Geometry, nanos};
use crate::nand::Nand;
use crate::zones::{ZoneAction, ZoneState};
use emmclab_settings::{BoosterFlush, InterfaceKind, Lie, Scheduling, Settings};

use background::Background;
pub(crate) use below::Below;
use commands::Commands;
use link::Link;
use power::Power;
use queue::Queue;
use read_cache::ReadCache;
use write_buffer::WriteBuffer;
pub(crate) use zones::Zones;

/// Arrivals, up to 73 years from 0, which leaves room for all that a run can add. `EARLIEST` stands for the arrival before the first.
const EARLIEST: Nanos = Nanos(-(1 << 61));
const LATEST: Nanos = Nanos(1 << 61);

/// What the host asked for first since the power came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Write,
    Flush,
}

/// The controller's clock: numbers of requests and the latest times.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Number of the next request.
    next_id: u64,
    last_arrival: Nanos,
    /// When every request taken so far is complete.
    idle_from: Nanos,
    /// When the request reported last was complete.
    last_complete: Nanos,
}

impl Clock {
    const NEW: Self =
        Self { next_id: 0, last_arrival: EARLIEST, idle_from: Nanos::MIN, last_complete: Nanos::ZERO };
}

/// Command path, write buffer, power and background work of a device.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
#[derive(Clone)]
pub(crate) struct Controller {
    commands: Commands,
    power: Power,
    /// Link and queues of a UFS.
    link: Option<Box<Link>>,
    /// Writes that reads may pass; `None` if commands are served in order.
    queue: Option<Box<Queue>>,
    write_buffer: Option<Box<WriteBuffer>>,
    read_cache: Option<Box<ReadCache>>,
    background: Background,
    /// Zones that are written in order.
    zones: Option<Box<Zones>>,
    share_packed_pages: bool,
    /// Whether background work is done in hibernation.
    works_asleep: bool,
    promises_write_order: bool,
    /// Whether reliable writes (on a UFS, FUA) and barriers are there; where not, a flush takes their place.
    reliable_writes: bool,
    barriers: bool,
    lies: Lie,
    /// `None` until the first write or flush.
    first_since_power_on: Option<First>,
    /// The entries of a packed command, kept to reuse the memory.
    pack: Vec<RequestState>,
    clock: Clock,
}

impl Controller {
    /// The device's kind of interface.
    pub fn interface(&self) -> InterfaceKind {
        if self.link.is_some() { InterfaceKind::Ufs } else { InterfaceKind::Emmc }
    }

    /// The zones that are written in order, where there are any.
    pub fn zones(&self) -> Option<&Zones> {
        self.zones.as_deref()
    }

    /// Does what the host asks for a zone.
    pub fn manage_zone<L: Observer>(
        &mut self,
        zone: u32,
        action: ZoneAction,
        below: &mut Below<'_, L>,
    ) -> Result<()> {
        let Some(zones) = &mut self.zones else {
            return Err(Error::new(Kind::Value, "the device has no zones").hint("set zones.blocks"));
        };
        // A full zone is full of data, of which a cut may take some; there is nothing to finish.
        let was_full = zones.report(zone).is_some_and(|zone| zone.state == ZoneState::Full);
        zones.manage(zone, action, self.clock.last_arrival, below.log)?;
        if action == ZoneAction::Finish && !was_full {
            below.ftl.finish_zone(zone);
        }
        Ok(())
    }

    /// Takes the zones as the flash has them: after a cut of power, or of an image.
    pub fn restore_zones(&mut self, ftl: &Ftl) {
        if let Some(zones) = &mut self.zones {
            zones.restore(ftl);
        }
    }

    /// Whether reliable writes, or FUA, are there.
    pub fn has_reliable_writes(&self) -> bool {
        self.reliable_writes
    }

    /// The controller of a new device.
    pub fn new(settings: &Settings, ftl: &Ftl) -> Self {
        let geometry = ftl.geometry();
        let write_buffer = WriteBuffer::new(settings, geometry).map(Box::new);
        Self {
            commands: Commands::new(settings),
            power: Power::new(settings),
            link: Link::new(settings).map(Box::new),
            queue: match settings.controller.scheduling {
                Scheduling::Fifo => None,
                Scheduling::ReadFirst => Some(Box::default()),
            },
            background: Background::new(settings, geometry, ftl.folds_after(), write_buffer.is_some()),
            write_buffer,
            read_cache: ReadCache::new(settings, geometry).map(Box::new),
            zones: Zones::new(settings, geometry).map(Box::new),
            share_packed_pages: settings.controller.share_packed_pages,
            works_asleep: settings.slc.flush == BoosterFlush::Hibernate,
            promises_write_order: settings.cache.promises_write_order(),
            reliable_writes: settings.features.reliable_write || settings.interface.is_ufs(),
            barriers: settings.features.barrier,
            lies: settings.cache.lies,
            first_since_power_on: None,
            pack: Vec::new(),
            clock: Clock::NEW,
        }
    }

    /// Whether all that was taken has been dispatched to the flash.
    pub fn all_dispatched(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.is_empty())
    }

    /// Whether completed writes may be in RAM only.
    pub fn buffers_writes(&self) -> bool {
        self.write_buffer.is_some()
    }

    /// Map units of written data that the write buffer has room for; 0 without one.
    pub fn buffered_units(&self) -> u32 {
        self.write_buffer.as_ref().map_or(0, |buffer| buffer.room())
    }

    /// Whether completed writes reach the flash in their order, but for a lie.
    pub fn promises_write_order(&self) -> bool {
        self.promises_write_order
    }

    /// Number that the next command gets.
    pub fn next_command(&self) -> u64 {
        self.clock.next_id
    }

    /// When everything taken so far is complete, work in the background included.
    #[inline]
    pub fn idle_from(&self) -> Nanos {
        let buffered = self.write_buffer.as_ref().map_or(Nanos::MIN, |buffer| buffer.busy_until);
        self.clock.idle_from.max(buffered).max(self.background.busy_until)
    }

    /// From when on the time without work counts that the device goes to sleep after: in hibernation a UFS may flush `WriteBooster`.
    fn sleeps_from(&self) -> Nanos {
        if !self.works_asleep {
            return self.idle_from();
        }
        let buffered = self.write_buffer.as_ref().map_or(Nanos::MIN, |buffer| buffer.busy_until);
        self.clock.idle_from.max(buffered)
    }

    /// Makes time, numbers and RAM start again. The write buffer must be empty.
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
        self.clock = Clock::NEW;
    }

    /// Goes on from `at` by these settings; queues, buffers and their contents stay.
    pub fn reconfigure(
        &mut self,
        settings: &Settings,
        geometry: &Geometry,
        fold_after: Option<Nanos>,
        at: Nanos,
    ) {
        let idle_from = self.idle_from().max(at);
        self.commands.reconfigure(settings);
        self.power.reconfigure(settings);
        if let Some(link) = &mut self.link {
            link.reconfigure(settings);
        }
        self.lies = settings.cache.lies;
        if let Some(buffer) = &mut self.write_buffer {
            buffer.write_back = settings.cache.write_back;
            buffer.newest_first = settings.cache.lies == Lie::Reorder;
            buffer.idle_after = nanos(settings.cache.idle_after_us);
            // What may leave now could have left by the old settings alone before.
            buffer.since = buffer.since.max(at);
        }
        let background = Background::new(settings, geometry, fold_after, self.write_buffer.is_some());
        self.background.replace_with(background, idle_from);
    }

    /// Whether a cut of the power repeats discards.
    pub fn repeats_late_trims(&self) -> bool {
        self.lies == Lie::LateTrim
    }

    /// Power was lost at `at`: what waited in RAM is gone, and nothing is in progress.
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
            buffer.lose();
            buffer.rewind();
        }
        if let Some(cache) = &mut self.read_cache {
            cache.clear();
        }
        // Layers may have sent commands that were to come after the cut.
        self.clock.last_arrival = at;
        self.clock.idle_from = at;
    }

    /// Checks a command against the device and the clock.
    #[inline]
    pub fn accept(&self, command: &Command, geometry: &Geometry) -> Result<()> {
        if command.sector.saturating_add(u64::from(command.sectors)) > geometry.sectors() {
            return Err(beyond(*command, geometry));
        }
        let out_of_time = command.arrival < self.clock.last_arrival || command.arrival > LATEST;
        if out_of_time || is_empty(command) {
            return Err(refused(*command));
        }
        self.zones.as_ref().map_or(Ok(()), |zones| zones.check(command))
    }

    /// Takes a command that was accepted. Returns its completion, or `None` if that is not known yet or the device has stopped.
    #[inline]
    pub fn submit<L: Observer>(&mut self, command: &Command, below: &mut Below<'_, L>) -> Option<Nanos> {
        if below.stop().is_some() {
            return None;
        }
        let mut request = self.begin(command, below);
        if below.stop().is_some() {
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
        if below.stop().is_some() {
            return None;
        }
        if let Some(queue) = &mut self.queue {
            queue.push_request(request, self.commands.hold());
            if request.outstanding == 0 {
                self.end_of(request.event.id);
            }
            self.report_completed(below);
            return None;
        }
        self.commands.occupy(request.complete());
        self.complete(&request.event, below.log);
        Some(request.complete())
    }

    /// Whether a write is asked for no more than its data, on a device without RAM for data.
    #[inline]
    fn is_plain_write(&self, command: &Command) -> bool {
        self.write_buffer.is_none()
            && self.read_cache.is_none()
            && !command.modifiers.intersects(Modifiers::PROMISES)
    }

    /// Moves the clock to a command's arrival: background work until then, waking up, the slot in the queue.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the state of the request is built where it stays")]
    fn begin<L: Observer>(&mut self, command: &Command, below: &mut Below<'_, L>) -> RequestState {
        let arrival = command.arrival;
        self.clock.last_arrival = arrival;
        if self.queue.is_some() {
            self.dispatch_until(arrival, below);
        }
        let interruption = if self.background.works() { self.interrupt(arrival, below) } else { Nanos::ZERO };
        let start = self.start(arrival, below);
        let Command { op, modifiers, sector, sectors, .. } = *command;
        let (id, queue_limited) = (self.clock.next_id, self.commands.is_limited());
        let fetch = self.commands.fetch;
        let mut request = RequestState::new(Taken {
            id,
            op,
            modifiers,
            sector,
            sectors,
            arrival,
            fetch,
            start,
            queue_limited,
        });
        if interruption > Nanos::ZERO {
            request.before.gc += interruption;
            request.ready += interruption;
        }
        if self.power.sleeps()
            && !self.is_at_work()
            && let Some((asleep, took)) = self.power.wake(self.sleeps_from(), arrival)
        {
            request.before.wake_up = took;
            request.ready += took;
            below.log.woke_up(&WokeUp { at: arrival, asleep, took });
            if let Some(link) = &mut self.link {
                link.wakes_until(request.ready);
            }
        }
        if let Some(link) = &mut self.link {
            let in_flight = 1 + self.commands.in_flight(start);
            link.hand_over(&mut request, in_flight, below.log);
        }
        request
    }

    /// When the device takes a command that comes at `arrival`. Where reads go first and a UFS has every tag in use, what waits goes on
    /// until one is free.
    #[inline]
    fn start<L: Observer>(&mut self, arrival: Nanos, below: &mut Below<'_, L>) -> Nanos {
        if self.queue.is_some() && self.commands.is_limited() {
            self.dispatch_for_a_slot(arrival, below);
        }
        self.commands.start(arrival)
    }

    /// Whether a UFS holds commands whose ends are not known yet.
    fn is_at_work(&self) -> bool {
        self.link.is_some() && self.queue.as_ref().is_some_and(|queue| queue.holds_requests())
    }

    /// Ends the gap before a command with the background work that belongs to it; returns the time that interrupting it takes.
    #[inline(never)]
    fn interrupt<L: Observer>(&mut self, arrival: Nanos, below: &mut Below<'_, L>) -> Nanos {
        let idle_from = self.idle_from();
        if idle_from == Nanos::MIN {
            return Nanos::ZERO;
        }
        self.background.interrupt(arrival, idle_from, self.write_buffer.as_deref_mut(), below)
    }

    /// Does everything that begins before `until`, without a command: pages that wait, then background work. Any series of calls
    /// does the same as its last one alone.
    pub fn advance<L: Observer>(&mut self, until: Nanos, below: &mut Below<'_, L>) {
        self.dispatch_until(until, below);
        let idle_from = self.idle_from();
        if self.background.works() && idle_from > Nanos::MIN && self.all_dispatched() {
            self.background.work_until(until, idle_from, self.write_buffer.as_deref_mut(), below);
        }
    }

    /// When the device will next do something that may complete a request that it holds.
    pub fn next_event(&self, nand: &Nand) -> Option<Nanos> {
        self.queue.as_ref()?.next_begin(nand.first_free())
    }

    /// An orderly end: all that is in the write buffer is written.
    pub fn power_off<L: Observer>(&mut self, below: &mut Below<'_, L>) {
        self.dispatch_until(Nanos::MAX, below);
        self.flush_from(self.idle_from().max(self.clock.last_arrival), false, below);
        self.background.end_gap();
    }

    /// Dispatches all that waits.
    pub fn settle<L: Observer>(&mut self, below: &mut Below<'_, L>) {
        self.dispatch_until(Nanos::MAX, below);
    }

    /// Completion of the last request that was dispatched.
    pub fn last_complete(&self) -> Nanos {
        self.clock.last_complete
    }

    /// A request is complete.
    #[inline]
    fn complete<L: Observer>(&mut self, event: &RequestCompleted, log: &mut L) {
        self.clock.idle_from = self.clock.idle_from.max(event.complete);
        self.clock.last_complete = event.complete;
        log.request_completed(event);
    }
}

#[inline]
fn is_empty(command: &Command) -> bool {
    command.sectors == 0 && command.op.has_data()
}

#[cold]
fn refused(command: Command) -> Error {
    if is_empty(&command) {
        return Error::new(Kind::Value, "is a request without data").of_field("sectors", 0, b"0");
    }
    let at = command.arrival.0.to_string();
    Error::new(Kind::Order, "a request comes before its predecessor, or more than 73 years from time 0")
        .of_field("arrival", 0, at.as_bytes())
        .hint("give requests in order of arrival")
}

#[cold]
fn beyond(command: Command, geometry: &Geometry) -> Error {
    let end = command.sector.saturating_add(u64::from(command.sectors));
    Error::new(
        Kind::Value,
        format!("the request ends behind the last sector of the {} device", geometry.capacity()),
    )
    .of_field("sector", 0, end.to_string().as_bytes())
    .hint("take a larger device, or have addresses wrapped into this one")
}
