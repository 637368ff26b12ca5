//! Data movement of the write buffer and the read cache: writes that complete in RAM, write-back, flushes and barriers, reads from RAM.
//! `contract/mod.rs` describes the persistence contract.

use emmclab_base::{CommandFlags, Error, ErrorClass, Nanos, Op, Result};
use emmclab_settings::{CacheLie, DeviceSettings, WriteBackMode};

use super::write_buffer::WriteBuffer;
use super::{DeviceController, FirstCommand, LowerLayers, span_of};
use crate::counters::CountingObserver;
use crate::device::DeviceCommand;
use crate::events::{CacheFlushed, CacheRead, PackedCommandArrived, UnitCached, ZoneBufferTaken};
use crate::ftl::request_state::{AcceptedRequest, NO_COMMAND, RequestState};
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::lru::LruSet;

impl DeviceController {
    /// Executes a write whose data has been transferred. Used if the device has RAM for data, or if flags of the write promise durability
    /// or an order.
    #[inline(never)]
    pub(super) fn write_modified<L: CountingObserver>(
        &mut self, request: &mut RequestState, modifiers: CommandFlags, below: &mut LowerLayers<'_, L>,
    ) {
        if modifiers.contains(CommandFlags::PREFLUSH) {
            let end = self.flush_command(request.ready, below);
            request.wait_until(end);
        }
        self.first_since_power_on.get_or_insert(FirstCommand::Write);
        if modifiers.contains(CommandFlags::RELIABLE) && self.reliable_writes {
            request.spend(self.commands.reliable);
        }
        let durable = modifiers.durable() && self.lies != CacheLie::Fua;
        let around = durable && (self.reliable_writes || modifiers.contains(CommandFlags::FORCED));
        if around || self.write_buffer.is_none() {
            self.write_around(request, below);
        } else {
            self.write_into(request, below);
        }
        if around {
            request.complete_by(below.last_program());
        } else if durable {
            let end = self.flush_command(request.ready, below);
            request.complete_by(end);
        }
    }

