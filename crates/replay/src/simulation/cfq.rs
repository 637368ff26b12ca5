//! The scheduler CFQ of the host's block layer (`block/cfq-iosched.c` of Linux up to 5.0), for the requests of fio's threads.
//!
//! Each thread has a queue, from which requests are taken in the order of their addresses, from the last one upwards and then from the lowest.
//! A queue is served until its slice of time ends or nothing waits in it; then it is the turn of the next thread. While several threads have
//! waiting requests, a thread has at most [`QUANTUM`] requests at the device. A request that cannot be allocated blocks its thread. As on
//! Android, no time is spent waiting for a thread whose queue is empty (`slice_idle` 0). Merging, `ioprio` and the expiry of requests
//! (`fifo_expire`) are not modelled.

use std::collections::{BTreeMap, VecDeque};

use emmclab_trace::{Nanos, Request};

/// Requests of a thread at the device while others wait (`cfq_quantum`).
const QUANTUM: usize = 8;
/// Slice of a thread (`cfq_slice_sync`), and the time in which every thread should get one (`cfq_target_latency`), which shortens it.
const SLICE: Nanos = Nanos(100_000_000);
const TARGET_LATENCY: Nanos = Nanos(300_000_000);

/// The queue of a thread.
#[derive(Clone, Debug, Default)]
struct ThreadQueue {
    /// Waiting requests by first sector and slot.
    waiting: BTreeMap<(u64, u32), Request>,
    /// Number of requests at the device.
    sent: usize,
    /// Sector from which the order continues.
    position: u64,
}

/// The queues of all threads.
#[derive(Debug)]
pub(super) struct CfqQueues {
    threads: Vec<ThreadQueue>,
    /// The thread that is served, and the end of its slice.
    active: usize,
    slice_end: Nanos,
    /// Maximum number of allocated requests (`nr_requests`), and how many there are.
    limit: usize,
    allocated: usize,
    /// Maximum number of requests at the device, and how many there are.
    depth: usize,
    sent: usize,
    /// Threads that wait for a request, in the order of their arrival.
    pub blocked: VecDeque<u32>,
}

impl CfqQueues {
    /// Creates the queues for a device that accepts `depth` commands at once.
    pub fn new(limit: u32, depth: u32) -> Self {
        // The driver of an eMMC without a command queue prepares the next request while the device executes one.
        let depth = depth.max(2) as usize;
        Self {
            threads: Vec::new(),
            active: 0,
            slice_end: Nanos::ZERO,
            limit: limit as usize,
            allocated: 0,
            depth,
            sent: 0,
            blocked: VecDeque::new(),
        }
    }

    /// Allocates a request for a thread. Returns false if the thread must wait, for its turn or for a completion.
    pub fn allocate(&mut self, thread: u32) -> bool {
        if !self.has_room() || self.blocked.front().is_some_and(|first| *first != thread) {
            if !self.blocked.contains(&thread) {
                self.blocked.push_back(thread);
            }
            return false;
        }
        self.blocked.pop_front();
        self.allocated += 1;
        true
    }

    /// Whether a request can be allocated.
    pub fn has_room(&self) -> bool {
        self.allocated < self.limit
    }

    /// Adds an allocated request.
    pub fn push(&mut self, thread: u32, slot: u32, request: Request) {
        let thread = thread as usize;
        if self.threads.len() <= thread {
            self.threads.resize_with(thread + 1, ThreadQueue::default);
        }
        self.threads[thread].waiting.insert((request.sector.0, slot), request);
    }

    /// Returns the next request for the device, with its slot; `None` if nothing may be sent before a completion.
    pub fn next(&mut self, now: Nanos) -> Option<(u32, Request)> {
        let busy = self.threads.iter().filter(|thread| !thread.waiting.is_empty()).count();
        if busy == 0 || self.sent >= self.depth {
            return None;
        }
        if now >= self.slice_end || self.threads[self.active].waiting.is_empty() {
            let count = self.threads.len();
            let mut others = (1..=count).map(|step| (self.active + step) % count);
            self.active = others.find(|thread| !self.threads[*thread].waiting.is_empty())?;
            self.slice_end = now + SLICE.min(Nanos(TARGET_LATENCY.0 / busy as i64));
        }
        let thread = &mut self.threads[self.active];
        if busy > 1 && thread.sent >= QUANTUM {
            return None;
        }
        let ahead = thread.waiting.range((thread.position, 0)..).next();
        let key = *ahead.or_else(|| thread.waiting.iter().next())?.0;
        let request = thread.waiting.remove(&key)?;
        thread.position = key.0;
        thread.sent += 1;
        self.sent += 1;
        Some((key.1, request))
    }

    /// Frees a request that is complete.
    pub fn complete(&mut self, thread: u32) {
        self.threads[thread as usize].sent -= 1;
        self.sent -= 1;
        self.allocated -= 1;
    }
}
