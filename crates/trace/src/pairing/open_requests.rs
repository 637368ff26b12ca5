//! Open requests of a device by first sector.

use std::collections::{BTreeMap, VecDeque};

use crate::{BlockEventKind, BlockLayerEvent, NameId, Nanos, Op, Request, RequestFlags, Sector};

/// A request that is not complete.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is known or not by itself")]
pub(super) struct OpenRequest {
    pub(super) request: Request,
    /// The next sector to complete; partial completions advance it.
    pub(super) position: u64,
    pub(super) end: u64,
    /// Whether the arrival of the request was recorded; false if its first event is the issue.
    pub(super) queued: bool,
    /// Whether the kernel will end the request with a completion of length 0.
    pub(super) sequenced: bool,
    /// Whether the request may be a re-issue of an earlier request with the same range.
    pub(super) may_be_reissue: bool,
    /// Time at which the driver saw the end of the request's command.
    pub(super) served: Option<Nanos>,
    /// Whether the request was completed in parts, each by its own command.
    pub(super) in_parts: bool,
    pub(super) events: u64,
}

impl OpenRequest {
    pub(super) fn new(event: &BlockLayerEvent) -> Self {
        let request = Request {
            flags: event.flags,
            pid: event.pid,
            process: event.process,
            device: Some(event.device),
            ..Request::new(event.time, event.op, Sector(event.sector), event.sectors)
        };
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let sequenced = event.flags.contains(RequestFlags::PREFLUSH);
        Self {
            request,
            position: event.sector,
            end,
            queued: true,
            sequenced,
            may_be_reissue: false,
            served: None,
            in_parts: false,
            events: 1,
        }
    }

    /// Adds the adjacent request `other` to this one.
    pub(super) fn join(&mut self, other: &OpenRequest) {
        self.position = self.position.min(other.position);
        self.end = self.end.max(other.end);
        self.request.sector = Sector(self.request.sector.0.min(other.request.sector.0));
        if other.request.arrival < self.request.arrival {
            self.request.arrival = other.request.arrival;
            self.request.pid = other.request.pid;
            self.request.process = other.request.process;
        }
        self.request.flags = self.request.flags.union(other.request.flags);
        self.events += other.events;
        self.measure();
    }

    /// Marks the request as failed if the completion contains an error.
    #[inline]
    pub(super) fn fail(&mut self, completion: &BlockLayerEvent) {
        if completion.error != 0 {
            self.request.flags = self.request.flags.union(RequestFlags::FAILED);
        }
    }

    /// The end of the request's command; `None` if the request had several commands or flushes, or the end is not between issue and
    /// completion.
    pub(super) fn served_at(&self, complete: Nanos) -> Option<Nanos> {
        let is_single = !self.in_parts && !self.sequenced;
        let is_later = |end: &Nanos| self.request.issue.is_some_and(|issue| issue <= *end);
        self.served.filter(|end| is_single && is_later(end) && *end <= complete)
    }

    /// Computes the length of the request from its first sector and its end.
    pub(super) fn measure(&mut self) {
        let sectors = self.end.saturating_sub(self.request.sector.0);
        self.request.sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
    }
}

/// Open requests by the next sector that they will complete. Requests with the same sector are first in, first out.
#[derive(Debug, Default)]
pub(super) struct OpenRequestsBySector {
    pub(super) by_sector: BTreeMap<u64, VecDeque<OpenRequest>>,
    pub(super) len: usize,
}

impl OpenRequestsBySector {
    pub(super) fn insert(&mut self, open: OpenRequest) {
        self.by_sector.entry(open.position).or_default().push_back(open);
        self.len += 1;
    }

    pub(super) fn put_first(&mut self, open: OpenRequest) {
        self.by_sector.entry(open.position).or_default().push_front(open);
        self.len += 1;
    }

    /// Removes and returns a request of this operation at `sector`: one of exactly this length if there is one, otherwise the
    /// oldest. Also returns whether there were several.
    pub(super) fn take(&mut self, sector: u64, sectors: u32, op: Op) -> Option<(OpenRequest, bool)> {
        let list = self.by_sector.get_mut(&sector)?;
        let end = sector.saturating_add(u64::from(sectors));
        let of_op = || list.iter().enumerate().filter(|(_, open)| open.request.op == op);
        let exact = of_op().find(|(_, open)| open.end == end);
        let (at, _) = exact.or_else(|| of_op().next())?;
        let choice = of_op().count() > 1;
        let open = list.remove(at)?;
        if list.is_empty() {
            self.by_sector.remove(&sector);
        }
        self.len -= 1;
        Some((open, choice))
    }

