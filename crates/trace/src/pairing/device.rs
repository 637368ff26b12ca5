//! The requests of one device on their way through the block layer.

use std::collections::VecDeque;

use emmclab_base::{Flags, Nanos, Op, Request, Sector};

use super::shelf::{Open, Shelf};
use super::{Event, EventKind, MAX_OPEN};
use crate::ledger::Ledger;

/// The state of one device.
#[derive(Debug, Default)]
pub(super) struct Device {
    /// Not yet issued.
    waiting: Shelf,
    /// Issued, data not complete.
    issued: Shelf,
    /// Data complete, waiting for the completion of length 0.
    finishing: Shelf,
    /// Flushes that a task waits for, the oldest first.
    flushes: VecDeque<Open>,
    /// Flushes of the kernel without a recorded request for one.
    own_flushes: VecDeque<Open>,
    /// The earliest stage seen: 0 none, 1 insert, 2 get request, 3 queue.
    stage: u8,
    issues: bool,
    completions: bool,
    /// The recording holds requeue events: what the driver gives back is known.
    requeues: bool,
}

fn emit(open: &Open, complete: Nanos, ledger: &mut Ledger, out: &mut Vec<Request>) {
    let request = Request { complete: Some(complete), ..open.request };
    if request.early_time().is_some() {
        // Clocks of processors that differ, or lines out of order: these events are not of one request.
        ledger.unpaired += 1;
        return;
    }
    ledger.paired += 1;
    out.push(request);
}

impl Device {
    /// Whether it does requests itself.
    pub(super) fn is_active(&self) -> bool {
        self.issues || self.completions
    }

    /// Whether more requests are open than there can be.
    pub(super) fn is_full(&self) -> bool {
        let shelves = [&self.waiting, &self.issued, &self.finishing];
        let flushes = self.flushes.len().max(self.own_flushes.len());
        shelves.into_iter().any(|shelf| shelf.len > MAX_OPEN) || flushes > MAX_OPEN
    }

    /// An I/O was queued, or its request was made.
    pub(super) fn queue(&mut self, event: &Event, stage: u8) {
        // Later stages of an I/O say nothing new where an earlier one is recorded.
        if stage < self.stage {
            return;
        }
        self.stage = stage;
        let mut open = Open::new(event);
        if event.op == Op::Flush || event.sectors == 0 && event.flags.contains(Flags::PREFLUSH) {
            open.request.op = Op::Flush;
            self.flushes.push_back(open);
        } else if event.sectors > 0 {
            self.waiting.put(open);
        }
    }

    /// An I/O or a request joined another.
    pub(super) fn merge(&mut self, event: &Event, ledger: &mut Ledger) {
        // The stage of allocation or insertion comes after merging: the I/O never was on its own.
        let Some(joining) = self
            .waiting
            .take_newest(event.sector, event.sectors, event.op)
            .or_else(|| (event.kind != EventKind::RequestMerge && self.stage < 3).then(|| Open::new(event)))
        else {
            return;
        };
        let target = if event.kind == EventKind::FrontMerge {
            let list = self.waiting.by_sector.get(&joining.end);
            list.and_then(|list| list.iter().rposition(|open| open.request.op == event.op))
                .and_then(|at| self.waiting.remove(joining.end, at))
        } else {
            self.waiting.take_ending(joining.position, event.op)
        };
        match target {
            Some(mut target) => {
                target.join(&joining);
                ledger.merged += 1;
                self.waiting.put(target);
            }
            None => self.waiting.put(joining),
        }
    }

    /// An I/O was cut in two at `at`.
    pub(super) fn split(&mut self, event: &Event, at: u64, ledger: &mut Ledger) {
        let list = self.waiting.by_sector.get(&event.sector);
        let found = list.and_then(|list| {
            list.iter().rposition(|open| open.request.op == event.op && open.end > at && at > open.position)
        });
        let Some(mut first) = found.and_then(|place| self.waiting.remove(event.sector, place)) else {
            return;
        };
        let mut second = first;
        first.end = at;
        first.measure();
        second.position = at;
        second.request.sector = Sector(at);
        second.measure();
        ledger.split += 1;
        self.waiting.put(first);
        self.waiting.put(second);
    }

