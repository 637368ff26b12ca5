//! Requests: where data is written, where reads find it, and how the map changes when a request is complete.

use emmclab_base::{Modifiers, Op};

use super::Lfs;
use super::flight::{Effect, Flight};
use super::record::{BYTES, NOWHERE, Run};
use super::segments::Head;
use super::settings::{BLOCK, FOR_CLEANING};
use super::sync::SYNC;
use crate::layer::{Decision, Defer};
use crate::plan::{Memory, Plan};
use crate::request::HostRequest;

/// Offsets in the plan's buffer of the parts of the first and last block that a write does not cover.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    before: u32,
    after: u32,
}

/// The blocks that a request touches: first and end.
fn touched(request: &HostRequest) -> (u32, u32) {
    ((request.sector / BLOCK) as u32, request.end().div_ceil(BLOCK) as u32)
}

/// The sectors of these blocks that a request covers: first and end.
fn sectors_of(request: &HostRequest, block: u32, blocks: u32) -> (u64, u64) {
    let first = u64::from(block) * BLOCK;
    (first.max(request.sector), (first + u64::from(blocks) * BLOCK).min(request.end()))
}

/// Adds the data of blocks of a request to the last write of the plan.
pub(super) fn plan_data(request: &HostRequest, (block, blocks): (u32, u32), rest: Rest, plan: &mut Plan) {
    let (first, end) = (u64::from(block) * BLOCK, u64::from(block + blocks) * BLOCK);
    let (from, to) = sectors_of(request, block, blocks);
    if first < from {
        plan.piece(Memory::Scratch, rest.before, (from - first) as u32);
    }
    plan.piece(Memory::Payload, (from - request.sector) as u32, (to - from) as u32);
    if to < end {
        plan.piece(Memory::Scratch, rest.after, (end - to) as u32);
    }
}

impl Lfs {
    /// Whether a log has room for this many blocks in addition to what is reserved for cleaning and records.
    fn has_room(&self, head: Head, blocks: u32) -> bool {
        let more = blocks.saturating_sub(self.segments.room(head)).div_ceil(self.shape.segment);
        more == 0 || more + FOR_CLEANING < self.segments.clean()
    }

    /// Plans a read.
    pub(super) fn read(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        plan.flag(request.modifiers);
        let (first, end) = touched(request);
        let mut unwritten = false;
        let mut block = first;
        while block < end {
            let place = self.table.place(block);
            let mut blocks = 1;
            while block + blocks < end
                && self.table.place(block + blocks) == place.map(|place| place + blocks)
            {
                blocks += 1;
            }
            let (from, to) = sectors_of(request, block, blocks);
            let at = place.unwrap_or(block);
            if place.is_none() {
                self.counters.unwritten_blocks += u64::from(blocks);
                unwritten = true;
            }
            if place.is_some() || self.shape.read_unwritten {
                let sector = self.shape.sector(at) + (from - u64::from(block) * BLOCK);
                plan.payload(0, Op::Read, sector, (from - request.sector) as u32, (to - from) as u32);
            }
            block += blocks;
        }
        if unwritten {
            plan.wait();
            for block in first..end {
                if self.table.place(block).is_none() {
                    let (from, to) = sectors_of(request, block, 1);
                    plan.zeros((Memory::Payload, (from - request.sector) as u32), (to - from) as u32);
                }
            }
        }
        Decision::Run
    }

    /// Plans a write.
    pub(super) fn write(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        let (first, end) = touched(request);
        // Two writes may share a block although they share no sector.
        if self.flights.change(first, end) {
            return Decision::Defer(Defer::Overlap);
        }
        if request.modifiers.durable() || request.modifiers.contains(Modifiers::PREFLUSH) {
            return self.write_durably(request, (first, end), plan);
        }
        let log = 1 + (self.table.heat(first) as usize).min(self.shape.logs - 2);
        let wanted = (end - first).next_multiple_of(self.shape.align);
        if self.flights.lock(log) {
            return Decision::Defer(Defer::Overlap);
        }
        if !self.has_room(self.logs[log], wanted) {
            self.work.press(wanted.div_ceil(self.shape.segment));
            return Decision::Defer(Defer::Full);
        }
        self.write += 1;
        self.counters.host_blocks += u64::from(end - first);
        let mut flight = self.flights.begin(request.id, Effect::Written, (first, end), self.write);
        let rest = self.plan_rest(request, plan);
        flight.locks = (rest.is_some() && self.shape.is_zoned).then_some(log);
        let mut head = self.logs[log];
        let mut block = first;
        while block < end {
            if self.segments.room(head) == 0 {
                // There is one: `has_room` checked it.
                let Some(next) = self.segments.open() else { break };
                head = next;
            }
            let left = (end - block).next_multiple_of(self.shape.align);
            let taken = left.min(self.segments.room(head));
            let place = self.take(&mut head, taken, &mut flight);
            let data = taken.min(end - block);
            plan.flag(request.modifiers.intersection(Modifiers::META));
            plan.begin(0, Op::Write, self.shape.sector(place));
            plan_data(request, (block, data), rest.unwrap_or_default(), plan);
            self.pad(taken - data, plan);
            flight.blocks.push((block, place, data));
            self.own(block, place, data);
            block += data;
        }
        self.logs[log] = head;
        self.flights.add(flight);
        Decision::Run
    }