    /// Removes and returns the latest request of this operation that ends at `end`. Requests may overlap, so those at up to 64 different
    /// first sectors before `end` are searched.
    pub(super) fn take_ending(&mut self, end: u64, op: Op) -> Option<OpenRequest> {
        const NEIGHBOURS: usize = 64;
        let (&sector, at) = self.by_sector.range(..end).rev().take(NEIGHBOURS).find_map(|(sector, list)| {
            let at = list.iter().rposition(|open| open.end == end && open.request.op == op)?;
            Some((sector, at))
        })?;
        self.remove(sector, at)
    }

    /// Removes and returns the newest request with exactly this range and operation. It is used to find an I/O that was queued just before
    /// its merge.
    pub(super) fn take_newest(&mut self, sector: u64, sectors: u32, op: Op) -> Option<OpenRequest> {
        let end = sector.saturating_add(u64::from(sectors));
        let list = self.by_sector.get(&sector)?;
        let at = list.iter().rposition(|open| open.end == end && open.request.op == op)?;
        self.remove(sector, at)
    }

    pub(super) fn remove(&mut self, sector: u64, at: usize) -> Option<OpenRequest> {
        let list = self.by_sector.get_mut(&sector)?;
        let open = list.remove(at)?;
        if list.is_empty() {
            self.by_sector.remove(&sector);
        }
        self.len -= 1;
        Some(open)
    }

    /// The requests with exactly this range and operation, oldest first.
    pub(super) fn of_range(&mut self, event: &BlockLayerEvent) -> impl Iterator<Item = &mut OpenRequest> {
        let (end, op) = (event.sector.saturating_add(u64::from(event.sectors)), event.op);
        let all = self.by_sector.get_mut(&event.sector).into_iter().flatten();
        all.filter(move |open| open.end == end && open.request.op == op)
    }

    /// Joins each request that may be a re-issue to the earlier request with the same range; returns the number of joined requests.
    pub(super) fn join_repeated(&mut self) -> u64 {
        let mut joined = 0;
        for list in self.by_sector.values_mut() {
            let mut at = 1;
            while at < list.len() {
                let OpenRequest { end, may_be_reissue, request, .. } = list[at];
                let before = (0..at).rfind(|i| list[*i].end == end && list[*i].request.op == request.op);
                if let Some(before) = before.filter(|_| may_be_reissue)
                    && let Some(later) = list.remove(at)
                {
                    list[before].request.issue = later.request.issue;
                    list[before].events += later.events;
                    joined += 1;
                } else {
                    at += 1;
                }
            }
        }
        self.len -= joined;
        joined as u64
    }

    /// The requests at `sector`, oldest first.
    pub(super) fn at(&self, sector: u64) -> impl Iterator<Item = &OpenRequest> {
        self.by_sector.get(&sector).into_iter().flatten()
    }

    /// Removes and returns all requests, oldest first.
    pub(super) fn drain(&mut self) -> Vec<OpenRequest> {
        self.len = 0;
        let mut all: Vec<_> = std::mem::take(&mut self.by_sector).into_values().flatten().collect();
        all.sort_by_key(|open| open.request.arrival);
        all
    }
}

/// A flush that the kernel issued to the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelFlush {
    pub(super) open: OpenRequest,
    /// Whether a request that is kept waits for this flush.
    pub(super) serves: bool,
    /// Whether the driver requeued the flush. The next issue of a flush is then a repetition of this flush.
    returned: bool,
}

/// The flushes of a device.
#[derive(Debug, Default)]
pub(super) struct FlushQueues {
    /// Flushes that tasks requested, oldest first.
    pub(super) waiting: VecDeque<OpenRequest>,
    /// Flushes of the kernel that the driver has, oldest first.
    pub(super) running: VecDeque<KernelFlush>,
}

/// Whether the event belongs to a flush that the kernel itself issues. Such a flush has the operation `FF`. Before kernel 4.8, it is a
/// write of 0 sectors with a preflush, and its completion has the sector 2^64-1.
pub(super) fn is_kernel_flush(event: &BlockLayerEvent) -> bool {
    let empty_write = event.op == Op::Write && event.sectors == 0 && event.flags.contains(RequestFlags::PREFLUSH);
    match event.kind {
        BlockEventKind::Issue | BlockEventKind::Requeue => event.op == Op::Flush || empty_write,
        BlockEventKind::Complete => event.op == Op::Flush || empty_write && event.sector == u64::MAX,
        _ => false,
    }
}

