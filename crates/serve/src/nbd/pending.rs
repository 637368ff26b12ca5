//! Requests in progress: the reply to which each part of a request belongs, and the memory that the requests use.
//!
//! The clients of a server share its memory. Each client has a private part; the rest is common to all clients and is assigned in the order
//! of the requests for it. What a client uses beyond its private part comes from the common part. If the common part is too small for it,
//! the client waits in a queue, and only the first client in the queue gets memory. Thus short requests, which fit into the private part,
//! never wait for other clients, and long requests wait until the clients before them have read their replies.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrayvec::ArrayVec;
use emmclab_base::SECTOR_BYTES;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::request_parser::{NbdCommand, NbdRequestHeader};
use super::wire::{
    MAX_PAYLOAD, NbdError, OPTION_REPLY_MAGIC, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, errno,
};
use crate::device::ServedCompletion;
use crate::waker::ThreadWaker;

/// Maximum number of bytes for the requests and unsent replies of a connection. Less is available if other clients use the shared memory
/// (see `budget`). A single request may exceed this limit.
const BUDGET: usize = MAX_PAYLOAD as usize;
/// Memory for a part of a request in addition to its data, in bytes.
const OVERHEAD: usize = 128;

/// A request that is not answered yet.
struct PendingNbdRequest {
    cookie: u64,
    offset: u64,
    /// Length of the request in bytes.
    length: u64,
    /// Length of each part except the last, in bytes.
    part: u64,
    /// Number of parts of the request that are incomplete, including those not passed to the device yet.
    remaining_parts: u32,
    error: Option<NbdError>,
    reply: NbdReplyForm,
}

enum NbdReplyForm {
    /// A reply without data.
    Status {
        /// Whether the request itself contains data.
        carries_data: bool,
    },
    /// The data of each part is sent when the part is complete.
    Chunks,
    /// The data of all parts is sent together when the last part is complete.
    Whole(Vec<Vec<u8>>),
}

/// The incomplete requests of one connection, and its replies.
pub(super) struct PendingNbdRequests {
    requests: Vec<Option<PendingNbdRequest>>,
    free: Vec<u32>,
    /// Number of request parts that are in the device.
    outstanding: usize,
    /// Bytes of the request parts that the device is executing, and of completed parts that are kept until they can be sent together.
    held_bytes: usize,
    /// Bytes that are reserved but not used yet.
    reserved_bytes: usize,
    share: NbdMemoryShare,
    /// Whether replies are structured.
    pub structured: bool,
    pub output: NbdOutputQueue,
}

impl PendingNbdRequest {
    fn part_length(&self, index: u32) -> u64 {
        self.part.min(self.length.saturating_sub(u64::from(index) * self.part))
    }

    /// Returns the number of bytes of memory that the part `index` of the request uses until the device completes it.
    fn holds(&self, index: u32) -> usize {
        match self.reply {
            NbdReplyForm::Status { carries_data: false } => OVERHEAD,
            _ => OVERHEAD + self.part_length(index) as usize,
        }
    }
}

impl PendingNbdRequests {
    pub fn new(share: NbdMemoryShare) -> Self {
        Self {
            requests: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            held_bytes: 0,
            reserved_bytes: 0,
            share,
            structured: false,
            output: NbdOutputQueue::default(),
        }
    }

    /// Returns the bytes of memory that requests and replies of the connection use.
    pub fn used(&self) -> usize {
        self.held_bytes + self.output.bytes
    }

