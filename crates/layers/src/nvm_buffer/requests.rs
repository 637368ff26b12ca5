//! Requests: which writes go to the buffer, which bypass it, and where reads find their data.

use emmclab_base::Op;

use super::NvmBuffer;
use super::record::{NvmRecord, NvmRecordBody};
use super::ring::RingEntry;
use crate::interval_map::LoggedExtent;
use crate::layer::{DeferReason, RequestDecision};
use crate::plan::{CommandPlan, PlanMemory};
use crate::request::HostRequest;

/// Writes and discards that bypassed the buffer since the device was last flushed.
#[derive(Clone, Debug, Default)]
pub(super) struct BypassedWrites {
    in_flight: Vec<u64>,
    unflushed: bool,
    /// The flush after whose completion no such writes are left.
    flushed_by: Option<u64>,
}

impl BypassedWrites {
    fn add(&mut self, id: u64) {
        self.in_flight.push(id);
        self.unflushed = true;
        self.flushed_by = None;
    }

    /// Called for a flush; returns whether the device must be flushed.
    fn flush(&mut self, id: u64) -> bool {
        // Writes that are in flight now may complete before the flush without being covered by it.
        self.flushed_by = (self.unflushed && self.in_flight.is_empty()).then_some(id);
        self.unflushed
    }

    pub fn completed(&mut self, id: u64) {
        self.in_flight.retain(|other| *other != id);
        if self.flushed_by == Some(id) {
            *self = Self::default();
        }
    }
}

impl NvmBuffer {
    pub(super) fn read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (area, first) = (self.shape.area, request.sector);
        let (mut at, mut hits) = (first, 0);
        for run in self.logged.between(first, request.end()) {
            if at < run.sector {
                plan.payload(0, Op::Read, at, (at - first) as u32, (run.sector - at) as u32);
            }
            let from = area.sector + u64::from(run.place);
            plan.payload(area.disk, Op::Read, from, (run.sector - first) as u32, run.sectors);
            hits += u64::from(run.sectors);
            at = run.end();
        }
        if at < request.end() {
            plan.payload(0, Op::Read, at, (at - first) as u32, (request.end() - at) as u32);
        }
        self.counters.read_hits += u64::from(hits > 0);
        self.counters.read_hit_bytes += hits * 512;
        RequestDecision::Run
    }

    pub(super) fn write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if request.sectors > self.shape.longest {
            return self.bypass(request, plan);
        }
        let Some(entry) = self.ring.add(1 + request.sectors) else { return self.wait_for_room() };
        let body = NvmRecordBody::Data { sector: request.sector };
        self.write_record(entry, request.sectors, body, plan);
        plan.piece(PlanMemory::Payload, 0, request.sectors);
        let (sector, sectors) = (request.sector, request.sectors);
        let extent = LoggedExtent { sector, sectors, place: entry.place + 1 };
        self.logged.insert(extent);
        let absorbed = self.dirty.insert(extent);
        self.counters.buffered_writes += 1;
        self.counters.buffered_bytes += u64::from(sectors) * 512;
        self.counters.absorbed_bytes += u64::from(absorbed) * 512;
        self.counters.most_used_bytes = self.counters.most_used_bytes.max(u64::from(self.ring.used()) * 512);
        RequestDecision::Run
    }

    /// Plans a write that bypasses the buffer.
    fn bypass(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        let mut entry = None;
        if !self.logged.is_free(first, end) {
            entry = self.ring.add(1);
            if entry.is_none() {
                return self.wait_for_room();
            }
        }
        plan.forward(request);
        if let Some(entry) = entry {
            // The records that this data replaces stay valid until it is durable.
            plan.wait();
            if !request.modifiers.durable() {
                plan.bare(0, Op::Flush, 0, 0);
                plan.wait();
            }
            let body = NvmRecordBody::Past { sector: first, sectors: u64::from(request.sectors) };
            self.write_record(entry, 0, body, plan);
            // A later write may be made durable on the device only; the older records must not replace it in a recovery.
            plan.wait();
            plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
            self.logged.remove(first, end, |_| true);
            self.dirty.remove(first, end, |_| true);
        }
        self.bypassed.add(request.id);
        self.counters.past_writes += 1;
        self.counters.past_bytes += u64::from(request.sectors) * 512;
        RequestDecision::Run
    }

    pub(super) fn discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.op == Op::SecureErase && !self.logged.is_free(first, end) {
            // No record of these sectors may be recovered: all records are released first.
            self.write_back.empty_before(self.ring.next_sequence());
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        // A record that is kept may bring back the old data; a discard allows that.
        self.dirty.remove(first, end, |_| true);
        self.bypassed.add(request.id);
        plan.forward(request);
        RequestDecision::Run
    }

    pub(super) fn flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let past = self.bypassed.flush(request.id);
        plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
        if past && self.shape.area.disk != 0 {
            plan.bare(0, Op::Flush, 0, 0);
        }
        self.counters.flushes += 1;
        self.counters.device_flushes += u64::from(past);
        RequestDecision::Run
    }

    /// Begins the write of a record; its data is added next.
    pub(super) fn write_record(&self, entry: RingEntry, sectors: u32, body: NvmRecordBody, plan: &mut CommandPlan) {
        let RingEntry { sequence, place, .. } = entry;
        plan.begin(self.shape.area.disk, Op::Write, self.shape.area.sector + u64::from(place));
        plan.record(&NvmRecord { sequence, place, sectors, body }.bytes(), sectors);
    }

    /// Called when there is no room: data is written back regardless of the marks.
    fn wait_for_room(&mut self) -> RequestDecision {
        self.write_back.request_room();
        RequestDecision::Defer(DeferReason::Full)
    }
}