impl FlushQueues {
    /// Handles the issue of a flush that the kernel itself starts. `serves` is true if the flush is a step of a write that waits for it.
    pub(super) fn issue(&mut self, event: &BlockLayerEvent, mut serves: bool) {
        if let Some(running) = self.running.back_mut().filter(|running| running.returned) {
            running.returned = false;
            running.open.request.issue = Some(event.time);
            running.open.events += 1;
            return;
        }
        for open in self.waiting.iter_mut().filter(|open| open.request.issue.is_none()) {
            open.request.start = Some(event.time);
            open.request.issue = Some(event.time);
            serves = true;
        }
        let mut open = OpenRequest::new(event);
        open.request.op = Op::Flush;
        open.request.start = Some(event.time);
        open.request.issue = Some(event.time);
        self.running.push_back(KernelFlush { open, serves, returned: false });
    }

    /// Handles the requeue event of the latest flush in progress. Returns false if no flush is in progress.
    pub(super) fn requeue(&mut self) -> bool {
        let Some(running) = self.running.back_mut() else { return false };
        running.returned = true;
        running.open.events += 1;
        true
    }

    /// Ends the latest flush and returns it. Also returns whether it was the only open flush. Older flushes may have lost their completions
    /// and never end.
    pub(super) fn complete(&mut self) -> Option<(KernelFlush, bool)> {
        let flush = self.running.pop_back()?;
        Some((flush, self.running.is_empty()))
    }

    /// Arrivals of the open flushes that will become requests.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = Nanos> {
        let running = self.running.iter().filter(|running| !running.serves).map(|running| &running.open);
        self.waiting.iter().chain(running).map(|open| open.request.arrival)
    }

    /// Number of waiting or running flushes, whichever is larger.
    pub(super) fn len(&self) -> usize {
        self.waiting.len().max(self.running.len())
    }
}

/// Maximum number of open appends; the queue of a driver is shorter.
const MOST_OPEN_APPENDS: usize = 1 << 12;

/// A zone append that is in progress. Each of its events contains these values, except its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ZoneAppend {
    device: NameId,
    /// The start of the zone.
    sector: u64,
    sectors: u32,
}

#[derive(Debug, Default)]
pub(super) struct OpenZoneAppends(VecDeque<ZoneAppend>);

impl OpenZoneAppends {
    /// Adds an append when it is issued.
    pub fn issue(&mut self, device: NameId, sector: u64, sectors: u32) {
        if self.0.len() == MOST_OPEN_APPENDS {
            self.0.pop_front();
        }
        self.0.push_back(ZoneAppend { device, sector, sectors });
    }

    /// Removes an append that the driver returned.
    pub fn requeue(&mut self, device: NameId, sector: u64, sectors: u32) {
        let given_back = ZoneAppend { device, sector, sectors };
        if let Some(at) = self.0.iter().rposition(|open| *open == given_back) {
            self.0.remove(at);
        }
    }

    /// Completes a zone append whose data was written at this sector; returns the start of its zone. Of the open appends of this length,
    /// those with the nearest zone start at or before the sector are considered. The oldest one is completed.
    pub fn complete(&mut self, device: NameId, written: u64, sectors: u32) -> Option<u64> {
        let fits = |open: &ZoneAppend| open.device == device && open.sectors == sectors && open.sector <= written;
        let nearest = self.0.iter().filter(|open| fits(open)).map(|open| open.sector).max()?;
        let at = self.0.iter().position(|open| fits(open) && open.sector == nearest)?;
        self.0.remove(at).map(|open| open.sector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_is_found_by_the_zone_that_it_was_written_in() {
        let (first, second) = (NameId(1), NameId(2));
        let mut appends = OpenZoneAppends::default();
        appends.issue(first, 0, 8);
        appends.issue(first, 524_288, 8);
        appends.issue(first, 0, 8);
        assert_eq!(appends.complete(second, 64, 8), None);
        assert_eq!(appends.complete(first, 524_400, 8), Some(524_288));
        assert_eq!([appends.complete(first, 64, 8), appends.complete(first, 72, 8)], [Some(0); 2]);
        assert_eq!(appends.complete(first, 80, 8), None);
        appends.issue(first, 0, 8);
        appends.requeue(first, 0, 8);
        assert_eq!(appends.complete(first, 64, 8), None);
    }
}
