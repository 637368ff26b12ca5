//! Timelines of arrays and buses. An operation begins when it is ready and its resources are free, and advances their timelines.

use emmclab_base::Nanos;

use super::channel::BusTimeline;
use super::plane::{DieBusyTime, FlashCommand, MultiPlaneGroup, PlaneResources, PlaneTimeline, WayTimeline};
use super::suspension::OperationSuspender;
use crate::geometry::{Geometry, GroupGeometry};
use crate::ids::{PlaneId, WayId};
use emmclab_settings::{DeviceSettings, ParallelUnit};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageOperationTimes {
    /// When the way started the operation.
    pub begin: Nanos,
    /// When the data transfer over the bus was complete.
    pub transferred: Nanos,
    pub end: Nanos,
    /// The part of the wait before `begin` that was caused by garbage collection.
    pub gc: Nanos,
    pub array: Nanos,
}

/// Flash commands and bus times from the settings.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each optional flash command")]
pub(crate) struct FlashInterface {
    pub same_offset: bool,
    pub copy_back: bool,
    pub cache_read: bool,
    pub cache_program: bool,
    pub command: Nanos,
    /// Bus time of a byte out of the flash, in 1/1024 ns.
    out_time: i64,
    /// Bus time of a byte into the flash, in 1/1024 ns.
    in_time: i64,
    /// Number of channels that share the data of a clustered page.
    clustered_channels: u32,
    /// Bytes of the largest physical page. Smaller parts of a clustered page use only one channel.
    real_page: u32,
}

impl FlashInterface {
    fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        let timing = &settings.timing;
        let real = |group: &GroupGeometry| group.page_bytes / geometry.clustered_planes;
        Self {
            same_offset: timing.same_offset,
            copy_back: timing.copy_back,
            cache_read: timing.cache_read,
            cache_program: timing.cache_program,
            command: Nanos(timing.command_ns.round() as i64),
            out_time: (timing.bus_ns_per_byte * 1024.0).round() as i64,
            in_time: ((timing.bus_ns_per_byte + timing.bus_write_extra_ns_per_byte) * 1024.0).round() as i64,
            clustered_channels: geometry.clustered_channels,
            real_page: geometry.groups.iter().map(real).max().unwrap_or(0),
        }
    }

    #[inline(always)]
    fn bus_time(&self, bytes: u32, byte_time: i64) -> Nanos {
        let bytes =
            if self.clustered_channels > 1 { bytes.min(self.real_page).max(bytes / self.clustered_channels) } else { bytes };
        Nanos((i64::from(bytes) * byte_time) >> 10)
    }

    /// Bus time of `bytes` out of the flash.
    #[inline(always)]
    pub fn read_time(&self, bytes: u32) -> Nanos {
        self.bus_time(bytes, self.out_time)
    }

    /// Bus time of `bytes` into the flash.
    #[inline(always)]
    pub fn write_time(&self, bytes: u32) -> Nanos {
        self.bus_time(bytes, self.in_time)
    }
}

/// Timelines of all ways and buses.
#[derive(Clone, Debug)]
pub(crate) struct FlashTimelines {
    /// Numbers of the ways in striping order.
    pub order: Vec<WayId>,
    /// Timelines of the ways in striping order.
    pub(super) ways: Vec<WayTimeline>,
    pub planes_per_way: u32,
    pub(super) planes: Vec<PlaneTimeline>,
    channels: Vec<BusTimeline>,
    pub(super) groups: Vec<MultiPlaneGroup>,
    pub(super) dies: Vec<DieBusyTime>,
    pub interface: FlashInterface,
    /// `None` if no read suspends another operation.
    pub(super) suspender: Option<Box<OperationSuspender>>,
}

