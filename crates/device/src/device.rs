//! The device: takes requests in order of arrival, says when each completes.

use emmclab_trace::{Error, Kind, Nanos, Op, Result};

use crate::command::{Command, Modifiers};
use crate::config::{
    AllocationPolicy, DeviceConfig, GcMode, Levelling, Scheduling, Settings, SlcMode, UnwrittenRead,
    WriteComplete,
};
use crate::controller::{Cache, Commands, Pending, Power, Progress, Short};
use crate::counters::{Counters, Load};
use crate::event::{Observer, Quiet, RequestCompleted, WokeUp};
use crate::ftl::fetch::MARKED;
use crate::ftl::gc::{self, VictimPolicy};
use crate::ftl::idle::IdleCollection;
use crate::ftl::mapping::Mapping;
use crate::ftl::reverse::ReverseMap;
use crate::ftl::slc::Slc;
use crate::geometry::Geometry;
use crate::nand::{Block, Flash, Pool};

/// Why a device takes no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There is no free page, and collection is off or cannot win one.
    Full,
    /// A block went bad and no spare block was left for it.
    WornOut,
}

impl Stop {
    /// A sentence for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Stop::Full => "the device is full: no page is free and none can be won back",
            Stop::WornOut => "the device is worn out: a block went bad and no spare block was left",
        }
    }
}

/// Arrivals, up to 73 years from 0, which leaves room for all that a run can add.
/// Before the first, the last one stands at the earliest.
const EARLIEST: i64 = -(1 << 61);
const LATEST: i64 = 1 << 61;

#[inline]
fn empty(command: &Command) -> bool {
    command.sectors == 0 && command.op.has_data()
}

#[cold]
fn refused(command: Command) -> Error {
    if empty(&command) {
        return Error::new(Kind::Value, "is a request without data").of_field("sectors", 0, b"0");
    }
    let at = command.arrival.0.to_string();
    Error::new(Kind::Order, "a request comes before its predecessor, or more than 73 years from time 0")
        .of_field("arrival", 0, at.as_bytes())
        .hint("requests must be given in order of arrival")
}

/// A simulated eMMC. Memory is taken as it is used: a new device of any size is there at once.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting that the hot path asks for")]
pub struct Device {
    pub(crate) geometry: Geometry,
    pub(crate) flash: Flash,
    /// Slot + 1 of each logical unit, the host's first, then those of a map on the flash; 0 = never written or discarded.
    pub(crate) map: Vec<u32>,
    pub(crate) reverse: ReverseMap,
    /// Whether there is memory behind each [`MARKED`] entries of the map.
    pub(crate) backed: Vec<bool>,
    pub(crate) blocks: Vec<Block>,
    /// One for each plane and block group.
    pub(crate) pools: Vec<Pool>,
    pub(crate) mapping: Mapping,
    pub(crate) policy: Option<Box<dyn VictimPolicy>>,
    pub(crate) counters: Counters,
    pub(crate) stop: Option<Stop>,
    pub(crate) allocation: AllocationPolicy,
    pub(crate) hard: u32,
    pub(crate) soft: u32,
    pub(crate) pages_per_step: u32,
    pub(crate) incremental: bool,
    /// Spread of erases above which cold data is moved; 0 = off.
    pub(crate) static_wear: u32,
    pub(crate) copy_back: bool,
    /// Place in the striping order of the units to look at first.
    pub(crate) cursor: u32,
    /// Plane of each unit that was used last.
    pub(crate) plane_turn: Vec<u32>,
    /// Pages programmed.
    pub(crate) programs: u64,
    /// Decisions of the victim policy.
    pub(crate) turn: u64,
    /// End of the last program, for flushes.
    pub(crate) last_program: i64,
    pub(crate) commands: Commands,
    power: Power,
    pub(crate) pending: Pending,
    pub(crate) read_first: bool,
    pub(crate) transferred: bool,
    queue_limited: bool,
    /// The writes that nothing is on for but the flash.
    pub(crate) short: Short,
    pub(crate) unwritten: UnwrittenRead,
    pub(crate) hot_sectors: u32,
    /// The RAM for data, where there is one.
    pub(crate) cache: Option<Box<Cache>>,
    pub(crate) share_packed_pages: bool,
    /// The entries of a packed command, kept to reuse the room.
    pub(crate) pack: Vec<Progress>,
    /// Whether something may be done while no request is.
    background: bool,
    pub(crate) idle: IdleCollection,
    pub(crate) slc: Slc,
    pub(crate) next_id: u64,
    pub(crate) last_arrival: i64,
    /// When everything taken so far is complete, work in the background included.
    pub(crate) idle_from: i64,
    /// When the request told last was complete.
    last_complete: i64,
}

