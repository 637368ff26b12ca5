//! The transmission phase: parses received bytes into requests to the device.

use std::os::fd::OwnedFd;

use emmclab_base::{Modifiers, SECTOR_BYTES};
use rustix::io::Result;

use super::buffer::Buffer;
use super::export::Export;
use super::pending::{PendingRequests, parts_of};
use super::request::{Command, HEADER, Header, Session};
use super::wire::{MAX_PAYLOAD, ReplyError};
use crate::device::{Action, BlockRequest};

/// Maximum length of the data of a refused write that is read and dropped, in bytes; for longer data the connection ends.
const MAX_SKIPPED: u32 = 2 * MAX_PAYLOAD;
/// If at least this many bytes of a write are missing, they are received directly into its data, not through the buffer.
const DIRECT: usize = 16 << 10;

/// Why no more requests can be parsed for now.
pub(super) enum Pause {
    /// More bytes are needed.
    Hungry,
    /// Requests and replies hold the maximum of memory.
    Stalled,
    /// A block status request, which the caller has to answer.
    Status(StatusQuery),
    /// The client has disconnected or violated the protocol.
    Ended,
}

/// A block status request.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusQuery {
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
    pub one: bool,
}

/// A request that is passed to the device in parts.
struct Parts {
    slot: u32,
    next: u32,
    sector: u64,
    end: u64,
    command: Command,
}

impl Parts {
    /// The length of the next part in sectors, at most `most`.
    fn sectors(&self, most: u32) -> u32 {
        (self.end - self.sector).min(u64::from(most)) as u32
    }

    /// Makes the next part; `data` is that of a write.
    fn take(&mut self, sectors: u32, pending: &mut PendingRequests, data: Vec<u8>) -> BlockRequest {
        let (action, fua) = match self.command {
            Command::Write { fua } => (Action::Write(data), fua),
            Command::Zeroes { keep_allocated, fua } => (Action::WriteZeroes { keep_allocated }, fua),
            Command::Trim { fua } => (Action::Discard { secure: false }, fua),
            Command::Flush => (Action::Flush, false),
            _ => (Action::Read, false),
        };
        let modifiers = if fua { Modifiers::RELIABLE } else { Modifiers::empty() };
        let (tag, sector) = (pending.issue(self.slot, self.next), self.sector);
        self.next += 1;
        self.sector += u64::from(sectors);
        BlockRequest { tag, action, sector, sectors, modifiers }
    }
}

/// What the next bytes are.
enum Stage {
    Header,
    /// Data of a write: the received bytes of a part, which has `wanted` bytes.
    Data {
        parts: Parts,
        data: Vec<u8>,
        wanted: usize,
    },
    /// Data of a refused write.
    Skip {
        left: usize,
        cookie: u64,
        error: ReplyError,
    },
    /// No bytes are expected: parts without data wait for memory.
    Issue(Parts),
    Ended,
}

/// The parser of the transmission phase.
pub(super) struct Intake {
    stage: Stage,
    session: Session,
}

impl Intake {
    pub fn new(session: Session) -> Self {
        Self { stage: Stage::Header, session }
    }

    /// Receives once, without blocking, into the buffer or directly into the data of a write.
    ///
    /// # Errors
    /// `EAGAIN` if nothing has arrived; other errors of the socket.
    pub fn receive(&mut self, buffer: &mut Buffer, socket: &OwnedFd) -> Result<usize> {
        match &mut self.stage {
            Stage::Data { data, wanted, .. }
                if buffer.filled().is_empty() && *wanted - data.len() >= DIRECT =>
            {
                buffer.receive_behind(socket, data, *wanted)
            }
            _ => buffer.receive(socket),
        }
    }