impl FlashTimelines {
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Self {
        let timing = &settings.timing;
        let planes_per_way = match timing.parallelism {
            ParallelUnit::None => geometry.planes_per_chip,
            ParallelUnit::Interleave => geometry.planes_per_die,
            ParallelUnit::MultiPlane | ParallelUnit::Both => 1,
        };
        let planes_per_group = match timing.parallelism {
            ParallelUnit::MultiPlane => Some(geometry.planes_per_chip),
            ParallelUnit::Both if timing.same_offset => Some(geometry.planes_per_die),
            _ => None,
        };
        let mut order: Vec<WayId> = Vec::new();
        for plane in &geometry.stripe {
            let way = WayId(plane.0 / planes_per_way);
            if !order.contains(&way) {
                order.push(way);
            }
        }
        let mut positions = vec![0; order.len()];
        for (position, way) in (0..).zip(&order) {
            positions[way.index()] = position;
        }
        let belongs = |plane: u32| PlaneTimeline {
            way: positions[(plane / planes_per_way) as usize],
            channel: plane / geometry.planes_per_channel,
            die: plane / geometry.planes_per_die,
            group: planes_per_group.map_or(0, |size| plane / size),
            busy: 0,
        };
        let groups = planes_per_group.map_or(0, |size| geometry.planes / size);
        Self {
            ways: vec![WayTimeline::NEW; order.len()],
            planes_per_way,
            planes: (0..geometry.planes).map(belongs).collect(),
            channels: vec![BusTimeline::default(); geometry.channels as usize],
            groups: vec![MultiPlaneGroup::NEW; groups as usize],
            dies: vec![DieBusyTime::NEW; geometry.dies as usize],
            interface: FlashInterface::new(settings, geometry),
            suspender: OperationSuspender::new(timing, order.len()),
            order,
        }
    }

    /// Resets every timeline to idle, for a new simulation with an aged device.
    pub fn rewind(&mut self) {
        self.ways.fill(WayTimeline::NEW);
        self.groups.fill(MultiPlaneGroup::NEW);
        self.channels.fill(BusTimeline::default());
        self.dies.fill(DieBusyTime::NEW);
        for plane in &mut self.planes {
            plane.busy = 0;
        }
        self.suspender.iter_mut().for_each(|suspender| suspender.clear());
    }

    /// Promises that all operations from now on begin at `at` or later.
    #[inline(always)]
    pub fn forget_before(&mut self, at: Nanos) {
        self.channels.iter_mut().for_each(|channel| channel.forget_before(at));
    }