    /// Reserves `bytes` for the next request and returns whether this succeeded. A request of any length can succeed if no other
    /// memory is in use, but it waits until other clients leave enough memory.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let wanted = self.used() + bytes + OVERHEAD;
        self.reserved_bytes = 0;
        if (self.used() > 0 && wanted > BUDGET) || !self.share.take(wanted) {
            self.give_back();
            return false;
        }
        self.reserved_bytes = bytes + OVERHEAD;
        true
    }

    /// Gives the reserved memory that is not used back to the common part, from which other clients can take it.
    fn give_back(&mut self) {
        self.share.shrink_to(self.used() + self.reserved_bytes);
    }

    /// Writes as much as the socket accepts with one system call. Returns whether another call may write more.
    pub fn send(&mut self, socket: &OwnedFd) -> bool {
        let more = self.output.send(socket);
        self.give_back();
        more
    }

    /// Drops all current and later replies.
    pub fn break_off(&mut self) {
        self.output.break_off();
        self.reserved_bytes = 0;
        self.give_back();
    }

    /// Whether parts of requests are in the device.
    pub fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    /// Answers a request that is not passed to the device.
    pub fn answer(&mut self, cookie: u64, outcome: Result<(), NbdError>) {
        match outcome {
            Ok(()) => self.output.push_simple_reply(cookie, 0),
            Err(error) => self.output.error(cookie, error, self.structured),
        }
    }

    /// Adds a request that is divided into `parts` parts of `part` bytes. Returns its index in the list of pending requests.
    pub fn enter(&mut self, header: &NbdRequestHeader, command: NbdCommand, part: u64, parts: u32) -> u32 {
        let reply = match command {
            NbdCommand::Read { unfragmented: false } => NbdReplyForm::Chunks,
            NbdCommand::Read { unfragmented: true } => NbdReplyForm::Whole(Vec::new()),
            NbdCommand::Write { .. } => NbdReplyForm::Status { carries_data: true },
            _ => NbdReplyForm::Status { carries_data: false },
        };
        let (offset, length) = (header.offset, u64::from(header.length));
        let pending =
            PendingNbdRequest { cookie: header.cookie, offset, length, part, remaining_parts: parts, error: None, reply };
        if let Some(slot) = self.free.pop() {
            self.requests[slot as usize] = Some(pending);
            return slot;
        }
        self.requests.push(Some(pending));
        (self.requests.len() - 1) as u32
    }

    /// Records that a part was passed to the device; returns its tag.
    pub fn issue(&mut self, slot: u32, part: u32) -> u64 {
        if let Some(pending) = self.requests.get(slot as usize).and_then(Option::as_ref) {
            self.held_bytes += pending.holds(part);
            self.reserved_bytes = self.reserved_bytes.saturating_sub(pending.holds(part));
            self.outstanding += 1;
        }
        u64::from(part) << 32 | u64::from(slot)
    }

    /// Processes the completion of a part and queues the replies that it permits.
    pub fn complete(&mut self, completion: ServedCompletion) {
        let (slot, part) = (completion.tag as u32, (completion.tag >> 32) as u32);
        let Some(pending) = self.requests.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        self.outstanding -= 1;
        self.held_bytes -= pending.holds(part);
        pending.remaining_parts -= 1;
        let done = pending.remaining_parts == 0;
        let length = pending.part_length(part) as usize;
        let outcome = completion.outcome.map_err(NbdError::from).and_then(|data| match pending.reply {
            NbdReplyForm::Status { .. } => Ok(data),
            _ if data.len() == length => Ok(data),
            _ => Err(NbdError(errno::EIO, "the device read a length that differs from the request")),
        });
        match (outcome, &mut pending.reply) {
            (Err(error), _) => pending.error = pending.error.or(Some(error)),
            (Ok(_), NbdReplyForm::Status { .. }) => {}
            (Ok(data), NbdReplyForm::Chunks) => {
                let last = done && pending.error.is_none();
                let at = pending.offset + u64::from(part) * pending.part;
                self.output.sparse(pending.cookie, at, data, last);
            }
            (Ok(data), NbdReplyForm::Whole(parts)) => {
                let count = pending.length.div_ceil(pending.part) as usize;
                parts.resize_with(count, Vec::new);
                if let Some(place) = parts.get_mut(part as usize) {
                    self.held_bytes += data.len();
                    *place = data;
                }
            }
        }
        if done {
            self.finish(slot);
        }
    }

    /// Answers a request when all its parts are complete.
    fn finish(&mut self, slot: u32) {
        let Some(pending) = self.requests.get_mut(slot as usize).and_then(Option::take) else { return };
        self.free.push(slot);
        let cookie = pending.cookie;
        let mut reply = pending.reply;
        if let NbdReplyForm::Whole(parts) = &reply {
            self.held_bytes -= parts.iter().map(Vec::len).sum::<usize>();
        }
        match (pending.error, &mut reply) {
            (Some(error), _) => self.output.error(cookie, error, self.structured),
            (None, NbdReplyForm::Status { .. }) => self.output.push_simple_reply(cookie, 0),
            // The chunk of the last part has already ended the structured reply.
            (None, NbdReplyForm::Chunks) => {}
            (None, NbdReplyForm::Whole(parts)) if self.structured => {
                self.output.data(cookie, pending.offset, take(parts), true);
            }
            (None, NbdReplyForm::Whole(parts)) => {
                self.output.push_simple_reply(cookie, 0);
                for part in take(parts) {
                    self.output.push_data(part);
                }
            }
        }
    }
}