impl Device {
    /// A brand new device.
    pub fn new(config: &DeviceConfig) -> Self {
        let settings = config.settings();
        let geometry = Geometry::new(settings);
        let flash = Flash::new(settings, &geometry);
        let policy = gc::find(&settings.gc.policy).map(|policy| (policy.make)(&settings.gc));
        let pools = pools(settings, &geometry, policy.as_deref());
        let mapping = Mapping::new(settings, &geometry);
        let cache = Cache::new(settings, &geometry).map(Box::new);
        let idle = IdleCollection::new(settings);
        let slc = Slc::new(settings, &geometry);
        let commands = Commands::new(settings);
        let background = cache.is_some() || idle.works() || slc.folds_when_idle();
        let map = vec![0; (geometry.logical_units + mapping.map_units()) as usize];
        Self {
            backed: vec![false; map.len().div_ceil(MARKED)],
            map,
            mapping,
            reverse: ReverseMap::new(geometry.slots()),
            blocks: vec![Block::default(); geometry.blocks() as usize],
            pools,
            counters: Counters::new(geometry.groups.len()),
            stop: None,
            allocation: settings.allocation.policy,
            hard: settings.gc.hard_free_blocks,
            soft: settings.gc.soft_free_blocks,
            pages_per_step: settings.gc.pages_per_step,
            incremental: policy.is_some() && settings.gc.mode == GcMode::Incremental,
            static_wear: match settings.wear.levelling {
                Levelling::Static => settings.wear.threshold,
                Levelling::None | Levelling::Dynamic => 0,
            },
            copy_back: settings.timing.copy_back,
            cursor: 0,
            plane_turn: vec![flash.planes_per_unit() - 1; flash.unit_count() as usize],
            programs: 0,
            turn: 0,
            last_program: i64::MIN,
            short: Short::new(settings, &geometry, &commands, background),
            commands,
            power: Power::new(settings),
            pending: match settings.controller.scheduling {
                Scheduling::Fifo => Pending::default(),
                Scheduling::ReadFirst => Pending::new(geometry.logical_units),
            },
            read_first: settings.controller.scheduling == Scheduling::ReadFirst,
            transferred: settings.timing.write_complete == WriteComplete::Transferred,
            queue_limited: settings.controller.queue_depth > 0,
            unwritten: settings.mapping.unwritten_read,
            hot_sectors: settings.allocation.hot_max_kb.saturating_mul(2),
            background,
            cache,
            share_packed_pages: settings.controller.share_packed_pages,
            pack: Vec::new(),
            idle,
            slc,
            next_id: 0,
            last_arrival: EARLIEST,
            idle_from: i64::MIN,
            last_complete: 0,
            policy,
            flash,
            geometry,
        }
    }

    /// Counts and addresses.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long its parts were busy, in ns.
    pub fn load(&self) -> Load {
        self.flash.load()
    }

    /// Its blocks, plane by plane.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Why it takes no more writes, if so.
    #[inline]
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// The slot that holds a logical unit.
    #[inline]
    pub fn lookup(&self, unit: u32) -> Option<u32> {
        self.map[unit as usize].checked_sub(1)
    }

