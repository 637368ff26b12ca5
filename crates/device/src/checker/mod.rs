//! A reference model of a device, which checks the contents of every sector and the rules of flash.
//!
//! The model does not use the device's maps, block pools or policies. It observes page programs and erases, keeps a tag for every sector in
//! the flash, and compares the data at the location that the device reports with the last write. It checks these rules:
//!
//! 1. Every logical sector reads back what was last written to it. Tags of the data reveal lost, stale and swapped data.
//! 2. Each mapped unit has one valid location, and each valid location one unit.
//! 3. Valid counts of blocks and pools add up.
//! 4. Pages of a block are programmed in order, and at most once between erases; only block-mapped schemes skip pages.
//! 5. Each block is free, open, full, in collection or bad; the lists contain exactly the full ones.
//! 6. Time never goes back: a plane executes one operation at a time, a request arrives, starts and completes in this order, and the parts
//!    of a response time add up to it.
//! 7. The tables of a block-mapped scheme, and those of zones, lead to every valid unit.

use std::collections::VecDeque;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result};
use rustc_hash::FxHashMap;

use crate::device::{Device, DeviceCommand};
use crate::events::{
    BlockErased, Observer, OperationCause, OperationsDelayed, PageProgrammed, PageRead, RequestCompleted, UnitCached,
    UnitsTrimmed, UnplacedRead,
};
use crate::geometry::Geometry;
use crate::ids::{BlockId, Lpn, PlaneId, PoolId, Ppn};
use crate::nand::BlockState;

/// The reference model of a device. For each command, the caller calls `expect` first, passes the command to the device with the model as
/// observer, and then calls `verify`.
pub struct DeviceChecker {
    geometry: Geometry,
    /// Tag of the data in each sector of the flash; 0 = no data.
    content: Vec<u32>,
    /// Tag of the data that each logical sector must contain; 0 = no data.
    expected: Vec<u32>,
    /// Number of pages programmed in each block since its last erase.
    programmed: Vec<u32>,
    /// Tags of accepted writes to each unit that are not yet programmed.
    outstanding: FxHashMap<Lpn, VecDeque<u32>>,
    /// For each map unit in the volatile cache, the tags of its sectors; 0 = sector not in the cache.
    cached: FxHashMap<Lpn, Vec<u32>>,
    /// End of the last operation on each plane.
    plane_end: Vec<Nanos>,
    /// Begin of the next read, which delays operations on its plane.
    delaying: Option<Nanos>,
    /// Whether a plane executes one operation at a time; false with cache commands.
    exclusive: bool,
    /// Whether pages of a block may be skipped when it is programmed.
    skips: bool,
    /// Whether a page program may contain units that the host did not write, as in block-mapped schemes and in zones.
    carries: bool,
    last_tag: u32,
    last_arrival: Nanos,
    since: usize,
    last: Option<DeviceCommand>,
    fault: Option<String>,
}

impl DeviceChecker {
    /// Creates the reference model of a device in its current state.
    pub fn of(device: &Device) -> Self {
        let geometry = device.geometry().clone();
        let sectors = geometry.unit_sectors as usize;
        let mut checker = Self {
            content: vec![0; geometry.ppns() * sectors],
            expected: vec![0; geometry.logical_units as usize * sectors],
            programmed: device.blocks().map(|block| block.written).collect(),
            outstanding: FxHashMap::default(),
            cached: FxHashMap::default(),
            plane_end: vec![Nanos::MIN; geometry.planes as usize],
            delaying: None,
            exclusive: !device.nand.overlaps(),
            skips: device.ftl.skips_pages(),
            carries: device.ftl.carries_units(),
            last_tag: 0,
            last_arrival: Nanos::MIN,
            since: 0,
            last: None,
            fault: None,
            geometry,
        };
        for unit in (0..checker.geometry.logical_units).map(Lpn) {
            if let Some(ppn) = device.lookup(unit) {
                checker.last_tag += 1;
                let tag = checker.last_tag;
                checker.content[ppn.index() * sectors..][..sectors].fill(tag);
                checker.expected[unit.index() * sectors..][..sectors].fill(tag);
            }
        }
        checker
    }