    /// Takes what waits for `[sector, sector + sectors)`: one request, or several whose merging was not recorded, or
    /// the first part of one whose splitting was not.
    fn take_waiting(&mut self, event: &Event, ledger: &mut Ledger) -> Option<Open> {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let (mut open, choice) = self.waiting.take(event.sector, event.sectors, event.op).or_else(|| {
            let (&sector, _) =
                self.waiting.by_sector.range(event.sector..end).find(|(_, list)| {
                    list.iter().any(|open| open.request.op == event.op && open.end <= end)
                })?;
            self.waiting.take(sector, 0, event.op)
        })?;
        ledger.ambiguous += u64::from(choice);
        while open.end < end {
            let Some((next, _)) = self.waiting.take(open.end, (end - open.end) as u32, event.op) else {
                break;
            };
            if next.end > end {
                self.waiting.put_first(next);
                break;
            }
            open.join(&next);
            ledger.merged += 1;
        }
        if open.end > end {
            let mut rest = open;
            rest.position = end;
            rest.request.sector = Sector(end);
            rest.measure();
            ledger.split += 1;
            self.waiting.put_first(rest);
        }
        open.position = event.sector;
        open.request.sector = Sector(open.request.sector.0.min(event.sector));
        open.end = end;
        open.measure();
        Some(open)
    }

    /// A request went to the driver.
    pub(super) fn issue(&mut self, event: &Event, ledger: &mut Ledger) {
        self.issues = true;
        if event.op == Op::Flush {
            return self.issue_flush(event);
        }
        if event.sectors == 0 {
            return;
        }
        if self.issue_again(event, ledger) {
            return;
        }
        let mut open =
            self.take_waiting(event, ledger).unwrap_or_else(|| Open { queued: false, ..Open::new(event) });
        // Forced unit access that the driver does not get as such is emulated by a flush after the data.
        open.sequenced |= open.request.flags.contains(Flags::FUA) && !event.flags.contains(Flags::FUA);
        open.request.start.get_or_insert(event.time);
        open.request.issue = Some(event.time);
        self.issued.put(open);
    }

    /// Moves the issue time of a request that is issued while it is with the driver: the driver gave it back without an
    /// event. Where such events are all that tells requests apart, or something waits for exactly this range, it is
    /// another request's.
    fn issue_again(&mut self, event: &Event, ledger: &mut Ledger) -> bool {
        let reported = self.requeues && self.stage == 0;
        if reported || self.waiting.of_range(event).next().is_some() {
            return false;
        }
        let mut issued = self.issued.of_range(event);
        let Some(open) = issued.next() else { return false };
        open.request.issue = Some(event.time);
        ledger.requeued += 1;
        // Where nothing is queued on the record, or several requests are alike, it may also be another one.
        ledger.ambiguous += u64::from(self.stage == 0 || issued.next().is_some());
        true
    }

    /// The kernel's own flush serves all that wait for one now.
    fn issue_flush(&mut self, event: &Event) {
        let mut served = false;
        for open in self.flushes.iter_mut().filter(|open| open.request.issue.is_none()) {
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            served = true;
        }
        let waiting = self.waiting.by_sector.values_mut().flatten();
        for open in waiting.filter(|open| open.sequenced && open.request.start.is_none()) {
            open.request.start = Some(event.time);
            served = true;
        }
        if !served && self.stage == 0 {
            let mut open = Open::new(event);
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            self.own_flushes.push_back(open);
        }
    }

    /// The driver's event is closer than `issue` to the time at which the device got it.
    pub(super) fn submit(&mut self, event: &Event) {
        let list = self.issued.by_sector.get_mut(&event.sector);
        if let Some(open) = list.and_then(|list| list.iter_mut().find(|open| open.request.op == event.op)) {
            open.request.issue = Some(event.time);
        }
    }