    /// Writes directly to the flash, after buffered data that must precede this write: old data of its units, and data before a barrier.
    fn write_around<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let (first, units) = below.units_of(request);
        let from = self.leaves_from(first);
        if let Some(buffer) = &mut self.write_buffer {
            buffer.leave_before_all(request.ready, below);
            request.wait_until(buffer.barrier_end);
            buffer.write_units_back(from, first.plus(units), request.ready, below);
        }
        if let Some(cache) = &mut self.read_cache {
            (first.0..first.0 + units).for_each(|unit| cache.forget(Lpn(unit)));
        }
        if below.ftl.core.stop.is_none() {
            self.write_data(request, below);
        }
    }

    /// Returns the first unit of the range that must leave the buffer together with `unit`. It is the first unit of its zone if zones have
    /// their own buffers, otherwise `unit` itself.
    fn leaves_from(&self, unit: Lpn) -> Lpn {
        self.zones.as_ref().and_then(|zones| zones.leaves_from(unit)).unwrap_or(unit)
    }

    /// Puts the data of a write into the buffer, unit by unit, and waits for free space.
    fn write_into<L: CountingObserver>(&mut self, request: &mut RequestState, below: &mut LowerLayers<'_, L>) {
        let Some(buffer) = &mut self.write_buffer else { return };
        below.data_moved(request);
        buffer.leave_until(request.ready, below);
        let (first, units) = below.units_of(request);
        if let Some(zones) = &mut self.zones
            && let Some((from, start, end)) = zones.take_buffer(first)
        {
            let units = buffer.units_between(start, end);
            below.log.zone_buffer_taken(&ZoneBufferTaken { from, units });
            buffer.write_units_back(start, end, request.ready, below);
        }
        let (span, unit_sectors) = (span_of(request), below.ftl.core.geometry.unit_sectors);
        let mut now = request.ready;
        for lpn in (first.0..first.0 + units).map(Lpn) {
            let covered = span.covered(lpn, unit_sectors);
            while !buffer.accepts(lpn, covered) && below.ftl.core.stop.is_none() {
                buffer.write_back_next(now, below);
            }
            let there = buffer.written_sectors(lpn) != 0;
            if !there && !buffer.will_fit(1) {
                let more = (lpn.0..first.0 + units).filter(|unit| buffer.written_sectors(Lpn(*unit)) == 0).count();
                buffer.make_room(more as u32, now, below);
            }
            if below.ftl.core.stop.is_some() {
                return;
            }
            buffer.release(now);
            if !there {
                now = buffer.fits_from(now);
            }
            let overwritten = buffer.write(lpn, covered);
            if let Some(cache) = &mut self.read_cache {
                cache.forget(lpn);
            }
            let command = request.event.id;
            let units = buffer.units;
            below.log.unit_cached(&UnitCached { lpn, covered, command, overwritten, units, at: now });
        }
        buffer.since = buffer.since.max(now);
        request.wait_until(now);
        request.without_flash(request.ready);
    }

    /// Executes a flush of the host that can begin at `ready`. Returns its completion time.
    pub(super) fn flush_command<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) -> Nanos {
        if self.skips_flush() {
            return ready + self.commands.flush;
        }
        let programmed = self.flush_from(ready, true, below);
        let end = if self.lies == CacheLie::Reorder { ready } else { programmed };
        end + self.commands.flush
    }

    /// Whether a flush of the host is reported as complete without being executed (`cache.lies`).
    fn skips_flush(&mut self) -> bool {
        let first = *self.first_since_power_on.get_or_insert(FirstCommand::Flush);
        self.lies == CacheLie::Flush || self.lies == CacheLie::EarlyFlush && first == FirstCommand::Flush
    }

    /// Flushes only the sectors of `request` (SYNCHRONIZE CACHE with a range). Returns the completion time. If the range has more units
    /// than the buffer, or if data must leave the buffer in order, the whole buffer is flushed.
    pub(super) fn flush_range<L: CountingObserver>(&mut self, request: &RequestState, below: &mut LowerLayers<'_, L>) -> Nanos {
        let (ready, (first, units)) = (request.ready, below.units_of(request));
        let (skips, from) = (self.skips_flush(), self.leaves_from(first));
        let Some(buffer) = self.write_buffer.as_mut().filter(|buffer| units <= buffer.units && !buffer.keeps_order) else {
            return self.flush_command(ready, below);
        };
        if !skips {
            let (end, before) = (first.plus(units), buffer.units);
            buffer.write_units_back(from, end, ready, below);
            let units = before - buffer.units;
            below.log.cache_flushed(&CacheFlushed { units, at: ready, asked_for: true });
        }
        let end = if self.lies == CacheLie::Reorder { ready } else { ready.max(below.last_program()) };
        end + self.commands.flush
    }

    /// Writes all data in the buffer to the flash from `ready` on, for a flush of the host or at power-off. Returns the time at which this
    /// and all earlier data is on the flash.
    pub(super) fn flush_from<L: CountingObserver>(
        &mut self, ready: Nanos, asked_for: bool, below: &mut LowerLayers<'_, L>,
    ) -> Nanos {
        if let Some(buffer) = &mut self.write_buffer {
            below.log.cache_flushed(&CacheFlushed { units: buffer.units, at: ready, asked_for });
            buffer.leave_all(ready, below);
        }
        ready.max(below.last_program())
    }

    /// Executes a barrier: data in the buffer is written to the flash before any later data. A FIFO buffer always does this.
    pub(super) fn barrier<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        if let Some(buffer) = &mut self.write_buffer
            && self.lies != CacheLie::Barrier
            && !buffer.keeps_order
        {
            buffer.leave_older(ready, below);
            buffer.barrier();
            below.nand.timelines.fix(buffer.barrier_end);
        }
    }

    /// Reads units from the device's RAM if it contains them, otherwise from the flash.
    #[inline(never)]
    pub(super) fn read_through<L: CountingObserver>(
        &mut self, request: &mut RequestState, (first, end): (Lpn, Lpn), below: &mut LowerLayers<'_, L>,
    ) {
        let (span, unit_sectors) = (span_of(request), below.ftl.core.geometry.unit_sectors);
        let mut missed = first;
        for lpn in (first.0..end.0).map(Lpn) {
            let written = self.write_buffer.as_ref().map_or(0, |buffer| buffer.written_sectors(lpn));
            let hit = span.covered(lpn, unit_sectors) & !written == 0
                || written == 0 && self.read_cache.as_mut().is_some_and(|cache| cache.hit(lpn));
            below.log.cache_read(&CacheRead { lpn, hit });
            if hit {
                below.read(request, (missed, lpn));
                missed = lpn.plus(1);
            } else if written == 0
                && let Some(cache) = &mut self.read_cache
            {
                cache.keep(lpn);
            }
        }
        below.read(request, (missed, end));
        if missed < end
            && let Some(cache) = self.read_cache.as_mut().filter(|cache| cache.keeps_pages)
        {
            let buffer = self.write_buffer.as_deref();
            let is_buffered = |lpn: Lpn| buffer.is_some_and(|buffer| buffer.written_sectors(lpn) != 0);
            for lpn in below.rest_of_page(Lpn(end.0 - 1)).filter(|lpn| !is_buffered(*lpn)) {
                cache.keep(lpn);
            }
        }
    }

    /// Removes the data of discarded units from the device's RAM.
    pub(super) fn uncache(&mut self, first: Lpn, count: u32) {
        let end = first.plus(count);
        if let Some(buffer) = &mut self.write_buffer {
            buffer.forget(first, end);
        }
        if let Some(cache) = &mut self.read_cache {
            (first.0..end.0).for_each(|unit| cache.forget(Lpn(unit)));
        }
    }

    /// Checks a packed command, which has at least two entries.
    pub fn accept_packed<L>(&self, entries: &[DeviceCommand], below: &LowerLayers<'_, L>) -> Result<()> {
        let Some(head) = entries.first() else { return Ok(()) };
        let alike = |entry: &DeviceCommand| entry.op == head.op && entry.arrival == head.arrival;
        let packs = self.queue.is_none() && self.link.is_none();
        if !head.op.has_data() || !packs || !entries.iter().all(alike) {
            return Err(Error::new(
                ErrorClass::Value,
                "a packed command must contain only reads or only writes, all with the same arrival time",
            )
            .hint("packed commands need an eMMC that executes one command at a time (controller.queue_depth = 1)"));
        }
        entries.iter().try_for_each(|entry| self.accept(entry, &below.ftl.core.geometry))
    }

    /// Executes a packed command that has been checked. Returns the completion time of all entries; `None` if the device has stopped.
    pub fn submit_packed<L: CountingObserver>(
        &mut self, entries: &[DeviceCommand], below: &mut LowerLayers<'_, L>,
    ) -> Option<Nanos> {
        let head = entries.first()?;
        if below.ftl.core.stop.is_some() {
            return None;
        }
        let mut shared = self.begin(head, below);
        if below.ftl.core.stop.is_some() {
            return None;
        }
        let sectors = entries.iter().fold(0u32, |sum, entry| sum.saturating_add(entry.sectors));
        let write = head.op == Op::Write;
        shared.spend(if write {
            self.commands.before_write(sectors.saturating_add(HEADER_SECTORS))
        } else {
            self.commands.read_overhead + self.commands.host(HEADER_SECTORS)
        });
        below.log.packed(&PackedCommandArrived { entries: entries.len() as u32 });
        let mut states = std::mem::take(&mut self.pack);
        states.clear();
        let plain = !entries.iter().any(|entry| entry.modifiers.intersects(CommandFlags::PROMISES));
        let in_order = write && self.write_buffer.is_none() && !below.ftl.core.transferred;
        if in_order {
            below.ftl.set_in_order(true);
        }
        let stream = write && self.share_packed_pages && plain;
        for entry in entries {
            if below.ftl.core.stop.is_some() {
                break;
            }
            let mut request = shared;
            request.event.id = self.clock.next_id + states.len() as u64;
            (request.event.sector, request.event.sectors) = (entry.sector, entry.sectors);
            request.event.modifiers = entry.modifiers;
            if stream {
                // If entries may share pages, all entries are written together after this loop.
            } else if !write {
                self.read_data(&mut request, below);
            } else if self.is_plain_write(entry) {
                self.write_data(&mut request, below);
            } else {
                self.write_modified(&mut request, entry.modifiers, below);
            }
            states.push(request);
        }
        if stream {
            below.ftl.core.write_stream(below.nand, &mut states, below.log);
        }
        if in_order {
            below.ftl.set_in_order(false);
        }
        let complete = states.iter().map(|state| state.event.complete).max().unwrap_or(Nanos::MIN);
        let out = if write { Nanos::ZERO } else { self.commands.host(sectors) };
        let stopped = below.ftl.core.stop.is_some();
        if !stopped {
            self.clock.next_id += states.len() as u64;
            for request in &mut states {
                request.complete_by(complete);
                request.spend_after(out);
                self.commands.slots.take(request.event.complete);
                self.complete(&request.event, below.log);
            }
        }
        self.pack = states;
        (!stopped).then_some(complete + out)
    }
}

