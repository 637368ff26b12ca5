//! Tracks the requests of a device through the block layer.

use super::open_requests::{FlushQueues, OpenRequest, OpenRequestsBySector, is_kernel_flush};
use super::{MAX_OPEN, PairingOutput};
use crate::{BlockEventKind, BlockLayerEvent, Nanos, Op, Request, RequestFlags, Sector};

/// Stage of an I/O in [`DevicePairingState::queue`]: it was inserted into the queue of the scheduler.
pub(super) const INSERTED: u8 = 1;
/// Stage of an I/O: its request was allocated.
pub(super) const ALLOCATED: u8 = 2;
/// Stage of an I/O: it was queued.
pub(super) const QUEUED: u8 = 3;

#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each says whether the recording holds one kind of event")]
pub(super) struct DevicePairingState {
    /// Requests that are not issued yet.
    waiting: OpenRequestsBySector,
    /// Requests that are issued and whose data is not complete.
    issued: OpenRequestsBySector,
    /// Requests whose data is complete and that wait for a completion of length 0.
    finishing: OpenRequestsBySector,
    flushes: FlushQueues,
    /// Completions before any other event; the recording may contain only completions.
    early: Vec<OpenRequest>,
    /// Completions without a queued I/O, on a device that records no issues. In a recording whose lines are sorted by CPU, the line of
    /// the I/O may follow.
    ahead: OpenRequestsBySector,
    /// Whether the recording contains only completions.
    only_completions: bool,
    /// The earliest stage that is recorded; 0 if none is.
    stage: u8,
    issues: bool,
    completions: bool,
    /// Whether the recording contains requeue events, so that requests returned by the driver are known.
    requeues: bool,
    /// Whether I/O of this device is passed on to another one.
    passes_on: bool,
}

fn emit(open: &OpenRequest, complete: Nanos, books: &mut PairingOutput) {
    let request = Request { complete: Some(complete), served: open.served_at(complete), ..open.request };
    if request.early_time().is_some() {
        // The times contradict each other, so the events belong to different requests. The clocks of the CPUs differ, or lines are out of
        // order.
        lose(open, books);
        return;
    }
    books.ledger.paired += 1;
    keep(open, request, books);
}

fn keep(open: &OpenRequest, request: Request, books: &mut PairingOutput) {
    books.ledger.unqueued += u64::from(!open.queued);
    books.ledger.failed += u64::from(request.flags.contains(RequestFlags::FAILED));
    books.counts.kept += open.events;
    books.out.push(request);
}

/// Counts a request as unpaired, because some of its events are missing.
fn lose(open: &OpenRequest, books: &mut PairingOutput) {
    books.ledger.unpaired += 1;
    books.counts.unpaired += open.events;
}

impl DevicePairingState {
    /// Records that I/O of this device is passed on to another one.
    pub(super) fn passes_on(&mut self) {
        self.passes_on = true;
    }

    /// Whether the device issues or completes requests itself.
    pub(super) fn is_active(&self) -> bool {
        self.issues || self.completions
    }

    /// Whether more than [`MAX_OPEN`] requests are open.
    pub(super) fn is_full(&self) -> bool {
        let shelves = [&self.waiting, &self.issued, &self.finishing, &self.ahead];
        let others = self.flushes.len().max(self.early.len());
        shelves.into_iter().any(|shelf| shelf.len > MAX_OPEN) || others > MAX_OPEN
    }

