//! The block layer: bios are merged into requests. A request waits until fewer than `nr_requests` requests are in progress, and then until
//! the device can accept it.
//!
//! Each step of a task has a plug: its bios are merged with each other before they are merged with waiting requests. Synchronous requests
//! (reads, and writes that a task waits for) and asynchronous requests have separate pools.

use std::collections::VecDeque;

use emmclab_base::{BlockNote, BlockRole, Nanos, Op, Request, RequestFlags, Sector};

use crate::config::{BarrierMode, ElevatorKind, HostConfig};
use crate::core::{TaskId, TaskTable};
use crate::operation::{FileClass, FolderId, MountId};
use crate::request::{BlockRequestId, HostBlockRequest, HostBlockRequests, IoCause};

/// Number of requests in a plug with which a new bio is compared.
const PLUG_SEARCH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockRequestState {
    /// In the plug, or held back by the limit `nr_requests`.
    Held,
    /// In the elevator, or behind a barrier that is not complete.
    Waiting,
    /// Issued to the device, and not complete.
    Issued,
}

/// A request: a chain of bios whose sectors are contiguous.
#[derive(Debug)]
struct QueueEntry {
    id: BlockRequestId,
    first: u32,
    last: u32,
    op: Op,
    flags: RequestFlags,
    sector: u64,
    sectors: u32,
    arrival: Nanos,
    state: BlockRequestState,
    /// The pool of the request: 0 for synchronous requests, 1 for others.
    pool: u8,
    /// Whether the request is a barrier: it is issued alone, after all earlier requests are complete and before all later ones.
    drain: bool,
}

pub(crate) struct CompletedRequest {
    /// The number of the request; `None` if it was not sent to the device.
    id: Option<BlockRequestId>,
    bio: u32,
}

#[derive(Debug)]
pub(crate) struct BlockLayer {
    bios: Vec<Bio>,
    free_bios: Vec<u32>,
    entries: Vec<QueueEntry>,
    free_entries: Vec<u32>,
    plug: Vec<u32>,
    /// Requests held back by the limit `nr_requests`, by pool.
    held_back: [VecDeque<u32>; 2],
    /// Number of requests that are admitted but not complete, by pool.
    admitted: [u32; 2],
    elevator: ElevatorQueue,
    /// Waiting barriers, and the requests that arrived after the first of these barriers.
    behind_barrier: VecDeque<u32>,
    draining: bool,
    /// Numbers of the requests that were issued to the device, each with its index in `entries`.
    issued: Vec<(BlockRequestId, u32)>,
    next_id: u64,
    limit: u32,
    depth: usize,
    max_sectors: u32,
    barrier: BarrierMode,
    /// First sector of each mount.
    bases: Vec<u64>,
    /// Tasks that wait for free requests in the pool of asynchronous requests.
    background: Vec<TaskId>,
    /// Flush barriers that are complete, because all earlier requests are complete. Flush barriers are not sent to the device.
    drained: Vec<u32>,
    /// Number of writes at the device.
    writes: u32,
    /// Time since which the device has had at least one write.
    writing_since: Nanos,
    written_for: Nanos,
}

impl BlockLayer {
    pub fn new(config: &HostConfig, bases: Vec<u64>) -> Self {
        Self {
            bios: Vec::new(),
            free_bios: Vec::new(),
            entries: Vec::new(),
            free_entries: Vec::new(),
            plug: Vec::new(),
            held_back: Default::default(),
            admitted: [0; 2],
            elevator: ElevatorQueue::new(config.elevator),
            behind_barrier: VecDeque::new(),
            draining: false,
            issued: Vec::new(),
            next_id: 0,
            limit: config.nr_requests,
            depth: config.device_depth as usize,
            max_sectors: config.max_request_sectors(),
            barrier: config.barrier,
            bases,
            background: Vec::new(),
            drained: Vec::new(),
            writes: 0,
            writing_since: Nanos::ZERO,
            written_for: Nanos::ZERO,
        }
    }

    /// Maximum number of sectors of a bio.
    pub fn max_sectors(&self) -> u32 {
        self.max_sectors
    }

    pub fn device_sector(&self, mount: u16, sector: u64) -> u64 {
        self.bases[usize::from(mount)] + sector
    }

