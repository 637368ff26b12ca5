//! Messages of vfio-user: a header of 16 bytes and a payload, all in the byte order of the host.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

pub(in crate::sdhci) const HEADER_BYTES: usize = 16;
/// Maximum number of bytes of one access to a region or to memory, as negotiated with the client.
pub(super) const MOST_DATA: usize = 1 << 20;
/// Maximum length of a payload that is accepted.
pub(super) const MOST_PAYLOAD: usize = MOST_DATA + 64;

/// Commands by number.
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
pub(in crate::sdhci) struct VfioHeader {
    pub id: u16,
    pub command: u16,
    /// Bytes of the whole message.
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

fn encode(id: u16, command: u16, flags: u32, error: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
    out.extend_from_slice(&id.to_ne_bytes());
    out.extend_from_slice(&command.to_ne_bytes());
    out.extend_from_slice(&((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&error.to_ne_bytes());
    out.extend_from_slice(payload);
    out
}

/// The reply to a command, or the error reply.
pub(super) fn reply(to: &VfioHeader, outcome: Result<&[u8], Errno>) -> Vec<u8> {
    match outcome {
        Ok(payload) => encode(to.id, to.command, REPLY, 0, payload),
        Err(errno) => encode(to.id, to.command, REPLY | ERROR, errno.raw_os_error().unsigned_abs(), &[]),
    }
}

/// A message that was received.
pub(in crate::sdhci) struct VfioMessage {
    pub header: VfioHeader,
    pub payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Reads the fields of a payload, one after the other; returns an error if the payload is too short.
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
