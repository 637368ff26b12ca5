//! Requests made of `block_io_start` and `block_io_done`, for recordings without other block events. Source: the kernel's
//! `include/trace/events/block.h` (since 6.5): the first tells a request as it was made, before others are merged into it, the
//! second its sector and no length.

use std::collections::{BTreeMap, VecDeque};

use emmclab_base::{Flags, NameId, Nanos, Op, Request, Sector};

use crate::ledger::Ledger;
use crate::pairing::Event;

/// Requests that may be open at a time; more are leftovers of lost events.
const MOST_OPEN: usize = 1 << 16;

/// Requests before a sector that are looked through for one that holds it.
const NEIGHBOURS: usize = 64;

/// The requests of all disks.
#[derive(Debug, Default)]
pub(super) struct AccountedRequests {
    open: BTreeMap<(NameId, u64), VecDeque<Request>>,
    count: usize,
    done: Vec<Request>,
    ends: bool,
    /// Events taken.
    events: u64,
    /// Requests given on.
    given: u64,
}

impl AccountedRequests {
    /// A request was made.
    pub(super) fn start(&mut self, event: &Event, ledger: &mut Ledger) {
        self.events += 1;
        if event.sectors == 0 && event.op != Op::Flush {
            // A command that passes through the block layer.
            ledger.skipped += 1;
            return;
        }
        if self.count >= MOST_OPEN {
            ledger.unpaired += self.count as u64;
            self.open.clear();
            self.count = 0;
        }
        let sector = if event.op == Op::Flush { 0 } else { event.sector };
        let request = Request {
            flags: event.flags,
            pid: event.pid,
            process: event.process,
            device: Some(event.device),
            ..Request::new(event.time, event.op, Sector(sector), event.sectors)
        };
        self.open.entry((event.device, sector)).or_default().push_back(request);
        self.count += 1;
    }

    /// A request is done. Where it was done in parts, the event names the sector of the last.
    pub(super) fn end(&mut self, event: &Event, ledger: &mut Ledger) {
        self.ends = true;
        self.events += 1;
        let at = if event.op == Op::Flush { 0 } else { event.sector };
        let holds =
            |request: &Request| request.op == event.op && (request.end().0 > at || request.sector.0 == at);
        let mut before = self.open.range((event.device, 0)..=(event.device, at)).rev().take(NEIGHBOURS);
        let found = before.find_map(|(key, list)| Some((*key, list.iter().position(holds)?)));
        let Some((key, place)) = found else {
            ledger.unpaired += 1;
            return;
        };
        let Some(list) = self.open.get_mut(&key) else { return };
        let request = list.remove(place);
        if list.is_empty() {
            self.open.remove(&key);
        }
        self.count -= 1;
        if let Some(mut request) = request {
            request.complete = Some(event.time.max(request.arrival));
            request.flags = request.flags.union(event.flags.intersection(Flags::FAILED));
            self.done.push(request);
        }
    }

    /// Requests that ended and were not taken yet.
    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    /// Arrival of the oldest request that was not taken yet.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let open = self.open.values().flatten();
        open.chain(&self.done).map(|request| request.arrival).min()
    }

    /// Gives on the requests that ended.
    pub(super) fn take(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        ledger.paired += self.done.iter().filter(|request| request.complete.is_some()).count() as u64;
        self.given += self.done.len() as u64;
        out.append(&mut self.done);
    }

    /// Ends the recording: what is still open is unpaired, except where no end was recorded.
    pub(super) fn finish(&mut self, ledger: &mut Ledger) {
        if self.ends {
            ledger.unpaired += self.count as u64;
        } else {
            self.done.extend(self.open.values().flatten());
            self.done.sort_by_key(|request| request.arrival);
        }
        self.open.clear();
        self.count = 0;
    }

    /// Drops everything: other block events tell of the same requests.
    pub(super) fn clear(&mut self, ledger: &mut Ledger) {
        ledger.skipped += self.events;
        *self = Self::default();
    }

    /// Whether there is any request.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.done.is_empty() && self.given == 0
    }

    /// What has to be known of the requests; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        (self.given > 0).then(|| {
            "requests are those of block_io_start and block_io_done: what was merged into one after it was made is not in its \
             length, and queueing and issue are unknown"
                .to_owned()
        })
    }
}
