//! The router: sends each request, or parts of it, to the log or to the original area.

use std::borrow::Cow;

use emmclab_base::Op;

use super::Advil;
use super::record::{AdvilRecord, AdvilRecordBody};
use crate::interval_map::LoggedExtent;
use crate::layer::{DeferReason, RequestDecision};
use crate::plan::{CommandPlan, PlanMemory};
use crate::request::HostRequest;

impl Advil {
    pub(super) fn route_read(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        self.previous_end = request.end();
        let area = self.shape.reserved;
        let mut at = request.sector;
        // The sector of the reserved area at which the last command ends, so that an adjacent run can extend it.
        let mut next = u64::MAX;
        let mut hits = 0;
        for run in self.map.between(request.sector, request.end()) {
            if at < run.sector {
                plan.payload(0, Op::Read, at, (at - request.sector) as u32, (run.sector - at) as u32);
                next = u64::MAX;
            }
            let from = area.sector + u64::from(run.place);
            if next != from {
                plan.begin(area.disk, Op::Read, from);
            }
            plan.piece(PlanMemory::Payload, (run.sector - request.sector) as u32, run.sectors);
            next = from + u64::from(run.sectors);
            hits += u64::from(run.sectors);
            at = run.end();
        }
        if at < request.end() {
            plan.payload(0, Op::Read, at, (at - request.sector) as u32, (request.end() - at) as u32);
        }
        self.counters.read_hits += u64::from(hits > 0);
        self.counters.read_hit_bytes += hits * 512;
        RequestDecision::Run
    }

    #[inline]
    pub(super) fn route_write(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if request.sectors >= self.shape.small || request.sector == self.previous_end {
            return self.write_through(request, plan);
        }
        let header = self.shape.header;
        if !self.make_room(header + request.sectors, request, plan) {
            return RequestDecision::Defer(DeferReason::Full);
        }
        self.previous_end = request.end();
        let area = self.shape.reserved;
        let section = &mut self.sections[self.current];
        let place = section.log_next;
        section.log_next += header + request.sectors;
        plan.begin(area.disk, Op::Write, area.sector + u64::from(place));
        if header > 0 {
            let run = [(request.sector, request.sectors)];
            let record = AdvilRecord {
                epoch: self.journal.epoch,
                generation: section.generation,
                place,
                sectors: request.sectors,
                body: AdvilRecordBody::Data(Cow::Borrowed(&run)),
            };
            plan.record(&record.bytes(), request.sectors);
        }
        plan.piece(PlanMemory::Payload, 0, request.sectors);
        let logged = LoggedExtent { sector: request.sector, sectors: request.sectors, place: place + header };
        let rewritten = self.map.insert(logged);
        self.heat.count_write(request.sector, request.end(), rewritten);
        self.counters.logged_writes += 1;
        self.counters.logged_bytes += u64::from(request.sectors) * 512;
        self.counters.rewritten_bytes += u64::from(rewritten) * 512;
        RequestDecision::Run
    }

    /// Plans a write to the original area.
    fn write_through(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if let Err(reason) = self.forget(request, plan) {
            return RequestDecision::Defer(reason);
        }
        self.previous_end = request.end();
        self.counters.passed_writes += 1;
        self.counters.passed_bytes += u64::from(request.sectors) * 512;
        plan.payload(0, Op::Write, request.sector, 0, request.sectors);
        self.spill(request, plan);
        RequestDecision::Run
    }

    pub(super) fn route_discard(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        if self.moving.writes(request.sector, request.end()) {
            return RequestDecision::Defer(DeferReason::Overlap);
        }
        if request.op == Op::SecureErase {
            let area = self.shape.reserved;
            for run in self.map.between(request.sector, request.end()) {
                plan.bare(area.disk, request.op, area.sector + u64::from(run.place), run.sectors);
            }
        }
        if let Err(reason) = self.forget(request, plan) {
            plan.clear();
            return RequestDecision::Defer(reason);
        }
        plan.bare(0, request.op, request.sector, request.sectors);
        self.spill(request, plan);
        RequestDecision::Run
    }

    /// Unmaps the logged data that a request to the original area replaces.
    fn forget(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> Result<(), DeferReason> {
        if self.moving.writes(request.sector, request.end()) {
            return Err(DeferReason::Overlap);
        }
        if self.needs_tombstone(request.sector, request.end()) {
            // If too many tombstones wait for a flush, this request writes them.
            if self.tombstones_full() && !self.make_room(self.tombstone_sectors(), request, plan) {
                return Err(DeferReason::Full);
            }
            self.add_tombstone(request);
        }
        let gone = self.map.remove(request.sector, request.end(), |_| true);
        self.counters.voided_bytes += u64::from(gone) * 512;
        Ok(())
    }

    /// Writes the tombstones if too many wait, after the data that replaces their ranges is durable.
    fn spill(&mut self, request: &HostRequest, plan: &mut CommandPlan) {
        if self.tombstones_spill() {
            plan.wait();
            plan.bare(0, Op::Flush, 0, 0);
            self.write_tombstones(request.id, plan);
        }
    }

    pub(super) fn route_flush(&mut self, request: &HostRequest, plan: &mut CommandPlan) -> RequestDecision {
        let tombstones = self.journal.has_tombstones();
        if tombstones && !self.make_room(self.tombstone_sectors(), request, plan) {
            return RequestDecision::Defer(DeferReason::Full);
        }
        if self.journal.opener.is_some_and(|opener| opener != request.id) {
            // Recovery ignores the records of a section without its head.
            self.write_section(plan);
            plan.wait();
        }
        plan.bare(0, Op::Flush, 0, 0);
        if self.shape.reserved.disk != 0 {
            plan.bare(self.shape.reserved.disk, Op::Flush, 0, 0);
        }
        if tombstones {
            self.write_tombstones(request.id, plan);
        }
        RequestDecision::Run
    }

    /// Makes room for this many sectors of log; switches to the other section if necessary. False if there is no room yet.
    #[inline]
    fn make_room(&mut self, sectors: u32, request: &HostRequest, plan: &mut CommandPlan) -> bool {
        let section = &self.sections[self.current];
        if section.log_room(self.release_reserve()) >= sectors {
            return true;
        }
        // If the log may not yet use the whole section, it waits for a checkpoint.
        if self.moving.is_over() && section.log_end == section.end() {
            self.switch(request.id, plan);
            return self.sections[self.current].log_room(self.release_reserve()) >= sectors;
        }
        self.pressed = true;
        false
    }
}
