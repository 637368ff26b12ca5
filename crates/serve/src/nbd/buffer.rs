//! Received bytes that are not parsed yet.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, recv};

/// Capacity in bytes: 32 writes of 4 KB at once, and more than the longest option.
pub(super) const CAPACITY: usize = 256 << 10;

/// A buffer of received bytes.
pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub fn new() -> Self {
        Self { bytes: vec![0; CAPACITY], start: 0, end: 0 }
    }

    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves up to `count` bytes to the end of `data`; returns their number.
    pub fn take_into(&mut self, data: &mut Vec<u8>, count: usize) -> usize {
        let filled = self.filled();
        let count = count.min(filled.len());
        data.extend_from_slice(&filled[..count]);
        self.consume(count);
        count
    }

    /// Receives once without blocking. Returns the number of bytes; 0 at the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN` if nothing has arrived; other errors of the socket.
    pub fn receive(&mut self, socket: &OwnedFd) -> Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let (count, _) = retry(|| recv(socket, &mut self.bytes[self.end..], RecvFlags::DONTWAIT))?;
        self.end += count;
        Ok(count)
    }

    /// Receives once, without blocking, and appends to `data`, which is to have `wanted` bytes in all. This buffer must be empty.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub fn receive_behind(&mut self, socket: &OwnedFd, data: &mut Vec<u8>, wanted: usize) -> Result<usize> {
        data.reserve_exact(wanted - data.len());
        let (count, _) = retry(|| recv(socket, spare_capacity(data), RecvFlags::DONTWAIT))?;
        // A vector may have a larger capacity than was requested.
        let excess = data.len().saturating_sub(wanted);
        if excess > 0 {
            self.bytes.splice(..excess.min(self.bytes.len()), data.drain(wanted..));
            (self.start, self.end) = (0, excess);
        }
        Ok(count)
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