    /// Handles an event before the issue: an I/O is queued, or its request is allocated or inserted.
    pub(super) fn queue(&mut self, event: &BlockLayerEvent, stage: u8, books: &mut PairingOutput) {
        // The recording contains an earlier stage of each I/O, so events of this stage are redundant.
        if stage < self.stage {
            books.counts.repeated += 1;
            return;
        }
        self.end_early(books);
        if stage == INSERTED && event.op == Op::Flush {
            // A flush that is inserted was created by the kernel itself. It is counted here, and is not queued as a request.
            books.counts.flushes += 1;
            return;
        }
        let is_first = stage > self.stage && self.stage > 0;
        self.stage = stage;
        if is_first && let Some(open) = self.waiting.of_range(event).last() {
            // Early kernels allocate a request before they queue its I/O, so this event belongs to a known request.
            open.events += 1;
            return;
        }
        let mut open = OpenRequest::new(event);
        if let Some(completion) = self.take_ahead(event) {
            open.events += completion.events;
            open.request.flags |= completion.request.flags & RequestFlags::FAILED;
            return emit(&open, completion.request.arrival, books);
        }
        if event.op == Op::Flush || event.sectors == 0 && event.flags.contains(RequestFlags::PREFLUSH) {
            open.request.op = Op::Flush;
            self.flushes.waiting.push_back(open);
        } else if event.sectors > 0 {
            self.waiting.insert(open);
        } else {
            books.counts.without_data += 1;
        }
    }

    /// Ends the search for a recording of completions alone. If issues are recorded, the requests of the completions so far began before
    /// the recording, and count as unpaired.
    fn end_early(&mut self, books: &mut PairingOutput) {
        for open in self.early.drain(..) {
            if self.issues {
                lose(&open, books);
            } else {
                self.ahead.insert(open);
            }
        }
    }

    /// Removes the oldest completion that was read before this I/O, but happened after it.
    fn take_ahead(&mut self, event: &BlockLayerEvent) -> Option<OpenRequest> {
        let (open, _) = self.ahead.take(event.sector, event.sectors, event.op)?;
        if open.request.arrival < event.time || open.request.sectors != event.sectors {
            self.ahead.put_first(open);
            return None;
        }
        Some(open)
    }

    /// Handles a merge: an I/O or a request is joined to another one.
    pub(super) fn merge(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        let newest = self.waiting.take_newest(event.sector, event.sectors, event.op);
        let newest = newest.map(|open| OpenRequest { events: open.events + 1, ..open });
        // I/O may be merged before its request is allocated and inserted, so it may have no earlier event.
        let is_known = newest.is_some() || self.stage < QUEUED;
        let Some(joining) = newest.or_else(|| (event.kind != BlockEventKind::RequestMerge).then(|| OpenRequest::new(event)))
        else {
            books.counts.unmatched += 1;
            return;
        };
        let target = if event.kind == BlockEventKind::FrontMerge {
            let list = self.waiting.by_sector.get(&joining.end);
            list.and_then(|list| list.iter().rposition(|open| open.request.op == event.op))
                .and_then(|at| self.waiting.remove(joining.end, at))
        } else {
            self.waiting.take_ending(joining.position, event.op)
        };
        match target {
            Some(mut target) => {
                target.join(&joining);
                books.ledger.merged += 1;
                self.waiting.insert(target);
            }
            None if is_known => self.waiting.insert(joining),
            None => books.counts.unmatched += 1,
        }
    }

    /// Handles a split of an I/O at the sector `at`.
    pub(super) fn split(&mut self, event: &BlockLayerEvent, at: u64, books: &mut PairingOutput) {
        let list = self.waiting.by_sector.get(&event.sector);
        let place = list
            .and_then(|list| list.iter().rposition(|open| open.request.op == event.op && open.end > at && at > open.position));
        let Some(mut first) = place.and_then(|place| self.waiting.remove(event.sector, place)) else {
            books.counts.unmatched += 1;
            return;
        };
        let mut second = OpenRequest { events: 0, ..first };
        first.events += 1;
        first.end = at;
        first.measure();
        second.position = at;
        second.request.sector = Sector(at);
        second.measure();
        books.ledger.split += 1;
        self.waiting.insert(first);
        self.waiting.insert(second);
    }