    /// Updates the expected contents for the next command.
    pub fn expect(&mut self, command: &DeviceCommand) {
        let unit_sectors = u64::from(self.geometry.unit_sectors);
        let (first, end) = (command.sector, command.sector + u64::from(command.sectors));
        if end > self.expected.len() as u64 {
            return;
        }
        self.last = Some(*command);
        match command.op {
            Op::Write => {
                self.last_tag = self.last_tag.wrapping_add(1).max(1);
                self.expected[first as usize..end as usize].fill(self.last_tag);
                for unit in first / unit_sectors..end.div_ceil(unit_sectors) {
                    self.outstanding.entry(Lpn(unit as u32)).or_default().push_back(self.last_tag);
                }
            }
            Op::Discard | Op::SecureErase => {
                let (from, to) = (first.div_ceil(unit_sectors), end / unit_sectors);
                if from < to {
                    // Tags that are already 0 are not written. Memory of the vector for sectors that were never written thus stays
                    // unallocated.
                    let trimmed = &mut self.expected[(from * unit_sectors) as usize..(to * unit_sectors) as usize];
                    trimmed.iter_mut().filter(|tag| **tag != 0).for_each(|tag| *tag = 0);
                }
            }
            Op::Read | Op::Flush => {}
        }
    }

    /// Checks the map units of the last command. From time to time, and always on a small device, it also checks the whole device.
    /// Errors: as [`DeviceChecker::verify`].
    pub fn verify_periodically(&mut self, device: &Device) -> Result<()> {
        self.since += 1;
        if self.since * 256 >= self.geometry.ppns() {
            self.since = 0;
            return self.verify(device);
        }
        if let Some(command) = self.last.filter(|command| device.stop().is_none() && command.sectors > 0) {
            let unit = u64::from(self.geometry.unit_sectors);
            let end = (command.sector + u64::from(command.sectors)).div_ceil(unit);
            for unit in command.sector / unit..end {
                self.verify_unit(device, Lpn(unit as u32));
            }
        }
        self.verdict()
    }

    /// Checks every rule over the whole device.
    /// Errors: [`ErrorClass::Value`] with the first rule that does not hold, which is a defect of this program and never of the input.
    pub fn verify(&mut self, device: &Device) -> Result<()> {
        if device.stop().is_none() {
            let lost = self.outstanding.len();
            self.require(lost == 0 || !device.all_dispatched(), || {
                format!("writes to {lost} units were accepted but never programmed")
            });
            for unit in (0..self.geometry.logical_units).map(Lpn) {
                self.verify_unit(device, unit);
            }
        }
        self.verify_blocks(device);
        self.verify_pools(device);
        let fault = if device.stop().is_none() { device.ftl.fault(&device.nand) } else { None };
        self.require(fault.is_none(), || fault.unwrap_or_default());
        self.verdict()
    }

    fn verdict(&mut self) -> Result<()> {
        self.fault.take().map_or(Ok(()), |fault| {
            Err(Error::new(ErrorClass::Value, format!("an invariant of the device is broken: {fault}"))
                .hint("report this defect of the simulator with the settings and the trace"))
        })
    }

    fn require(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds && self.fault.is_none() {
            self.fault = Some(fault());
        }
    }

    fn verify_unit(&mut self, device: &Device, unit: Lpn) {
        if self.outstanding.contains_key(&unit) {
            return;
        }
        let sectors = self.geometry.unit_sectors as usize;
        let place = device.lookup(unit);
        let cached = self.cached.remove(&unit);
        for sector in 0..sectors {
            let wanted = self.expected[unit.index() * sectors + sector];
            let in_ram = cached.as_ref().map_or(0, |tags| tags[sector]);
            let in_flash = || place.map_or(0, |ppn: Ppn| self.content[ppn.index() * sectors + sector]);
            let actual = if in_ram > 0 { in_ram } else { in_flash() };
            self.require(wanted == actual, || {
                format!("sector {sector} of unit {unit} must hold write {wanted} but {place:?} holds {actual}")
            });
        }
        cached.and_then(|tags| self.cached.insert(unit, tags));
    }

