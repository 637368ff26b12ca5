//! The log of records: flushes and durable writes.

use emmclab_base::{CommandFlags, Op};

use super::LfsLayer;
use super::record::{BYTES, LfsRecord, LogRun, RUN_BYTES, RUNS, SECTOR, put_run};
use super::request_table::{LfsRequest, RequestEffect};
use super::requests::{BlockRemainder, plan_data};
use super::segments::{OpenSegment, SegmentTable};
use super::settings::FOR_CLEANING;
use crate::layer::{DeferReason, RequestDecision};
use crate::plan::CommandPlan;
use crate::request::HostRequest;

/// The number of this log, after those of the logs of data.
pub(super) const SYNC: usize = 5;
/// Maximum number of blocks of data that a record covers: 1 MB.
const MOST_DATA: u32 = 256;

/// State of the log of records.
#[derive(Clone, Debug)]
pub(super) struct SyncLog {
    pub head: OpenSegment,
    /// The clean segment in which the log continues.
    pub next: u32,
    pub life: u64,
    /// Number of the next record.
    pub number: u64,
    /// Number of segments opened so far, and whether a record in the last one is durable. Before that, the log may not continue in
    /// another segment, because recovery finds the next segment by a record.
    opened: u64,
    confirmed: bool,
    /// The newest opened segment to which durable records lead. One request may open several segments. Until it is complete, no
    /// other request writes a record in the last one, because recovery might not find it.
    durable_write: u64,
    /// Flushes that wait for a checkpoint: number of the request, and number of the newest change when it arrived.
    waiting: Vec<(u64, u64)>,
}

impl Default for SyncLog {
    fn default() -> Self {
        let waiting = Vec::new();
        Self {
            head: OpenSegment::NONE,
            next: 0,
            life: 0,
            number: 0,
            opened: 0,
            confirmed: true,
            durable_write: 0,
            waiting,
        }
    }
}

impl SyncLog {
    /// Called when a record in a segment is durable; `opened` is the count at which the segment was opened.
    pub fn confirm(&mut self, opened: u64) {
        self.confirmed |= opened == self.opened;
        // Each record names the segment after its own.
        self.durable_write = self.durable_write.max((opened + 1).min(self.opened));
    }

    /// Removes a request that no longer waits.
    pub fn forget(&mut self, id: u64) {
        self.waiting.retain(|(one, _)| *one != id);
    }

    /// Whether there is room for records with this many runs, together with blocks of data; otherwise the reason to wait.
    pub fn has_room(&self, segments: &SegmentTable, runs: usize, data: u32, align: u32) -> Result<(), DeferReason> {
        if self.durable_write < self.opened {
            return Err(DeferReason::Overlap);
        }
        let records = runs.div_ceil(RUNS - 1).max(1) as u32 + data.div_ceil(MOST_DATA);
        let blocks = records * align + data.next_multiple_of(align);
        let room = segments.room(self.head);
        if blocks <= room {
            return Ok(());
        }
        if !self.confirmed {
            return Err(DeferReason::Overlap);
        }
        // Each segment may end with a block of padding, and needs one more record at its start.
        let more = (blocks + 2 * align - room).div_ceil(segments.blocks() - 2 * align);
        if more + FOR_CLEANING <= segments.clean() { Ok(()) } else { Err(DeferReason::Full) }
    }

    /// Continues the log in the next segment.
    fn go_on(&mut self, segments: &mut SegmentTable) {
        self.head = OpenSegment { segment: self.next, allocated: 0 };
        // There is one: `has_room` checked it.
        self.next = segments.reserve().unwrap_or(self.next);
        self.opened += 1;
        if self.confirmed {
            self.durable_write = self.opened;
        }
        self.confirmed = false;
    }
}

