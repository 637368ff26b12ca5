//! Replies to a client: a queue that is written with as few system calls as possible.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::wire::{NbdError, OPTION_REPLY_MAGIC, REPLY_FLAG_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// Data up to this length in bytes is copied into the piece of its header.
const COPIED: usize = 1024;
/// Capacity of a piece for headers and copied data, in bytes.
const PIECE: usize = 8192;
/// Maximum number of pieces that one system call writes.
const SLICES: usize = 64;
/// Granularity of the holes in reads, in bytes.
const HOLE: usize = 1 << 16;

/// A queue of bytes for one socket.
#[derive(Default)]
pub(super) struct NbdOutputQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that were already written.
    written: usize,
    /// Bytes in the queue.
    bytes: usize,
    /// Whether more can be appended to the last piece.
    open: bool,
    /// An empty piece for reuse.
    spare: Vec<u8>,
    /// Whether the socket has failed; nothing is queued any more then.
    broken: bool,
}

impl NbdOutputQueue {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Drops all queued bytes, and all that are pushed later.
    pub fn break_off(&mut self) {
        *self = Self { broken: true, ..Self::default() };
    }

    /// Queues a copy of bytes.
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

    /// Queues a reply to an option.
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
            self.push_simple_reply(cookie, error.code);
            return;
        }
        let message = error.message.as_bytes();
        self.chunk(cookie, chunk::ERROR, true, 6 + message.len());
        self.push(&error.code.to_be_bytes());
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

    /// Queues chunks of data and of holes. Data without any hole is not copied.
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

    /// Queues the reply to a block status request: the context and its extents, each a length in bytes and flags.
    pub fn block_status(&mut self, cookie: u64, context: u32, extents: &[(u32, u32)]) {
        self.chunk(cookie, chunk::BLOCK_STATUS, true, 4 + 8 * extents.len());
        self.push(&context.to_be_bytes());
        for (length, flags) in extents {
            self.push(&length.to_be_bytes());
            self.push(&flags.to_be_bytes());
        }
    }

    /// Writes as much as the socket accepts, with one system call. Returns whether it is worth calling again.
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

    /// Removes written bytes from the front.
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