    /// Removes the waiting requests in `[sector, sector + sectors)` and returns them as one request. If merges are not recorded, several
    /// requests are joined. If splits are not recorded, only the first part of a longer request is removed.
    fn take_waiting(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) -> Option<OpenRequest> {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let (mut open, choice) = self.waiting.take(event.sector, event.sectors, event.op).or_else(|| {
            let (&sector, _) = self
                .waiting
                .by_sector
                .range(event.sector..end)
                .find(|(_, list)| list.iter().any(|open| open.request.op == event.op && open.end <= end))?;
            self.waiting.take(sector, 0, event.op)
        })?;
        books.ledger.ambiguous += u64::from(choice);
        while open.end < end {
            let Some((next, _)) = self.waiting.take(open.end, (end - open.end) as u32, event.op) else {
                break;
            };
            if next.end > end {
                self.waiting.put_first(next);
                break;
            }
            open.join(&next);
            books.ledger.merged += 1;
        }
        if open.end > end {
            let mut rest = OpenRequest { events: 0, ..open };
            rest.position = end;
            rest.request.sector = Sector(end);
            rest.measure();
            books.ledger.split += 1;
            self.waiting.put_first(rest);
        }
        open.position = event.sector;
        open.request.sector = Sector(open.request.sector.0.min(event.sector));
        open.end = end;
        open.measure();
        Some(open)
    }

    /// Handles an issue: a request is sent to the driver.
    pub(super) fn issue(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        self.issues = true;
        self.end_early(books);
        if is_kernel_flush(event) {
            return self.issue_flush(event);
        }
        if event.sectors == 0 {
            books.counts.without_data += 1;
            return;
        }
        let may_be_reissue = self.may_be_reissue(event);
        if may_be_reissue && (self.completions || self.stage > 0) {
            return self.reissue(event, books);
        }
        let mut open = self
            .take_waiting(event, books)
            // If queueing is recorded, but not that of this request, the request arrived before the recording, or its event was lost.
            .unwrap_or_else(|| OpenRequest { queued: self.stage == 0, events: 0, ..OpenRequest::new(event) });
        open.events += 1;
        // There are two possible causes: the driver re-issues requests without an event, or completions are not recorded. Later events show
        // which one applies.
        open.may_be_reissue = may_be_reissue;
        // If the request reaches the driver without its FUA flag, the kernel emulates FUA by a flush after the data.
        open.sequenced |= open.request.flags.contains(RequestFlags::FUA) && !event.flags.contains(RequestFlags::FUA);
        open.request.start.get_or_insert(event.time);
        open.request.issue = Some(event.time);
        self.issued.insert(open);
    }

    /// Whether an issue may be a re-issue of a request that the driver has returned without an event. This is not possible if requeue
    /// events are recorded but queueing is not, or if another request waits for exactly this range. The result is also false for appends,
    /// because several appends to a zone have the same range.
    fn may_be_reissue(&mut self, event: &BlockLayerEvent) -> bool {
        let reported = self.requeues && self.stage == 0;
        !reported
            && !event.flags.contains(RequestFlags::APPEND)
            && self.waiting.of_range(event).next().is_none()
            && self.issued.of_range(event).any(|open| open.served.is_none())
    }

    /// Updates the issue time of a request that is re-issued.
    fn reissue(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        let mut issued = self.issued.of_range(event).filter(|open| open.served.is_none());
        let Some(open) = issued.next() else { return };
        open.request.issue = Some(event.time);
        open.events += 1;
        books.ledger.requeued += 1;
        // The match is ambiguous if queueing is not recorded, or if several issued requests have this range.
        books.ledger.ambiguous += u64::from(self.stage == 0 || issued.next().is_some());
    }

    /// Handles the issue of a flush of the kernel. It serves all waiting flushes, and writes that begin or end with a flush.
    fn issue_flush(&mut self, event: &BlockLayerEvent) {
        let mut serves = self.finishing.len > 0;
        let waiting = self.waiting.by_sector.values_mut().flatten();
        for open in waiting.filter(|open| open.sequenced && open.request.start.is_none()) {
            open.request.start = Some(event.time);
            serves = true;
        }
        self.flushes.issue(event, serves);
    }

    /// Sets the issue time from the event of the driver, which is closer to the time at which the device received the request.
    pub(super) fn submit(&mut self, event: &BlockLayerEvent) {
        if let Some(open) = self.unserved(event.sector, event.op) {
            open.request.issue = Some(event.time);
        }
    }