/// The number of parts of a request, with at most `part_sectors` sectors each.
pub(super) fn parts_of(header: &NbdRequestHeader, part_sectors: u32) -> u32 {
    (u64::from(header.length) / SECTOR_BYTES).div_ceil(u64::from(part_sectors)) as u32
}

/// Maximum length of data that is copied into the same buffer as its header, in bytes; longer data is not copied.
const COPIED: usize = 1024;
/// Capacity of an output buffer (piece) for headers and copied data, in bytes.
const PIECE: usize = 8192;
/// Maximum number of output buffers that one system call writes.
const SLICES: usize = 64;
/// Granularity of the holes in replies to reads, in bytes.
const HOLE: usize = 1 << 16;

/// A queue of bytes to be written to one socket.
#[derive(Default)]
pub(super) struct NbdOutputQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes of the first buffer that were already written.
    written: usize,
    /// Number of bytes in the queue.
    bytes: usize,
    /// Whether bytes can be appended to the last buffer.
    open: bool,
    /// An empty buffer for reuse.
    spare: Vec<u8>,
    /// Whether the socket has failed; then nothing is queued.
    pub broken: bool,
}

impl NbdOutputQueue {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Drops all queued bytes and all bytes that are queued later.
    pub fn break_off(&mut self) {
        *self = Self { broken: true, ..Self::default() };
    }