    /// Adds a bio to the plug.
    pub fn submit(&mut self, mut submitted: BioRequest, now: Nanos) -> BioId {
        if submitted.op != Op::Flush {
            submitted.sector = self.device_sector(submitted.mount, submitted.sector);
        }
        let drain =
            self.barrier == BarrierMode::Drain && (submitted.op == Op::Flush || submitted.flags.contains(RequestFlags::PREFLUSH));
        if self.barrier == BarrierMode::Drain {
            submitted.flags -= RequestFlags::PREFLUSH | RequestFlags::FUA;
        }
        let slot = self.free_bios.pop().unwrap_or_else(|| {
            self.bios.push(Bio { submitted, generation: 0, waiters: Vec::new(), request: NONE, next: NONE });
            self.bios.len() as u32 - 1
        });
        let bio = &mut self.bios[slot as usize];
        (bio.submitted, bio.next) = (submitted, NONE);
        let id = BioId { slot, generation: bio.generation };
        if !drain {
            for at in self.plug.len().saturating_sub(PLUG_SEARCH)..self.plug.len() {
                if self.merge_bio(self.plug[at], slot) {
                    return id;
                }
            }
        }
        let (op, flags, sector, sectors) = (submitted.op, submitted.flags, submitted.sector, submitted.sectors);
        let entry = QueueEntry {
            id: BlockRequestId(0),
            first: slot,
            last: slot,
            op,
            flags,
            sector,
            sectors,
            arrival: now,
            state: BlockRequestState::Held,
            pool: u8::from(op != Op::Read && !flags.contains(RequestFlags::SYNC)),
            drain,
        };
        let request = if let Some(free) = self.free_entries.pop() {
            self.entries[free as usize] = entry;
            free
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.bios[slot as usize].request = request;
        self.plug.push(request);
        id
    }

    /// Whether a bio is in progress.
    pub fn in_flight(&self, id: BioId) -> bool {
        self.bios.get(id.slot as usize).is_some_and(|bio| bio.generation == id.generation)
    }

    /// Makes a task wait for a bio if the bio is in progress. Returns whether the bio is in progress.
    pub fn await_bio(&mut self, id: BioId, task: TaskId, tasks: &mut TaskTable) -> bool {
        if !self.in_flight(id) {
            return false;
        }
        let bio = &mut self.bios[id.slot as usize];
        bio.waiters.push(task);
        tasks.await_completion(task, self.entries[bio.request as usize].state == BlockRequestState::Held);
        true
    }

    /// Whether the pool of asynchronous requests has a free request. If not, the task waits until an eighth of the pool is free.
    pub fn await_room(&mut self, task: TaskId, tasks: &mut TaskTable) -> bool {
        if self.admitted[1] + (self.held_back[1].len() + self.plug.len()) as u32 >= self.limit {
            self.background.push(task);
            tasks.await_completion(task, false);
            return false;
        }
        true
    }

    /// Ends a step of a task: moves the requests of the plug to the elevator, as far as the limit allows. Returns their number.
    pub fn unplug(&mut self, tasks: &mut TaskTable, now: Nanos) -> u64 {
        let requests = self.plug.len() as u64;
        let mut plug = std::mem::take(&mut self.plug);
        for request in plug.drain(..) {
            self.held_back[usize::from(self.entries[request as usize].pool)].push_back(request);
        }
        self.plug = plug;
        if requests > 0 {
            self.admit(tasks, now);
        }
        requests
    }

    fn admit(&mut self, tasks: &mut TaskTable, now: Nanos) {
        for pool in 0..2 {
            while let Some(&request) = self.held_back[pool].front() {
                // A request that is merged into another one needs no slot, so it does not count towards the limit.
                if self.behind_barrier.is_empty() && !self.entries[request as usize].drain && self.merge(request, tasks, now) {
                    self.held_back[pool].pop_front();
                    continue;
                }
                if self.admitted[pool] >= self.limit {
                    break;
                }
                self.held_back[pool].pop_front();
                self.admitted[pool] += 1;
                let entry = &mut self.entries[request as usize];
                entry.id = BlockRequestId(self.next_id);
                self.next_id += 1;
                entry.state = BlockRequestState::Waiting;
                let (first, drain) = (entry.first, entry.drain);
                self.tell_admitted(first, tasks, now);
                if drain || !self.behind_barrier.is_empty() || self.draining {
                    self.behind_barrier.push_back(request);
                } else {
                    self.enter(request);
                }
            }
        }
        self.open_barriers();
    }

    /// Notifies the tasks that wait for a chain of bios when the limit `nr_requests` no longer holds back this chain.
    fn tell_admitted(&self, first: u32, tasks: &mut TaskTable, now: Nanos) {
        let mut at = first;
        while at != NONE {
            let bio = &self.bios[at as usize];
            for task in &bio.waiters {
                tasks.request_admitted(*task, now);
            }
            at = bio.next;
        }
    }

    fn enter(&mut self, request: u32) {
        let entry = &self.entries[request as usize];
        let (sector, end) = (entry.sector, entry.sector + u64::from(entry.sectors));
        let waits_for = entry.op == Op::Read || entry.flags.contains(RequestFlags::SYNC);
        self.elevator.insert(WaitingRequest { request, id: entry.id, sector, end, read: entry.op == Op::Read, sync: waits_for });
    }

    /// Issues the next barrier if all earlier requests are complete, and the requests behind a barrier if the barrier is complete.
    fn open_barriers(&mut self) {
        loop {
            if self.draining {
                return;
            }
            let Some(&request) = self.behind_barrier.front() else { return };
            if !self.entries[request as usize].drain {
                self.behind_barrier.pop_front();
                self.enter(request);
                continue;
            }
            if !self.elevator.is_empty() || !self.issued.is_empty() {
                return;
            }
            self.behind_barrier.pop_front();
            self.draining = true;
            if self.entries[request as usize].op == Op::Flush {
                self.drained.push(request);
            } else {
                self.enter(request);
            }
        }
    }

    fn mergeable(&self, first: u32, other: u32) -> bool {
        let (first, other) = (&self.entries[first as usize], &self.entries[other as usize]);
        first.op == other.op && self.fits(first, &self.bios[other.first as usize].submitted, other.sectors) && !other.drain
    }

    /// Whether a bio can be merged into a request: both have the same operation, mount and class, neither has a flag that requires an
    /// order, and together they are not too long.
    fn fits(&self, entry: &QueueEntry, bio: &BioRequest, sectors: u32) -> bool {
        let first = &self.bios[entry.first as usize].submitted;
        entry.op == bio.op
            && entry.op.has_data()
            && !entry.drain
            && !(entry.flags | bio.flags).intersects(RequestFlags::FUA | RequestFlags::PREFLUSH)
            && entry.sectors + sectors <= self.max_sectors
            && first.mount == bio.mount
            && first.class == bio.class
            // A block of metadata that a task needs is not merged with those that are read ahead of their use.
            && (bio.class != FileClass::Metadata || !(first.flags ^ bio.flags).intersects(RequestFlags::READAHEAD))
    }

    /// Merges a bio into a request in the plug if possible. Returns whether it was merged.
    fn merge_bio(&mut self, request: u32, bio: u32) -> bool {
        let submitted = self.bios[bio as usize].submitted;
        let entry = &self.entries[request as usize];
        if !self.fits(entry, &submitted, submitted.sectors) {
            return false;
        }
        let entry = &mut self.entries[request as usize];
        if entry.sector + u64::from(entry.sectors) == submitted.sector {
            self.bios[entry.last as usize].next = bio;
            entry.last = bio;
        } else if submitted.sector + u64::from(submitted.sectors) == entry.sector {
            self.bios[bio as usize].next = entry.first;
            entry.first = bio;
            entry.sector = submitted.sector;
        } else {
            return false;
        }
        entry.sectors += submitted.sectors;
        entry.flags |= submitted.flags & RequestFlags::SYNC;
        self.bios[bio as usize].request = request;
        true
    }

    /// Merges a request into another request in the elevator if possible. Returns whether it was merged.
    fn merge(&mut self, request: u32, tasks: &mut TaskTable, now: Nanos) -> bool {
        let entry = &self.entries[request as usize];
        if !entry.op.has_data() || entry.flags.intersects(RequestFlags::FUA | RequestFlags::PREFLUSH) {
            return false;
        }
        let (sector, end) = (entry.sector, entry.sector + u64::from(entry.sectors));
        let Some((neighbour, behind)) = self.elevator.adjacent(sector, end, |other| self.mergeable(other, request)) else {
            return false;
        };
        let (first, last, sectors, sync) = (entry.first, entry.last, entry.sectors, entry.flags & RequestFlags::SYNC);
        self.tell_admitted(first, tasks, now);
        let mut at = first;
        while at != NONE {
            let bio = &mut self.bios[at as usize];
            bio.request = neighbour;
            at = bio.next;
        }
        let target = &mut self.entries[neighbour as usize];
        if behind {
            self.bios[target.last as usize].next = first;
            target.last = last;
        } else {
            self.bios[last as usize].next = target.first;
            target.first = first;
            target.sector = sector;
        }
        target.sectors += sectors;
        target.flags |= sync;
        let (sector, end) = (target.sector, target.sector + u64::from(target.sectors));
        self.elevator.grow(neighbour, sector, end);
        self.free_entries.push(request);
        true
    }

    /// Appends the requests that can be issued to the device now to `out`.
    pub fn dispatch(&mut self, now: Nanos, out: &mut HostBlockRequests) {
        while self.issued.len() < self.depth
            && let Some(request) = self.elevator.take()
        {
            let entry = &mut self.entries[request as usize];
            entry.state = BlockRequestState::Issued;
            self.issued.push((entry.id, request));
            if entry.op == Op::Write {
                if self.writes == 0 {
                    self.writing_since = now;
                }
                self.writes += 1;
            }
            let submitted = &self.bios[entry.first as usize].submitted;
            let mut command = Request::new(entry.arrival, entry.op, Sector(entry.sector), entry.sectors);
            command.flags = entry.flags;
            command.issue = Some(now);
            let from = out.notes.len() as u32;
            let mut at = entry.first;
            while at != NONE {
                let bio = &self.bios[at as usize];
                out.notes.extend(bio.submitted.note);
                at = bio.next;
            }
            out.requests.push(HostBlockRequest {
                id: entry.id,
                request: command,
                mount: MountId(submitted.mount),
                class: submitted.class,
                folder: submitted.folder,
                cause: submitted.cause,
                notes: from..out.notes.len() as u32,
            });
        }
    }

    /// Removes a completed request from the requests at the device; `None` if it is not among them.
    pub fn complete(&mut self, id: BlockRequestId, tasks: &mut TaskTable, now: Nanos) -> Option<CompletedRequest> {
        let at = self.issued.iter().position(|(issued, _)| *issued == id)?;
        let (_, request) = self.issued.swap_remove(at);
        if self.entries[request as usize].op == Op::Write {
            self.writes -= 1;
            if self.writes == 0 {
                self.written_for += now - self.writing_since;
            }
        }
        Some(self.take_off(request, tasks, now))
    }

    /// Total time during which the device had at least one write, excluding the current period.
    pub fn written_for(&self) -> Nanos {
        self.written_for
    }

    /// Removes and returns a flush barrier that is complete; `None` if there is none.
    pub fn finish_drained_barrier(&mut self, tasks: &mut TaskTable, now: Nanos) -> Option<CompletedRequest> {
        let request = self.drained.pop()?;
        Some(CompletedRequest { id: None, ..self.take_off(request, tasks, now) })
    }

    fn take_off(&mut self, request: u32, tasks: &mut TaskTable, now: Nanos) -> CompletedRequest {
        let entry = &self.entries[request as usize];
        let (id, bio, drain) = (entry.id, entry.first, entry.drain);
        self.admitted[usize::from(entry.pool)] -= 1;
        self.free_entries.push(request);
        if drain {
            self.draining = false;
        }
        self.admit(tasks, now);
        if self.admitted[1] + self.held_back[1].len() as u32 <= self.limit - self.limit.div_ceil(8) {
            for task in self.background.drain(..) {
                tasks.completion_arrived(task, None);
            }
        }
        CompletedRequest { id: Some(id), bio }
    }

    /// Returns the next bio of a completed request, and wakes the tasks that wait for it; `None` after the last one.
    pub fn next_bio(&mut self, completed: &mut CompletedRequest, tasks: &mut TaskTable) -> Option<BioRequest> {
        if completed.bio == NONE {
            return None;
        }
        let slot = completed.bio;
        let bio = &mut self.bios[slot as usize];
        completed.bio = bio.next;
        bio.generation = bio.generation.wrapping_add(1);
        for task in bio.waiters.drain(..) {
            tasks.completion_arrived(task, completed.id);
        }
        self.free_bios.push(slot);
        Some(bio.submitted)
    }
}

// The elevator chooses the order in which waiting requests are issued to the device. It uses linear search, because there are few requests.

/// Maximum number of consecutive requests of one kind while requests of the other kind wait.
const BATCH: u32 = 16;
/// Maximum number of consecutive batches of preferred requests while other requests wait.
const STARVED: u32 = 2;

#[derive(Clone, Copy, Debug)]
struct WaitingRequest {
    pub request: u32,
    pub id: BlockRequestId,
    pub sector: u64,
    pub end: u64,
    pub read: bool,
    pub sync: bool,
}

/// The waiting requests, and the state of the elevator that orders them.
#[derive(Debug)]
struct ElevatorQueue {
    kind: ElevatorKind,
    waiting: Vec<WaitingRequest>,
    /// End sector of the last issued request. The order by address continues from this sector.
    position: u64,
    /// Whether the current batch consists of preferred requests.
    preferred: bool,
    /// Number of requests that the current batch may still issue.
    left: u32,
    /// Number of consecutive batches of preferred requests that were issued while other requests waited.
    starving: u32,
}

impl ElevatorQueue {
    pub fn new(kind: ElevatorKind) -> Self {
        Self { kind, waiting: Vec::new(), position: 0, preferred: true, left: 0, starving: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn insert(&mut self, waiting: WaitingRequest) {
        self.waiting.push(waiting);
    }

    /// Finds a waiting request that is adjacent to a run of sectors and for which `accepts` returns true. Also returns true if the run
    /// follows the request, false if it precedes the request.
    pub fn adjacent(&self, sector: u64, end: u64, accepts: impl Fn(u32) -> bool) -> Option<(u32, bool)> {
        let near = |waiting: &&WaitingRequest| (waiting.end == sector || waiting.sector == end) && accepts(waiting.request);
        self.waiting.iter().find(near).map(|waiting| (waiting.request, waiting.end == sector))
    }

    /// Sets the new range of a request after a merge.
    pub fn grow(&mut self, request: u32, sector: u64, end: u64) {
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.request == request) {
            (waiting.sector, waiting.end) = (sector, end);
        }
    }

    fn is_preferred(&self, waiting: &WaitingRequest) -> bool {
        match self.kind {
            ElevatorKind::None => true,
            ElevatorKind::Deadline => waiting.read,
            ElevatorKind::Cfq => waiting.sync,
        }
    }

    /// Removes and returns the request that is to be issued next.
    pub fn take(&mut self) -> Option<u32> {
        let at = if self.kind == ElevatorKind::None { self.oldest()? } else { self.by_address()? };
        let taken = self.waiting.swap_remove(at);
        self.position = taken.end;
        Some(taken.request)
    }

    fn oldest(&self) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|at| self.waiting[*at].id)
    }

