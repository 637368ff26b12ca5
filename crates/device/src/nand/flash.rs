//! When the arrays and buses are free: an operation starts at max(ready, free) and moves the timeline on.
#![expect(clippy::inline_always, reason = "the hottest path; what is handed on stays in registers")]

use super::channel::Channel;
use super::copies::{Copies, Stepwise, Whole};
use super::lane::{DieLoad, Gang, Kind, Lane, Plane, Unit};
use crate::config::{Parallelism, Settings};
use crate::geometry::{Geometry, Group};

/// Times of one page operation, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operation {
    /// When its unit began to work on it.
    pub begin: i64,
    /// When the data had crossed the bus.
    pub transferred: i64,
    /// When it was done.
    pub end: i64,
    /// Part of the wait before `begin` that collection caused.
    pub gc: i64,
    /// Time in the array.
    pub array: i64,
}

/// Timelines of all units and buses.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each optional flash command")]
pub(crate) struct Flash {
    /// The units in striping order: their numbers and their timelines.
    order: Vec<u32>,
    units: Vec<Unit>,
    planes_per_unit: u32,
    planes: Vec<Plane>,
    channels: Vec<Channel>,
    gangs: Vec<Gang>,
    same_offset: bool,
    copy_back: bool,
    cache_read: bool,
    cache_program: bool,
    command_ns: i64,
    /// Bus time of a byte out of the flash and into it, in 1/1024 ns.
    out_time: i64,
    in_time: i64,
    /// Channels that share the data of a clustered page, and the bytes of a real page: less stays on one channel.
    gang_channels: u32,
    real_page: u32,
    dies: Vec<DieLoad>,
}

impl Flash {
    pub fn new(settings: &Settings, geometry: &Geometry) -> Self {
        let timing = &settings.timing;
        let planes_per_unit = match timing.parallelism {
            Parallelism::None => geometry.planes_per_chip,
            Parallelism::Interleave => geometry.planes_per_die,
            Parallelism::MultiPlane | Parallelism::Both => 1,
        };
        let planes_per_gang = match timing.parallelism {
            Parallelism::MultiPlane => Some(geometry.planes_per_chip),
            Parallelism::Both if timing.same_offset => Some(geometry.planes_per_die),
            _ => None,
        };
        let mut order: Vec<u32> = Vec::new();
        for plane in &geometry.stripe {
            let unit = plane / planes_per_unit;
            if !order.contains(&unit) {
                order.push(unit);
            }
        }
        let mut places = vec![0; order.len()];
        for (place, unit) in (0..).zip(&order) {
            places[*unit as usize] = place;
        }
        let belongs = |plane: u32| Plane {
            place: places[(plane / planes_per_unit) as usize],
            channel: plane / geometry.planes_per_channel,
            die: plane / geometry.planes_per_die,
            gang: planes_per_gang.map_or(0, |size| plane / size),
            busy: 0,
        };
        Self {
            units: vec![Unit::NEW; order.len()],
            planes_per_unit,
            planes: (0..geometry.planes).map(belongs).collect(),
            channels: vec![Channel::default(); geometry.channels as usize],
            gangs: planes_per_gang
                .map_or_else(Vec::new, |size| vec![Gang::NEW; (geometry.planes / size) as usize]),
            same_offset: timing.same_offset,
            copy_back: timing.copy_back,
            cache_read: timing.cache_read,
            cache_program: timing.cache_program,
            command_ns: timing.command_ns.round() as i64,
            out_time: (timing.bus_ns_per_byte * 1024.0).round() as i64,
            in_time: ((timing.bus_ns_per_byte + timing.bus_write_extra_ns_per_byte) * 1024.0).round() as i64,
            gang_channels: geometry.gang_channels,
            real_page: geometry
                .groups
                .iter()
                .map(|group| group.page_bytes / geometry.gang)
                .max()
                .unwrap_or(0),
            dies: vec![DieLoad::NEW; geometry.dies as usize],
            order,
        }
    }

