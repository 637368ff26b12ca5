//! Requests in the device: the reply to which each part belongs, and the memory that they hold.

use std::mem::take;
use std::os::fd::OwnedFd;

use emmclab_base::SECTOR_BYTES;

use super::budget::Share;
use super::output::Output;
use super::request::{Command, Header};
use super::wire::{MAX_PAYLOAD, ReplyError};
use crate::device::Completion;

/// Bytes that a connection's requests and unread replies may hold, as far as other clients leave room for it (`budget`); a single
/// request may hold more.
const BUDGET: usize = MAX_PAYLOAD as usize;
/// Memory of a part of a request beside its data, in bytes.
const OVERHEAD: usize = 128;

/// A request that is not answered yet.
struct PendingRequest {
    cookie: u64,
    offset: u64,
    /// Length in bytes.
    length: u64,
    /// Length of each part but the last, in bytes.
    part: u64,
    /// Parts that are not complete, whether the device has them already or not.
    left: u32,
    error: Option<ReplyError>,
    reply: Reply,
}

/// The form of the answer.
enum Reply {
    /// No data.
    Status {
        /// The request itself has data.
        carries_data: bool,
    },
    /// Each part is sent as it comes.
    Chunks,
    /// The parts are sent together.
    Whole(Vec<Vec<u8>>),
}

/// The requests of one connection that wait in and behind the device, and the replies for it.
pub(super) struct PendingRequests {
    requests: Vec<Option<PendingRequest>>,
    free: Vec<u32>,
    /// Parts that the device has.
    outstanding: usize,
    /// Bytes held by parts that the device has, and by parts of a whole answer.
    held: usize,
    /// Bytes for which room was found and which are not held yet.
    promised: usize,
    share: Share,
    structured: bool,
    pub output: Output,
}

impl PendingRequest {
    /// Length in bytes of a part.
    fn part_length(&self, index: u32) -> u64 {
        self.part.min(self.length.saturating_sub(u64::from(index) * self.part))
    }

    /// Bytes that a part holds while the device has it.
    fn holds(&self, index: u32) -> usize {
        match self.reply {
            Reply::Status { carries_data: false } => OVERHEAD,
            _ => OVERHEAD + self.part_length(index) as usize,
        }
    }
}

impl PendingRequests {
    pub fn new(share: Share) -> Self {
        Self {
            requests: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            held: 0,
            promised: 0,
            share,
            structured: false,
            output: Output::default(),
        }
    }

    /// Bytes that are held.
    pub fn used(&self) -> usize {
        self.held + self.output.bytes()
    }

    /// Whether `bytes` more may be held, which are then promised to the next request: nothing is ever too long where nothing else is
    /// held, but it waits until other clients leave room for it.
    pub fn has_room(&mut self, bytes: usize) -> bool {
        let wanted = self.used() + bytes + OVERHEAD;
        self.promised = 0;
        if (self.used() > 0 && wanted > BUDGET) || !self.share.take(wanted) {
            self.give_back();
            return false;
        }
        self.promised = bytes + OVERHEAD;
        true
    }

    /// Gives back to other clients the room that is no longer needed.
    fn give_back(&mut self) {
        self.share.keep(self.used() + self.promised);
    }

    /// Writes what the socket takes with one system call; whether it may take more.
    pub fn send(&mut self, socket: &OwnedFd) -> bool {
        let more = self.output.send(socket);
        self.give_back();
        more
    }

    /// Drops all replies, now and from now on.
    pub fn break_off(&mut self) {
        self.output.break_off();
        self.promised = 0;
        self.give_back();
    }

    /// Whether the device has parts of requests.
    pub fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    pub fn set_structured(&mut self, structured: bool) {
        self.structured = structured;
    }

    /// Answers a request that the device never sees.
    pub fn answer(&mut self, cookie: u64, outcome: Result<(), ReplyError>) {
        match outcome {
            Ok(()) => self.output.simple(cookie, 0),
            Err(error) => self.output.error(cookie, error, self.structured),
        }
    }