    /// Removes and returns the tag of the oldest write to a unit that is not yet programmed; 0 if there is none.
    fn take_outstanding(&mut self, unit: Lpn) -> u32 {
        let Some(tags) = self.outstanding.get_mut(&unit) else { return 0 };
        let tag = tags.pop_front().unwrap_or(0);
        if tags.is_empty() {
            self.outstanding.remove(&unit);
        }
        tag
    }

    fn timeline(&mut self, plane: PlaneId, begin: Nanos, end: Nanos) {
        let last = self.plane_end[plane.index()];
        if let Some(at) = self.delaying.take() {
            self.require(at == begin && begin <= end, || {
                format!("a read delays operations from {at:?} on, but begins at {begin:?}")
            });
            return;
        }
        self.require(begin <= end && (end >= last) && (!self.exclusive || begin >= last), || {
            format!("plane {plane} is used from {begin:?} to {end:?} while busy until {last:?}")
        });
        self.plane_end[plane.index()] = last.max(end);
    }

    fn plane_of(&self, block: BlockId) -> PlaneId {
        PlaneId(block.0 / self.geometry.blocks_per_plane)
    }

    fn verify_blocks(&mut self, device: &Device) {
        let tables = &device.ftl.core.tables;
        let mut valid_places = 0;
        for (number, block) in (0..).map(BlockId).zip(device.blocks()) {
            let first = self.geometry.first_ppn(number);
            let end = first.plus(1 << self.geometry.stride_shift);
            let reach = block.written << self.geometry.groups[usize::from(block.group)].page_shift;
            let mut valid = 0;
            for (ppn, unit) in tables.reverse.valid(first..end) {
                valid += 1;
                let back = device.lookup(unit);
                self.require(back == Some(ppn), || format!("location {ppn} belongs to unit {unit}, which is mapped to {back:?}"));
                self.require(ppn.0 - first.0 < reach, || format!("location {ppn} is valid but not programmed"));
            }
            valid_places += valid as usize;
            let written = self.programmed[number.index()];
            self.require(valid == block.valid, || format!("block {number} counts {} valid units but has {valid}", block.valid));
            self.require(written == block.written, || {
                format!("block {number} counts {} pages but {written} were programmed", block.written)
            });
        }
        let mapped = tables.mapped();
        self.require(mapped == valid_places, || format!("{mapped} units are mapped but {valid_places} locations are valid"));
    }

    fn verify_pools(&mut self, device: &Device) {
        for index in 0..device.ftl.pools() {
            let pool = device.ftl.core.tables.pool(PoolId(index));
            let blocks = || pool.all_blocks().map(|block| device.block(block));
            let count = |state| blocks().filter(|block| block.state == state).count() as u32;
            let (open, full) = (count(BlockState::Open), count(BlockState::Full));
            let (collecting, bad) = (count(BlockState::Collecting), count(BlockState::Bad));
            let unused_spares = pool.blocks - pool.usable;
            let free = pool.free();
            self.require(free + unused_spares + open + full + collecting + bad == pool.blocks, || {
                format!(
                    "pool {index}: {free} free + {unused_spares} spare + {open} open + {full} full + {collecting} collecting + {bad} bad blocks are not {}",
                    pool.blocks
                )
            });
            let listed = pool.listed();
            self.require(listed.len() as u32 == full && pool.full == full, || {
                format!("pool {index} lists {} blocks, counts {}, has {full} full ones", listed.len(), pool.full)
            });
            let valid: u32 = blocks().map(|block| block.valid).sum();
            self.require(valid == pool.valid, || format!("pool {index} counts {} valid units but has {valid}", pool.valid));
            if let Some(least) = pool.least_valid() {
                let true_least = listed.iter().map(|block| device.block(*block).valid).min();
                let actual = device.block(least).valid;
                self.require(true_least == Some(actual), || {
                    format!("pool {index} reports {actual} as the fewest valid units instead of {true_least:?}")
                });
            }
        }
    }
}