    /// Allocates places in an open segment for a request; returns the first one.
    pub(super) fn take(&mut self, head: &mut Head, blocks: u32, flight: &mut Flight) -> u32 {
        let place = self.segments.take(head, blocks, self.write);
        flight.taken.push((place, blocks));
        self.counters.log_blocks += u64::from(blocks);
        self.checkpoints.logged(blocks);
        place
    }

    /// Notes that these blocks are written to these places.
    pub(super) fn own(&mut self, block: u32, place: u32, blocks: u32) {
        for step in 0..blocks {
            self.segments.own(place + step, block + step);
        }
    }

    /// Pads the last write of the plan with empty blocks.
    pub(super) fn pad(&mut self, blocks: u32, plan: &mut Plan) {
        for _ in 0..blocks {
            plan.metadata(&[0; BYTES]);
        }
        self.counters.padded_blocks += u64::from(blocks);
    }

    /// Plans to read the parts of the first and last block that a write does not cover, if there are any; the write waits for these
    /// reads.
    pub(super) fn plan_rest(&mut self, request: &HostRequest, plan: &mut Plan) -> Option<Rest> {
        let (before, after) = ((request.sector % BLOCK) as u32, request.end() % BLOCK);
        let after = if after == 0 { 0 } else { (BLOCK - after) as u32 };
        if before == 0 && after == 0 {
            return None;
        }
        self.counters.partial_writes += 1;
        plan.flag(Modifiers::empty());
        let mut rest = Rest::default();
        let mut reads = false;
        for (to, sector, sectors) in [
            (&mut rest.before, request.sector - u64::from(before), before),
            (&mut rest.after, request.end(), after),
        ] {
            if sectors == 0 {
                continue;
            }
            *to = plan.scratch(sectors);
            if let Some(place) = self.table.place((sector / BLOCK) as u32) {
                plan.begin(0, Op::Read, self.shape.sector(place) + sector % BLOCK);
                plan.piece(Memory::Scratch, *to, sectors);
                reads = true;
            } else {
                plan.zeros((Memory::Scratch, *to), sectors);
            }
        }
        if reads {
            plan.wait();
        }
        Some(rest)
    }

    /// Plans a discard or a secure erase; blocks that it covers only in part are left alone.
    pub(super) fn discard(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        let (first, end) = (request.sector.div_ceil(BLOCK) as u32, (request.end() / BLOCK) as u32);
        if first >= end {
            return Decision::Run;
        }
        if self.flights.change(first, end) {
            return Decision::Defer(Defer::Overlap);
        }
        let secure = request.op == Op::SecureErase;
        if secure && let Some(why) = self.no_record(1, 0, true) {
            self.work.press(1);
            return Decision::Defer(why);
        }
        self.write += 1;
        let effect = if secure { Effect::Erased } else { Effect::Discarded };
        let mut flight = self.flights.begin(request.id, effect, (first, end), self.write);
        if secure {
            self.runs.clear();
            self.runs.push(Run { block: first, place: NOWHERE, blocks: end - first, write: self.write });
            self.plan_records(None, Modifiers::RELIABLE, &mut flight, plan);
        }
        self.flights.add(flight);
        Decision::Run
    }

    /// Called when a request is complete: applies its changes to the map.
    pub(super) fn request_done(&mut self, id: u64) {
        self.sync.forget(id);
        let Some(flight) = self.flights.take(id) else { return };
        match flight.effect {
            Effect::Written | Effect::Recorded => {
                let recorded = flight.effect == Effect::Recorded;
                for (first, from, blocks) in flight.blocks.iter().copied() {
                    for step in 0..blocks {
                        let (block, place) = (first + step, from + step);
                        self.map(block, Some(place), false);
                        if recorded {
                            self.pending.kill(block);
                        } else {
                            self.pending.change(block, Some(place), flight.write);
                        }
                    }
                }
            }
            Effect::Discarded | Effect::Erased => {
                for block in flight.first..flight.end {
                    if flight.effect == Effect::Erased {
                        self.pending.kill(block);
                    }
                    if self.table.place(block).is_none() {
                        continue;
                    }
                    self.map(block, None, false);
                    self.counters.discarded_blocks += 1;
                    if flight.effect == Effect::Discarded {
                        self.pending.change(block, None, flight.write);
                    }
                }
            }
            Effect::Nothing => {}
        }
        for (place, blocks) in flight.taken.iter().copied() {
            self.segments.written(place, blocks);
        }
        if let Some((order, segment)) = flight.records {
            self.pending.recorded(order);
            self.sync.confirm(segment);
        }
        self.flights.give_back(flight);
    }

    /// Why a request must wait before it writes records of this many runs, together with this many blocks of data; `None` if it
    /// need not. `itself` tells whether the request is its own record.
    pub(super) fn no_record(&self, runs: usize, data: u32, itself: bool) -> Option<Defer> {
        if self.flights.lock(SYNC) || itself && self.checkpoints.waits() {
            return Some(Defer::Overlap);
        }
        self.sync.has_room(&self.segments, runs, data, self.shape.align).err()
    }
}