    /// Returns the index of the next request, which is a preferred request or another request depending on the current batch. Chooses the
    /// first request after the last issued address or, if there is none, the request with the lowest address.
    fn by_address(&mut self) -> Option<usize> {
        let some = |preferred| self.waiting.iter().any(|waiting| self.is_preferred(waiting) == preferred);
        let (preferred, others) = (some(true), some(false));
        if !preferred && !others {
            return None;
        }
        // In CFQ, a synchronous request ends a batch of asynchronous requests after at least one of them (`cfq_should_preempt`).
        let preempted = self.kind == ElevatorKind::Cfq && preferred && !self.preferred && self.left < BATCH;
        if self.left == 0 || preempted || !some(self.preferred) {
            self.preferred = preferred && !(others && self.starving >= STARVED);
            self.starving = if self.preferred && others { self.starving + 1 } else { 0 };
            self.left = BATCH;
        }
        self.left -= 1;
        let turn = (0..self.waiting.len()).filter(|at| self.is_preferred(&self.waiting[*at]) == self.preferred);
        turn.min_by_key(|at| {
            let waiting = &self.waiting[*at];
            (waiting.sector < self.position, waiting.sector, waiting.id)
        })
    }
}

/// The value of an index that refers to nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// The identity of a bio in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BioId {
    slot: u32,
    generation: u32,
}

