//! vfio-user: messages and files that are exchanged with a virtual machine over a unix socket, and the memory of the guest, which
//! the virtual machine shares.
//!
//! The protocol is QEMU's `interop/vfio-user`, version 0.0. This is a separate implementation, because a server must end on
//! request, survive malformed messages, and handle guest memory that is not shared. A message has a header of 16 bytes and a
//! payload, in the byte order of the host. The protocol also has messages to access memory that is not shared. They are not used,
//! because QEMU cannot answer them while a guest CPU waits for a register access, which is most of the time (tested with 11.1).

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fstat;
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};

use super::controller::{GuestMemory, UnmappedAccess};
use crate::waker::ThreadWaker;

/// Maximum number of files in one message; more end the connection.
const MOST_FILES: usize = 16;

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionLoss {
    /// The client closed the connection.
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

/// Waits until one of the files is ready; continues after a signal.
pub(super) fn wait(files: &mut [PollFd<'_>]) -> rustix::io::Result<()> {
    loop {
        match poll(files, None) {
            Err(Errno::INTR) => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// A connection over a non-blocking socket.
pub(super) struct VfioLink<'a> {
    pub socket: OwnedFd,
    pub wake: &'a ThreadWaker,
}

impl VfioLink<'_> {
    /// Waits until the socket is ready to continue an incomplete message. Completions that arrive during this time are processed after the
    /// message.
    fn wait(&self, flags: PollFlags) -> Result<(), ConnectionLoss> {
        loop {
            if self.wake.is_stopping() {
                return Err(ConnectionLoss::Stopped);
            }
            let mut files = [PollFd::new(&self.socket, flags), PollFd::new(&self.wake.event, PollFlags::IN)];
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

pub(super) const HEADER_BYTES: usize = 16;
/// Maximum number of bytes in an access to a region or to memory, as negotiated with the client.
pub(super) const MOST_DATA: usize = 1 << 20;
/// Maximum length of an accepted payload.
pub(super) const MOST_PAYLOAD: usize = MOST_DATA + 64;

pub(super) mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_INFO: u16 = 4;
    pub const REGION_INFO: u16 = 5;
    pub const IRQ_INFO: u16 = 7;
    pub const SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

const REPLY: u32 = 1;
const TYPE: u32 = 0xf;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VfioHeader {
    pub id: u16,
    pub command: u16,
    /// Length of the whole message in bytes.
    pub bytes: u32,
    flags: u32,
}

impl VfioHeader {
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut fields = VfioFieldReader(bytes);
        Self {
            id: fields.u16().unwrap_or(0),
            command: fields.u16().unwrap_or(0),
            bytes: fields.u32().unwrap_or(0),
            flags: fields.u32().unwrap_or(0),
        }
    }

    pub fn is_reply(&self) -> bool {
        self.flags & TYPE == REPLY
    }

    pub fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }
}

/// The reply to a command: its payload or its error.
pub(super) fn reply(to: &VfioHeader, outcome: Result<&[u8], Errno>) -> Vec<u8> {
    let (flags, error, payload) = match outcome {
        Ok(payload) => (REPLY, 0, payload),
        Err(errno) => (REPLY | ERROR, errno.raw_os_error().unsigned_abs(), &[][..]),
    };
    let bytes = (HEADER_BYTES + payload.len()) as u32;
    let [id, command] = [to.id, to.command].map(u16::to_ne_bytes);
    let words = [bytes, flags, error].map(u32::to_ne_bytes);
    [&id[..], &command, words.as_flattened(), payload].concat()
}

/// A received message.
pub(super) struct VfioMessage {
    pub header: VfioHeader,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Reads the fields of a payload in order; an error if the payload is too short.
pub(super) struct VfioFieldReader<'a>(pub &'a [u8]);

impl<'a> VfioFieldReader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(*first)
    }

    pub fn u16(&mut self) -> Result<u16, Errno> {
        self.take().map(u16::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.take().map(u32::from_ne_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.take().map(u64::from_ne_bytes)
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Maximum number of mappings of a client; the usual value in the protocol.
const MOST_MAPPINGS: usize = 65535;

/// Flag of a mapping that may be read.
const READABLE: u32 = 1;
/// Flag of a mapping that may be written.
const WRITABLE: u32 = 1 << 1;

struct DmaMapping {
    bytes: u64,
    flags: u32,
    /// The shared file and the offset of the mapping in it; `None` if the memory is not shared.
    file: Option<(OwnedFd, u64)>,
}

/// The memory mappings of a client, by guest address.
#[derive(Default)]
pub(super) struct DmaMappings(BTreeMap<u64, DmaMapping>);

impl DmaMappings {
    /// Adds a memory mapping. Fails if the mapping is empty, wraps around or overlaps another mapping.
    pub fn map(&mut self, address: u64, bytes: u64, flags: u32, file: Option<(OwnedFd, u64)>) -> Result<(), Errno> {
        let end = address.checked_add(bytes).filter(|_| bytes > 0).ok_or(Errno::INVAL)?;
        let before = self.0.range(..end).next_back();
        if before.is_some_and(|(start, mapping)| start + mapping.bytes > address) {
            return Err(Errno::EXIST);
        }
        if let Some((file, offset)) = &file {
            // The mapped range must be inside the file, because a write after its end would extend the file.
            let size = fstat(file)?.st_size as u64;
            offset.checked_add(bytes).filter(|end| *end <= size).ok_or(Errno::INVAL)?;
        }
        if self.0.len() == MOST_MAPPINGS {
            return Err(Errno::NOMEM);
        }
        self.0.insert(address, DmaMapping { bytes, flags, file });
        Ok(())
    }

    /// Removes the mappings in a range. Fails if the range contains only a part of a mapping.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Errno> {
        let end = address.checked_add(bytes).ok_or(Errno::INVAL)?;
        let inside: Vec<_> = self.0.range(address..end).map(|(start, mapping)| (*start, mapping.bytes)).collect();
        let cut_before = self.0.range(..address).next_back().is_some_and(|(start, mapping)| start + mapping.bytes > address);
        if inside.is_empty() {
            return Err(if cut_before { Errno::INVAL } else { Errno::NOENT });
        }
        if cut_before || inside.iter().any(|(start, bytes)| start + bytes > end) {
            return Err(Errno::INVAL);
        }
        for (start, _) in inside {
            self.0.remove(&start);
        }
        Ok(())
    }

    /// The mapping that contains an address, the offset of the address in the mapping, and the number of bytes from the address to the end
    /// of the mapping.
    fn find(&self, address: u64, flag: u32) -> Result<(&DmaMapping, u64, u64), UnmappedAccess> {
        let (start, mapping) = self.0.range(..=address).next_back().ok_or(UnmappedAccess)?;
        let offset = address - start;
        let rest = mapping.bytes.checked_sub(offset).filter(|rest| *rest > 0).ok_or(UnmappedAccess)?;
        if mapping.flags & flag == 0 { Err(UnmappedAccess) } else { Ok((mapping, offset, rest)) }
    }
}

/// Access to the guest's memory during the processing of a message.
pub(super) struct GuestDma<'a> {
    pub memory: &'a DmaMappings,
    /// Whether the guest permits the function to access memory.
    pub allowed: bool,
    /// Whether an access failed because the client does not share the accessed memory.
    pub unshared: bool,
}

impl GuestDma<'_> {
    /// Splits a memory access at the limits of mappings and after partial transfers. `each` is called with the file, the offset in it, and
    /// a range of the bytes; it returns the number of bytes that it moved.
    fn parts(
        &mut self, address: u64, bytes: usize, flag: u32,
        mut each: impl FnMut(&OwnedFd, u64, Range<usize>) -> rustix::io::Result<usize>,
    ) -> Result<(), UnmappedAccess> {
        let mut done = 0;
        while done < bytes {
            let at = address.checked_add(done as u64).filter(|_| self.allowed).ok_or(UnmappedAccess)?;
            let (mapping, offset, rest) = self.memory.find(at, flag)?;
            let Some((file, start)) = &mapping.file else {
                self.unshared = true;
                return Err(UnmappedAccess);
            };
            let end = bytes.min(done.saturating_add(usize::try_from(rest).unwrap_or(usize::MAX)));
            match each(file, start + offset, done..end) {
                Ok(0) => return Err(UnmappedAccess),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(_) => return Err(UnmappedAccess),
            }
        }
        Ok(())
    }
}

impl GuestMemory for GuestDma<'_> {
    fn read(&mut self, address: u64, into: &mut [u8]) -> Result<(), UnmappedAccess> {
        self.parts(address, into.len(), READABLE, |file, at, part| pread(file, &mut into[part], at))
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), UnmappedAccess> {
        self.parts(address, from.len(), WRITABLE, |file, at, part| pwrite(file, &from[part], at))
    }
}