    /// Enters a request that comes in `parts` parts of `part` bytes; returns its number.
    pub fn enter(&mut self, header: &Header, command: Command, part: u64, parts: u32) -> u32 {
        let reply = match command {
            Command::Read { whole: false } => Reply::Chunks,
            Command::Read { whole: true } => Reply::Whole(Vec::new()),
            Command::Write { .. } => Reply::Status { carries_data: true },
            _ => Reply::Status { carries_data: false },
        };
        let (offset, length) = (header.offset, u64::from(header.length));
        let pending =
            PendingRequest { cookie: header.cookie, offset, length, part, left: parts, error: None, reply };
        if let Some(slot) = self.free.pop() {
            self.requests[slot as usize] = Some(pending);
            return slot;
        }
        self.requests.push(Some(pending));
        (self.requests.len() - 1) as u32
    }

    /// Notes that a part goes to the device; returns its tag.
    pub fn issue(&mut self, slot: u32, part: u32) -> u64 {
        if let Some(pending) = self.requests.get(slot as usize).and_then(Option::as_ref) {
            self.held += pending.holds(part);
            self.promised = self.promised.saturating_sub(pending.holds(part));
            self.outstanding += 1;
        }
        u64::from(part) << 32 | u64::from(slot)
    }

    /// Takes the completion of a part; queues what it allows to be answered.
    pub fn complete(&mut self, completion: Completion) {
        let (slot, part) = (completion.tag as u32, (completion.tag >> 32) as u32);
        let Some(pending) = self.requests.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        self.outstanding -= 1;
        self.held -= pending.holds(part);
        pending.left -= 1;
        let done = pending.left == 0;
        let length = pending.part_length(part) as usize;
        let outcome = completion.outcome.map_err(ReplyError::from).and_then(|data| match pending.reply {
            Reply::Status { .. } => Ok(data),
            _ if data.len() == length => Ok(data),
            _ => Err(ReplyError::io("the device read another length than it was asked for")),
        });
        match (outcome, &mut pending.reply) {
            (Err(error), _) => pending.error = pending.error.or(Some(error)),
            (Ok(_), Reply::Status { .. }) => {}
            (Ok(data), Reply::Chunks) => {
                let last = done && pending.error.is_none();
                let at = pending.offset + u64::from(part) * pending.part;
                self.output.sparse(pending.cookie, at, data, last);
            }
            (Ok(data), Reply::Whole(parts)) => {
                let count = pending.length.div_ceil(pending.part) as usize;
                parts.resize_with(count, Vec::new);
                if let Some(place) = parts.get_mut(part as usize) {
                    self.held += data.len();
                    *place = data;
                }
            }
        }
        if done {
            self.finish(slot);
        }
    }

    /// Answers a request whose parts are all complete.
    fn finish(&mut self, slot: u32) {
        let Some(pending) = self.requests.get_mut(slot as usize).and_then(Option::take) else { return };
        self.free.push(slot);
        let cookie = pending.cookie;
        let mut reply = pending.reply;
        if let Reply::Whole(parts) = &reply {
            self.held -= parts.iter().map(Vec::len).sum::<usize>();
        }
        match (pending.error, &mut reply) {
            (Some(error), _) => self.output.error(cookie, error, self.structured),
            (None, Reply::Status { .. }) => self.output.simple(cookie, 0),
            // The last part's chunk ended the reply.
            (None, Reply::Chunks) => {}
            (None, Reply::Whole(parts)) if self.structured => {
                self.output.data(cookie, pending.offset, take(parts), true);
            }
            (None, Reply::Whole(parts)) => {
                self.output.simple(cookie, 0);
                for part in take(parts) {
                    self.output.push_data(part);
                }
            }
        }
    }
}

/// The number of parts of a request whose parts have `part` sectors at most.
pub(super) fn parts_of(header: &Header, part_sectors: u32) -> u32 {
    (u64::from(header.length) / SECTOR_BYTES).div_ceil(u64::from(part_sectors)) as u32
}