    /// Sets the time at which the driver saw the end of the command of a request.
    pub(super) fn served(&mut self, sector: u64, op: Op, time: Nanos) {
        if let Some(open) = self.unserved(sector, op) {
            open.served = Some(time);
        }
    }

    fn unserved(&mut self, sector: u64, op: Op) -> Option<&mut OpenRequest> {
        let list = self.issued.by_sector.get_mut(&sector)?;
        list.iter_mut().find(|open| open.request.op == op && open.served.is_none())
    }

    /// Handles a requeue: the driver returns a request.
    pub(super) fn requeue(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        self.requeues = true;
        if is_kernel_flush(event) {
            let known = self.flushes.requeue();
            books.counts.unmatched += u64::from(!known);
            books.ledger.requeued += u64::from(known);
        } else if let Some((mut open, _)) = self.issued.take(event.sector, event.sectors, event.op) {
            books.ledger.requeued += 1;
            open.events += 1;
            open.served = None;
            self.waiting.put_first(open);
        } else {
            books.counts.unmatched += 1;
        }
    }

    /// Handles the completion of a request or of a part of it.
    pub(super) fn complete(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        if self.passes_on && !self.issues {
            return self.complete_passed_on(event, books);
        }
        if !self.completions {
            self.completions = true;
            let repeated = self.issued.join_repeated();
            books.ledger.requeued += repeated;
            books.ledger.ambiguous += repeated;
        }
        let is_flush = is_kernel_flush(event);
        if !self.issues && self.stage == 0 && (is_flush || event.sectors > 0) {
            return self.complete_early(event, is_flush, books);
        }
        if is_flush {
            return self.complete_flush(event, books);
        }
        if event.sectors == 0 {
            // A completion of 0 sectors ends a write with its flushes, or a command without data (pass-through or zone command).
            if event.op == Op::Write {
                self.complete_sequence(event, books);
            } else {
                books.counts.without_data += 1;
            }
            return;
        }
        let issued = match self.issued.take(event.sector, event.sectors, event.op) {
            Some((open, choice)) => {
                books.ledger.ambiguous += u64::from(choice);
                Some(open)
            }
            None if !self.issues => self.take_waiting(event, books),
            None => None,
        };
        let Some(mut open) = issued else {
            let mut open = OpenRequest::new(event);
            open.fail(event);
            if self.issues {
                lose(&open, books);
            } else {
                self.ahead.insert(open);
            }
            return;
        };
        open.events += 1;
        open.fail(event);
        let done = event.sector.saturating_add(u64::from(event.sectors));
        if done < open.end {
            open.position = done;
            (open.served, open.in_parts) = (None, true);
            self.issued.put_first(open);
        } else if open.sequenced && open.queued && self.stage > 0 {
            open.request.complete = Some(event.time);
            self.finishing.insert(open);
        } else {
            emit(&open, event.time, books);
        }
    }

    /// Handles the completion of I/O that this device passed on to another device. The request counts for the other device, so it is
    /// skipped here.
    #[cold]
    fn complete_passed_on(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        books.counts.passed_on += 1;
        if event.sectors > 0
            && let Some(open) = self.take_waiting(event, books)
        {
            books.ledger.skipped += 1;
            books.counts.passed_on += open.events;
        }
    }

    /// Handles a completion before any issue or queue event. If none of these events follows, it is the only event of its request.
    fn complete_early(&mut self, event: &BlockLayerEvent, is_flush: bool, books: &mut PairingOutput) {
        let mut open = OpenRequest::new(event);
        open.fail(event);
        if is_flush {
            (open.request.op, open.request.sector, open.request.sectors) = (Op::Flush, Sector(0), 0);
        }
        if self.only_completions { keep_completion(&open, books) } else { self.early.push(open) }
    }