    /// Moves every timeline to the past, for a run that starts anew on a used device.
    pub fn rewind(&mut self) {
        self.units.fill(Unit::NEW);
        self.gangs.fill(Gang::NEW);
        self.channels.fill(Channel::default());
        self.dies.fill(DieLoad::NEW);
        for plane in &mut self.planes {
            plane.busy = 0;
        }
    }

    /// How many units there are.
    #[inline]
    pub fn unit_count(&self) -> u32 {
        self.order.len() as u32
    }

    #[inline]
    pub fn planes_per_unit(&self) -> u32 {
        self.planes_per_unit
    }

    /// The unit at a place of the striping order.
    #[inline]
    pub fn unit_at(&self, place: usize) -> u32 {
        self.order[place]
    }

    /// Gangs are made of planes, and then a unit is a plane.
    fn gang_free(&self, plane: u32, at: i64) -> i64 {
        let entry = self.planes[plane as usize];
        self.gangs[entry.gang as usize].free(entry.die, self.same_offset, at)
    }

    /// The first unit from the place `cursor` on that can begin a program at `ready`, as far as can be told before its page
    /// is known, else the one that can begin first; its place in the striping order.
    #[inline(always)]
    pub fn first_unit(&self, cursor: usize, ready: i64) -> usize {
        if self.gangs.is_empty() {
            first(&self.units, cursor, ready, |_, free| free)
        } else {
            first(&self.units, cursor, ready, |place, free| {
                self.gang_free(self.order[place], free.max(ready))
            })
        }
    }

    /// When the unit of a plane is free.
    #[inline(always)]
    pub fn plane_free(&self, plane: u32) -> i64 {
        self.units[self.planes[plane as usize].place as usize].free
    }

    /// When the first unit is free.
    #[inline]
    pub fn first_free(&self) -> i64 {
        self.units.iter().map(|unit| unit.free).min().unwrap_or(i64::MAX)
    }

    /// Whether an operation may begin before the last one on its plane has ended.
    #[inline]
    pub fn caches(&self) -> bool {
        self.cache_read || self.cache_program
    }

    /// Busy times of channels, dies and planes.
    pub fn load(&self) -> crate::Load {
        crate::Load {
            channels: self.channels.iter().map(|channel| channel.busy).collect(),
            dies: self.dies.iter().map(|die| die.busy).collect(),
            planes: self.planes.iter().map(|plane| plane.busy).collect(),
        }
    }

    /// Bus time of `bytes` of data in one direction.
    #[inline(always)]
    fn bus_time(&self, bytes: u32, byte_time: i64) -> i64 {
        let bytes = if self.gang_channels > 1 {
            bytes.min(self.real_page).max(bytes / self.gang_channels)
        } else {
            bytes
        };
        (i64::from(bytes) * byte_time) >> 10
    }

