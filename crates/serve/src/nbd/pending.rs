//! Requests that are not complete: the reply to which each part belongs, and the memory that the parts hold.

use std::mem::take;
use std::os::fd::OwnedFd;

use emmclab_base::SECTOR_BYTES;

use super::budget::NbdMemoryShare;
use super::output::NbdOutputQueue;
use super::request::{NbdCommand, NbdRequestHeader};
use super::wire::{MAX_PAYLOAD, NbdError};
use crate::device::ServedCompletion;

/// Maximum number of bytes that a connection's requests and unsent replies hold, if other clients leave room for it (`budget`). A single
/// request may hold more.
const BUDGET: usize = MAX_PAYLOAD as usize;
/// Memory of a part of a request, in addition to its data, in bytes.
const OVERHEAD: usize = 128;

/// A request that is not answered yet.
struct PendingNbdRequest {
    cookie: u64,
    offset: u64,
    /// Length in bytes.
    length: u64,
    /// Length of each part except the last, in bytes.
    part: u64,
    /// Number of incomplete parts, whether they were passed to the device or not.
    remaining_parts: u32,
    error: Option<NbdError>,
    reply: NbdReplyForm,
}

/// The form of the reply.
enum NbdReplyForm {
    /// A reply without data.
    Status {
        /// Whether the request itself has data.
        carries_data: bool,
    },
    /// Each part is sent when it is complete.
    Chunks,
    /// All parts are sent together.
    Whole(Vec<Vec<u8>>),
}

/// The incomplete requests of one connection, and its replies.
pub(super) struct PendingNbdRequests {
    requests: Vec<Option<PendingNbdRequest>>,
    free: Vec<u32>,
    /// Number of parts in the device.
    outstanding: usize,
    /// Bytes held by parts in the device, and by completed parts that are sent together.
    held_bytes: usize,
    /// Bytes that are reserved and not held yet.
    reserved_bytes: usize,
    share: NbdMemoryShare,
    structured: bool,
    pub output: NbdOutputQueue,
}

impl PendingNbdRequest {
    /// Length of a part in bytes.
    fn part_length(&self, index: u32) -> u64 {
        self.part.min(self.length.saturating_sub(u64::from(index) * self.part))
    }

    /// Bytes that a part holds while it is in the device.
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

    /// Bytes that are held by requests and replies.
    pub fn used(&self) -> usize {
        self.held_bytes + self.output.bytes()
    }

    /// Reserves `bytes` for the next request, and returns whether there is room. A request of any length is possible if nothing else is
    /// held, but it waits until other clients leave room for it.
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

    /// Returns the memory that is no longer needed to the other clients.
    fn give_back(&mut self) {
        self.share.shrink_to(self.used() + self.reserved_bytes);
    }

    /// Writes as much as the socket accepts, with one system call. Returns whether it is worth calling again.
    pub fn send(&mut self, socket: &OwnedFd) -> bool {
        let more = self.output.send(socket);
        self.give_back();
        more
    }

    /// Drops all replies, and all later ones.
    pub fn break_off(&mut self) {
        self.output.break_off();
        self.reserved_bytes = 0;
        self.give_back();
    }

    /// Whether parts of requests are in the device.
    pub fn is_busy(&self) -> bool {
        self.outstanding > 0
    }

    pub fn set_structured(&mut self, structured: bool) {
        self.structured = structured;
    }

    /// Answers a request that is not passed to the device.
    pub fn answer(&mut self, cookie: u64, outcome: Result<(), NbdError>) {
        match outcome {
            Ok(()) => self.output.push_simple_reply(cookie, 0),
            Err(error) => self.output.error(cookie, error, self.structured),
        }
    }

    /// Adds a request of `parts` parts of `part` bytes; returns its slot.
    pub fn enter(&mut self, header: &NbdRequestHeader, command: NbdCommand, part: u64, parts: u32) -> u32 {
        let reply = match command {
            NbdCommand::Read { unfragmented: false } => NbdReplyForm::Chunks,
            NbdCommand::Read { unfragmented: true } => NbdReplyForm::Whole(Vec::new()),
            NbdCommand::Write { .. } => NbdReplyForm::Status { carries_data: true },
            _ => NbdReplyForm::Status { carries_data: false },
        };
        let (offset, length) = (header.offset, u64::from(header.length));
        let pending = PendingNbdRequest {
            cookie: header.cookie,
            offset,
            length,
            part,
            remaining_parts: parts,
            error: None,
            reply,
        };
        if let Some(slot) = self.free.pop() {
            self.requests[slot as usize] = Some(pending);
            return slot;
        }
        self.requests.push(Some(pending));
        (self.requests.len() - 1) as u32
    }

    /// Records that a part is passed to the device; returns its tag.
    pub fn issue(&mut self, slot: u32, part: u32) -> u64 {
        if let Some(pending) = self.requests.get(slot as usize).and_then(Option::as_ref) {
            self.held_bytes += pending.holds(part);
            self.reserved_bytes = self.reserved_bytes.saturating_sub(pending.holds(part));
            self.outstanding += 1;
        }
        u64::from(part) << 32 | u64::from(slot)
    }

    /// Processes the completion of a part; queues the replies that are now possible.
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
            _ => Err(NbdError::io("the device read a length that differs from the request")),
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

    /// Answers a request after all of its parts are complete.
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
            // The chunk of the last part has ended the reply.
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
