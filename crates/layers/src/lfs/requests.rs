//! Requests: where data is written, where reads find it, and how the map changes when a request is complete.

use emmclab_base::{CommandFlags, Op};

use super::LfsLayer;
use super::record::{BYTES, LogRun, NOWHERE};
use super::request_table::{LfsRequest, RequestEffect};
use super::segments::OpenSegment;
use super::settings::{BLOCK, FOR_CLEANING};
use super::sync::SYNC;
use crate::layer::{DeferReason, RequestDecision};
use crate::plan::{CommandPlan, PlanMemory};
use crate::request::HostRequest;

/// Offsets in the plan's buffer of the parts of the first and last block that a write does not cover.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockRemainder {
    before: u32,
    after: u32,
}

/// The blocks that a request touches: first and end.
fn touched_blocks(request: &HostRequest) -> (u32, u32) {
    ((request.sector / BLOCK) as u32, request.end().div_ceil(BLOCK) as u32)
}

/// The sectors of these blocks that a request covers: first and end.
fn sectors_of(request: &HostRequest, block: u32, blocks: u32) -> (u64, u64) {
    let first = u64::from(block) * BLOCK;
    (first.max(request.sector), (first + u64::from(blocks) * BLOCK).min(request.end()))
}

/// Adds the data of blocks of a request to the last write of the plan.
pub(super) fn plan_data(
    request: &HostRequest,
    (block, blocks): (u32, u32),
    rest: BlockRemainder,
    plan: &mut CommandPlan,
) {
    let (first, end) = (u64::from(block) * BLOCK, u64::from(block + blocks) * BLOCK);
    let (from, to) = sectors_of(request, block, blocks);
    if first < from {
        plan.piece(PlanMemory::Scratch, rest.before, (from - first) as u32);
    }
    plan.piece(PlanMemory::Payload, (from - request.sector) as u32, (to - from) as u32);
    if to < end {
        plan.piece(PlanMemory::Scratch, rest.after, (end - to) as u32);
    }
}

impl LfsLayer {
    /// Whether a log has room for this many blocks in addition to what is reserved for cleaning and records.
    fn has_room(&self, head: OpenSegment, blocks: u32) -> bool {
        let more = blocks.saturating_sub(self.segments.room(head)).div_ceil(self.shape.segment);
        more == 0 || more + FOR_CLEANING < self.segments.clean()
    }

