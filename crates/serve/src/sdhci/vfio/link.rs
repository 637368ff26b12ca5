//! The socket to the client: sends and receives whole messages with their files, and can be woken while it waits.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};

use super::message::{HEADER_BYTES, MOST_PAYLOAD, VfioHeader, VfioMessage};

/// Maximum number of files in one message; more end the connection.
const MOST_FILES: usize = 16;

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sdhci) enum ConnectionLoss {
    /// The client closed it.
    Closed,
    /// The export was stopped.
    Stopped,
    /// The client violated the protocol, or a system call failed.
    Fault(String),
}

impl From<Errno> for ConnectionLoss {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            _ => Self::Fault(errno.to_string()),
        }
    }
}

/// Wakes the thread of the export, because there are completions or because it is stopped.
pub(in crate::sdhci) struct ExportWaker {
    event: OwnedFd,
    stop: AtomicBool,
}

impl ExportWaker {
    pub fn new() -> rustix::io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, stop: AtomicBool::new(false) })
    }

    /// Wakes the thread. It is also woken if the counter is at its maximum.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Waits until one of the files is ready; continues after a signal.
pub(super) fn wait(files: &mut [PollFd<'_>]) -> rustix::io::Result<()> {
    loop {
        match poll(files, None) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// A connection.
pub(in crate::sdhci) struct VfioLink<'a> {
    socket: OwnedFd,
    wake: &'a ExportWaker,
}

impl<'a> VfioLink<'a> {
    /// A connection over a non-blocking socket.
    pub fn new(socket: OwnedFd, wake: &'a ExportWaker) -> Self {
        Self { socket, wake }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn wake(&self) -> &'a ExportWaker {
        self.wake
    }

    /// Waits in the middle of a message. Completions that arrive meanwhile are processed after the message.
    fn wait(&self, flags: PollFlags) -> Result<(), ConnectionLoss> {
        loop {
            if self.wake.stopped() {
                return Err(ConnectionLoss::Stopped);
            }
            let mut files =
                [PollFd::new(&self.socket, flags), PollFd::from_borrowed_fd(self.wake.event(), PollFlags::IN)];
            wait(&mut files)?;
            let [socket, wake] = files.map(|file| !file.revents().is_empty());
            if socket {
                return Ok(());
            }
            if wake {
                self.wake.clear();
            }
        }
    }

    fn fill(&self, mut into: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<(), ConnectionLoss> {
        let started = into.len();
        while !into.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let outcome = recvmsg(&self.socket, &mut [IoSliceMut::new(into)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
            match outcome {
                Ok(received) => {
                    for message in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(rights) = message {
                            files.extend(rights);
                        }
                    }
                    if files.len() > MOST_FILES {
                        return Err(ConnectionLoss::Fault("too many files in a message".to_owned()));
                    }
                    if received.bytes == 0 {
                        let whole = into.len() == started;
                        return Err(if whole {
                            ConnectionLoss::Closed
                        } else {
                            ConnectionLoss::Fault("a message ended early".to_owned())
                        });
                    }
                    into = &mut into[received.bytes..];
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Receives the next message.
    pub fn receive(&mut self) -> Result<VfioMessage, ConnectionLoss> {
        let mut header = [0; HEADER_BYTES];
        let mut files = Vec::new();
        self.fill(&mut header, &mut files)?;
        let header = VfioHeader::decode(&header);
        let bytes = (header.bytes as usize).checked_sub(HEADER_BYTES).filter(|bytes| *bytes <= MOST_PAYLOAD);
        let Some(bytes) = bytes else {
            return Err(ConnectionLoss::Fault(format!("a message of {} bytes", header.bytes)));
        };
        let mut payload = vec![0; bytes];
        self.fill(&mut payload, &mut files)?;
        Ok(VfioMessage { header, payload, files })
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), ConnectionLoss> {
        let mut rest = message;
        while !rest.is_empty() {
            let mut ancillary = SendAncillaryBuffer::default();
            match sendmsg(&self.socket, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