    /// Resets busy times to 0. Timelines stay.
    pub fn clear_load(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.busy = 0);
        self.dies.iter_mut().for_each(|die| die.busy = 0);
        self.planes.iter_mut().for_each(|plane| plane.busy = 0);
    }

    /// Replaces the times of transfers that begin from now on.
    pub fn reconfigure(&mut self, settings: &DeviceSettings, geometry: &Geometry) {
        self.interface = FlashInterface::new(settings, geometry);
    }

    /// Resets every timeline to idle after a power loss. Busy times stay.
    pub fn cut(&mut self) {
        self.ways.fill(WayTimeline::NEW);
        self.groups.fill(MultiPlaneGroup::NEW);
        self.channels.iter_mut().for_each(BusTimeline::cut);
        self.dies.iter_mut().for_each(DieBusyTime::cut);
        self.suspender.iter_mut().for_each(|suspender| suspender.clear());
    }

    /// Earliest time at which a way and its multi-plane group can start an operation. With such groups, each way has only one plane.
    fn group_free(&self, plane: u32, at: Nanos) -> Nanos {
        let entry = self.planes[plane as usize];
        self.groups[entry.group as usize].free(entry.die, self.interface.same_offset, at)
    }

    /// Returns the position, in striping order from `cursor` on, of the first way that can begin a program at `ready`, otherwise of the way
    /// that can begin first. A way is a chip, die or plane that executes one operation at a time. The choice of the page may delay the
    /// actual start.
    #[inline(always)]
    pub fn first_way(&self, cursor: usize, ready: Nanos) -> usize {
        if self.groups.is_empty() {
            first(&self.ways, cursor, ready, |_, free| free)
        } else {
            first(&self.ways, cursor, ready, |position, free| self.group_free(self.order[position].0, free.max(ready)))
        }
    }

    #[inline(always)]
    pub fn plane_free(&self, plane: PlaneId) -> Nanos {
        self.ways[self.planes[plane.index()].way as usize].free
    }

    /// The earliest time at which a way is free.
    #[inline]
    pub fn first_free(&self) -> Nanos {
        self.ways.iter().map(|way| way.free).min().unwrap_or(Nanos::MAX)
    }

    /// The earliest time, not before `from`, at which a way is free.
    #[inline]
    pub fn first_free_from(&self, from: Nanos) -> Nanos {
        let mut first = Nanos::MAX;
        for way in &self.ways {
            if way.free <= from {
                return from;
            }
            first = first.min(way.free);
        }
        first
    }

    /// Busy times of channels, dies and planes.
    pub fn load(&self) -> super::FlashBusyTimes {
        super::FlashBusyTimes {
            channels: self.channels.iter().map(|channel| channel.busy).collect(),
            dies: self.dies.iter().map(|die| die.busy).collect(),
            planes: self.planes.iter().map(|plane| plane.busy).collect(),
        }
    }

    /// The timelines that an operation on a plane uses.
    #[inline(always)]
    pub(super) fn resources(&mut self, plane: PlaneId) -> PlaneResources<'_> {
        let plane = &mut self.planes[plane.index()];
        PlaneResources {
            way: &mut self.ways[plane.way as usize],
            channel: &mut self.channels[plane.channel as usize],
            die: &mut self.dies[plane.die as usize],
            group: self.groups.get_mut(plane.group as usize).map(|group| (group, self.interface.same_offset)),
            plane,
        }
    }

    /// Programs a page: its data crosses the bus, then the array is programmed, which takes `array`.
    #[inline(always)]
    pub fn program(&mut self, plane: PlaneId, page: u32, array: Nanos, ready: Nanos, bytes: u32) -> PageOperationTimes {
        let bus = self.interface.command + self.interface.write_time(bytes);
        let cache = self.interface.cache_program;
        let mut resources = self.resources(plane);
        let free = resources.way.free;
        let gate = resources.gate(FlashCommand::Program, page, ready);
        let (mut begin, mut transferred) = (gate, gate);
        if bus > Nanos::ZERO {
            begin = if cache { ready.max(resources.way.register) } else { gate };
            transferred = resources.channel.reserve(begin, bus) + bus;
        }
        let array_begin = transferred.max(gate);
        let end = array_begin + array;
        let gc = resources.way.gc_share(ready, begin);
        resources.way.register = array_begin;
        resources.book(FlashCommand::Program, page, (begin.max(free), end, end));
        PageOperationTimes { begin, transferred, end, gc, array }
    }

    /// Reads a page: the array is sensed, which takes `array` with all retries, then the data crosses the bus.
    #[inline]
    pub fn read(&mut self, plane: PlaneId, page: u32, array: Nanos, ready: Nanos, bytes: u32) -> PageOperationTimes {
        let bus = self.interface.read_time(bytes);
        let (command, cache) = (self.interface.command, self.interface.cache_read);
        let mut resources = self.resources(plane);
        let begin = resources.gate(FlashCommand::Read, page, ready);
        let mut sensed = begin;
        if command > Nanos::ZERO {
            sensed = resources.channel.reserve(begin, command) + command;
        }
        sensed += array;
        // With cache reads, the page register may still contain the previous page, which is transferred first.
        let out = sensed.max(resources.way.register);
        let end = if bus > Nanos::ZERO { resources.channel.reserve(out, bus) + bus } else { sensed };
        let gc = resources.way.gc_share(ready, begin);
        resources.way.register = end;
        let free = if cache { sensed } else { end };
        resources.book(FlashCommand::Read, page, (begin, free, free));
        PageOperationTimes { begin, transferred: end, end, gc, array }
    }

    /// Erases a block.
    pub fn erase(&mut self, plane: PlaneId, group: &GroupGeometry, ready: Nanos) -> PageOperationTimes {
        let command = self.interface.command;
        let mut resources = self.resources(plane);
        let begin = resources.gate(FlashCommand::Erase, 0, ready);
        let mut end = begin;
        if command > Nanos::ZERO {
            end = resources.channel.reserve(begin, command) + command;
        }
        end += group.erase;
        resources.way.register = end;
        resources.book(FlashCommand::Erase, 0, (begin, end, end));
        PageOperationTimes { begin, transferred: begin, end, gc: Nanos::ZERO, array: group.erase }
    }

    /// Records that the flash way of `plane` collected garbage from `begin` to `end`.
    pub fn note_gc(&mut self, plane: PlaneId, begin: Nanos, end: Nanos) {
        self.ways[self.planes[plane.index()].way as usize].note_gc(begin, end);
    }
}

/// Searches `ways` cyclically from `cursor` for the first way that is free at `ready`. Returns the position of this way; if no way is free
/// then, returns the position of the way that becomes free first.
#[inline(always)]
fn first(ways: &[WayTimeline], cursor: usize, ready: Nanos, free: impl Fn(usize, Nanos) -> Nanos) -> usize {
    let (mut best, mut best_free) = (cursor, Nanos::MAX);
    let (before, from) = ways.split_at(cursor);
    for (offset, ways) in [(cursor, from), (0, before)] {
        for (index, way) in ways.iter().enumerate() {
            let position = offset + index;
            let free = free(position, way.free);
            if free <= ready {
                return position;
            }
            // Branchless, because a branch would be unpredictable here.
            let earlier = free < best_free;
            best = if earlier { position } else { best };
            best_free = best_free.min(free);
        }
    }
    best
}
