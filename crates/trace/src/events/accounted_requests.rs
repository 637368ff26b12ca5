//! Builds requests from `block_io_start` and `block_io_done`, for recordings without other block events. Source: the kernel's
//! `include/trace/events/block.h` (since 6.5). The first event describes a request before others are merged into it; the second
//! has its sector, but not its length.

use std::collections::{BTreeMap, VecDeque};

use crate::{BlockLayerEvent, Ledger, NameId, Nanos, Op, Request, RequestFlags, Sector};

/// Maximum number of open requests; a greater number means that completion events were lost.
const MOST_OPEN: usize = 1 << 16;

/// Maximum number of requests before a sector that are searched for one that contains the sector.
const NEIGHBOURS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct AccountedRequests {
    open: BTreeMap<(NameId, u64), VecDeque<Request>>,
    count: usize,
    ended_requests: Vec<Request>,
    has_request_ends: bool,
    events: u64,
    returned_requests: u64,
}

impl AccountedRequests {
    pub(super) fn start(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger) {
        self.events += 1;
        if event.sectors == 0 && event.op != Op::Flush {
            // A passthrough command, which is not block I/O.
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

    /// Ends a request. If the request was completed in parts, the event has the sector of the last part.
    pub(super) fn end(&mut self, event: &BlockLayerEvent, ledger: &mut Ledger) {
        self.has_request_ends = true;
        self.events += 1;
        let at = if event.op == Op::Flush { 0 } else { event.sector };
        let holds = |request: &Request| request.op == event.op && (request.end().0 > at || request.sector.0 == at);
        let mut before = self.open.range((event.device, 0)..=(event.device, at)).rev().take(NEIGHBOURS);
        let open = before.find_map(|(key, list)| Some((*key, list.iter().position(holds)?)));
        let Some((key, place)) = open else {
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
            request.flags.set(RequestFlags::FAILED, event.error != 0);
            self.ended_requests.push(request);
        }
    }

    /// Number of requests that have ended but are not returned yet.
    pub(super) fn len(&self) -> usize {
        self.ended_requests.len()
    }

    /// Arrival of the oldest request that is not returned yet.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let open = self.open.values().flatten();
        open.chain(&self.ended_requests).map(|request| request.arrival).min()
    }

    pub(super) fn take(&mut self, ledger: &mut Ledger, out: &mut Vec<Request>) {
        ledger.paired += self.ended_requests.iter().filter(|request| request.complete.is_some()).count() as u64;
        self.returned_requests += self.ended_requests.len() as u64;
        out.append(&mut self.ended_requests);
    }

    /// Ends the recording. Open requests are unpaired, unless the recording has no completion events at all.
    pub(super) fn finish(&mut self, ledger: &mut Ledger) {
        if self.has_request_ends {
            ledger.unpaired += self.count as u64;
        } else {
            self.ended_requests.extend(self.open.values().flatten());
            self.ended_requests.sort_by_key(|request| request.arrival);
        }
        self.open.clear();
        self.count = 0;
    }

    /// Drops all requests, because other block events describe the same requests.
    pub(super) fn clear(&mut self, ledger: &mut Ledger) {
        ledger.skipped += self.events;
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.ended_requests.is_empty() && self.returned_requests == 0
    }

    /// The note on the origin of the requests; `None` if there are none.
    pub(super) fn note(&self) -> Option<String> {
        (self.returned_requests > 0).then(|| {
            "requests are those of block_io_start and block_io_done: the length of a request does not include later merges, \
             and queueing and issue are unknown"
                .to_owned()
        })
    }
}