impl Observer for DeviceChecker {
    fn request_completed(&mut self, event: &RequestCompleted) {
        let ordered = self.last_arrival <= event.arrival && event.arrival <= event.start && event.start <= event.complete;
        self.require(ordered, || format!("time goes back in {event:?}"));
        let adds_up =
            event.waits.total() == event.complete - event.arrival && event.waits.parts().iter().all(|part| *part >= Nanos::ZERO);
        self.require(adds_up, || format!("the parts of the response time do not add up in {event:?}"));
        self.last_arrival = event.arrival;
    }

    fn page_read(&mut self, event: &PageRead) {
        let (block, page) = (event.block, event.page);
        let written = self.programmed[block.index()];
        self.require(page < written, || format!("page {page} of block {block} is read but not programmed"));
        // Reads that belong to a garbage-collection move carry the start and end of the whole move, so their times are not checked.
        if !event.cause.moves() {
            self.timeline(self.plane_of(block), event.begin, event.end);
        }
    }

    fn unplaced_read(&mut self, event: &UnplacedRead) {
        self.timeline(event.plane, event.begin, event.end);
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        let (block, page) = (event.block, event.page);
        let next = self.programmed[block.index()];
        self.require(page == next || self.skips && page > next, || {
            format!("page {page} of block {block} is programmed after page {next}")
        });
        self.programmed[block.index()] = page + 1;
        self.timeline(self.plane_of(block), event.begin, event.end);
        let sectors = self.geometry.unit_sectors as usize;
        let group = &self.geometry.groups[usize::from(event.group)];
        let (in_block, room) = (page << group.page_shift, group.units_per_page());
        self.require(event.units.len() <= room as usize && !event.units.is_empty(), || {
            format!("page {page} of block {block} is programmed with {} units", event.units.len())
        });
        for (i, unit) in event.units.iter().enumerate() {
            let place = self.geometry.first_ppn(block).plus(in_block).index() + i;
            let mut cached = None;
            let mut tag = 0;
            // With block mapping or zones, a page may also contain units that the host did not change (`covered` is 0).
            if event.cause == OperationCause::Host && (unit.covered != 0 || !self.carries) {
                cached = self.cached.remove(&unit.lpn);
                if cached.is_none() {
                    tag = self.take_outstanding(unit.lpn);
                    self.require(tag != 0, || format!("unit {} is programmed but was not written", unit.lpn));
                }
            }
            for sector in 0..sectors {
                let value = if unit.covered >> sector & 1 == 1 {
                    match &mut cached {
                        Some(tags) => std::mem::take(&mut tags[sector]),
                        None => tag,
                    }
                } else {
                    unit.from.map_or(0, |from| self.content[from.index() * sectors + sector])
                };
                self.require(value != 0 || unit.covered >> sector & 1 == 0, || {
                    format!("sector {sector} of unit {} left the cache but was not in it", unit.lpn)
                });
                self.content[place * sectors + sector] = value;
            }
            if let Some(tags) = cached.filter(|tags| tags.iter().any(|tag| *tag != 0)) {
                self.cached.insert(unit.lpn, tags);
            }
        }
    }

    fn unit_cached(&mut self, event: &UnitCached) {
        let tag = self.take_outstanding(event.lpn);
        self.require(tag != 0, || format!("unit {} entered the cache but was not written", event.lpn));
        let sectors = self.geometry.unit_sectors as usize;
        let tags = self.cached.entry(event.lpn).or_insert_with(|| vec![0; sectors]);
        for (sector, held) in tags.iter_mut().enumerate() {
            if event.covered >> sector & 1 == 1 {
                *held = tag;
            }
        }
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        self.cached.retain(|unit, _| !(event.first..event.first.plus(event.count)).contains(unit));
    }

    fn operations_delayed(&mut self, event: &OperationsDelayed) {
        self.delaying = Some(event.at);
        for (plane, end) in (0..).map(PlaneId).zip(&mut self.plane_end) {
            if event.affects(plane, *end) {
                *end += event.delay;
            }
        }
    }

    fn block_erased(&mut self, event: &BlockErased) {
        self.programmed[event.block.index()] = 0;
        self.timeline(self.plane_of(event.block), event.begin, event.end);
        let sectors = self.geometry.unit_sectors as usize;
        let first = self.geometry.first_ppn(event.block).index() * sectors;
        self.content[first..][..sectors << self.geometry.stride_shift].fill(0);
    }
}