    /// Queues a copy of `bytes` for sending.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.broken || bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        let room = |last: &&mut Vec<u8>| self.open && last.len() + bytes.len() <= PIECE;
        if let Some(last) = self.pieces.back_mut().filter(room) {
            last.extend_from_slice(bytes);
            return;
        }
        let mut piece = std::mem::take(&mut self.spare);
        piece.reserve(PIECE.max(bytes.len()));
        piece.extend_from_slice(bytes);
        self.pieces.push_back(piece);
        self.open = true;
    }

    /// Queues data; long data is not copied.
    pub fn push_data(&mut self, data: Vec<u8>) {
        if data.len() <= COPIED {
            self.push(&data);
        } else if !self.broken {
            self.bytes += data.len();
            self.pieces.push_back(data);
            self.open = false;
        }
    }

    pub fn option_reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        self.push(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.push(&option.to_be_bytes());
        self.push(&kind.to_be_bytes());
        self.push(&(data.len() as u32).to_be_bytes());
        self.push(data);
    }

    /// Queues a simple reply; `error` is 0 for success.
    pub fn push_simple_reply(&mut self, cookie: u64, error: u32) {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        header[4..8].copy_from_slice(&error.to_be_bytes());
        header[8..].copy_from_slice(&cookie.to_be_bytes());
        self.push(&header);
    }

    /// Queues the header of a chunk of a structured reply.
    fn chunk(&mut self, cookie: u64, kind: u16, done: bool, length: usize) {
        let mut header = [0; 20];
        header[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&(if done { REPLY_FLAG_DONE } else { 0 }).to_be_bytes());
        header[6..8].copy_from_slice(&kind.to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..].copy_from_slice(&(length as u32).to_be_bytes());
        self.push(&header);
    }

    /// Queues the reply to a failed request; with structured replies it is a chunk with a message.
    pub fn error(&mut self, cookie: u64, error: NbdError, structured: bool) {
        if !structured {
            self.push_simple_reply(cookie, error.0);
            return;
        }
        let message = error.1.as_bytes();
        self.chunk(cookie, chunk::ERROR, true, 6 + message.len());
        self.push(&error.0.to_be_bytes());
        self.push(&(message.len() as u16).to_be_bytes());
        self.push(message);
    }

    /// Queues one chunk with the data of several consecutive parts.
    pub fn data(&mut self, cookie: u64, offset: u64, parts: Vec<Vec<u8>>, done: bool) {
        self.chunk(cookie, chunk::OFFSET_DATA, done, 8 + parts.iter().map(Vec::len).sum::<usize>());
        self.push(&offset.to_be_bytes());
        for part in parts {
            self.push_data(part);
        }
    }

    fn hole(&mut self, cookie: u64, offset: u64, length: usize, done: bool) {
        self.chunk(cookie, chunk::OFFSET_HOLE, done, 12);
        self.push(&offset.to_be_bytes());
        self.push(&(length as u32).to_be_bytes());
    }

    /// Queues chunks of data and holes. Data without a hole is not copied.
    pub fn sparse(&mut self, cookie: u64, offset: u64, data: Vec<u8>, done: bool) {
        if !data.chunks(HOLE).any(is_zero) {
            return self.data(cookie, offset, vec![data], done);
        }
        let (mut start, mut blocks) = (0, data.chunks(HOLE).map(is_zero).enumerate().peekable());
        while let Some((block, zero)) = blocks.next() {
            if blocks.peek().is_some_and(|(_, next)| *next == zero) {
                continue;
            }
            let end = ((block + 1) * HOLE).min(data.len());
            let (at, last) = (offset + start as u64, done && end == data.len());
            if zero {
                self.hole(cookie, at, end - start, last);
            } else {
                self.data(cookie, at, vec![data[start..end].to_vec()], last);
            }
            start = end;
        }
    }

    /// Queues the reply to a block status request for a context. Each extent is a length in bytes and its flags.
    pub fn block_status(&mut self, cookie: u64, context: u32, extents: &[(u32, u32)]) {
        self.chunk(cookie, chunk::BLOCK_STATUS, true, 4 + 8 * extents.len());
        self.push(&context.to_be_bytes());
        for (length, flags) in extents {
            self.push(&length.to_be_bytes());
            self.push(&flags.to_be_bytes());
        }
    }

    /// Writes as much as the socket accepts with one system call. Returns whether another call may write more.
    pub fn send(&mut self, socket: &OwnedFd) -> bool {
        if self.is_empty() {
            return false;
        }
        let first = self.written;
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let slices: ArrayVec<IoSlice, SLICES> = self
            .pieces
            .iter()
            .take(SLICES)
            .enumerate()
            .map(|(index, piece)| IoSlice::new(&piece[if index == 0 { first } else { 0 }..]))
            .collect();
        let sent = sendmsg(socket, &slices, &mut SendAncillaryBuffer::default(), flags);
        drop(slices);
        match sent {
            Ok(count) => self.advance(count),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => self.break_off(),
        }
        !self.is_empty()
    }

    /// Removes `count` bytes that were written to the socket from the front of the queue.
    fn advance(&mut self, count: usize) {
        self.bytes -= count;
        self.written += count;
        while let Some(first) = self.pieces.front().filter(|first| self.written >= first.len()) {
            self.written -= first.len();
            let mut piece = self.pieces.pop_front().unwrap_or_default();
            if piece.capacity() == PIECE {
                piece.clear();
                self.spare = piece;
            }
        }
        self.open &= !self.pieces.is_empty();
    }
}

fn is_zero(block: &[u8]) -> bool {
    let (words, rest) = block.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

/// Number of bytes that each client may use regardless of the other clients.
pub(super) const OWN: usize = 2 << 20;
/// Number of bytes that all clients share in addition to their private parts: eight times the maximum of a client.
const COMMON: usize = 256 << 20;

/// The part of a server's memory that is common to all clients. The private memory of each client is not included.
pub(super) struct NbdMemoryBudget(Mutex<NbdBudgetState>);

struct NbdBudgetState {
    free: usize,
    /// The clients that wait for memory, in the order in which they get it.
    waiting_clients: VecDeque<Arc<ThreadWaker>>,
}

/// The part of the common memory that one client uses. Dropping it returns the memory.
pub(super) struct NbdMemoryShare {
    budget: Arc<NbdMemoryBudget>,
    wake: Arc<ThreadWaker>,
    held_bytes: usize,
    waits: bool,
}

impl NbdMemoryBudget {
    pub fn new() -> Arc<Self> {
        Self::of(COMMON)
    }

    fn of(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(NbdBudgetState { free, waiting_clients: VecDeque::new() })))
    }

    fn lock_state(&self) -> MutexGuard<'_, NbdBudgetState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NbdBudgetState {
    /// Wakes the first client in the queue, which then tries to get memory again.
    fn call(&self) {
        if let Some(first) = self.waiting_clients.front() {
            first.wake();
        }
    }
}

