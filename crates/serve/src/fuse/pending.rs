//! Requests of the kernel that the device has not completed: the pending replies, found by the tags of their parts.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use crate::device::{BlockDevice, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};

/// The reply that a request waits for.
pub(super) enum FuseReply {
    /// Replies with the bytes `skip..skip + bytes` of the data that was read.
    Read { reply: ReplyData, skip: usize, bytes: usize },
    /// Replies that this number of bytes was written.
    Write { reply: ReplyWrite, bytes: u32 },
    /// Replies with success, without data.
    Done(ReplyEmpty),
    /// Passes the result to a waiting thread.
    Waiter(Sender<Result<Vec<u8>, RequestFailure>>),
}

/// A request that was split into parts of at most the device's maximum length.
struct SplitFuseRequest {
    answer: FuseReply,
    parts_left: usize,
    /// The data that was read so far; each part is copied to its position.
    data: Vec<u8>,
    /// Bytes of each part except the last.
    part_bytes: usize,
    failure: Option<RequestFailure>,
}

#[derive(Default)]
struct PendingReplyTable {
    next: u32,
    waiting: HashMap<u32, SplitFuseRequest>,
    closed: bool,
}

/// Replies that wait for completions.
#[derive(Default)]
pub(super) struct PendingFuseReplies(Mutex<PendingReplyTable>);

fn errno(failure: RequestFailure) -> Errno {
    match failure {
        RequestFailure::Invalid => Errno::EINVAL,
        RequestFailure::NoSpace => Errno::ENOSPC,
        RequestFailure::Io => Errno::EIO,
        RequestFailure::ReadOnly => Errno::EROFS,
    }
}

impl FuseReply {
    /// Sends the reply.
    pub(super) fn send(self, outcome: Result<Vec<u8>, RequestFailure>) {
        match (self, outcome) {
            (Self::Waiter(sender), outcome) => drop(sender.send(outcome)),
            (Self::Read { reply, skip, bytes }, Ok(data)) => match data.get(skip..skip + bytes) {
                Some(data) => reply.data(data),
                None => reply.error(Errno::EIO),
            },
            (Self::Write { reply, bytes }, Ok(_)) => reply.written(bytes),
            (Self::Done(reply), Ok(_)) => reply.ok(),
            (Self::Read { reply, .. }, Err(failure)) => reply.error(errno(failure)),
            (Self::Write { reply, .. }, Err(failure)) => reply.error(errno(failure)),
            (Self::Done(reply), Err(failure)) => reply.error(errno(failure)),
        }
    }
}

impl SplitFuseRequest {
    fn take(&mut self, part: usize, outcome: Result<Vec<u8>, RequestFailure>) {
        self.parts_left = self.parts_left.saturating_sub(1);
        match outcome {
            Err(failure) => self.failure = self.failure.or(Some(failure)),
            // The common case: one part, whose data need not be copied.
            Ok(data) if part == 0 && self.parts_left == 0 && self.data.is_empty() => self.data = data,
            // Only reads have data. A discard of gigabytes has many parts without data.
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                let at = part * self.part_bytes;
                self.data.resize(self.data.len().max(at + data.len()), 0);
                self.data[at..at + data.len()].copy_from_slice(&data);
            }
        }
    }
}

impl PendingFuseReplies {
    fn table(&self) -> MutexGuard<'_, PendingReplyTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the parts of one request to the device; the reply is sent when all parts are complete. `part_sectors` is the length of each
    /// part except the last.
    pub(super) fn submit(
        self: &Arc<Self>,
        device: &dyn BlockDevice,
        answer: FuseReply,
        mut parts: Vec<ServedRequest>,
        part_sectors: u32,
    ) {
        let part_bytes = part_sectors as usize * crate::SECTOR;
        let waiting = SplitFuseRequest { answer, parts_left: parts.len(), data: Vec::new(), part_bytes, failure: None };
        {
            let mut table = self.table();
            if table.closed {
                drop(table);
                return waiting.answer.send(Err(RequestFailure::Io));
            }
            let id = table.next;
            table.next = id.wrapping_add(1);
            for (index, part) in parts.iter_mut().enumerate() {
                part.tag = u64::from(id) << 32 | index as u64;
            }
            table.waiting.insert(id, waiting);
        }
        let completions: Arc<dyn CompletionReceiver> = Arc::<Self>::clone(self);
        device.submit(&mut parts, &completions);
    }

    /// Fails all pending and all later requests with EIO.
    pub(super) fn close(&self) {
        let waiting = {
            let mut table = self.table();
            table.closed = true;
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            waiting.answer.send(Err(RequestFailure::Io));
        }
    }
}

impl CompletionReceiver for PendingFuseReplies {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let mut finished = Vec::with_capacity(completed.len());
        {
            let mut table = self.table();
            for ServedCompletion { tag, outcome } in completed.drain(..) {
                let id = (tag >> 32) as u32;
                let Some(waiting) = table.waiting.get_mut(&id) else { continue };
                waiting.take((tag & u64::from(u32::MAX)) as usize, outcome);
                if waiting.parts_left == 0 {
                    finished.extend(table.waiting.remove(&id));
                }
            }
        }
        for SplitFuseRequest { answer, data, failure, .. } in finished {
            answer.send(failure.map_or(Ok(data), Err));
        }
    }
}