    /// The driver gave a request back.
    pub(super) fn requeue(&mut self, event: &Event, ledger: &mut Ledger) {
        self.requeues = true;
        if let Some((open, _)) = self.issued.take(event.sector, event.sectors, event.op) {
            ledger.requeued += 1;
            self.waiting.put_first(open);
        }
    }

    /// A part or all of a request is done.
    pub(super) fn complete(&mut self, event: &Event, ledger: &mut Ledger, out: &mut Vec<Request>) {
        self.completions = true;
        if event.op == Op::Flush {
            if let Some(mut open) = self.own_flushes.pop_front() {
                // The kernel names no sector for its own flush.
                open.request.sector = Sector(0);
                emit(&open, event.time, ledger, out);
            }
            return;
        }
        if event.sectors == 0 {
            // Commands that pass through the block layer, and those to zones, end so too: they carry no data.
            if event.op == Op::Write {
                self.complete_sequence(event, ledger, out);
            }
            return;
        }
        let found = match self.issued.take(event.sector, event.sectors, event.op) {
            Some((open, choice)) => {
                ledger.ambiguous += u64::from(choice);
                Some(open)
            }
            None if !self.issues => self.take_waiting(event, ledger),
            None => None,
        };
        let Some(mut open) = found else {
            ledger.unpaired += 1;
            return;
        };
        if !open.queued && self.stage > 0 {
            // It was queued before the recording began: its arrival is not known.
            ledger.unpaired += 1;
            return;
        }
        let done = event.sector.saturating_add(u64::from(event.sectors));
        if done < open.end {
            open.position = done;
            self.issued.put_first(open);
        } else if open.sequenced && open.queued {
            open.request.complete = Some(event.time);
            self.finishing.put(open);
        } else {
            emit(&open, event.time, ledger, out);
        }
    }

    /// The completion of length 0 that ends a flush, or a write that went through flushes.
    fn complete_sequence(&mut self, event: &Event, ledger: &mut Ledger, out: &mut Vec<Request>) {
        if let Some((open, _)) = self.finishing.take(event.sector, 0, event.op) {
            emit(&open, event.time, ledger, out);
        } else if let Some(open) = self.flushes.pop_front() {
            emit(&open, event.time, ledger, out);
        } else if self.stage > 0 {
            ledger.unpaired += 1;
        }
    }

    /// Whether a request of this kind at this sector is with the driver.
    pub(super) fn has_issued(&self, sector: u64, op: Op) -> bool {
        self.issued.at(sector).any(|open| open.request.op == op)
    }

    /// Arrival of the oldest open request.
    pub(super) fn oldest_open(&self) -> Option<Nanos> {
        let shelves = [&self.waiting, &self.issued, &self.finishing];
        let shelved = shelves.into_iter().flat_map(|shelf| shelf.by_sector.values()).flatten();
        let flushes = self.flushes.iter().chain(&self.own_flushes);
        shelved.chain(flushes).map(|open| open.request.arrival).min()
    }

    /// Ends the oldest half of the open requests where there are more than `limit`.
    pub(super) fn give_up(
        &mut self,
        limit: usize,
        passed_on: bool,
        ledger: &mut Ledger,
        out: &mut Vec<Request>,
    ) {
        let completions = self.completions;
        let mut end = |open: Open| match open.request.complete {
            _ if passed_on => ledger.skipped += 1,
            Some(complete) => {
                // Its data was done; only the completion of the flush behind it is missing.
                ledger.ambiguous += 1;
                emit(&open, complete, ledger, out);
            }
            None if completions => ledger.unpaired += 1,
            None => out.push(open.request),
        };
        for shelf in [&mut self.waiting, &mut self.issued, &mut self.finishing] {
            if shelf.len > limit {
                let all = shelf.drain();
                let gone = all.len() - limit / 2;
                for (i, open) in all.into_iter().enumerate() {
                    if i < gone { end(open) } else { shelf.put(open) }
                }
            }
        }
        for flushes in [&mut self.flushes, &mut self.own_flushes] {
            if flushes.len() > limit {
                let gone = flushes.len() - limit / 2;
                flushes.drain(..gone).for_each(&mut end);
            }
        }
    }
}