impl NbdMemoryShare {
    pub fn new(budget: Arc<NbdMemoryBudget>, wake: Arc<ThreadWaker>) -> Self {
        Self { budget, wake, held_bytes: 0, waits: false }
    }

    /// Takes memory from the part that all clients share, until the client may use `bytes` bytes. If there is too little, returns false and
    /// adds the client to the queue. The client is woken later.
    pub fn take(&mut self, bytes: usize) -> bool {
        let missing = bytes.saturating_sub(OWN).saturating_sub(self.held_bytes);
        if missing == 0 {
            self.leave_queue();
            return true;
        }
        let mut common = self.budget.lock_state();
        let is_next = common.waiting_clients.front().is_none_or(|first| Arc::ptr_eq(first, &self.wake));
        if !is_next || common.free < missing {
            if !self.waits {
                common.waiting_clients.push_back(Arc::clone(&self.wake));
                self.waits = true;
            }
            return false;
        }
        common.free -= missing;
        self.held_bytes += missing;
        drop(common);
        self.leave_queue();
        true
    }

    /// Keeps the memory that the client needs for `bytes` bytes, and returns the rest to the memory that all clients share.
    pub fn shrink_to(&mut self, bytes: usize) {
        let excess = self.held_bytes.saturating_sub(bytes.saturating_sub(OWN));
        if excess > 0 {
            self.held_bytes -= excess;
            let mut common = self.budget.lock_state();
            common.free += excess;
            common.call();
        }
    }

    fn leave_queue(&mut self) {
        if std::mem::take(&mut self.waits) {
            let mut common = self.budget.lock_state();
            common.waiting_clients.retain(|waiting| !Arc::ptr_eq(waiting, &self.wake));
            common.call();
        }
    }
}

impl Drop for NbdMemoryShare {
    fn drop(&mut self) {
        self.leave_queue();
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;

    fn share(budget: &Arc<NbdMemoryBudget>) -> NbdMemoryShare {
        NbdMemoryShare::new(Arc::clone(budget), Arc::new(ThreadWaker::new().unwrap()))
    }

    fn is_woken(share: &NbdMemoryShare) -> bool {
        share.wake.clear()
    }

    #[test]
    fn a_client_holds_its_own_part_whatever_others_hold() {
        let budget = NbdMemoryBudget::of(10 * MB);
        let [mut greedy, mut modest] = [share(&budget), share(&budget)];
        assert!(greedy.take(OWN + 10 * MB));
        assert!(modest.take(OWN));
        assert!(!modest.take(OWN + 1));
        assert!(modest.take(OWN));
    }

    #[test]
    fn clients_beyond_the_budget_are_served_in_their_order_once_others_give_back() {
        let budget = NbdMemoryBudget::of(10 * MB);
        let [mut first, mut long, mut short] = [share(&budget), share(&budget), share(&budget)];
        assert!(first.take(OWN + 6 * MB));
        assert!(!long.take(OWN + 8 * MB));
        // There is memory for this short request. But if short requests were served first, the long request would wait forever.
        assert!(!short.take(OWN + MB));
        first.shrink_to(OWN + MB);
        assert!(is_woken(&long) && !is_woken(&short));
        assert!(long.take(OWN + 8 * MB));
        assert!(is_woken(&short));
        assert!(short.take(OWN + MB));
        assert!(!first.take(OWN + 2 * MB));
        drop(long);
        assert!(is_woken(&first));
        assert!(first.take(OWN + 2 * MB));
    }

    #[test]
    fn a_client_that_goes_while_it_waits_holds_up_nobody() {
        let budget = NbdMemoryBudget::of(4 * MB);
        let [mut holds, mut goes, mut stays] = [share(&budget), share(&budget), share(&budget)];
        assert!(holds.take(OWN + 2 * MB));
        assert!(!goes.take(OWN + 3 * MB) && !stays.take(OWN + MB));
        drop(goes);
        assert!(is_woken(&stays) && stays.take(OWN + MB));
        drop((holds, stays));
        assert_eq!(budget.lock_state().free, 4 * MB);
    }
}
