//! Requests: what goes to the buffer, what goes past it, and where reads find what they want.

use emmclab_base::Op;

use super::NvmBuffer;
use super::record::{Body, Record};
use super::ring::Entry;
use crate::interval_map::Extent;
use crate::layer::{Decision, Defer};
use crate::plan::{Memory, Plan};
use crate::request::HostRequest;

/// Writes and discards that went past the buffer since the device was last flushed.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    in_flight: Vec<u64>,
    unflushed: bool,
    /// The flush after which there are none.
    flushed_by: Option<u64>,
}

impl Past {
    fn planned(&mut self, id: u64) {
        self.in_flight.push(id);
        self.unflushed = true;
        self.flushed_by = None;
    }

    /// A flush comes; whether the device has to be flushed.
    fn flush(&mut self, id: u64) -> bool {
        // What is in flight now may be complete before the flush, and not be covered by it.
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
    pub(super) fn read(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
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
        Decision::Run
    }

    pub(super) fn write(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        if request.sectors > self.shape.longest {
            return self.pass(request, plan);
        }
        let Some(entry) = self.ring.add(1 + request.sectors) else { return self.press() };
        let body = Body::Data { sector: request.sector };
        self.write_record(entry, request.sectors, body, plan);
        plan.piece(Memory::Payload, 0, request.sectors);
        let (sector, sectors) = (request.sector, request.sectors);
        let extent = Extent { sector, sectors, place: entry.place + 1 };
        self.logged.insert(extent);
        let absorbed = self.dirty.insert(extent);
        self.counters.buffered_writes += 1;
        self.counters.buffered_bytes += u64::from(sectors) * 512;
        self.counters.absorbed_bytes += u64::from(absorbed) * 512;
        self.counters.most_used_bytes = self.counters.most_used_bytes.max(u64::from(self.ring.used()) * 512);
        Decision::Run
    }

    /// A write that goes to the device.
    fn pass(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return Decision::Defer(Defer::Overlap);
        }
        let mut entry = None;
        if !self.logged.is_free(first, end) {
            entry = self.ring.add(1);
            if entry.is_none() {
                return self.press();
            }
        }
        plan.forward(request);
        if let Some(entry) = entry {
            // Until this data is durable, the records that it replaces count.
            plan.wait();
            if !request.modifiers.durable() {
                plan.bare(0, Op::Flush, 0, 0);
                plan.wait();
            }
            let body = Body::Past { sector: first, sectors: u64::from(request.sectors) };
            self.write_record(entry, 0, body, plan);
            // A later write may be made durable at home alone: the older records must not come back over it.
            plan.wait();
            plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
            self.logged.remove(first, end, |_| true);
            self.dirty.remove(first, end, |_| true);
        }
        self.past.planned(request.id);
        self.counters.past_writes += 1;
        self.counters.past_bytes += u64::from(request.sectors) * 512;
        Decision::Run
    }

    pub(super) fn discard(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        let (first, end) = (request.sector, request.end());
        if self.write_back.writes(first, end) {
            return Decision::Defer(Defer::Overlap);
        }
        if request.op == Op::SecureErase && !self.logged.is_free(first, end) {
            // No record of these sectors may come back: all are released first.
            self.write_back.empty_before(self.ring.next_sequence());
            return Decision::Defer(Defer::Overlap);
        }
        // A record that stays brings back what was there before, as a discard allows.
        self.dirty.remove(first, end, |_| true);
        self.past.planned(request.id);
        plan.forward(request);
        Decision::Run
    }

    pub(super) fn flush(&mut self, request: &HostRequest, plan: &mut Plan) -> Decision {
        let past = self.past.flush(request.id);
        plan.bare(self.shape.area.disk, Op::Flush, 0, 0);
        if past && self.shape.area.disk != 0 {
            plan.bare(0, Op::Flush, 0, 0);
        }
        self.counters.flushes += 1;
        self.counters.device_flushes += u64::from(past);
        Decision::Run
    }

    /// Begins the write of a record, whose data follows.
    pub(super) fn write_record(&self, entry: Entry, sectors: u32, body: Body, plan: &mut Plan) {
        let Entry { sequence, place, .. } = entry;
        plan.begin(self.shape.area.disk, Op::Write, self.shape.area.sector + u64::from(place));
        plan.record(&Record { sequence, place, sectors, body }.bytes(), sectors);
    }

    /// There is no room: data is written back whatever the marks say.
    fn press(&mut self) -> Decision {
        self.write_back.press();
        Decision::Defer(Defer::Full)
    }
}