    fn complete_flush(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        let Some((mut flush, is_only)) = self.flushes.complete() else {
            return lose(&OpenRequest::new(event), books);
        };
        flush.open.events += 1;
        books.ledger.ambiguous += u64::from(!is_only);
        if flush.serves {
            books.counts.flushes += flush.open.events;
            let waiting = self.flushes.waiting.iter_mut();
            for open in waiting.filter(|open| open.request.start == flush.open.request.start) {
                open.request.complete = Some(event.time);
                open.fail(event);
            }
            return;
        }
        flush.open.request.flags = RequestFlags::default();
        flush.open.fail(event);
        // A flush that the kernel itself generated has no sector.
        flush.open.request.sector = Sector(0);
        emit(&flush.open, event.time, books);
    }

    /// Handles the completion of length 0 that ends a flush, or a write with flushes before or after its data.
    fn complete_sequence(&mut self, event: &BlockLayerEvent, books: &mut PairingOutput) {
        let finishing = self.finishing.take(event.sector, 0, event.op).map(|(open, _)| (open, event.time));
        // A flush that a task requested ends when the flush that the kernel issued for it has completed.
        let flush = |open: OpenRequest| (open, open.request.complete.unwrap_or(event.time));
        if let Some((mut open, end)) = finishing.or_else(|| self.flushes.waiting.pop_front().map(flush)) {
            open.events += 1;
            open.fail(event);
            emit(&open, end, books);
        } else if self.stage > 0 {
            lose(&OpenRequest::new(event), books);
        } else {
            // Queueing is not recorded, so the flush that the kernel issued is kept as the request.
            books.counts.flushes += 1;
        }
    }

    /// Whether the driver has a request of this operation at this sector.
    pub(super) fn has_issued(&self, sector: u64, op: Op) -> bool {
        self.issued.at(sector).any(|open| open.request.op == op && open.served.is_none())
    }

    /// Arrival of the oldest open request.
    pub(super) fn oldest_open(&self) -> Option<Nanos> {
        let shelves = [&self.waiting, &self.issued, &self.finishing];
        let shelved = shelves.into_iter().flat_map(|shelf| shelf.by_sector.values()).flatten();
        let shelved = shelved.chain(&self.early).map(|open| open.request.arrival);
        shelved.chain(self.flushes.arrivals()).min()
    }

    /// If more than `limit` requests are open, ends the oldest ones, so that the newest `limit / 2` remain.
    pub(super) fn give_up(&mut self, limit: usize, passed_on: bool, books: &mut PairingOutput) {
        if self.early.len() > limit {
            self.only_completions = true;
            for open in self.early.drain(..) {
                keep_completion(&open, books);
            }
        }
        let completions = self.completions;
        let mut end = |open: OpenRequest| match open.request.complete {
            _ if passed_on => {
                books.ledger.skipped += 1;
                books.counts.passed_on += open.events;
            }
            Some(complete) => {
                // The data of this write is complete. Only the completion of the flush after it is missing.
                books.ledger.ambiguous += 1;
                emit(&open, complete, books);
            }
            None if completions => lose(&open, books),
            None => match open.served {
                // Only the end of the driver's command is recorded, so it counts as the completion.
                Some(end) => emit(&open, end, books),
                None => keep(&open, open.request, books),
            },
        };
        for shelf in [&mut self.waiting, &mut self.issued, &mut self.finishing, &mut self.ahead] {
            if shelf.len > limit {
                let all = shelf.drain();
                let gone = all.len() - limit / 2;
                for (i, open) in all.into_iter().enumerate() {
                    if i < gone { end(open) } else { shelf.insert(open) }
                }
            }
        }
        let FlushQueues { waiting, running } = &mut self.flushes;
        if waiting.len() > limit {
            let gone = waiting.len() - limit / 2;
            waiting.drain(..gone).for_each(&mut end);
        }
        let gone = if running.len() > limit { running.len() - limit / 2 } else { 0 };
        let mut parts = 0;
        for flush in running.drain(..gone) {
            if flush.serves { parts += flush.open.events } else { end(flush.open) }
        }
        books.counts.flushes += parts;
    }
}

/// Keeps a request of which only the completion is recorded; its time is used as arrival.
fn keep_completion(open: &OpenRequest, books: &mut PairingOutput) {
    books.ledger.from_completion += 1;
    keep(open, open.request, books);
}