    /// Whether all that was taken has been dispatched to the flash.
    pub fn all_dispatched(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether a plain write is durable when it is complete.
    pub fn promises_on_completion(&self) -> bool {
        !self.transferred && self.cache.as_ref().is_none_or(|cache| cache.room == 0)
    }

    /// When everything taken so far is complete.
    #[inline]
    pub fn idle_from(&self) -> Nanos {
        Nanos(self.idle_from)
    }

    /// Makes the data stay and everything else new: time, counters and numbers start again. What is in the cache is
    /// written first.
    pub fn rewind(&mut self) {
        self.power_off(&mut Quiet);
        self.flash.rewind();
        self.commands.rewind();
        self.mapping.power_cycle();
        self.power.rewind();
        if let Some(cache) = &mut self.cache {
            cache.rewind();
        }
        self.counters = Counters::new(self.geometry.groups.len());
        self.last_program = i64::MIN;
        self.next_id = 0;
        self.last_arrival = EARLIEST;
        self.idle_from = i64::MIN;
        self.last_complete = 0;
    }

    /// Takes a request. Returns its completion, or `None` where that is not known yet (reads go first and it is a write)
    /// or the device has stopped ([`Device::stop`]).
    ///
    /// # Errors
    /// [`Kind::Value`] for a request beyond the device, [`Kind::Order`] for one that comes before its predecessor.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the hottest path; in a loop the device's fields are then found without a pointer"
    )]
    pub fn submit<O: Observer>(&mut self, command: &Command, observer: &mut O) -> Result<Option<Nanos>> {
        self.accept(command)?;
        if let Some(event) = self.write_one_page::<O>(command) {
            self.tell(&event, observer);
            return Ok(Some(Nanos(event.complete)));
        }
        Ok(self.submit_any(*command, observer))
    }

    /// The long way, which every command can go.
    #[inline(never)]
    fn submit_any<O: Observer>(&mut self, command: Command, observer: &mut O) -> Option<Nanos> {
        let command = &command;
        if self.stop.is_some() {
            return None;
        }
        let mut progress = self.begin(command, observer);
        self.next_id += 1;
        match command.op {
            Op::Read => self.read(&mut progress, observer),
            Op::Write if self.cache.is_none() && command.modifiers.is_none() => {
                self.write(&mut progress, observer);
            }
            Op::Write => {
                progress.spend(self.commands.before_write(command.sectors));
                self.write_modified(&mut progress, command.modifiers, observer);
            }
            Op::Discard | Op::SecureErase => self.discard(&mut progress, observer),
            Op::Flush => self.flush(&mut progress, command.modifiers, observer),
        }
        if self.stop.is_some() {
            return None;
        }
        if self.read_first {
            self.pending.push_request(progress);
            self.tell_completed(observer);
            return None;
        }
        self.complete(&progress.event, observer);
        Some(Nanos(progress.event.complete))
    }

    /// Checks a command against the device and the clock.
    #[inline]
    pub(crate) fn accept(&self, command: &Command) -> Result<()> {
        if command.sector.saturating_add(u64::from(command.sectors)) > self.geometry.sectors() {
            return Err(self.beyond(*command));
        }
        let arrival = command.arrival.0;
        if arrival < self.last_arrival || arrival > LATEST || empty(command) {
            return Err(refused(*command));
        }
        Ok(())
    }

    /// Moves the clock to a command's arrival: what the background does until then, waking up, the place in the queue.
    #[inline]
    pub(crate) fn begin<O: Observer>(&mut self, command: &Command, observer: &mut O) -> Progress {
        let arrival = command.arrival.0;
        self.last_arrival = arrival;
        if self.read_first {
            self.dispatch_until(arrival, observer);
        }
        let interruption =
            if self.background && self.idle_from > i64::MIN { self.work_until(arrival, observer) } else { 0 };
        let start = self.commands.start(arrival);
        let mut progress = Progress::new(
            self.next_id,
            command.op,
            command.sector,
            command.sectors,
            arrival,
            start,
            self.queue_limited,
        );
        if interruption > 0 {
            progress.before.gc_ns += interruption;
            progress.ready += interruption;
        }
        if let Some((asleep, wake)) = self.power.wake(self.idle_from, arrival) {
            self.counters.asleep_ns += asleep as u64;
            self.counters.waking_ns += wake as u64;
            self.counters.wake_ups += 1;
            progress.before.wake_up_ns = wake;
            progress.ready += wake;
            observer.woke_up(&WokeUp { at: arrival, took: wake });
        }
        progress
    }

    /// What the device does on its own until `until`. Returns the time that interrupting it takes.
    #[inline(never)]
    fn work_until<O: Observer>(&mut self, until: i64, observer: &mut O) -> i64 {
        self.write_back_until(until, observer);
        if self.slc.folds_when_idle() {
            self.fold_until(until, observer);
        }
        if self.idle.works() { self.collect_until(until, observer) } else { 0 }
    }

    fn flush<O: Observer>(&mut self, progress: &mut Progress, modifiers: Modifiers, observer: &mut O) {
        if self.read_first {
            self.dispatch_until(i64::MAX, observer);
        }
        progress.spend(self.commands.before_write(0));
        let end = if modifiers.contains(Modifiers::BARRIER) {
            self.barrier(progress.ready, observer);
            progress.ready
        } else {
            self.flush_from(progress.ready, observer)
        };
        progress.without_flash(end);
    }

    /// An orderly end: all that is in the cache is written (power-off notification, `EXT_CSD` `POWER_OFF_NOTIFICATION`).
    pub fn power_off<O: Observer>(&mut self, observer: &mut O) {
        self.dispatch_until(i64::MAX, observer);
        self.flush_from(self.idle_from.max(self.last_arrival), observer);
    }

    #[cold]
    fn beyond(&self, command: Command) -> Error {
        let end = command.sector.saturating_add(u64::from(command.sectors));
        Error::new(
            Kind::Value,
            format!("the request ends behind the last sector of the {} device", self.geometry.capacity()),
        )
        .of_field("sector", 0, end.to_string().as_bytes())
        .hint("take a larger device, or have addresses folded into this one")
    }

    /// When the device next begins a page of a request that it holds; `None` where it holds nothing.
    pub fn next_event(&self) -> Option<Nanos> {
        self.pending.begins(self.flash.first_free()).map(Nanos)
    }

    /// Does everything that begins before `until`, and reports the requests that are complete then.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) {
        self.dispatch_until(until.0, observer);
    }

    /// Dispatches all that waits, and returns the completion of the last request.
    pub fn settle<O: Observer>(&mut self, observer: &mut O) -> Nanos {
        self.dispatch_until(i64::MAX, observer);
        Nanos(self.last_complete)
    }

    #[inline]
    pub(crate) fn complete<O: Observer>(&mut self, event: &RequestCompleted, observer: &mut O) {
        if self.queue_limited {
            self.commands.occupy(event.complete);
        }
        self.tell(event, observer);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "once for each request")]
    fn tell<O: Observer>(&mut self, event: &RequestCompleted, observer: &mut O) {
        self.idle_from = self.idle_from.max(event.complete);
        self.last_complete = event.complete;
        observer.request_completed(event);
    }
}

fn pools(settings: &Settings, geometry: &Geometry, policy: Option<&dyn VictimPolicy>) -> Vec<Pool> {
    let order = policy.map_or(gc::Order::Age, VictimPolicy::order);
    let by_wear = settings.wear.levelling != Levelling::None;
    // Half of the spare share is left to each plane and group to breathe; data beyond goes to others.
    let share = settings.capacity.over_provisioning_pct / 100.0;
    let fill = (1.0 + share / 2.0) / (1.0 + share);
    let mut pools = Vec::with_capacity(geometry.planes as usize * geometry.groups.len());
    for plane in 0..geometry.planes {
        for (index, group) in geometry.groups.iter().enumerate() {
            let mut pool = Pool::new(plane, geometry.blocks_per_plane, group, order, by_wear);
            let ordinary = settings.slc.mode != SlcMode::Cache || index + 1 < geometry.groups.len();
            if policy.is_some() && ordinary {
                let slots = (group.blocks - group.spare_blocks) * group.slots_per_block();
                pool.valid_limit = (f64::from(slots) * fill) as u32;
            }
            pools.push(pool);
        }
    }
    pools
}