impl BioId {
    /// The identity of no bio.
    pub const NONE: Self = Self { slot: NONE, generation: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BioContents {
    /// Pages of a file, from `page` on.
    Pages { inode: u32, page: u32 },
    /// Blocks of the file system instead of pages of a file. The file system checks whether the bio is complete.
    Blocks,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BioRequest {
    pub op: Op,
    pub flags: RequestFlags,
    /// First sector, relative to the mount.
    pub sector: u64,
    pub sectors: u32,
    pub mount: u16,
    pub class: FileClass,
    /// The folder of the file whose pages these are; `None` for blocks of the file system.
    pub folder: Option<FolderId>,
    pub cause: IoCause,
    pub content: BioContents,
    /// The roles of the sectors of a write.
    pub note: Option<BlockNote>,
}

impl BioRequest {
    /// A read of blocks of the file system.
    pub fn read(mount: u16, sector: u64, sectors: u32, cause: IoCause) -> Self {
        Self {
            op: Op::Read,
            flags: RequestFlags::SYNC | RequestFlags::META,
            sector,
            sectors,
            mount,
            class: FileClass::Metadata,
            folder: None,
            cause,
            content: BioContents::Blocks,
            note: None,
        }
    }

    /// A write of blocks of the file system.
    pub fn write(mount: u16, sector: u64, sectors: u32, role: BlockRole, cause: IoCause) -> Self {
        let class = if role.in_journal() { FileClass::FilesystemJournal } else { FileClass::Metadata };
        Self {
            op: Op::Write,
            flags: if role.in_journal() {
                RequestFlags::SYNC | RequestFlags::META | RequestFlags::JOURNAL
            } else {
                RequestFlags::META
            },
            class,
            note: Some(BlockNote::new(role, sectors)),
            ..Self::read(mount, sector, sectors, cause)
        }
    }

    /// A flush of the device's cache.
    pub fn flush(mount: u16, cause: IoCause) -> Self {
        let read = Self::read(mount, 0, 0, cause);
        Self { op: Op::Flush, flags: RequestFlags::SYNC, ..read }
    }

    /// Discards sectors that are no longer needed.
    pub fn discard(mount: u16, sector: u64, sectors: u32, cause: IoCause) -> Self {
        let read = Self::read(mount, sector, sectors, cause);
        Self { op: Op::Discard, flags: RequestFlags::empty(), ..read }
    }
}

#[derive(Debug)]
struct Bio {
    pub submitted: BioRequest,
    pub generation: u32,
    pub waiters: Vec<TaskId>,
    pub request: u32,
    /// Index of the next bio in the request.
    pub next: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An elevator that contains `others` asynchronous requests, numbered from 0.
    fn elevator(kind: ElevatorKind, others: u32) -> ElevatorQueue {
        let mut elevator = ElevatorQueue::new(kind);
        (0..others).for_each(|request| elevator.insert(waiting(request, false)));
        elevator
    }

    fn waiting(request: u32, sync: bool) -> WaitingRequest {
        let sector = u64::from(request) * 8;
        let id = BlockRequestId(request.into());
        WaitingRequest { request, id, sector, end: sector + 8, read: sync, sync }
    }

    #[test]
    fn cfq_ends_a_batch_of_write_back_when_a_sync_request_comes() {
        for (kind, next) in [(ElevatorKind::Cfq, 100), (ElevatorKind::Deadline, 1)] {
            let mut elevator = elevator(kind, 40);
            assert_eq!(elevator.take(), Some(0));
            elevator.insert(waiting(100, true));
            assert_eq!(elevator.take(), Some(next), "{kind:?}");
        }
    }

    #[test]
    fn no_kind_of_request_starves() {
        for kind in [ElevatorKind::Cfq, ElevatorKind::Deadline] {
            let mut elevator = elevator(kind, 4);
            let mut taken = Vec::new();
            for request in 100..300 {
                elevator.insert(waiting(request, true));
                taken.extend(elevator.take());
            }
            assert!((0..4).all(|other| taken.contains(&other)), "{kind:?}: {taken:?}");
        }
    }
}