impl LfsLayer {
    /// Plans a flush.
    pub(super) fn flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if let Some(why) = self.no_covering(request.id, 0) {
            return RequestDecision::Defer(why);
        }
        let order = self.pending.order();
        if self.pending.is_empty() {
            plan.bare(0, Op::Flush, 0, 0);
            return RequestDecision::Run;
        }
        let mut flight = self.flights.begin(request.id, RequestEffect::Nothing, (0, 0), 0);
        self.take_pending();
        self.plan_records(None, CommandFlags::PREFLUSH | CommandFlags::RELIABLE, &mut flight, plan);
        flight.records = flight.records.map(|(_, opened)| (order, opened));
        self.flights.add(flight);
        RequestDecision::Run
    }

    /// Why a request that flushes must wait before it writes its records with this many blocks of data; `None` if it need not.
    fn no_covering(&mut self, id: u64, data: u32) -> Option<DeferReason> {
        let came = self.sync.waiting.iter().find(|(one, _)| *one == id).map(|(_, order)| *order);
        let order = came.unwrap_or_else(|| self.pending.order());
        if !self.pending.covers(order) {
            if came.is_none() {
                self.sync.waiting.push((id, order));
            }
            self.checkpoints.want();
            return Some(DeferReason::Full);
        }
        let why = self.record_blocked_by(self.pending.len(), data, data > 0)?;
        if why == DeferReason::Full {
            self.work.request_segments(1);
        }
        Some(why)
    }

    fn take_pending(&mut self) {
        self.runs.clear();
        self.runs.extend(self.pending.runs());
    }

    /// Plans a write that is durable when it is complete.
    pub(super) fn write_durably(
        &mut self,
        request: &HostRequest,
        (first, end): (u32, u32),
        plan: &mut CommandPlan,
    ) -> RequestDecision {
        let flushes = request.modifiers.contains(CommandFlags::PREFLUSH);
        let why = if flushes {
            self.no_covering(request.id, end - first)
        } else {
            let why = self.record_blocked_by(1, end - first, true);
            if why == Some(DeferReason::Full) {
                self.work.request_segments(1);
            }
            why
        };
        if let Some(why) = why {
            return RequestDecision::Defer(why);
        }
        self.write += 1;
        self.counters.host_blocks += u64::from(end - first);
        let order = self.pending.order();
        let mut flight = self.flights.begin(request.id, RequestEffect::Recorded, (first, end), self.write);
        let rest = self.plan_remainder(request, plan);
        flight.locks = (rest.is_some() && self.shape.is_zoned).then_some(SYNC);
        if flushes {
            self.take_pending();
        } else {
            self.runs.clear();
        }
        let durable = request.modifiers.intersection(CommandFlags::DURABLE);
        let durable = if durable.is_empty() { CommandFlags::RELIABLE } else { durable };
        let flags = durable | request.modifiers.intersection(CommandFlags::META | CommandFlags::PREFLUSH);
        self.plan_records(Some((request, rest.unwrap_or_default())), flags, &mut flight, plan);
        if flushes {
            flight.records = flight.records.map(|(_, opened)| (order, opened));
        }
        self.flights.add(flight);
        RequestDecision::Run
    }

    /// Plans records of the runs in `self.runs`, and of the data of a request if there is one. The data to which the runs refer was
    /// complete before, so the preceding flush of the disk makes it durable.
    pub(super) fn plan_records(
        &mut self,
        data: Option<(&HostRequest, BlockRemainder)>,
        flags: CommandFlags,
        flight: &mut LfsRequest,
        plan: &mut CommandPlan,
    ) {
        let runs = std::mem::take(&mut self.runs);
        let mut listed = 0;
        // Whether a record of the changes before a preflush is in progress: the data of the request must not become durable before
        // it.
        let mut comes_first = false;
        let mut block = flight.first;
        let end = if data.is_some() { flight.end } else { block };
        while listed < runs.len() || block < end {
            let room = self.segments.room(self.sync.head);
            if room == 0 {
                self.sync.go_on(&mut self.segments);
                continue;
            }
            let listing = &runs[listed..runs.len().min(listed + RUNS - 1)];
            let is_last = listed + listing.len() == runs.len();
            let most = if is_last { (end - block).min(room - 1).min(MOST_DATA) } else { 0 };
            let mut head = self.sync.head;
            if listing.is_empty() && most == 0 {
                let place = self.take(&mut head, room, flight);
                self.sync.head = head;
                plan.flag(CommandFlags::empty());
                plan.begin(0, Op::Write, self.shape.sector(place));
                self.pad(room, plan);
                continue;
            }
            if comes_first {
                plan.flag(CommandFlags::empty());
                plan.wait();
                if !self.shape.durable_writes {
                    plan.bare(0, Op::Flush, 0, 0);
                    plan.wait();
                }
                flight.locks = flight.locks.or(self.shape.is_zoned.then_some(SYNC));
            }
            comes_first = data.is_some() && !listing.is_empty();
            let taken = (1 + most).next_multiple_of(self.shape.align).min(room);
            let place = self.take(&mut head, taken, flight);
            self.sync.head = head;
            let own = LogRun { block, place: place + 1, blocks: most, write: flight.write };
            let listed_own = u32::from(most > 0);
            let record = LfsRecord {
                life: self.sync.life,
                number: self.sync.number,
                place,
                data: most,
                next: self.sync.next,
                runs: listing.len() as u32 + listed_own,
            };
            self.sync.number += 1;
            let is_flushed = listing.is_empty() || !flags.contains(CommandFlags::PREFLUSH);
            let mut own_flags = if is_flushed { flags.difference(CommandFlags::PREFLUSH) } else { flags };
            if !self.shape.durable_writes {
                own_flags = own_flags.difference(CommandFlags::DURABLE);
            }
            plan.flag(own_flags);
            plan.begin(0, Op::Write, self.shape.sector(place));
            let mut body = [0; BYTES - SECTOR];
            let all = listing.iter().chain([&own].into_iter().take(listed_own as usize));
            all.zip(body.chunks_exact_mut(RUN_BYTES)).for_each(|(run, to)| put_run(run, to));
            plan.record(&record.head(), 7 + most * 8);
            plan.metadata(&body);
            if let Some((request, rest)) = data.filter(|_| most > 0) {
                plan_data(request, (block, most), rest, plan);
                flight.blocks.push((block, place + 1, most));
                self.set_owners(block, place + 1, most);
            }
            self.pad(taken - 1 - most, plan);
            self.counters.records += 1;
            self.counters.record_blocks += 1;
            listed += listing.len();
            block += most;
        }
        if !self.shape.durable_writes {
            plan.flag(CommandFlags::empty());
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
        }
        flight.records = Some((0, self.sync.opened));
        self.runs = runs;
    }
}