    /// Parses the received bytes into requests. If `refuse` is set, all new requests are answered with `ESHUTDOWN`.
    pub fn parse(
        &mut self,
        buffer: &mut Buffer,
        export: &Export,
        refuse: bool,
        pending: &mut PendingRequests,
        batch: &mut Vec<BlockRequest>,
    ) -> Pause {
        let most = export.part_sectors();
        loop {
            match &mut self.stage {
                Stage::Ended => return Pause::Ended,
                Stage::Header => {
                    if !pending.has_room(0) {
                        return Pause::Stalled;
                    }
                    let Some(bytes) = buffer.filled().get(..HEADER) else { return Pause::Hungry };
                    let Some(header) = Header::parse(bytes) else {
                        self.stage = Stage::Ended;
                        continue;
                    };
                    match header.command(export, self.session) {
                        Ok(Command::Disconnect) => self.stage = Stage::Ended,
                        _ if refuse => self.refuse(header, ReplyError::shutdown(), pending),
                        Err(error) => self.refuse(header, error, pending),
                        Ok(Command::Cache) => pending.answer(header.cookie, Ok(())),
                        Ok(Command::Status { one }) => {
                            buffer.consume(HEADER);
                            let Header { cookie, offset, length, .. } = header;
                            return Pause::Status(StatusQuery { cookie, offset, length, one });
                        }
                        Ok(Command::Read { .. }) if !pending.has_room(header.length as usize) => {
                            return Pause::Stalled;
                        }
                        Ok(command) => self.begin(&header, command, most, pending),
                    }
                    buffer.consume(HEADER);
                }
                Stage::Data { parts, data, wanted } => {
                    if data.is_empty() {
                        if !pending.has_room(*wanted) {
                            return Pause::Stalled;
                        }
                        data.reserve_exact(*wanted);
                    }
                    buffer.take_into(data, *wanted - data.len());
                    if data.len() < *wanted {
                        return Pause::Hungry;
                    }
                    let sectors = parts.sectors(most);
                    batch.push(parts.take(sectors, pending, std::mem::take(data)));
                    *wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                    if *wanted == 0 {
                        self.stage = Stage::Header;
                    }
                }
                Stage::Skip { left, cookie, error } => {
                    let count = (*left).min(buffer.filled().len());
                    buffer.consume(count);
                    *left -= count;
                    if *left > 0 {
                        return Pause::Hungry;
                    }
                    pending.answer(*cookie, Err(*error));
                    self.stage = Stage::Header;
                }
                Stage::Issue(parts) => {
                    // The memory for a whole read was reserved when it began.
                    let read = matches!(parts.command, Command::Read { .. });
                    loop {
                        if !read && !pending.has_room(0) {
                            return Pause::Stalled;
                        }
                        let sectors = parts.sectors(most);
                        batch.push(parts.take(sectors, pending, Vec::new()));
                        if parts.sector == parts.end {
                            break;
                        }
                    }
                    self.stage = Stage::Header;
                }
            }
        }
    }

    /// Starts a request for the device.
    fn begin(&mut self, header: &Header, command: Command, most: u32, pending: &mut PendingRequests) {
        let count = parts_of(header, most).max(1);
        let slot = pending.enter(header, command, u64::from(most) * SECTOR_BYTES, count);
        let (sector, end) =
            (header.offset / SECTOR_BYTES, (header.offset + u64::from(header.length)) / SECTOR_BYTES);
        let parts = Parts { slot, next: 0, sector, end, command };
        self.stage = match command {
            Command::Write { .. } => {
                let wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                Stage::Data { parts, data: Vec::new(), wanted }
            }
            _ => Stage::Issue(parts),
        };
    }

    /// Answers a request that is not passed to the device, after its data was skipped.
    fn refuse(&mut self, header: Header, error: ReplyError, pending: &mut PendingRequests) {
        match header.payload() {
            0 => pending.answer(header.cookie, Err(error)),
            length if length > MAX_SKIPPED => self.stage = Stage::Ended,
            length => self.stage = Stage::Skip { left: length as usize, cookie: header.cookie, error },
        }
    }
}