impl WriteBuffer {
    /// Writes back the next group of units. The write begins at `ready`, or later if a barrier orders earlier data before it.
    pub(super) fn write_back_next<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        if let Some((first, end)) = self.next_to_leave() {
            let ready = ready.max(if self.holds_older() { self.older_after } else { self.barrier_end });
            self.write_units_back(first, end, ready, below);
        }
    }

    /// Writes back enough units to free space for `units` more units. They are written in parallel on several planes.
    fn make_room<L: CountingObserver>(&mut self, units: u32, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        while !self.is_empty() && !self.will_fit(units) && below.ftl.core.stop.is_none() {
            self.write_back_next(ready, below);
        }
    }

    /// Continues the write-back of a buffer in mode `Eager` until the time `until`, while the data of the next write is transferred.
    fn leave_until<L: CountingObserver>(&mut self, until: Nanos, below: &mut LowerLayers<'_, L>) {
        while self.write_back == WriteBackMode::Eager && !self.is_empty() && below.ftl.core.stop.is_none() {
            let at = below.nand.timelines.first_free_from(self.since);
            if at >= until {
                break;
            }
            self.write_back_next(at, below);
        }
    }

    /// Writes back all data in the buffer.
    fn leave_all<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        while !self.is_empty() && below.ftl.core.stop.is_none() {
            self.write_back_next(ready, below);
        }
    }

    /// Writes back all data that must be on the flash before any new write is executed.
    fn leave_before_all<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        if self.keeps_order { self.leave_all(ready, below) } else { self.leave_older(ready, below) }
    }

    /// Writes back all data that was written before the last barrier.
    fn leave_older<L: CountingObserver>(&mut self, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        while self.holds_older() && below.ftl.core.stop.is_none() {
            self.write_back_next(ready, below);
        }
    }

    /// Programs the buffered data of the units `from..to`.
    fn write_units_back<L: CountingObserver>(&mut self, from: Lpn, to: Lpn, ready: Nanos, below: &mut LowerLayers<'_, L>) {
        let mut at = from;
        while at < to
            && let Some((first, end)) = self.run(at, to)
        {
            let older = self.is_older(first);
            let LowerLayers { ftl, nand, log } = below;
            // Data that becomes durable in order cannot be delayed in one way only.
            nand.timelines.write_back(ftl.core.in_order.is_none());
            let done = ftl.timed(|ftl| self.write_run((first, end), ready, &mut LowerLayers { ftl, nand, log: *log }));
            below.nand.timelines.write_back(false);
            if below.ftl.core.stop.is_some() {
                return;
            }
            let done = done.max(ready);
            self.leaves(done, end.0 - first.0);
            if older {
                self.barrier_end = self.barrier_end.max(done);
                below.nand.timelines.fix(done);
            }
            self.busy_until = self.busy_until.max(done);
            self.forget(first, end);
            at = end;
        }
    }

    /// Programs a run of consecutive units, split at sectors that the buffer does not contain.
    fn write_run<L: CountingObserver>(&self, (first, end): (Lpn, Lpn), ready: Nanos, below: &mut LowerLayers<'_, L>) {
        let shift = below.ftl.core.geometry.unit_shift;
        let (mut at, limit) = (u64::from(first.0) << shift, u64::from(end.0) << shift);
        loop {
            let begin = self.find_sector(at, limit, true, shift);
            if begin == limit || below.ftl.core.stop.is_some() {
                return;
            }
            at = self.find_sector(begin, limit, false, shift);
            let (op, sectors) = (Op::Write, (at - begin) as u32);
            let (arrival, start, queue_limited) = (ready, ready, false);
            let taken = AcceptedRequest {
                id: NO_COMMAND,
                op,
                modifiers: CommandFlags::empty(),
                sector: begin,
                sectors,
                arrival,
                fetch: Nanos::ZERO,
                start,
                queue_limited,
            };
            below.write(&mut RequestState::new(taken));
        }
    }
}