    /// What an operation on a plane touches.
    #[inline(always)]
    fn lane(&mut self, plane: u32) -> Lane<'_> {
        let plane = &mut self.planes[plane as usize];
        Lane {
            unit: &mut self.units[plane.place as usize],
            channel: &mut self.channels[plane.channel as usize],
            die: &mut self.dies[plane.die as usize],
            gang: self.gangs.get_mut(plane.gang as usize).map(|gang| (gang, self.same_offset)),
            plane,
        }
    }

    /// Programs a page: its data crosses the bus, then the array takes it.
    #[inline(always)]
    pub fn program(&mut self, plane: u32, group: &Group, page: u32, ready: i64, bytes: u32) -> Operation {
        let bus = self.command_ns + self.bus_time(bytes, self.in_time);
        let cache = self.cache_program;
        let mut lane = self.lane(plane);
        let free = lane.unit.free;
        let gate = lane.gate(Kind::Program, page, ready);
        let (mut begin, mut transferred) = (gate, gate);
        if bus > 0 {
            begin = if cache { ready.max(lane.unit.register) } else { gate };
            transferred = lane.channel.reserve(begin, bus) + bus;
        }
        let array_begin = transferred.max(gate);
        let end = array_begin + group.program_ns;
        let gc = lane.unit.gc_share(ready, begin);
        lane.unit.register = array_begin;
        lane.book(Kind::Program, page, (begin.max(free), end, end));
        Operation { begin, transferred, end, gc, array: group.program_ns }
    }

    /// Reads a page: the array senses it, then its data crosses the bus.
    #[inline]
    pub fn read(&mut self, plane: u32, group: &Group, page: u32, ready: i64, bytes: u32) -> Operation {
        let bus = self.bus_time(bytes, self.out_time);
        let (command, cache) = (self.command_ns, self.cache_read);
        let mut lane = self.lane(plane);
        let begin = lane.gate(Kind::Read, page, ready);
        let mut sensed = begin;
        if command > 0 {
            sensed = lane.channel.reserve(begin, command) + command;
        }
        sensed += group.read_ns;
        // With cache reads the register may still hold the page before; it goes out first.
        let out = sensed.max(lane.unit.register);
        let end = if bus > 0 { lane.channel.reserve(out, bus) + bus } else { sensed };
        let gc = lane.unit.gc_share(ready, begin);
        lane.unit.register = end;
        let free = if cache { sensed } else { end };
        lane.book(Kind::Read, page, (begin, free, free));
        Operation { begin, transferred: end, end, gc, array: group.read_ns }
    }

    /// Bytes over the bus when a page is moved inside its plane: out and back.
    pub fn copied_bytes(&self, from: &Group, to: &Group) -> (u32, u32) {
        if self.copy_back { (0, 0) } else { (from.page_bytes, to.page_bytes) }
    }

    /// Begins to move pages from a plane to one (most often itself) for collection, each as early as `ready` and the
    /// flash allow.
    pub fn copies<'a>(
        &'a mut self,
        planes: (u32, u32),
        (from, to): (&'a Group, &'a Group),
        ready: i64,
    ) -> Copies<'a> {
        if planes.0 != planes.1 || !self.gangs.is_empty() || self.cache_read || self.cache_program {
            return Copies::Stepwise(Stepwise { flash: self, planes, groups: (from, to), ready, took: 0 });
        }
        let (out, back) = self.copied_bytes(from, to);
        let (out, back) = (self.bus_time(out, self.out_time), self.bus_time(back, self.in_time));
        let command = self.command_ns;
        let lane = self.lane(planes.0);
        let begin = ready.max(lane.unit.free);
        Copies::Whole(Whole {
            begin,
            end: begin,
            command,
            out,
            back: command + back,
            read_ns: from.read_ns,
            program_ns: to.program_ns,
            lane,
        })
    }

    /// Erases a block.
    pub fn erase(&mut self, plane: u32, group: &Group, ready: i64) -> Operation {
        let command = self.command_ns;
        let mut lane = self.lane(plane);
        let begin = lane.gate(Kind::Erase, 0, ready);
        let mut end = begin;
        if command > 0 {
            end = lane.channel.reserve(begin, command) + command;
        }
        end += group.erase_ns;
        lane.unit.register = end;
        lane.book(Kind::Erase, 0, (begin, end, end));
        Operation { begin, transferred: begin, end, gc: 0, array: group.erase_ns }
    }

    /// Notes that the unit of `plane` collected from `begin` to `end`.
    pub fn note_gc(&mut self, plane: u32, begin: i64, end: i64) {
        self.units[self.planes[plane as usize].place as usize].note_gc(begin, end);
    }
}

/// The place of the first of `units` from `cursor` on, and round, that is free at `ready`, else of the one free first.
#[inline(always)]
fn first(units: &[Unit], cursor: usize, ready: i64, free: impl Fn(usize, i64) -> i64) -> usize {
    let (mut best, mut best_free) = (cursor, i64::MAX);
    let (before, from) = units.split_at(cursor);
    for (offset, units) in [(cursor, from), (0, before)] {
        for (index, unit) in units.iter().enumerate() {
            let place = offset + index;
            let free = free(place, unit.free);
            if free <= ready {
                return place;
            }
            // Which one is the first cannot be foreseen: chosen without a jump.
            let earlier = free < best_free;
            best = if earlier { place } else { best };
            best_free = best_free.min(free);
        }
    }
    best
}