    /// Plans a read.
    pub(super) fn read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        plan.flag(request.modifiers);
        let (first, end) = touched_blocks(request);
        let mut unwritten = false;
        let mut block = first;
        while block < end {
            let place = self.table.place(block);
            let mut blocks = 1;
            while block + blocks < end && self.table.place(block + blocks) == place.map(|place| place + blocks) {
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
                    plan.zeros((PlanMemory::Payload, (from - request.sector) as u32), (to - from) as u32);
                }
            }
        }
        RequestDecision::Run
    }

    /// Plans a write.
    pub(super) fn write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = touched_blocks(request);
        // Two writes may share a block although they share no sector.
        if self.flights.change(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.modifiers.durable() || request.modifiers.contains(CommandFlags::PREFLUSH) {
            return self.write_durably(request, (first, end), plan);
        }
        let log = 1 + (self.table.heat(first) as usize).min(self.shape.logs - 2);
        let wanted = (end - first).next_multiple_of(self.shape.align);
        if self.flights.lock(log) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if !self.has_room(self.logs[log], wanted) {
            self.work.request_segments(wanted.div_ceil(self.shape.segment));
            return RequestDecision::Defer(DeferReason::Full);
        }
        self.write += 1;
        self.counters.host_blocks += u64::from(end - first);
        let mut flight = self.flights.begin(request.id, RequestEffect::Written, (first, end), self.write);
        let rest = self.plan_remainder(request, plan);
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
            plan.flag(request.modifiers.intersection(CommandFlags::META));
            plan.begin(0, Op::Write, self.shape.sector(place));
            plan_data(request, (block, data), rest.unwrap_or_default(), plan);
            self.pad(taken - data, plan);
            flight.blocks.push((block, place, data));
            self.set_owners(block, place, data);
            block += data;
        }
        self.logs[log] = head;
        self.flights.add(flight);
        RequestDecision::Run
    }

    /// Allocates places in an open segment for a request; returns the first one.
    pub(super) fn take(&mut self, head: &mut OpenSegment, blocks: u32, flight: &mut LfsRequest) -> u32 {
        let place = self.segments.take(head, blocks, self.write);
        flight.allocated.push((place, blocks));
        self.counters.log_blocks += u64::from(blocks);
        self.checkpoints.add_logged(blocks);
        place
    }

    /// Notes that these blocks are written to these places.
    pub(super) fn set_owners(&mut self, block: u32, place: u32, blocks: u32) {
        for step in 0..blocks {
            self.segments.set_owner(place + step, block + step);
        }
    }

    /// Pads the last write of the plan with empty blocks.
    pub(super) fn pad(&mut self, blocks: u32, plan: &mut CommandPlan) {
        for _ in 0..blocks {
            plan.metadata(&[0; BYTES]);
        }
        self.counters.padded_blocks += u64::from(blocks);
    }

    /// Plans to read the parts of the first and last block that a write does not cover, if there are any; the write waits for these
    /// reads.
    pub(super) fn plan_remainder(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> Option<BlockRemainder> {
        let (before, after) = ((request.sector % BLOCK) as u32, request.end() % BLOCK);
        let after = if after == 0 { 0 } else { (BLOCK - after) as u32 };
        if before == 0 && after == 0 {
            return None;
        }
        self.counters.partial_writes += 1;
        plan.flag(CommandFlags::empty());
        let mut rest = BlockRemainder::default();
        let mut reads = false;
        for (to, sector, sectors) in
            [(&mut rest.before, request.sector - u64::from(before), before), (&mut rest.after, request.end(), after)]
        {
            if sectors == 0 {
                continue;
            }
            *to = plan.scratch(sectors);
            if let Some(place) = self.table.place((sector / BLOCK) as u32) {
                plan.begin(0, Op::Read, self.shape.sector(place) + sector % BLOCK);
                plan.piece(PlanMemory::Scratch, *to, sectors);
                reads = true;
            } else {
                plan.zeros((PlanMemory::Scratch, *to), sectors);
            }
        }
        if reads {
            plan.wait();
        }
        Some(rest)
    }

    /// Plans a discard or a secure erase; blocks that it covers only in part are left alone.
    pub(super) fn discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector.div_ceil(BLOCK) as u32, (request.end() / BLOCK) as u32);
        if first >= end {
            return RequestDecision::Run;
        }
        if self.flights.change(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        let secure = request.op == Op::SecureErase;
        if secure && let Some(why) = self.record_blocked_by(1, 0, true) {
            self.work.request_segments(1);
            return RequestDecision::Defer(why);
        }
        self.write += 1;
        let effect = if secure { RequestEffect::Erased } else { RequestEffect::Discarded };
        let mut flight = self.flights.begin(request.id, effect, (first, end), self.write);
        if secure {
            self.runs.clear();
            self.runs.push(LogRun { block: first, place: NOWHERE, blocks: end - first, write: self.write });
            self.plan_records(None, CommandFlags::RELIABLE, &mut flight, plan);
        }
        self.flights.add(flight);
        RequestDecision::Run
    }

    /// Called when a request is complete: applies its changes to the map.
    pub(super) fn request_done(&mut self, id: u64) {
        self.sync.forget(id);
        let Some(flight) = self.flights.take(id) else { return };
        match flight.effect {
            RequestEffect::Written | RequestEffect::Recorded => {
                let recorded = flight.effect == RequestEffect::Recorded;
                for (first, from, blocks) in flight.blocks.iter().copied() {
                    for step in 0..blocks {
                        let (block, place) = (first + step, from + step);
                        self.map(block, Some(place), false);
                        if recorded {
                            self.pending.mark_dead(block);
                        } else {
                            self.pending.change(block, Some(place), flight.write);
                        }
                    }
                }
            }
            RequestEffect::Discarded | RequestEffect::Erased => {
                for block in flight.first..flight.end {
                    if flight.effect == RequestEffect::Erased {
                        self.pending.mark_dead(block);
                    }
                    if self.table.place(block).is_none() {
                        continue;
                    }
                    self.map(block, None, false);
                    self.counters.discarded_blocks += 1;
                    if flight.effect == RequestEffect::Discarded {
                        self.pending.change(block, None, flight.write);
                    }
                }
            }
            RequestEffect::Nothing => {}
        }
        for (place, blocks) in flight.allocated.iter().copied() {
            self.segments.written(place, blocks);
        }
        if let Some((order, segment)) = flight.records {
            self.pending.recorded(order);
            self.sync.confirm(segment);
        }
        self.flights.recycle(flight);
    }

    /// Why a request must wait before it writes records of this many runs, together with this many blocks of data; `None` if it
    /// need not. `itself` tells whether the request is its own record.
    pub(super) fn record_blocked_by(&self, runs: usize, data: u32, itself: bool) -> Option<DeferReason> {
        if self.flights.lock(SYNC) || itself && self.checkpoints.is_due() {
            return Some(DeferReason::Overlap);
        }
        self.sync.has_room(&self.segments, runs, data, self.shape.align).err()
    }
}