/// The cached units, whose data is both in the RAM of the device and on the flash.
#[derive(Clone, Debug)]
pub(crate) struct ReadCache {
    units: LruSet,
    room: usize,
    /// Whether the units that follow a read in the same flash page are kept as well.
    keeps_pages: bool,
}

impl ReadCache {
    /// Creates the read cache of a device; `None` if the device has none.
    pub fn new(settings: &DeviceSettings, geometry: &Geometry) -> Option<Self> {
        let room = (settings.cache.read_kb * 1024 / geometry.unit_bytes) as usize;
        let units = || LruSet::new(geometry.logical_units as usize, room);
        (settings.cache.read_kb > 0).then(|| Self { units: units(), room, keeps_pages: settings.cache.read_pages })
    }

    /// Whether a unit is in the cache. If so, it becomes the most recently used unit.
    pub fn hit(&mut self, unit: Lpn) -> bool {
        self.units.touch(unit.0)
    }

    pub fn keep(&mut self, unit: Lpn) {
        if self.units.touch(unit.0) {
            return;
        }
        if self.units.len() == self.room {
            self.units.pop();
        }
        self.units.push(unit.0);
    }

    /// Removes all units from the cache.
    pub fn clear(&mut self) {
        self.units.clear();
    }

    /// Removes a unit from the cache, because its data changes or is discarded.
    pub fn forget(&mut self, unit: Lpn) {
        self.units.remove(unit.0);
    }
}

// Packed commands contain several reads or writes with one overhead and a header block of one sector that describes them (JESD84-B45;
// `EXT_CSD` `MAX_PACKED_WRITES` [500], `MAX_PACKED_READS` [501]). The device receives the data of all entries and executes them in order;
// all are complete when the last is. A setting determines whether a page may contain data of several entries (`ftl/write.rs`).

/// Number of sectors in the header block of a packed command.
const HEADER_SECTORS: u32 = 1;
